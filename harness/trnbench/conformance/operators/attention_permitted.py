"""Correct ways to compute attention on the host, whose errors say what size of error is usual (tier T3).

All round P to the operands' format, as kernels may. One that does not has a much narrower spread of errors, and the
floor pools the spreads of all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.operators.attention_oracle import Visibility, repeated

if TYPE_CHECKING:
    from trnbench.conformance.implementation import Tensors

BLOCK = 32
"""Keys taken at once by the online softmax."""


def operands(inputs: Tensors, visibility: Visibility) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Query, key and value in float32 with heads repeated, and an additive float32 mask [B or 1, 1, Q, K]."""
    query, key, value = (tensor.float() for tensor in inputs[:3])
    group = query.shape[1] // key.shape[1]
    mask = torch.zeros(query.shape[-2], key.shape[-2])
    mask = mask.masked_fill(~visibility.mask(*mask.shape), -torch.inf)
    if len(inputs) > 3:
        given = inputs[3]
        boolean = given.dtype == torch.bool
        mask = mask.masked_fill(~given, -torch.inf) if boolean else mask + given.float()
    return query, repeated(key, group), repeated(value, group), mask


def unfused(inputs: Tensors, visibility: Visibility) -> Tensor:
    """Scores, softmax and weighted sum one after the other in float32, P rounded to the operands' format."""
    query, key, value, mask = operands(inputs, visibility)
    scores = (query @ key.transpose(-1, -2)) * query.shape[-1] ** -0.5 + mask
    return (_softmax(scores).to(inputs[0].dtype).float() @ value).to(inputs[0].dtype)


def base_two(inputs: Tensors, visibility: Visibility) -> Tensor:
    """As `unfused`, with the scale folded into the query and exponentials to base 2."""
    query, key, value, mask = operands(inputs, visibility)
    scores = (query * (query.shape[-1] ** -0.5)) @ key.transpose(-1, -2) + mask
    peak = scores.amax(-1, keepdim=True)
    peak = torch.where(peak.isneginf(), torch.zeros_like(peak), peak)
    # Times log2(e) only after the difference: a mask of the least float32 would overflow.
    raised = torch.exp2((scores - peak) * math.log2(math.e))
    raised = torch.where(mask == -torch.inf, torch.zeros_like(raised), raised)
    weights = raised / torch.clamp(raised.sum(-1, keepdim=True), min=torch.finfo(torch.float32).tiny)
    return (weights.to(inputs[0].dtype).float() @ value).to(inputs[0].dtype)


def blockwise(inputs: Tensors, visibility: Visibility) -> Tensor:
    """Online softmax over blocks of keys (Milakov and Gimelshein, arXiv:1805.02867), P rounded, divided last.

    Inner products are added up one at a time, the order with the largest error.
    """
    query, key, value, mask = operands(inputs, visibility)
    scores = torch.zeros(*query.shape[:-1], key.shape[-2])
    for channel in range(query.shape[-1]):
        scores = scores + query[..., channel, None] * key[..., None, :, channel]
    scores = scores * query.shape[-1] ** -0.5 + mask
    peak = torch.full((*query.shape[:-1], 1), -torch.inf)
    total, output = torch.zeros_like(peak), torch.zeros_like(query)
    for start in range(0, key.shape[-2], BLOCK):
        block = scores[..., start : start + BLOCK]
        new = torch.maximum(peak, block.amax(-1, keepdim=True))
        shift = torch.where(new.isneginf(), torch.zeros_like(new), new)
        raised, scaled = (block - shift).exp(), (peak - shift).exp()
        total = total * scaled + raised.sum(-1, keepdim=True)
        output = output * scaled + raised.to(inputs[0].dtype).float() @ value[..., start : start + BLOCK, :]
        peak = new
    return (output / torch.where(total == 0.0, torch.ones_like(total), total)).to(inputs[0].dtype)


def _softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis, zeros where a whole row is -inf."""
    weights = torch.softmax(scores, dim=-1)
    return torch.where((scores == -torch.inf).all(-1, keepdim=True), torch.zeros_like(weights), weights)
