"""Attention in float64 with one thing wrong, forward and backward, for hypotheses to choose from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor

from trnbench.conformance.operators.attention_oracle import Visibility, over_groups, repeated

if TYPE_CHECKING:
    from trnbench.conformance.implementation import Tensors

Change = Callable[[Tensor], Tensor]
FP8 = torch.float8_e4m3fn


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong; every default is right.

    `visible` changes the boolean [queries, keys] of who sees whom by position, `scale` the factor of scores by head
    dimension, `heads` the way key and value heads serve their group. `scores`, `unnormalised` and `weights` change
    values on the way; `subtracts_peak` is False where exponentials are taken of the scores themselves. `hidden` is what
    masked scores hold, `block_format` the format in which sums of gradients are kept between blocks of queries, and
    `uses_mean` is False where the softmax's gradient lacks its second term. `normalised_when_masked` is False where
    the gradient takes the weights of rows that see nothing for 1.
    """

    visible: Change | None = None
    scale: Callable[[int], float] = lambda depth: depth**-0.5
    heads: Callable[[Tensor, int], Tensor] = repeated
    scores: Change | None = None
    unnormalised: Change | None = None
    weights: Change | None = None
    subtracts_peak: bool = True
    hidden: float = -torch.inf
    block_format: torch.dtype | None = None
    uses_mean: bool = True
    normalised_when_masked: bool = True


def through(dtype: torch.dtype) -> Change:
    """Rounded to `dtype` and back to float64."""
    return lambda values: values.to(dtype).double()


def forward(inputs: Tensors, visibility: Visibility, fault: Fault) -> Tensor:
    """The output [B, H, Q, D] with `fault`, float64."""
    weights, value, _ = _weights(inputs, visibility, fault)
    return weights @ value


def backward(inputs: Tensors, cotangents: Tensors, visibility: Visibility, fault: Fault) -> Tensors:
    """dQ, dK and dV with `fault`, float64; heads of a group are added up as `fault.heads` gave them out."""
    query, gradient = inputs[0].double(), cotangents[0].double()
    weights, value, key = _weights(inputs, visibility, fault)
    scale = fault.scale(query.shape[-1])
    if not fault.normalised_when_masked and len(inputs) > 3:
        mask = inputs[3].expand_as(weights)
        weights = torch.where((mask == mask.min()).all(-1, keepdim=True), torch.ones_like(weights), weights)
    inner = gradient @ value.transpose(-1, -2)
    mean = (gradient * (weights @ value)).sum(-1, keepdim=True)
    if not fault.normalised_when_masked:
        mean = (gradient * forward(inputs, visibility, Fault())).sum(-1, keepdim=True)
    scores = weights * (inner - mean if fault.uses_mean else inner)
    group = query.shape[1] // inputs[1].shape[1]
    interleaved = fault.heads is not repeated

    def shared(heads: Tensor) -> Tensor:
        return torch.stack(heads.chunk(group, dim=1)).sum(0) if interleaved else over_groups(heads, group)

    if fault.block_format is not None:
        return (
            scale * (scores @ key),
            shared(in_blocks(scale * scores, query, fault.block_format)),
            shared(in_blocks(weights, gradient, fault.block_format)),
        )
    return (
        scale * (scores @ key),
        shared(scale * (scores.transpose(-1, -2) @ query)),
        shared(weights.transpose(-1, -2) @ gradient),
    )


def in_blocks(weights: Tensor, rows: Tensor, dtype: torch.dtype, block: int = 32) -> Tensor:
    """weights^T rows, with both and the running sum over blocks of queries rounded to `dtype`."""
    weights, total = weights.to(dtype).double(), torch.zeros(())
    for start in range(0, weights.shape[-2], block):
        part = slice(start, start + block)
        total = (total + weights[..., part, :].transpose(-1, -2) @ rows[..., part, :]).to(dtype).double()
    return total


def _weights(inputs: Tensors, visibility: Visibility, fault: Fault) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities [B, H, Q, K], and value and key with as many heads as the query."""
    query, key, value = (tensor.double() for tensor in inputs[:3])
    group = query.shape[1] // key.shape[1]
    key, value = fault.heads(key, group), fault.heads(value, group)
    scores = fault.scale(query.shape[-1]) * (query @ key.transpose(-1, -2))
    if fault.scores is not None:
        scores = fault.scores(scores)
    visible = visibility.mask(query.shape[-2], key.shape[-2])
    visible = visible if fault.visible is None else fault.visible(visible)
    scores = scores.masked_fill(~visible, fault.hidden)
    if len(inputs) > 3:
        given = inputs[3]
        scores = scores.masked_fill(~given, fault.hidden) if given.dtype == torch.bool else scores + given.double()
    if not fault.subtracts_peak:
        raised = scores.float().exp().double()
        return raised / raised.sum(-1, keepdim=True).float().double(), value, key
    peak = scores.amax(-1, keepdim=True)
    raised = (scores - torch.where(peak.isneginf(), torch.zeros_like(peak), peak)).exp()
    total = raised.sum(-1, keepdim=True)
    if fault.unnormalised is not None:
        raised = fault.unnormalised(raised)
    weights = raised / torch.where(total == 0.0, torch.ones_like(total), total)
    return weights if fault.weights is None else fault.weights(weights), value, key
