"""Whether two different answers to one prompt are one computation rounded twice, or a fault.

A matrix product rounds differently in another bucket shape, so logits differ a little with the batch, and where two
tokens are nearly as likely the answers part. Such a divergence is accepted only where the gap between the tokens is
within what the batch was measured to change; it is counted in any case. A fault inside a bucket would be measured as
variance too and excuse itself, so no more variance is believed than rounding can bring about.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import torch

from trnbench.serving.samples import LEAST_TOKENS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from trnbench.serving.rows import Rows
    from trnbench.serving.samples import Samples

STEPS = 8
"""Decode steps of `batch_variance`; fewer where a sample's limit is lower."""

BARRED = -1e30
"""Below any logit, above what `Rows` puts in a barred one's place."""

SIDES = 2
"""Two logits may each have moved by the measured variance, towards each other."""

ROUNDING: MappingProxyType[str, float] = MappingProxyType(
    {"fp32": 64 * 2.0**-23, "tf32": 8 * 2.0**-10, "bf16": 8 * 2.0**-7, "fp16": 8 * 2.0**-10}
)
"""Most variance that is rounding, over the largest logit: multiples of the distance from 1 to the next number.

About four times what this project measured on the CPU with nano and smollm2-135m (13 times that distance in fp32, 1.9
in bf16 and 1.8 in fp16; products of 16-bit operands are summed in float32, whose own rounding does not show).
"""


class Variance(NamedTuple):
    """Largest difference of any logit between batch 1 and other bucket shapes, and the most that is `rounding`."""

    measured: float
    rounding: float


class Divergence(NamedTuple):
    """The sample's index, the position of the first token that differs, and how far the logits of the two lie apart.

    `margin` is the distance from the largest logit, at batch 1, to the smaller one of the two tokens': the margin of
    the top two where these are they, and larger where either side chose anything else. Infinite where one answer is
    the beginning of the other, which no logit explains.
    """

    sample: int
    position: int
    margin: float


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Answers of two systems compared: `identical` ones, divergences `accepted` as rounding, and `faults`.

    `batch_variance` is that of the rows they were judged by, 0 where nothing differed.
    """

    identical: int
    accepted: list[Divergence]
    faults: list[Divergence]
    batch_variance: float


def compare_answers(
    rows: Rows, samples: Samples, left: Mapping[int, Sequence[int]], right: Mapping[int, Sequence[int]]
) -> Agreement:
    """Compare answers by sample index; both must answer the same samples. Overwrites the content of `rows`.

    Where the rows vary by more than rounding, every divergence is a fault. Raises `ValueError` where one side answered
    other samples.
    """
    if left.keys() != right.keys():
        raise ValueError(f"only one side answered samples {sorted(left.keys() ^ right.keys())}")
    different = [index for index in sorted(left) if list(left[index]) != list(right[index])]
    identical = len(left) - len(different)
    if not different:
        return Agreement(identical=identical, accepted=[], faults=[], batch_variance=0.0)
    variance = batch_variance(rows, samples)
    accepted: list[Divergence] = []
    faults: list[Divergence] = []
    for index in different:
        found = first_divergence(rows, samples, index, left[index], right[index])
        is_rounding = variance.measured <= variance.rounding and found.margin <= SIDES * variance.measured
        (accepted if is_rounding else faults).append(found)
    return Agreement(identical=identical, accepted=accepted, faults=faults, batch_variance=variance.measured)


def first_divergence(rows: Rows, samples: Samples, index: int, left: Sequence[int], right: Sequence[int]) -> Divergence:
    """Where two different answers part, and the margin there, by forcing what they share at batch 1."""
    position = next((at for at, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), None)
    if position is None:
        return Divergence(index, min(len(left), len(right)), math.inf)
    logits = forced_logits(rows, [samples.prompts[index]], [left[:position]])[position][0]
    smaller = torch.minimum(logits[left[position]], logits[right[position]])
    return Divergence(index, position, float(logits.max() - smaller))


def batch_variance(rows: Rows, samples: Samples) -> Variance:
    """How much logits differ between batch 1 and every other warmed number of rows and of prompts.

    Both sides are forced through the same tokens, those that the samples' own greedy decoding at batch 1 gives, and
    `min(STEPS, new tokens)` steps are compared. Overwrites the content of `rows`.
    """
    steps = max(LEAST_TOKENS, min(STEPS, *samples.limits)) - 1
    prompts = [samples.prompts[number % samples.total_count] for number in range(rows.count)]
    alone: list[list[Tensor]] = []
    answers: list[list[int]] = []
    for prompt in prompts:
        answers.append(_greedy(rows, prompt, steps))
        alone.append([step[0] for step in forced_logits(rows, [prompt], answers[-1:])])
    difference, largest = 0.0, 0.0
    for count in {*rows.buckets.rows, *rows.buckets.prompts} - {1}:
        together = forced_logits(rows, prompts[:count], answers[:count])
        for step, logits in enumerate(together):
            expected = torch.stack([one[step] for one in alone[:count]])
            difference = max(difference, float((logits - expected).abs().max()))
            # Where the stop token was barred its logit is no logit.
            largest = max(largest, float(expected.abs().masked_fill(expected < BARRED, 0).max()))
    return Variance(difference, ROUNDING[rows.precision] * largest)


def forced_logits(
    rows: Rows, prompts: Sequence[npt.NDArray[np.int64]], tokens: Sequence[Sequence[int]]
) -> list[Tensor]:
    """Logits float64 [P, vocab_size] on the host after each prompt and after each further forced token.

    All `tokens` lists have one length n, and the result has n + 1 entries. Prompts take rows 0 to P - 1.
    """
    group = rows.buckets.prompts[-1]
    after_prompts = []
    for start in range(0, len(prompts), group):
        members = prompts[start : start + group]
        rows.prefill(members, range(start, start + len(members)))
        after_prompts.append(_on_host(rows.logits[: len(members)]))
    steps = [torch.cat(after_prompts)]
    for step in range(len(tokens[0])):
        rows.feed({row: forced[step] for row, forced in enumerate(tokens)})
        rows.decode({row: len(prompt) + step for row, prompt in enumerate(prompts)})
        steps.append(_on_host(rows.logits[: len(prompts)]))
    return steps


def _greedy(rows: Rows, prompt: npt.NDArray[np.int64], tokens: int) -> list[int]:
    said = rows.prefill([prompt], [0])
    for step in range(tokens - 1):
        said.append(rows.decode({0: len(prompt) + step})[0])
    return said


def _on_host(logits: Tensor) -> Tensor:
    return logits.cpu().to(torch.float64)
