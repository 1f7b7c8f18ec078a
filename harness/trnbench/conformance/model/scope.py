"""What part of a case is checked against the float64 oracle, and with which weights.

The oracle runs on the host, so a large model is checked on a slice of itself: same widths, same heads, same
vocabulary, fewer layers, a shorter batch. The record says so in every verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import torch

from trnbench.case import Case
from trnbench.workloads.data import TokenBatch, raw_bits
from trnbench.workloads.flops import flops_per_round
from trnbench.workloads.presets import Preset

if TYPE_CHECKING:
    from trnbench.workloads.decoder import Decoder

ORACLE_FLOPS = 5e10
"""The oracle's forward (and backward) may cost this much: seconds of float64 on two cores, and the floor as much
again for each of its runs."""

LEAST_SEQUENCE = 320
"""Never check shorter than this where the case is longer: low-precision positions first collide at 257 in bfloat16."""

DECODE_STEPS = 4
"""Teacher-forced decode steps that are checked: enough to read back what the first of them wrote to the cache."""

SCORE_DEVIATION = 2.0
"""Attention scores are spread to about this deviation, so that a fault in the attention shows in its output."""

_INITIAL_VARIANCE = (1.0 / 32.0) ** 2 / 3.0
"""Of the uniform initial weights (`workloads.initial`)."""


class Scope(msgspec.Struct, frozen=True):
    """The checked slice: a preset with maybe fewer layers, a case with maybe a smaller batch, and both in words."""

    preset: Preset
    case: Case
    words: str

    @property
    def decode_steps(self) -> int:
        """Teacher-forced decode steps that are checked; 0 for other phases."""
        return DECODE_STEPS if self.case.phase == "decode" else 0

    @property
    def positions(self) -> int:
        """Longest position that the check reaches."""
        return self.case.sequence + self.decode_steps


class Subject(msgspec.Struct, frozen=True):
    """What the device was given: its own weights before any step, in their own dtype and on the CPU, and the tokens."""

    scope: Scope
    compute_dtype: torch.dtype
    weights: dict[str, torch.Tensor]
    batch: TokenBatch


def choose_scope(case: Case, preset: Preset) -> Scope:
    """Shrink batch, then sequence, then layers until the oracle's cost is within `ORACLE_FLOPS`.

    At least one sequence of `LEAST_SEQUENCE` tokens (or all there are) and two layers always remain.
    """
    # One micro-batch keeps the shapes that the case runs; accumulation is the workload's own test.
    reduced, sliced = msgspec.structs.replace(case, batch=case.micro_batch), preset

    def cost() -> int:
        return flops_per_round(reduced, sliced)

    if cost() > ORACLE_FLOPS and reduced.batch > 1:
        reduced = msgspec.structs.replace(reduced, batch=1, micro_batch=1)
    while cost() > ORACLE_FLOPS and reduced.sequence > LEAST_SEQUENCE:
        reduced = msgspec.structs.replace(reduced, sequence=max(LEAST_SEQUENCE, reduced.sequence // 2))
    while cost() > ORACLE_FLOPS and sliced.layers > 2:
        sliced = msgspec.structs.replace(sliced, layers=max(2, sliced.layers // 2))
    words = f"{reduced.batch} of {case.batch} sequences, {reduced.sequence} of {case.sequence} tokens"
    words += f", {sliced.layers} of {preset.layers} layers"
    return Scope(preset=sliced, case=reduced, words=words)


def harden(model: Decoder, seed: int) -> None:
    """Give the initial weights what training would: norm weights that differ, and attention that is not uniform.

    Freshly drawn query and key projections give scores so small that every softmax is flat, and then a wrong scale or
    mask hardly moves the output.
    """
    spread = max(1.0, SCORE_DEVIATION / (model.preset.hidden * _INITIAL_VARIANCE)) ** 0.5
    with torch.no_grad():
        for index, (name, parameter) in enumerate(model.named_parameters()):
            if name.endswith("norm.weight"):
                words = raw_bits(parameter.numel(), (seed, index)) >> np.uint64(44)
                values = torch.from_numpy(0.75 + words.astype(np.float32) * np.float32(2.0**-21))
                parameter.copy_(values.to(parameter.dtype).to(parameter.device))
            elif name.endswith(("attention.query.weight", "attention.key.weight")):
                host = parameter.detach().cpu().to(torch.float32) * spread
                parameter.copy_(host.to(parameter.dtype).to(parameter.device))
