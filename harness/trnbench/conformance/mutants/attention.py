"""Attention and rotary embedding broken on purpose, and correct implementations in unusual orders.

Most are PyTorch's own operators called the wrong way, or float32 code with one step in a narrow type, so that nothing
here shares code with the float64 emulations that have to name them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from trnbench.conformance.diagnosis import attention as names
from trnbench.conformance.implementation import HostImplementation
from trnbench.conformance.mutants.attention_correct import CORRECT
from trnbench.conformance.mutants.base import Mutant
from trnbench.conformance.operators import attention_exact as constants
from trnbench.conformance.operators import rope

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trnbench.conformance.implementation import Implementation, Tensors

NAN = "NaN where a number is right"
"""The generic name, also right for faults that show as nothing but NaN."""

attend = functional.scaled_dot_product_attention


def _with_diagonal(by: int) -> Callable[..., Tensor]:
    def function(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        visible = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril(by)
        return attend(query, key, value, attn_mask=visible)

    return function


def _with_scale(factor: Callable[[int], float]) -> Callable[..., Tensor]:
    def function(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, is_causal=True, scale=factor(query.shape[-1]))

    return function


def _with_window(width: int) -> Callable[..., Tensor]:
    def function(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        visible = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril().triu(1 - width)
        return attend(query, key, value, attn_mask=visible)

    return function


def _scores_in_short_format(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The plain eager attention of many models: scores stored in the operands' type, softmax in float32."""
    scores = torch.matmul(query, key.mT) / math.sqrt(query.shape[-1])
    return torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype) @ value


