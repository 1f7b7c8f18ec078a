"""Correct attention in orders that kernels use, which no check may object to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from trnbench.conformance.implementation import HostImplementation
from trnbench.conformance.mutants.base import Mutant

if TYPE_CHECKING:
    from torch import Tensor

    from trnbench.conformance.implementation import Implementation, Tensors

TILE = 128
"""Rows of a tensor engine's tile: keys taken at once."""


def _unfused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Scores, softmax and output as whole matrices in float32; autograd's gradients."""
    scores = query.float() @ key.float().mT / math.sqrt(query.shape[-1])
    return (torch.softmax(scores, dim=-1) @ value.float()).to(query.dtype)


def _shuffled(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Keys and values in another order, as a paged cache may hold them."""
    order = torch.randperm(key.shape[-2], generator=torch.Generator().manual_seed(7))
    return _unfused(query, key[:, :, order], value[:, :, order])


def _tiled_keys(tensor: Tensor) -> list[Tensor]:
    return [tensor[..., start : start + TILE, :] for start in range(0, tensor.shape[-2], TILE)]


def _tiles(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Online softmax over tiles of keys, exponentials to base 2; output and logarithm of the denominator."""
    scaled = query.float() * (math.log2(math.e) / math.sqrt(query.shape[-1]))
    peak = torch.full((*query.shape[:-1], 1), -torch.inf)
    total, output = torch.zeros_like(peak), torch.zeros_like(query, dtype=torch.float32)
    for block, values in zip(_tiled_keys(key), _tiled_keys(value), strict=True):
        scores = scaled @ block.float().mT
        larger = torch.maximum(peak, scores.amax(-1, keepdim=True))
        weights, decay = torch.exp2(scores - larger), torch.exp2(peak - larger)
        total = decay * total + weights.sum(-1, keepdim=True)
        # Unnormalised weights enter the second product in the operands' type.
        output = decay * output + weights.to(query.dtype).float() @ values.float()
        peak = larger
    return (output / total).to(query.dtype), (peak + total.log2()) * math.log(2.0)


def _tiled() -> Implementation:
    """Tiles forward; backward from the stored output and log-sum-exp, P and dS in the operands' type."""

    def backward(inputs: Tensors, cotangents: Tensors) -> Tensors:
        query, key, value = inputs
        output, log_sum = _tiles(query, key, value)
        gradient, scale, dtype = cotangents[0].float(), 1.0 / math.sqrt(query.shape[-1]), query.dtype
        delta = (gradient * output.float()).sum(-1, keepdim=True)
        weights = (query.float() @ key.float().mT * scale - log_sum).exp()
        scores = (weights * (gradient @ value.float().mT - delta)).to(dtype).float()
        for_query = scale * (scores @ key.float())
        for_key = scale * (scores.mT @ query.float())
        for_value = weights.to(dtype).float().mT @ gradient
        return for_query.to(dtype), for_key.to(dtype), for_value.to(dtype)

    return HostImplementation(lambda *inputs: _tiles(*inputs)[0], backward)


def _rounded_weights() -> Implementation:
    """Normalised weights stored in the operands' type, and used so forward and backward."""

    def stored(query: Tensor, key: Tensor) -> Tensor:
        scores = (query.float() / math.sqrt(query.shape[-1])) @ key.float().mT
        return scores.softmax(-1).to(query.dtype).float()

    def forward(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return (stored(query, key) @ value.float()).to(query.dtype)

    def backward(inputs: Tensors, cotangents: Tensors) -> Tensors:
        query, key, value = (tensor.float() for tensor in inputs)
        gradient, dtype = cotangents[0].float(), inputs[0].dtype
        weights = stored(inputs[0], inputs[1])
        inner = gradient @ value.mT
        scores = (weights * (inner - (weights * inner).sum(-1, keepdim=True))).to(dtype).float()
        scores = scores / math.sqrt(query.shape[-1])
        return (scores @ key).to(dtype), (scores.mT @ query).to(dtype), (weights.mT @ gradient).to(dtype)

    return HostImplementation(forward, backward)


def _split_cache(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The cache in four parts, each with a softmax of its own, merged in float32 by their log-sum-exps."""
    parts = [
        _tiles(query.float(), keys.float(), values.float())
        for keys, values in zip(key.chunk(4, -2), value.chunk(4, -2), strict=True)
    ]
    shares = torch.softmax(torch.stack([log_sum for _, log_sum in parts]), dim=0)
    return (shares * torch.stack([output for output, _ in parts])).sum(0).to(query.dtype)


CORRECT: list[Mutant] = [
    Mutant(name=f"{name}, {precision}", operator=operator, precision=precision, make=make)
    for name, operator, make in (
        ("unfused", "attention without mask", lambda: HostImplementation(_unfused)),
        ("other order of keys", "attention without mask", lambda: HostImplementation(_shuffled)),
        ("tiles of 128", "attention without mask", _tiled),
        ("weights rounded", "attention without mask", _rounded_weights),
        ("split cache", "decode attention", lambda: HostImplementation(_split_cache)),
    )
    for precision in ("fp32", "bf16", "fp16")
]
