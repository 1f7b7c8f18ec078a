"""Scaled-dot-product attention, forward and backward, through PyTorch's own operator, and rotary embedding.

What happens to NaN in a key or value that a mask hides is reported, not judged: PyTorch documents attention as
softmax(scores + mask) V, by which NaN comes through (0 * NaN), while kernels that skip hidden blocks keep it out.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.operators import attention_exact, attention_permitted, rope
from trnbench.conformance.operators.attention_bounds import forward_bound
from trnbench.conformance.operators.attention_gradients import gradient_bound
from trnbench.conformance.operators.attention_oracle import (
    Visibility,
    attended,
    differentiated,
    over_groups,
)
from trnbench.conformance.operators.attention_samples import Layout, random_samples, square
from trnbench.conformance.operators.base import Finding, Gradient, Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Implementation, Tensors
    from trnbench.conformance.operators.base import ExactSample, Plan, Sample

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
WINDOW = 32
GROUP = 3

UNMASKED = Visibility()
CAUSAL = Visibility(causal=True)
SLIDING = Visibility(causal=True, window=WINDOW)

LAYOUTS = (square(128, 64), square(77, 80, batch=2, heads=3), square(640, 32, heads=1))
"""One whole tile of 128; odd sizes; more keys than the 512 that PyTorch's kernel for the CPU takes at once."""

GROUPED_LAYOUTS = (square(64, 64, heads=2 * GROUP, kv_heads=2), square(77, 80, batch=2, heads=GROUP, kv_heads=1))
PADDED_LAYOUTS = (square(128, 64, batch=2, heads=1), square(77, 80, batch=2))
CACHE_LAYOUTS = (Layout(queries=1, keys=4096), Layout(queries=1, keys=16384), Layout(batch=3, queries=1, keys=1023))


def causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """[B, H, T, D] each -> [B, H, T, D]: a query sees keys up to its own position."""
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def unmasked(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """query [B, H, Q, D], key and value [B, H, K, D] -> [B, H, Q, D]: every query sees every key."""
    return functional.scaled_dot_product_attention(query, key, value)


def masked(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """As `unmasked` with a boolean mask (true: seen) or an additive one in the dtype of query, [B, 1, Q, K]."""
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def windowed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal over the last `WINDOW` keys, the query's own among them; the mask is made on the device."""
    mask = SLIDING.mask(query.shape[-2], key.shape[-2], query.device)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def grouped(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal; query [B, H, T, D] on key and value [B, H / group, T, D], as PyTorch shares heads."""
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


def grouped_expanded(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """As `grouped`, with every key and value head copied for its group first."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def _operator(
    name: str,
    function: Callable[..., Any],
    visibility: Visibility,
    layouts: tuple[Layout, ...],
    exact: Callable[[str], Iterable[ExactSample]],
    *,
    mask: str = "",
    backward: bool = True,
    statistics: Callable[[Implementation, str, Plan, Arithmetic], Iterable[Finding]] | None = None,
) -> Operator:
    """One kind of attention; `visibility` says by position, and the mask among the inputs by value, what is seen."""

    def samples(precision: str, plan: Plan) -> Iterator[Sample]:
        return random_samples(layouts, mask, precision, plan, backward=backward)

    def exact_samples(precision: str, plan: Plan) -> Iterator[ExactSample]:
        yield from exact(precision)
        if backward:
            yield attention_exact.long_gradient(precision, layouts[0], mask)

    def oracle(*inputs: Tensor) -> Tensor:
        return attended(inputs, visibility).output

    def bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
        return (forward_bound(attended(inputs, visibility), arithmetic),)

    def gradient_oracle(inputs: Tensors, cotangents: Tensors) -> Tensors:
        found = attended(inputs, visibility)
        exactly = differentiated(found, cotangents[0])
        return exactly.query, over_groups(exactly.key, found.group), over_groups(exactly.value, found.group)

    def bound_of_gradient(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
        return gradient_bound(attended(inputs, visibility), cotangents[0], arithmetic)

    def permitted(implementation: Callable[[Tensors, Visibility], Tensor], *inputs: Tensor) -> Tensor:
        return implementation(inputs, visibility)

    return Operator(
        name=name,
        family="attention",
        function=function,
        precisions=PRECISIONS,
        samples=samples,
        oracle=oracle,
        bound=bound,
        gradient=Gradient(wrt=(0, 1, 2), oracle=gradient_oracle, bound=bound_of_gradient) if backward else None,
        exact=exact_samples,
        permitted={
            "unfused": functools.partial(permitted, attention_permitted.unfused),
            "unfused, base 2": functools.partial(permitted, attention_permitted.base_two),
            "blocks of keys": functools.partial(permitted, attention_permitted.blockwise),
        },
        statistics=statistics,
    )


def hidden_nan(implementation: Implementation, precision: str, plan: Plan, arithmetic: Arithmetic) -> Iterator[Finding]:
    """Says whether NaN in a key and value that a boolean mask hides from every query reaches an output."""
    sample = attention_exact.padded_rows(precision, "boolean", PADDED_LAYOUTS[0])
    query, key, value, mask = (tensor.clone() for tensor in sample.inputs)
    key[..., -1, :] = torch.nan
    value[..., -1, :] = torch.nan
    spoiled = int(implementation.forward((query, key, value, mask))[0].isnan().any(-1).sum())
    rows = query.numel() // query.shape[-1]
    words = f"reaches {spoiled} of {rows} rows" if spoiled else "reaches no row"
    yield Finding(
        operator="attention, masked rows",
        direction="forward",
        input="NaN in a hidden key and value",
        tier="T3",
        verdict="pass",
        value=None,
        where=f"{words}; reported, not judged: PyTorch documents neither; {STORAGE[precision]}; {sample.shape}",
    )


def _exact_unmasked(precision: str) -> Iterator[ExactSample]:
    yield attention_exact.equal_weights(precision, LAYOUTS[0])
    yield from attention_exact.special_values(precision, LAYOUTS[0])


OPERATORS: list[Operator] = [
    _operator(
        "attention",
        causal,
        CAUSAL,
        LAYOUTS,
        lambda precision: [attention_exact.pointed(precision, LAYOUTS[0], LAYOUTS[0].keys)],
    ),
    _operator("attention without mask", unmasked, UNMASKED, LAYOUTS, _exact_unmasked),
    _operator(
        "attention, masked rows",
        masked,
        UNMASKED,
        PADDED_LAYOUTS,
        lambda precision: [attention_exact.padded_rows(precision, "boolean", PADDED_LAYOUTS[0])],
        mask="boolean",
        statistics=hidden_nan,
    ),
    _operator(
        "attention, masked rows, additive",
        masked,
        UNMASKED,
        PADDED_LAYOUTS,
        lambda precision: [attention_exact.padded_rows(precision, "additive", PADDED_LAYOUTS[0])],
        mask="additive",
    ),
    _operator(
        "grouped-query attention",
        grouped,
        CAUSAL,
        GROUPED_LAYOUTS,
        lambda precision: [attention_exact.shared_heads(precision, GROUPED_LAYOUTS[0])],
    ),
    _operator(
        "grouped-query attention, expanded",
        grouped_expanded,
        CAUSAL,
        GROUPED_LAYOUTS,
        lambda precision: [attention_exact.shared_heads(precision, GROUPED_LAYOUTS[0])],
    ),
    _operator(
        "sliding-window attention",
        windowed,
        SLIDING,
        LAYOUTS[:2],
        lambda precision: [attention_exact.pointed(precision, LAYOUTS[0], WINDOW)],
    ),
    _operator(
        "decode attention",
        unmasked,
        UNMASKED,
        CACHE_LAYOUTS,
        lambda precision: attention_exact.long_cache(precision, CACHE_LAYOUTS[0]),
        backward=False,
    ),
    *rope.OPERATORS,
]