def _exponentials_first(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    raised = (query.float() @ key.float().mT / math.sqrt(query.shape[-1])).exp()
    return ((raised @ value.float()) / raised.sum(-1, keepdim=True)).to(query.dtype)


def _weights_in_fp8(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = query.float() @ key.float().mT / math.sqrt(query.shape[-1])
    weights = scores.softmax(-1)
    # The difference is a constant to autograd: its gradient passes straight through, as quantised kernels have it.
    weights = weights + (weights.to(torch.float8_e4m3fn).float() - weights).detach()
    return (weights @ value.float()).to(query.dtype)


def _newest_first_in_short_format(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Keys one at a time from the newest, into an output of the operands' type."""
    weights = (query.float() @ key.float().mT / math.sqrt(query.shape[-1])).softmax(-1)
    output = torch.zeros_like(query)
    for place in reversed(range(key.shape[-2])):
        output = output + (weights[..., place, None] * value[..., place, None, :].float()).to(query.dtype)
    return output


def _sum_in_short_format(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The softmax's denominator added up one at a time in the operands' type."""
    scores = query.float() @ key.float().mT / math.sqrt(query.shape[-1])
    raised = (scores - scores.amax(-1, keepdim=True)).exp()
    total = torch.zeros(raised.shape[:-1], dtype=query.dtype)
    for place in range(key.shape[-2]):
        total = total + raised[..., place].to(query.dtype)
    return ((raised @ value.float()) / total[..., None].float()).to(query.dtype)


def _dealt_out(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    group = query.shape[1] // key.shape[1]
    return attend(query, key.repeat(1, group, 1, 1), value.repeat(1, group, 1, 1), is_causal=True)


def _softmax_of_nothing(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """As PyTorch's documentation writes it: -inf in a whole row."""
    scores = (query.float() @ key.float().mT / math.sqrt(query.shape[-1])).masked_fill(mask.logical_not(), -torch.inf)
    return (scores.softmax(-1) @ value.float()).to(query.dtype)


def _masked_with(number: float) -> Callable[..., Tensor]:
    def function(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        scores = query.float() @ key.float().mT / math.sqrt(query.shape[-1])
        return (scores.masked_fill(mask.logical_not(), number).softmax(-1) @ value.float()).to(query.dtype)

    return function


def _float32_minimum_in_short_format(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """The least float32 number as a mask of the operands' type, where it is -inf (aws-neuron/aws-neuron-sdk#593)."""
    hidden = torch.where(mask == 0, 0.0, torch.finfo(torch.float32).min).to(query.dtype)
    scores = query.float() @ key.float().mT / math.sqrt(query.shape[-1]) + hidden.float()
    return (scores.softmax(-1) @ value.float()).to(query.dtype)


def _without_last(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attend(query, key[:, :, :-1], value[:, :, :-1])


def _half_gradient() -> Implementation:
    """Right forward, but the softmax's backward pass leaves out the sum over the row."""

    def backward(inputs: Tensors, cotangents: Tensors) -> Tensors:
        query, key, value = (tensor.float() for tensor in inputs)
        gradient, scale = cotangents[0].float(), 1.0 / math.sqrt(query.shape[-1])
        weights = (query @ key.mT * scale).softmax(-1)
        scores = weights * (gradient @ value.mT)
        found = (scale * scores @ key, scale * scores.mT @ query, weights.mT @ gradient)
        return tuple(one.to(inputs[0].dtype) for one in found)

    return HostImplementation(attend, backward)


def _turned_by(
    change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], table: torch.dtype = torch.float32
) -> Callable[..., Tensor]:
    """Rotary embedding in the Hugging Face manner, x * cos + rotate_half(x) * sin, from altered positions or angles."""

    def function(x: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
        kept, turns = change(positions, frequencies)
        angles = torch.outer(kept.float(), turns.float()).repeat(1, 2)
        half = x.shape[-1] // 2
        swapped = torch.cat((-x[..., half:], x[..., :half]), dim=-1).float()
        cos, sin = angles.cos().to(table).float(), angles.sin().to(table).float()
        return (x.float() * cos + swapped * sin).to(x.dtype)

    return function


def _neighbours(x: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    """Neighbours as the real and imaginary parts of complex numbers, the layout of the original Llama code."""
    angles = torch.outer(positions.float(), frequencies)
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2).to(x.dtype)


def _turned_back(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos + second * sin, second * cos - first * sin), dim=-1).to(x.dtype)


def _wrong(name: str, operator: str, precision: str, function: Callable[..., Any], *looks_like: str) -> Mutant:
    return Mutant(
        name=name,
        operator=operator,
        precision=precision,
        make=lambda: HostImplementation(function),
        looks_like=looks_like,
    )


MASKED, ADDITIVE, SLIDING = "attention, masked rows", "attention, masked rows, additive", "sliding-window attention"

MUTANTS: list[Mutant] = [
    _wrong("causal mask shows the next key", "attention", "bf16", _with_diagonal(1), constants.SEES_FUTURE),
    _wrong("causal mask hides the query's own key", "attention", "fp32", _with_diagonal(-1), names.MISSES_ITSELF),
    _wrong("causal mask missing", "attention", "fp32", attend, names.MASK_IGNORED),
    _wrong("scale 2 % too large", "attention", "bf16", _with_scale(lambda d: 1.02 / math.sqrt(d)), names.SCALE_OFF),
    _wrong("no scale", "attention", "fp32", _with_scale(lambda d: 1.0), names.SCALE_MISSING),
    _wrong("scale of 2 D", "attention", "fp16", _with_scale(lambda d: 1.0 / math.sqrt(2 * d)), names.OTHER_SCALE),
    _wrong(
        "scores stored in bf16", "attention without mask", "bf16", _scores_in_short_format, "scores rounded to bf16"
    ),
    _wrong(
        "scores stored in fp16", "attention without mask", "fp16", _scores_in_short_format, "scores rounded to fp16"
    ),
    _wrong("exponentials of raw scores", "attention without mask", "bf16", _exponentials_first, names.NO_PEAK, NAN),
    _wrong("weights quantised to fp8", "attention without mask", "bf16", _weights_in_fp8, names.FP8_WEIGHTS),
    Mutant(
        name="backward pass without delta",
        operator="attention without mask",
        precision="fp32",
        make=_half_gradient,
        looks_like=(names.NO_MEAN,),
    ),
    _wrong("NaN in fully masked rows", MASKED, "bf16", _softmax_of_nothing, constants.PADDED_NAN, NAN),
    _wrong("hidden keys at -1e4", MASKED, "fp16", _masked_with(-1e4), constants.MASKED_FINITELY),
    _wrong("hidden keys at -3.4e38", MASKED, "fp32", _masked_with(-3.4e38), constants.MASKED_FINITELY),
    _wrong("float32 minimum in bf16", ADDITIVE, "bf16", _float32_minimum_in_short_format, constants.PADDED_NAN, NAN),
    _wrong("kv heads dealt out in turn", "grouped-query attention", "bf16", _dealt_out, constants.KV_INTERLEAVED),
    _wrong("window of 33 keys", SLIDING, "bf16", _with_window(33), constants.WINDOW_WIDER),
    _wrong("window of 31 keys", SLIDING, "fp32", _with_window(31), names.WINDOW_NARROWER),
    _wrong("newest cache entry left out", "decode attention", "bf16", _without_last, constants.LAST_MISSING),
    _wrong("output kept in bf16", "decode attention", "bf16", _newest_first_in_short_format, constants.NARROW_OUTPUT),
    _wrong("denominator kept in bf16", "decode attention", "bf16", _sum_in_short_format, constants.NARROW_SUM),
    _wrong(
        "RoPE with bf16 positions",
        "RoPE",
        "fp32",
        _turned_by(lambda positions, frequencies: (positions.bfloat16(), frequencies)),
        "positions held in bf16",
    ),
    _wrong(
        "RoPE with bf16 frequencies",
        "RoPE",
        "bf16",
        _turned_by(lambda positions, frequencies: (positions, frequencies.bfloat16())),
        "inverse frequencies held in bf16",
    ),
    _wrong(
        "RoPE with bf16 tables",
        "RoPE",
        "bf16",
        _turned_by(lambda positions, frequencies: (positions, frequencies), torch.bfloat16),
        "sines and cosines held in bf16",
    ),
    _wrong("RoPE of neighbours", "RoPE", "fp32", _neighbours, rope.INTERLEAVED),
    _wrong("RoPE turned back", "RoPE from tables", "bf16", _turned_back, rope.SIGN),
    *CORRECT,
]
