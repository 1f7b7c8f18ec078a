"""Plausible faults of attention and rotary embedding, by operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.diagnosis.attention_emulation import FP8, Fault, backward, forward, through
from trnbench.conformance.diagnosis.base import Hypothesis
from trnbench.conformance.operators import rope
from trnbench.conformance.operators.attention import CAUSAL, SLIDING, UNMASKED, WINDOW
from trnbench.conformance.operators.attention_exact import (
    KV_INTERLEAVED,
    LAST_MISSING,
    MASKED_FINITELY,
    NARROW_GRADIENT,
    PADDED_NAN,
    SEES_FUTURE,
    WINDOW_WIDER,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trnbench.conformance.implementation import Tensors
    from trnbench.conformance.operators.attention_oracle import Visibility

MISSES_ITSELF = "mask off by one (misses itself)"
MASK_IGNORED = "mask ignored"
WINDOW_NARROWER = "window off by one (one key fewer)"
WINDOW_IGNORED = "window ignored"
NO_PEAK = "softmax without maximum subtraction"
SCALE_MISSING = "scale missing"
SCALE_OFF = "scale off by 2 %"
OTHER_SCALE = "scale of another head dimension"
FP8_WEIGHTS = "weights rounded to fp8"
NO_MEAN = "softmax gradient without its row sum"
UNNORMALISED = "gradient with weights of 1 in fully masked rows"
POSITIONS_NARROW = "positions held in {}"
FREQUENCIES_NARROW = "inverse frequencies held in {}"
TABLES_NARROW = "sines and cosines held in {}"
SCORES_NARROW = "scores rounded to {}"
SHORT_FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16}


def _hypothesis(name: str, visibility: Visibility, fault: Fault) -> Hypothesis:
    def emulate(inputs: Tensors, precision: str) -> Tensors:
        return (forward(inputs, visibility, fault),)

    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
        return backward(inputs, cotangents, visibility, fault)

    return Hypothesis(name=name, emulate=emulate, gradient=gradient)


def _diagonal(by: int) -> Callable[[Tensor], Tensor]:
    """A causal mask whose edge is moved: 1 shows the next key, -1 hides the query's own."""
    return lambda visible: torch.ones_like(visible).tril(by)


def _window(width: int) -> Callable[[Tensor], Tensor]:
    """A causal window of another width."""
    return lambda visible: torch.ones_like(visible).tril().triu(1 - width)


def _interleaved(heads: Tensor, group: int) -> Tensor:
    """Heads dealt out in turn, 0 1 0 1, where 0 0 1 1 is right."""
    return torch.cat([heads] * group, dim=1)


def _narrow_gradient(visibility: Visibility) -> Hypothesis:
    """Sums of gradients kept in the operands' own format between blocks of 32 queries."""

    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors | None:
        dtype = STORAGE[precision]
        if dtype == torch.float32:
            return None
        return backward(inputs, cotangents, visibility, Fault(block_format=dtype))

    return Hypothesis(name=NARROW_GRADIENT, gradient=gradient)


def _common(visibility: Visibility) -> list[Hypothesis]:
    """Faults of every kind of attention."""
    faults = {
        SCALE_MISSING: [Fault(scale=lambda depth: 1.0)],
        SCALE_OFF: [Fault(scale=lambda depth: 1.02 * depth**-0.5), Fault(scale=lambda depth: 0.98 * depth**-0.5)],
        OTHER_SCALE: [
            Fault(scale=lambda depth: (2.0 * depth) ** -0.5),
            Fault(scale=lambda depth: (depth / 2.0) ** -0.5),
        ],
        NO_PEAK: [Fault(subtracts_peak=False)],
        FP8_WEIGHTS: [Fault(weights=through(FP8)), Fault(unnormalised=through(FP8))],
        NO_MEAN: [Fault(uses_mean=False)],
    }
    for name, dtype in SHORT_FORMATS.items():
        faults[SCORES_NARROW.format(name)] = [Fault(scores=through(dtype))]
    found = [_hypothesis(name, visibility, fault) for name, several in faults.items() for fault in several]
    return [*found, _narrow_gradient(visibility)]


def _causal() -> list[Hypothesis]:
    return [
        _hypothesis(SEES_FUTURE, CAUSAL, Fault(visible=_diagonal(1))),
        _hypothesis(MISSES_ITSELF, CAUSAL, Fault(visible=_diagonal(-1))),
        _hypothesis(MASK_IGNORED, CAUSAL, Fault(visible=torch.ones_like)),
        *_common(CAUSAL),
    ]


def _sliding() -> list[Hypothesis]:
    return [
        _hypothesis(WINDOW_WIDER, SLIDING, Fault(visible=_window(WINDOW + 1))),
        _hypothesis(WINDOW_NARROWER, SLIDING, Fault(visible=_window(WINDOW - 1))),
        _hypothesis(WINDOW_IGNORED, SLIDING, Fault(visible=_diagonal(0))),
        _hypothesis(SEES_FUTURE, SLIDING, Fault(visible=lambda visible: _window(WINDOW + 1)(visible).roll(1, -1))),
        *_common(SLIDING),
    ]


def _empty_rows(mask: Tensor) -> Tensor:
    """Rows [B, 1, Q, 1] that see no key."""
    seen = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min
    return ~seen.any(-1, keepdim=True)


def _nan_in_empty_rows(inputs: Tensors, precision: str) -> Tensors:
    """Rows that see no key are NaN, all others right."""
    right = forward(inputs, UNMASKED, Fault())
    return (right.masked_fill(_empty_rows(inputs[3]), torch.nan),)


