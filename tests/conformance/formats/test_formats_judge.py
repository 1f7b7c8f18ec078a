"""Judging casters: mutants, names, and the CPU as a device with known deviations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from trnbench.backends.select import open_backend
from trnbench.conformance.formats import scalar
from trnbench.conformance.formats.boundaries import boundary_inputs
from trnbench.conformance.formats.capability import capabilities
from trnbench.conformance.formats.caster import Caster, Floats, HostCaster, NotHere
from trnbench.conformance.formats.casts import CastModel, name_wrong_table, select_model
from trnbench.conformance.formats.check import GROUPS, check_formats
from trnbench.conformance.formats.definitions import FORMATS, Format
from trnbench.conformance.formats.device_caster import DeviceCaster
from trnbench.conformance.formats.device_runs import DeviceRuns
from trnbench.conformance.formats.judge import judge_cast, judge_overflow, judge_scalar
from trnbench.conformance.formats.self_check import emulation_refusal
from trnbench.conformance.mutants.formats import FORMAT_MUTANTS, RIGHT, WRONG, FormatMutant
from trnbench.device import Counters
from trnbench.status import UsageError

if TYPE_CHECKING:
    from trnbench.backends.base import Backend


@pytest.fixture(scope="module")
def cpu() -> Backend:
    return open_backend("cpu")


@pytest.mark.parametrize("mutant", WRONG, ids=lambda one: one.name)
def test_wrong_mutant_is_caught_and_named_and_nothing_else_is_said(mutant: FormatMutant) -> None:
    failed = [check for check in mutant.run() if check.verdict == "fail"]
    assert failed
    assert {check.looks_like for check in failed} <= set(mutant.looks_like)
    assert all(check.value and check.value > 0 for check in failed)


@pytest.mark.parametrize("mutant", RIGHT, ids=lambda one: one.name)
def test_correct_mutant_raises_no_alarm(mutant: FormatMutant) -> None:
    checks = mutant.run()
    assert checks
    assert {check.verdict for check in checks} == {"pass"}


def test_there_are_enough_mutants() -> None:
    assert len(WRONG) >= 12
    assert len(RIGHT) >= 4
    assert len({one.name for one in FORMAT_MUTANTS}) == len(FORMAT_MUTANTS)


@pytest.mark.parametrize("target", ["fp8 e4m3fn", "fp8 e5m2", "fp8 e4m3", "fp8 e4m3fnuz"])
@pytest.mark.parametrize("via", ["", "fp16", "bf16"])
@pytest.mark.parametrize("rounding", ["nearest even", "nearest away", "toward zero"])
def test_every_model_is_told_from_every_other(target: str, via: str, rounding: str) -> None:
    one = FORMATS[target]
    inputs = boundary_inputs(one)
    model = CastModel(rounding=rounding, overflow=one.overflow[0], via=via)
    found = select_model(one, inputs, model.apply(inputs, one))
    assert found.looks_like == ", ".join(model.faults(one, ("nearest even",)))
    assert (found.mismatches == 0) == (not found.looks_like)


def test_wrong_tables_by_name() -> None:
    codes = np.arange(256)
    for produced, read, differ in (("e4m3", "e4m3fn", 14), ("e4m3fnuz", "e4m3fn", 255)):
        made, other = FORMATS[f"fp8 {produced}"], FORMATS[f"fp8 {read}"]
        decoded = scalar.decode(other, codes)
        assert name_wrong_table(codes, decoded, made) == f"fp8 {produced} read as {read}"
        assert int((~scalar.same_values(decoded, scalar.decode(made, codes))).sum()) == differ
    right = scalar.decode(FORMATS["fp8 e4m3"], codes)
    assert name_wrong_table(codes, right, FORMATS["fp8 e4m3"]) is None
    assert name_wrong_table(codes, right * 3.0, FORMATS["fp8 e4m3"]) is None


class _Overflowing(HostCaster):
    """Both ways of PyTorch: NaN from 465 up to 2.9, the largest number since."""

    def __init__(self, way: str) -> None:
        super().__init__({"fp8 e4m3fn": way})


def test_both_overflows_of_pytorch_give_one_verdict_and_the_infinity_is_reported() -> None:
    one = FORMATS["fp8 e4m3fn"]
    casts = [judge_cast(_Overflowing(way), "name", one, "fp32") for way in ("nan", "saturate")]
    assert casts[0] == casts[1]
    assert casts[0].verdict == "pass"
    inputs = boundary_inputs(one)
    clamped = int(np.sum(np.isfinite(inputs) & (np.abs(inputs) > 448.0)))
    assert f"{clamped} of them clamped to 448" in casts[0].where
    assert "2 infinite inputs left to the overflow check" in casts[0].where
    where = [judge_overflow(_Overflowing(way), "name", one).where for way in ("nan", "saturate")]
    assert "infinity becomes nan" in where[0]
    assert "infinity becomes 448.0" in where[1]


class _NoCast(HostCaster):
    def encode(self, target: Format, values: Floats, source: str = "fp32") -> np.ndarray:
        raise NotHere("no such cast here")


def test_what_is_absent_is_not_checked() -> None:
    found = {check.check: check for check in judge_scalar(_NoCast(), ("fp8 e5m2",))}
    absent = found["formats/fp8 e5m2/cast from fp32"]
    assert (absent.verdict, absent.value, absent.where) == ("not checked", None, "no such cast here")
    assert found["formats/fp8 e5m2/decode"].verdict == "pass"


class _Unrounded(HostCaster):
    def round_trip(self, target: Format, values: Floats) -> Floats:
        return values


def test_self_check_refuses_emulation_without_rounding() -> None:
    assert emulation_refusal(HostCaster()) is None
    refusal = emulation_refusal(_Unrounded())
    assert refusal == "excess precision: the fp32 -> bf16 -> fp32 round trip was elided"


def test_self_check_sees_what_the_compiler_did(cpu: Backend) -> None:
    if cpu.unsupported("fp32", "compiled"):
        pytest.skip("no compiler here")
    compiled = torch.compile(lambda one: one.to(torch.bfloat16).to(torch.float32))
    honoured = float(compiled(torch.full((64,), 1.0 + 2.0**-9))[0]) == 1.0
    refusal = emulation_refusal(DeviceCaster(cpu, "compiled"))
    assert refusal == (None if honoured else "excess precision: the fp32 -> bf16 -> fp32 round trip was elided")


KNOWN = {
    f"formats/{name}/cast from fp64": "double rounding via fp32" for name in ("bf16", "fp16", "fp8 e4m3fn", "fp8 e5m2")
}
"""PyTorch narrows float64 through float32 on the CPU, in every version tried."""


def test_cpu_casts_pass_but_for_double_rounding(cpu: Backend) -> None:
    checks = check_formats(cpu, "eager", "casts")
    assert {check.check: check.looks_like for check in checks if check.verdict == "fail"} == KNOWN
    assert {check.verdict for check in checks} == {"pass", "fail"}
    assert len({check.check for check in checks}) == len(checks)
    assert {(check.level, check.tier, check.limit) for check in checks} == {("formats", "T0", 0.0)}


def test_cpu_blocks_pass(cpu: Backend) -> None:
    checks = check_formats(cpu, "eager", "blocks")
    assert {check.verdict for check in checks} == {"pass"}


def test_capabilities_are_found_by_trying(cpu: Backend) -> None:
    found = {row.format: row for row in capabilities(cpu)}
    assert found["bf16"].status == "native"
    assert found["fp8 e4m3fn"].status == "native"
    for name in ("fp8 e4m3", "fp4 e2m1fn", "mxfp8 ocp", "mxfp4 ocp", "nvfp4"):
        assert found[name].status == "emulated"
        assert "computed exactly through fp32 on the device" in found[name].reason


class _Falling:
    """A backend that runs everything, but says that an operator ran on the host."""

    name = "falling"
    device = torch.device("cpu")

    def __init__(self) -> None:
        self.calls = 0

    def counters(self) -> Counters:
        self.calls += 1
        return Counters(compiles=0, compile_seconds=0.0, fallbacks={"aten::_to_copy": self.calls})

    def materialize(self, outputs: object) -> None:
        """Nothing to wait for."""


def test_an_operator_that_ran_on_the_host_is_no_capability() -> None:
    runs = DeviceRuns(_Falling(), "eager")
    with pytest.raises(NotHere, match=r"runs on the host.*aten::_to_copy"):
        runs.alone("cast", lambda one: one.to(torch.bfloat16), torch.ones(4))


def test_unknown_group_is_refused(cpu: Backend) -> None:
    assert GROUPS == ("casts", "blocks")
    with pytest.raises(UsageError, match="casts"):
        check_formats(cpu, "eager", "cast")


def test_caster_is_an_interface() -> None:
    with pytest.raises(TypeError):
        Caster()
