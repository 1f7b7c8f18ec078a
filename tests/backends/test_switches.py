"""Numerics switches under PyTorch's two interfaces to them: set, reported, and put back whatever was used before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from trnbench.backends.switches import FP32_PATHS, flushes_denormals, numerics_switches, switches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _by_path() -> dict[str, str]:
    found = {}
    for path in FP32_PATHS:
        holder: Any = torch.backends
        *parents, name = path.split(".")
        for parent in parents:
            holder = getattr(holder, parent)
        found[path] = getattr(holder, name)
    return found


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    def reset() -> None:
        torch.backends.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = True

    reset()
    yield
    reset()


def _nothing() -> None:
    """As PyTorch starts."""


def _old_interface() -> None:
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.allow_tf32 = False


def _new_interface() -> None:
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    torch.backends.cuda.matmul.fp32_precision = "tf32"


def _both_interfaces() -> None:
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    torch.backends.cudnn.conv.fp32_precision = "ieee"


def _everything() -> None:
    torch.backends.fp32_precision = "tf32"


@pytest.mark.parametrize("used", [_nothing, _old_interface, _new_interface, _both_interfaces, _everything])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
def test_restored_after_either_interface(used: Callable[[], None], precision: str) -> None:
    """C1: whatever was set before, and through whichever interface, is there again, also after an error."""
    used()
    before = _by_path()
    with pytest.raises(ZeroDivisionError), numerics_switches(precision):
        raise ZeroDivisionError
    assert _by_path() == before


@pytest.mark.parametrize("used", [_nothing, _old_interface, _new_interface, _both_interfaces, _everything])
def test_fp32_is_fp32_whatever_was_set_before(used: Callable[[], None]) -> None:
    """C1: a coarse setting made before the run does not reach the case, and does come back after it."""
    torch.manual_seed(0)
    left, right = torch.randn(256, 256), torch.randn(256, 256)
    exact = left.double() @ right.double()
    used()
    outside = (left @ right - exact).abs().max().item()
    with numerics_switches("fp32") as in_force:
        inside = (left @ right - exact).abs().max().item()
    assert inside < 1e-3
    assert in_force["float32_matmul_precision"] == "highest"
    assert in_force["cudnn.allow_tf32"] is False
    assert (left @ right - exact).abs().max().item() == outside


def test_precisions_differ_in_what_is_reported() -> None:
    """C1: the setting is part of what is stored, so that two precisions never look alike."""
    reported = {}
    for precision in ("fp32", "tf32"):
        with numerics_switches(precision) as in_force:
            reported[precision] = dict(in_force)
    assert reported["tf32"]["float32_matmul_precision"] == "high"
    changed = {name for name in reported["fp32"] if reported["fp32"][name] != reported["tf32"][name]}
    assert {"float32_matmul_precision", "cuda.matmul.fp32_precision", "cudnn.allow_tf32"} <= changed


def test_all_reported_values_fit_into_json() -> None:
    with numerics_switches("bf16") as in_force:
        assert all(isinstance(value, str | int | float | bool) for value in in_force.values())
        assert in_force["cuda.allow_fp16_bf16_reduction_math_sdp"] is False
        assert str(in_force["cuda.matmul.allow_bf16_reduced_precision_reduction"]).startswith("False")


def test_flushing_is_found_by_computing() -> None:
    assert torch.set_flush_denormal(True), "this processor cannot flush"
    try:
        assert flushes_denormals()
        with numerics_switches("fp32") as in_force:
            assert in_force["flush_denormal"] is False
            assert not flushes_denormals()
        assert flushes_denormals()
    finally:
        torch.set_flush_denormal(False)
    assert not flushes_denormals()


def test_every_switch_reads_what_was_put() -> None:
    """Each switch of the table can be put back to what it reads, without an error and without moving another."""
    before = {switch.name: switch.get() for switch in switches()}
    for switch in switches():
        switch.put(switch.get())
    assert {switch.name: switch.get() for switch in switches()} == before