def _nan_gradients(masked_again: bool) -> Callable[[Tensors, Tensors, str], Tensors]:
    """NaN in an empty row reaches its query, and every key and value of its batch item.

    With `masked_again` the gradient of hidden scores is set to zero, so that values alone are spoiled.
    """

    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
        query, key, value = backward(inputs, cotangents, UNMASKED, Fault())
        empty = _empty_rows(inputs[3])
        value = value.masked_fill(empty.any(-2, keepdim=True), torch.nan)
        if masked_again:
            return query, key, value
        return query.masked_fill(empty, torch.nan), key.masked_fill(empty.any(-2, keepdim=True), torch.nan), value

    return gradient


def _without_mask(inputs: Tensors, precision: str) -> Tensors:
    return (forward(inputs[:3], UNMASKED, Fault()),)


def _masked(additive: bool) -> list[Hypothesis]:
    found = [
        Hypothesis(name=PADDED_NAN, emulate=_nan_in_empty_rows, gradient=_nan_gradients(masked_again=False)),
        Hypothesis(name=PADDED_NAN, gradient=_nan_gradients(masked_again=True)),
        Hypothesis(name=MASK_IGNORED, emulate=_without_mask),
    ]
    if additive:
        found.append(_hypothesis(UNNORMALISED, UNMASKED, Fault(normalised_when_masked=False)))
    else:
        found += [_hypothesis(MASKED_FINITELY, UNMASKED, Fault(hidden=number)) for number in (-1e4, -65504.0, -3e38)]
    return [*found, *_common(UNMASKED)]


def _without_last(inputs: Tensors, precision: str) -> Tensors:
    query, key, value = inputs
    return (forward((query, key[..., :-1, :], value[..., :-1, :]), UNMASKED, Fault()),)


def _rope(name: str, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Hypothesis:
    """`change` turns positions and frequencies into the cos and sin that the fault would use."""

    def emulate(inputs: Tensors, precision: str) -> Tensors:
        cos, sin = change(inputs[1], inputs[2])
        return (rope.turned(inputs[0].double(), cos.double(), sin.double()),)

    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
        cos, sin = change(inputs[1], inputs[2])
        return (rope.turned(cotangents[0].double(), cos.double(), -sin.double()),)

    return Hypothesis(name=name, emulate=emulate, gradient=gradient)


def _polar(angles: Tensor) -> tuple[Tensor, Tensor]:
    return angles.cos(), angles.sin()


def _neighbours(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs (2i, 2i + 1) turned."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)


def _interleaved_rope(tables: bool) -> Hypothesis:
    def found(inputs: Tensors) -> tuple[Tensor, Tensor]:
        return (inputs[1].double(), inputs[2].double()) if tables else _polar(rope.angles_of(inputs))

    def emulate(inputs: Tensors, precision: str) -> Tensors:
        return (_neighbours(inputs[0].double(), *found(inputs)),)

    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
        cos, sin = found(inputs)
        return (_neighbours(cotangents[0].double(), cos, -sin),)

    return Hypothesis(name=rope.INTERLEAVED, emulate=emulate, gradient=gradient)


def _narrow(dtype: torch.dtype, what: str) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """cos and sin where positions, frequencies or the tables themselves have passed through `dtype`."""

    def change(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
        kept = (positions.to(dtype) if what == "positions" else positions).double()
        turns = (frequencies.to(dtype) if what == "frequencies" else frequencies).double()
        cos, sin = _polar(kept[:, None] * turns[None, :])
        return (cos.to(dtype), sin.to(dtype)) if what == "tables" else (cos, sin)

    return change


def _rope_from_angles() -> list[Hypothesis]:
    found = [_rope(rope.SIGN, lambda positions, frequencies: _polar(-(positions[:, None] * frequencies.double())))]
    found.append(_interleaved_rope(tables=False))
    for name, dtype in SHORT_FORMATS.items():
        found.append(_rope(POSITIONS_NARROW.format(name), _narrow(dtype, "positions")))
        found.append(_rope(FREQUENCIES_NARROW.format(name), _narrow(dtype, "frequencies")))
        found.append(_rope(TABLES_NARROW.format(name), _narrow(dtype, "tables")))
    return found


def _both_to(dtype: torch.dtype) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return lambda cos, sin: (cos.to(dtype), sin.to(dtype))


def _rope_from_tables() -> list[Hypothesis]:
    found = [_rope(rope.SIGN, lambda cos, sin: (cos, -sin)), _interleaved_rope(tables=True)]
    return [*found, *(_rope(TABLES_NARROW.format(name), _both_to(dtype)) for name, dtype in SHORT_FORMATS.items())]


def _grouped() -> list[Hypothesis]:
    return [_hypothesis(KV_INTERLEAVED, CAUSAL, Fault(heads=_interleaved)), *_causal()]


HYPOTHESES: dict[str, list[Hypothesis]] = {
    "attention": _causal(),
    "attention without mask": _common(UNMASKED),
    "attention, masked rows": _masked(additive=False),
    "attention, masked rows, additive": _masked(additive=True),
    "grouped-query attention": _grouped(),
    "grouped-query attention, expanded": _grouped(),
    "sliding-window attention": _sliding(),
    "decode attention": [Hypothesis(name=LAST_MISSING, emulate=_without_last), *_common(UNMASKED)],
    "RoPE": _rope_from_angles(),
    "RoPE from tables": _rope_from_tables(),
}
