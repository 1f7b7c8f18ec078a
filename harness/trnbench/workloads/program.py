"""What the measuring side sees of a workload: something that can be reset, stepped, counted and checked."""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trnbench.workloads.flops import CONVENTION, flops_per_round

if TYPE_CHECKING:
    from trnbench.case import Case
    from trnbench.workloads.data import TokenBatch
    from trnbench.workloads.presets import Preset

Compile = Callable[[Callable[..., Any], str], Callable[..., Any]]
"""The backend's `compile(function, mode)`."""

Materialize = Callable[[Sequence[Tensor]], None]
"""The backend's wait: returns once the outputs exist."""


class Program(abc.ABC):
    """One case, ready to run: weights and inputs are on the device before the first step."""

    def __init__(self, case: Case, preset: Preset) -> None:
        self.case = case
        self.preset = preset

    @abc.abstractmethod
    def reset(self) -> None:
        """Untimed, before each round; puts back what a step may have used up."""

    @abc.abstractmethod
    def step(self) -> list[Tensor]:
        """Run one step, dispatching only; nothing in it waits for the device.

        The outputs come last in the step: once all of them exist, the step is done.
        """

    @abc.abstractmethod
    def items(self) -> dict[str, int]:
        """What the step about to run processes.

        `tokens` are real ones, `padded_tokens` all positions of the shape with padding included, `sequences` the
        rows of the batch; taken from the batch itself, not from the case.
        """

    @abc.abstractmethod
    def loss_like(self, outputs: Sequence[Tensor]) -> Tensor:
        """A scalar of the step's outputs that is finite only if the computation stayed finite."""

    @abc.abstractmethod
    def state_fingerprint(self) -> str:
        """SHA-256 of a sample of what a step changes; equal before and after means that no step ran."""

    def flops(self) -> tuple[int, str]:
        """FLOPs of one round and the convention that counted them."""
        return flops_per_round(self.case, self.preset), CONVENTION

    def time_to_first_token(self, materialize: Materialize) -> Callable[[], None] | None:
        """A callable that runs one prefill to its first token and waits, for the caller to time; None without one."""
        del materialize
        return None


def fingerprint(tensors: Iterable[Tensor]) -> str:
    """SHA-256 over shape, dtype and bits of the tensors, copied to the host whole: slicing would run on the device."""
    digest = hashlib.sha256()
    for tensor in tensors:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        # A single element may keep any stride and still count as contiguous, but bytes are viewed at stride 1 only.
        if flat.stride(0) != 1:
            flat = flat.clone(memory_format=torch.contiguous_format)
        digest.update(f"{tuple(tensor.shape)} {flat.dtype}".encode())
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def batch_items(batch: TokenBatch) -> dict[str, int]:
    """`Program.items` of a step over all of `batch`."""
    return {
        "tokens": batch.real_tokens,
        "padded_tokens": batch.padded_tokens,
        "sequences": int(batch.lengths.shape[0]),
    }
