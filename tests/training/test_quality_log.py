"""The event log: every key of ruleset 6.1, in the order that checkers want, with nothing of this machine in it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from quality_world import SEEDS, Script, World, open_world, tiny_case, tiny_recipe

from trnbench import mllog
from trnbench.device import Device
from trnbench.training.disclosure import FORMATS, disclosure
from trnbench.training.log import RunLog
from trnbench.training.measure import measure_quality
from trnbench.training.rule_data import NEWEST, RULE_SET_KEY, load_rules
from trnbench.training.rules import check_log, check_set

if TYPE_CHECKING:
    from trnbench.mllog import Event

REQUIRED_6_1 = (
    *("submission_benchmark", "submission_division", "submission_org", "submission_platform", "cache_clear"),
    *("init_start", "init_stop", "run_start", "run_stop", "block_start", "block_stop", "eval_accuracy"),
    *("train_samples", "eval_samples", "lowest_numerical_precision_in_linear", "lowest_numerical_precision_in_attn"),
    *("lowest_numerical_precision_in_comm", "tensor_parallelism", "pipeline_parallelism", "context_parallelism"),
    *("expert_parallelism", "micro_batch_size", "config_filename"),
)
"""Found by deleting each key once from a log that mlperf_logging 4.1.68 accepted."""

FORMATS_6_1 = {
    *("fp64", "fp32", "tf32", "fp16", "fp8", "mxfp6", "nvfp4", "mxfp4", "bfloat16", "Graphcore FLOAT 16.16"),
    *("int8", "uint8", "int4", "uint4"),
}
"""What its common.yaml of ruleset 6.1.0 accepts as a precision."""


@pytest.fixture
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return open_world(request, monkeypatch, tmp_path / "state")


def logs(world: World, script: Script, **recipe: Any) -> dict[str, list[Event]]:
    """Logs of three runs by file name."""
    world.script(lambda _: script, tiny_recipe(**{"target_loss": 1.0, **recipe}))
    measured = measure_quality(
        world.backend,
        world.benchmark,
        case=tiny_case(phase=recipe.get("phase", "pretrain")),
        runs=3,
        clock=world.backend.clock,
        state=world.state,
        seeds=SEEDS,
    )
    return {name: mllog.parse(data.decode(), name) for name, data in measured.files.items()}


def keys(events: list[Event]) -> list[str]:
    return [event.key for event in events]


def test_a_run_has_every_key_of_the_rules_and_its_hyperparameters(world: World) -> None:
    found = logs(world, Script())
    assert list(found) == ["result_1.txt", "result_2.txt", "result_3.txt"]
    events = found["result_1.txt"]
    assert set(REQUIRED_6_1) <= set(keys(events))
    values = mllog.values(events)
    assert values["submission_benchmark"] == "trnbench_pretrain_tiny"
    assert values["submission_division"] == "open"
    assert values["submission_platform"] == "1x cpu (backend fake, platform cpu)"
    assert values[RULE_SET_KEY] == NEWEST
    assert values["seed"] == SEEDS[0]
    assert (values["train_samples"], values["eval_samples"]) == (48, 4)
    assert (values["global_batch_size"], values["micro_batch_size"], values["gradient_accumulation_steps"]) == (4, 2, 2)
    assert (values["opt_name"], values["max_sequence_length"], values["max_steps"]) == ("adamw", 8, 12)
    assert values["target_loss"] == 1.0
    assert len([key for key in values if key.startswith("opt_")]) == 11


def test_the_project_s_own_rules_accept_the_logs(world: World) -> None:
    rules = load_rules(NEWEST)
    found = logs(world, Script())
    assert [check_log(events, name, rules) for name, events in found.items()] == [[], [], []]
    assert check_set(found, rules) == []


def test_what_is_told_once_is_told_once(world: World) -> None:
    events = logs(world, Script())["result_2.txt"]
    many = {"block_start", "block_stop", "eval_start", "eval_accuracy", "eval_stop"}
    repeated = {key for key in keys(events) if keys(events).count(key) > 1}
    assert repeated == many
    assert all(keys(events).count(key) == 2 for key in many)


def test_the_order_is_that_of_the_rules(world: World) -> None:
    events = logs(world, Script())["result_1.txt"]
    order = [
        *("submission_division", "cache_clear", "init_start", "seed", "config_filename", "init_stop", "run_start"),
        *("block_start", "block_stop", "eval_start", "eval_accuracy", "eval_stop"),
        *("block_start", "block_stop", "eval_start", "eval_accuracy", "eval_stop", "run_stop"),
    ]
    assert [key for key in keys(events) if key in order] == order
    assert [event.time_ms for event in events] == sorted(event.time_ms for event in events)


def test_places_are_given_as_samples_and_as_epochs(world: World) -> None:
    events = logs(world, Script())["result_1.txt"]
    placed = {event.key: event.metadata for event in events if event.key.startswith(("block_", "eval_a", "eval_s"))}
    del placed["eval_samples"]
    assert all(set(metadata) == {"samples_count", "epoch_num"} for metadata in placed.values())
    evaluated = [(e.value, e.metadata["samples_count"]) for e in events if e.key == "eval_accuracy"]
    assert evaluated == [(1.5, 16), (0.5, 32)]
    assert events[-1].metadata == {"status": "success", "samples_count": 32, "epoch_num": 32}


def test_adapters_are_told(world: World) -> None:
    found = logs(world, Script(), phase="finetune_lora", lora_rank=4, lora_alpha=8.0)
    values = mllog.values(found["result_1.txt"])
    assert (values["submission_benchmark"], values["lora_rank"], values["lora_alpha"]) == (
        "trnbench_finetune_lora_tiny",
        4,
        8.0,
    )


@pytest.mark.parametrize("precision", sorted(FORMATS))
def test_precisions_are_words_of_the_rules_and_communication_says_that_there_is_none(precision: str) -> None:
    told = disclosure(tiny_case(precision=precision))
    names = [f"lowest_numerical_precision_in_{part}" for part in ("linear", "attn", "comm")]
    assert all(told[name].value in FORMATS_6_1 for name in names)
    assert told[names[0]].value == told[names[1]].value == {"bf16": "bfloat16"}.get(precision, precision)
    assert told[names[2]].value == "fp32"
    assert "nothing is communicated" in told[names[2]].note
    parallel = ("tensor", "pipeline", "context", "expert")
    assert [told[f"{kind}_parallelism"].value for kind in parallel] == [1] * 4


def test_the_file_that_is_named_as_configuration_is_there() -> None:
    import trnbench

    named = disclosure(tiny_case())["config_filename"].value
    assert (Path(trnbench.__path__[0]).parent / str(named)).is_file()


def test_a_log_names_no_place_of_this_machine(world: World) -> None:
    for events in logs(world, Script()).values():
        for event in events:
            for text in (event.value, *event.metadata.values()):
                assert not (isinstance(text, str) and (text.startswith(("/", "~")) or str(Path.home()) in text))


@pytest.mark.parametrize(("endless", "epochs"), [(False, [0.0, 0.9, 1.0, 2.5]), (True, [0, 9, 10, 25])])
def test_epochs_are_passes_over_the_training_samples_and_samples_where_no_pass_ends(
    endless: bool, epochs: list[float]
) -> None:
    log = RunLog(10, endless=endless)
    for samples in (0, 9, 10, 25):
        log.block_start(samples)
    assert [event.metadata["epoch_num"] for event in mllog.parse(log.text(), "log")] == epochs


def test_what_was_written_before_an_interruption_is_kept_as_it_was() -> None:
    before = RunLog(10, endless=False)
    before.header(tiny_case(), Device(backend="cpu", platform="cpu", chip="cpu", chips=1, cores=1))
    before.block_start(4)
    after = RunLog(10, endless=False)
    after.restore(before.text())
    after.resumed(8)
    pairs = itertools.zip_longest(before.text().splitlines(), after.text().splitlines())
    assert [new for old, new in pairs if old != new] == [after.text().splitlines()[-1]]
    assert mllog.parse(after.text(), "log")[-1].key == "trnbench_resumed"
