"""From a case to a program: the one entry point of the measuring side."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from trnbench.status import CaseError, Status, UsageError
from trnbench.workloads.inference import DecodeProgram, PrefillProgram
from trnbench.workloads.presets import preset
from trnbench.workloads.program import Compile, Program
from trnbench.workloads.training import TrainProgram

if TYPE_CHECKING:
    import torch

    from trnbench.case import Case

__all__ = ["Compile", "Program", "build"]

_PROGRAMS: MappingProxyType[str, type[TrainProgram | PrefillProgram | DecodeProgram]] = MappingProxyType(
    {"train_step": TrainProgram, "prefill": PrefillProgram, "decode": DecodeProgram}
)


def build(case: Case, device: torch.device, compiler: Compile, seed: int = 0) -> Program:
    """Weights, inputs and step function of `case` on `device`.

    `compiler(function, mode)` is the backend's; it is given each function whose shapes never change. Raises
    `UsageError` for an unknown workload or more positions than it has, and `CaseError` for a parallel plan.
    """
    model = preset(case.workload)
    positions = case.sequence + case.new_tokens
    if positions > model.max_positions:
        raise UsageError(
            f"case {case.id}: {positions} positions are asked of {model.name}, which has {model.max_positions}"
        )
    if case.devices_needed > 1:
        raise CaseError(
            Status.UNSUPPORTED,
            f"case {case.id}: this workload runs on one device; its parallel plan asks for {case.devices_needed}",
        )
    return _PROGRAMS[case.phase](case, model, device, compiler, seed)
