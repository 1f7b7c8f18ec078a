"""Programs: what a step counts, changes and never does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch

from trnbench.case import Case
from trnbench.status import CaseError, Status, UsageError
from trnbench.workloads.data import length_set
from trnbench.workloads.inference import DecodeProgram, PrefillProgram
from trnbench.workloads.steps import build
from trnbench.workloads.training import TrainProgram

if TYPE_CHECKING:
    from trnbench.workloads.presets import Preset
    from trnbench.workloads.program import Program

Make = Callable[..., Case]
PROGRAMS = {"train_step": TrainProgram, "prefill": PrefillProgram, "decode": DecodeProgram}


def as_is(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    del mode
    return function


def program_of(case: Case, preset: Preset, device: str = "cpu", compiler: Any = as_is) -> Program:
    return PROGRAMS[case.phase](case, preset, torch.device(device), compiler, 0)


def read_back(outputs: Any) -> None:
    for output in outputs:
        output.flatten()[0].item()


def small_case(make_case: Make, phase: str, **fields: Any) -> Case:
    return make_case(phase, batch=4, sequence=12, **({"micro_batch": 2} if phase == "train_step" else {}), **fields)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
@pytest.mark.parametrize("phase", PROGRAMS)
def test_every_step_changes_the_state_and_stays_finite(
    tiny: Preset, make_case: Make, phase: str, precision: str
) -> None:
    program = program_of(small_case(make_case, phase, precision=precision), tiny)
    before = program.state_fingerprint()
    assert program.state_fingerprint() == before
    for _ in range(9):
        program.reset()
        assert program.state_fingerprint() == before or phase == "decode"
        before = program.state_fingerprint()
        outputs = program.step()
        assert program.state_fingerprint() != before
        assert program.loss_like(outputs).shape == ()
        assert program.loss_like(outputs).isfinite()
        before = program.state_fingerprint()


@pytest.mark.parametrize("phase", PROGRAMS)
def test_a_batch_of_one_sequence(tiny: Preset, make_case: Make, phase: str) -> None:
    """Tensors of a single element keep strides that bytes cannot be viewed with; their state is hashed all the same."""
    program = program_of(make_case(phase, batch=1, sequence=12), tiny)
    before = program.state_fingerprint()
    program.reset()
    assert program.loss_like(program.step()).isfinite()
    assert program.state_fingerprint() != before


@pytest.mark.parametrize("phase", PROGRAMS)
def test_not_a_number_is_seen(tiny: Preset, make_case: Make, phase: str) -> None:
    program = program_of(small_case(make_case, phase), tiny)
    with torch.no_grad():
        program.model.norm.weight[0] = float("nan")
    assert not program.loss_like(program.step()).isfinite()


@pytest.mark.parametrize("phase", ["train_step", "prefill"])
def test_items_are_those_of_the_batch(tiny: Preset, make_case: Make, phase: str) -> None:
    """B7, B9: real and padded tokens and sequences, read from the batch that the next step takes."""
    program = program_of(small_case(make_case, phase), tiny)
    real = sum(length_set(4, 12))
    assert real < 48
    for _ in range(3):
        assert program.items() == {"tokens": real, "padded_tokens": 48, "sequences": 4}
        program.step()


def test_items_follow_a_batch_that_is_not_the_configured_one(tiny: Preset, make_case: Make) -> None:
    """B9: with 10 samples in batches of 4 the last step counts the 2 sequences that it has."""
    program = program_of(small_case(make_case, "train_step"), tiny)
    smaller = program_of(make_case("train_step", batch=2, sequence=12), tiny)
    program._batches = [program._batches[0], program._batches[1], smaller._batches[0], *program._batches[3:]]
    program._on_device[2] = smaller._on_device[0]
    counted = 0
    for _ in range(3):
        counted += program.items()["sequences"]
        program.step()
    assert counted == 10


@pytest.mark.parametrize("micro_batch", [1, 2, 4, 8])
def test_items_are_those_of_the_global_batch(tiny: Preset, make_case: Make, micro_batch: int) -> None:
    """B8: changing micro-batch and accumulation at equal global batch leaves the count alone."""
    program = program_of(make_case("train_step", batch=8, micro_batch=micro_batch, sequence=12), tiny)
    assert program.items()["sequences"] == 8
    assert program.items()["tokens"] == sum(length_set(8, 12))
    assert len(program._on_device[0].micro_batches) == 8 // micro_batch


def test_decode_counts_one_token_for_every_sequence(tiny: Preset, make_case: Make) -> None:
    program = program_of(small_case(make_case, "decode"), tiny)
    assert program.items() == {"tokens": 4, "padded_tokens": 4, "sequences": 4}


def test_decode_rewinds_a_full_cache_and_repeats_itself(tiny: Preset, make_case: Make) -> None:
    program = program_of(small_case(make_case, "decode", new_tokens=3), tiny)
    passes: list[list[list[float]]] = []
    for _ in range(2):
        logits = []
        for _ in range(3):
            program.reset()
            logits.append(program.step()[1].flatten().tolist())
        passes.append(logits)
    assert passes[0] == passes[1]
    with pytest.raises(CaseError, match=r"all 3 new slots .* reset\(\) must come before step\(\)") as caught:
        program.step()
    assert caught.value.status == Status.INVALID


def test_decode_goes_on_from_unequal_lengths(tiny: Preset, make_case: Make) -> None:
    program = program_of(small_case(make_case, "decode", new_tokens=3), tiny)
    assert isinstance(program, DecodeProgram)
    assert sorted(program._positions.tolist(), reverse=True) == length_set(4, 12)
    program.step()
    program.step()
    assert sorted(program._positions.tolist(), reverse=True) == [length + 2 for length in length_set(4, 12)]


def test_time_to_first_token_runs_one_prefill_and_leaves_a_usable_cache(tiny: Preset, make_case: Make) -> None:
    program = program_of(small_case(make_case, "decode"), tiny)
    expected = program.step()[1]
    program.step()
    waited: list[int] = []

    def materialize(outputs: Any) -> None:
        read_back(outputs)
        waited.append(len(outputs))

    first_token = program.time_to_first_token(materialize)
    assert first_token is not None
    first_token()
    assert waited == [1]
    assert torch.equal(program.step()[1], expected)


@pytest.mark.parametrize("phase", ["train_step", "prefill"])
def test_other_phases_have_no_first_token(tiny: Preset, make_case: Make, phase: str) -> None:
    assert program_of(small_case(make_case, phase), tiny).time_to_first_token(read_back) is None


@pytest.mark.parametrize("phase", PROGRAMS)
def test_no_step_waits_for_the_device(tiny: Preset, make_case: Make, phase: str) -> None:
    """On the meta device a value cannot be read: any `.item()`, branch or copy to the host inside a step raises."""
    program = program_of(small_case(make_case, phase, precision="fp16"), tiny, "meta")
    for _ in range(3):
        outputs = program.step()
    assert {output.device.type for output in outputs} == {"meta"}


@pytest.mark.parametrize("phase", PROGRAMS)
def test_nothing_compiles_after_the_first_step(tiny: Preset, make_case: Make, phase: str) -> None:
    """A5: other lengths, positions and batches are the same graph; a recompilation raises here."""
    torch._dynamo.reset()

    def traced(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
        assert mode == "compiled"
        return torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=False)

    compiled = program_of(small_case(make_case, phase, mode="compiled"), tiny, compiler=traced)
    plain = program_of(small_case(make_case, phase), tiny)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(9):
            compiled.reset()
            plain.reset()
            got, expected = compiled.step(), plain.step()
            assert torch.allclose(got[-1], expected[-1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("phase", PROGRAMS)
def test_build_leads_from_a_case_to_its_program(make_case: Make, phase: str) -> None:
    case = make_case(phase, batch=1, sequence=4)
    program = build(case, torch.device("cpu"), as_is)
    assert type(program) is PROGRAMS[phase]
    value, convention = program.flops()
    assert value > 0
    assert convention == "matmul-real-causal"


def test_build_refuses_what_it_cannot_run(make_case: Make) -> None:
    cpu = torch.device("cpu")
    with pytest.raises(UsageError, match="did you mean 'nano'"):
        build(make_case("prefill", workload="nanno"), cpu, as_is)
    with pytest.raises(UsageError, match="4098 positions are asked of nano, which has 4096"):
        build(make_case("decode", sequence=4095), cpu, as_is)
    parallel = msgspec.structs.replace(make_case("prefill"), parallel={"tp": 2})
    with pytest.raises(CaseError, match="asks for 2") as caught:
        build(parallel, cpu, as_is)
    assert caught.value.status == Status.UNSUPPORTED
