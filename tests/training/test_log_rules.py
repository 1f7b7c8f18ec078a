"""Our own check of training logs: each rule broken by itself is named with file, line, key and what would be right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from log_samples import changed, events, keys, line_of, lines, log_text, moved, text_of, without

from trnbench.training.log import RunLog
from trnbench.training.rule_data import NEWEST, load_rules
from trnbench.training.rules import check_log
from trnbench.workloads.recipes import RECIPES

if TYPE_CHECKING:
    from trnbench.training.rule_keys import Complaint

RULES = load_rules(NEWEST)
FILE = "result_1.txt"


def complaints(text: str) -> list[Complaint]:
    return check_log(events(text), FILE, RULES)


def the_only(text: str) -> Complaint:
    found = complaints(text)
    assert len(found) == 1, [str(one) for one in found]
    return found[0]


@pytest.mark.parametrize("phase", ["pretrain", "finetune_lora"])
def test_our_own_log_follows_the_rules(phase: str) -> None:
    assert complaints(log_text(phase=phase)) == []


@pytest.mark.parametrize(("workload", "phase"), RECIPES)
def test_every_hyperparameter_of_every_recipe_is_asked_for(workload: str, phase: str) -> None:
    asked = {key.name for key in RULES.keys(f"trnbench_{phase}_{workload}") if key.count != "any"}
    assert set(RECIPES[workload, phase].learning()) <= asked


@pytest.mark.parametrize("key", keys(log_text(phase="finetune_lora")))
def test_a_missing_key_is_named(key: str) -> None:
    found = complaints(without(log_text(phase="finetune_lora"), key))
    (missing,) = [one for one in found if one.wrong == "is missing"]
    assert (missing.file, missing.line, missing.key) == (FILE, 0, key)
    assert "it must be there" in missing.right


def test_lora_keys_are_asked_of_fine_tuning_only() -> None:
    assert "lora_rank" not in keys(log_text())
    assert [one.key for one in complaints(without(log_text(phase="finetune_lora"), "lora_rank"))] == ["lora_rank"]


def test_a_misspelt_key_is_recognised() -> None:
    text = changed(log_text(), "micro_batch_size", lambda entry: entry.update(key="micro_batchsize"))
    assert the_only(text).right.endswith("did you mean 'micro_batchsize'?")


@pytest.mark.parametrize(
    ("key", "value", "right"),
    [
        ("seed", -1, "it must be a whole number of at least 0"),
        ("seed", 1.5, "it must be a whole number of at least 0"),
        ("seed", True, "it must be a whole number of at least 0"),
        ("seed", "7", "it must be a whole number of at least 0"),
        ("global_batch_size", 0, "it must be a whole number of at least 1"),
        ("opt_base_learning_rate", None, "it must be a finite number of at least 0"),
        ("eval_accuracy", None, "it must be a finite number"),
        ("submission_platform", " ", "it must be a text that is not empty"),
        ("submission_benchmark", "llama31_8b", "it must begin with 'trnbench_'"),
        ("submission_division", "opne", "it must be one of open, closed"),
        ("lowest_numerical_precision_in_attn", "bf16", "it must be one of fp64, fp32"),
        ("lowest_numerical_precision_in_linear", "fp42", "it must be one of fp64, fp32"),
        ("cache_clear", 1, "it must be true or false"),
        ("init_stop", 1, "it must be null"),
    ],
)
def test_a_wrong_value_is_named(key: str, value: object, right: str) -> None:
    text = changed(log_text(), key, lambda entry: entry.update(value=value))
    found = [one for one in complaints(text) if one.key == key]
    assert right in found[0].right
    assert found[0].line == line_of(text, key)
    assert found[0].wrong == f"is {value!r}"


def test_a_key_that_is_there_twice_is_named() -> None:
    entries = lines(log_text())
    index = next(number for number, entry in enumerate(entries) if entry["key"] == "seed")
    text = text_of([*entries[: index + 1], entries[index], *entries[index + 1 :]])
    found = the_only(text)
    assert (found.key, found.line) == ("seed", index + 2)
    assert found.wrong == f"is there 2 times, first in line {index + 1}"


@pytest.mark.parametrize(
    ("key", "before", "right"),
    [
        ("init_start", "cache_clear", "it must come before init_start"),
        ("init_stop", "submission_division", "it must come before init_stop"),
        ("seed", "init_start", "it must come after init_start"),
        ("init_stop", "opt_name", "it must come before init_stop"),
        ("run_start", "init_stop", "it must come after init_stop"),
        ("block_start", "run_start", "it must come after run_start"),
        ("run_stop", "eval_accuracy", "it must come before run_stop"),
    ],
)
def test_a_wrong_order_is_named(key: str, before: str, right: str) -> None:
    assert right in {one.right for one in complaints(moved(log_text(), key, before=before))}


@given(st.sampled_from(["open", "closed"]), st.floats(0.1, 500))
@example("open", 240.0)
@example("open", 239.9999)
@example("closed", 30.0)
@example("closed", 29.9999)
def test_the_untimed_part_has_a_limit(division: str, minutes: float) -> None:
    entries = lines(log_text())
    stop = next(index for index, entry in enumerate(entries) if entry["key"] == "init_stop")
    start = next(entry["time_ms"] for entry in entries if entry["key"] == "init_start")
    for entry in entries[stop:]:
        entry["time_ms"] = start + round(minutes * 60_000)
    for entry in entries[:stop]:
        entry["time_ms"] = start
        if entry["key"] == "submission_division":
            entry["value"] = division
    limit = {"closed": 30, "open": 240}[division]
    found = complaints(text_of(entries))
    assert bool(found) == (round(minutes * 60_000) >= limit * 60_000)
    if found:
        assert found[0].right.endswith(f"may take less than {limit} minutes in division {division}")
        assert found[0].line == stop + 1


def test_times_that_go_back_are_named() -> None:
    entries = lines(log_text())
    entries[20]["time_ms"] = entries[19]["time_ms"] - 5
    found = the_only(text_of(entries))
    assert (found.line, found.key) == (21, entries[20]["key"])
    assert found.wrong == f"is 5 ms earlier than {entries[19]['key']} in line 20"


def test_samples_that_fall_are_named() -> None:
    text = changed(log_text(), "eval_stop", lambda entry: entry["metadata"].update(samples_count=100))
    assert {one.right for one in complaints(text)} == {"samples_count must never fall"}


@pytest.mark.parametrize("count", [None, -1, 2.5, "160"])
def test_samples_that_are_no_count_are_named(count: object) -> None:
    text = changed(log_text(), "block_stop", lambda entry: entry["metadata"].update(samples_count=count))
    wrong = {(one.key, one.wrong) for one in complaints(text)}
    assert ("block_stop", f"has metadata samples_count {count!r}") in wrong


def drop_one(text: str, key: str, which: int) -> str:
    entries = lines(text)
    found = [entry for entry in entries if entry["key"] == key][which]
    return text_of([entry for entry in entries if entry is not found])


@pytest.mark.parametrize(
    ("key", "which", "at", "right"),
    [
        ("block_stop", 0, "block_start", "block_start and block_stop must alternate"),
        ("block_start", 1, "block_stop", "a start must come before it"),
        ("eval_start", 1, "eval_accuracy", "it must come between eval_start and eval_stop"),
        ("eval_stop", 2, "run_stop", "every eval_start needs its eval_stop"),
        ("eval_accuracy", 0, "eval_stop", "eval_accuracy must be reported; a run whose loss is no finite number"),
    ],
)
def test_blocks_and_evaluations_are_whole(key: str, which: int, at: str, right: str) -> None:
    found = complaints(drop_one(log_text(), key, which))
    assert (at, True) in {(one.key, one.right.startswith(right)) for one in found}


def test_an_evaluation_reports_once() -> None:
    entries = lines(log_text())
    index = next(number for number, entry in enumerate(entries) if entry["key"] == "eval_accuracy")
    found = the_only(text_of([*entries[: index + 1], entries[index], *entries[index + 1 :]]))
    assert (found.key, found.line) == ("eval_accuracy", index + 2)


def test_a_block_without_samples_is_named() -> None:
    text = log_text(evaluations=[(160, 2.5), (160, 1.9)])
    assert "samples_count must grow in a block" in {one.right for one in complaints(text)}


def test_success_has_to_be_borne_out() -> None:
    text = log_text(evaluations=[(160, 2.9), (320, 2.4)])
    found = the_only(text)
    assert (found.key, found.line) == ("run_stop", line_of(text, "run_stop"))
    assert found.wrong == "has status success, but the last eval_accuracy is 2.4"
    assert found.right == "the last eval_accuracy must be at most target_loss 2.0"


def test_aborted_is_no_pass() -> None:
    # mlperf_logging's own checker lets it pass.
    found = the_only(log_text(evaluations=[(160, 2.9)], converged=False))
    assert (found.key, found.wrong) == ("run_stop", "has status aborted")
    assert found.right == "only status success is a pass: the last eval_accuracy must be at most target_loss 2.0"


def test_aborted_although_the_target_was_met() -> None:
    text = log_text(converged=False)
    met = line_of(text, "eval_accuracy", 2)
    assert the_only(text).wrong == f"has status aborted although line {met} meets target_loss 2.0"


@pytest.mark.parametrize("status", ["done", None])
def test_an_unknown_status_is_named(status: str | None) -> None:
    text = changed(log_text(), "run_stop", lambda entry: entry["metadata"].update(status=status))
    assert the_only(text).right == "the status must be success or aborted"


def test_a_run_ends_when_it_is_there() -> None:
    text = log_text(evaluations=[(160, 1.9), (320, 1.8)])
    found = the_only(text)
    assert (found.key, found.line) == ("eval_accuracy", line_of(text, "eval_accuracy"))
    assert found.wrong == "is 1.9 and meets target_loss 2.0, but the run went on"


def test_reaching_the_target_exactly_is_enough() -> None:
    assert complaints(log_text(evaluations=[(160, 2.0)])) == []


def test_a_resumed_run_may_follow_the_rules() -> None:
    first = text_of(lines(log_text())[:-1])
    entries = lines(first)
    cut = next(index for index, entry in enumerate(entries) if entry["key"] == "block_start") + 1
    log = RunLog(4800, endless=True)
    log.restore(text_of(entries[:cut]))
    log.resumed(80)
    log.block_stop(160)
    log.eval_start(160)
    log.eval_stop(160, 1.9)
    log.run_stop(160, converged=True)
    assert complaints(log.text()) == []
