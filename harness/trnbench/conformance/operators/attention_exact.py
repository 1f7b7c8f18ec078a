"""Attention with answers that are exact in any order of summation: equal weights over 2^k keys, and one weight of 1.

Equal weights come from a query of zeros, so every score is 0 whatever the keys: exp(0) = 1, sums of small integers and
a division by a power of two are exact. A single weight of 1 comes from keys that are rows of a Hadamard matrix times
+-1: a query that points at one of them scores it hundreds above all others, whose exponentials underflow to 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from scipy.linalg import hadamard
from torch import Tensor

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.inputs import generator, make
from trnbench.conformance.operators.attention_oracle import repeated
from trnbench.conformance.operators.attention_samples import Layout, additive
from trnbench.conformance.operators.base import ExactSample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.conformance.implementation import Tensors

POINTER = 32.0
"""Factor of a query that points at a key: scores of others lie 32 * 64 / 8 = 256 below, and exp(-256) is 0."""

MASKED_FINITELY = "hidden keys masked with a finite number"
SEES_FUTURE = "mask off by one (sees the future)"
KV_INTERLEAVED = "kv heads interleaved"
WINDOW_WIDER = "window off by one (one key more)"
PADDED_NAN = "fully masked rows NaN"
LAST_MISSING = "last cache entry missing"
NARROW_OUTPUT = "output accumulated in the operands' format"
NARROW_GRADIENT = "gradient accumulated in the operands' format"
NARROW_SUM = "softmax sum accumulated in the operands' format"


def short_values(layout: Layout, dtype: torch.dtype, name: str) -> Tensor:
    """Values of 8 significant bits, which every precision holds, also as a tf32 operand."""
    return make("gaussian", layout.key_shape, torch.bfloat16, 0, name).to(dtype)


def integers(layout: Layout, dtype: torch.dtype, name: str) -> Tensor:
    """-1, 0 and 1: sums of 128 of them have at most 8 bits."""
    return torch.from_numpy(generator(name, 0).integers(-1, 2, layout.key_shape)).to(dtype)


def equal_weights(precision: str, layout: Layout) -> ExactSample:
    """Zero queries without a mask: the mean of all values."""
    dtype = STORAGE[precision]
    query = torch.zeros(layout.query_shape, dtype=dtype)
    value = integers(layout, dtype, "values of equal weights")
    mean = repeated(value, layout.heads // layout.kv_heads).double().mean(-2, keepdim=True)
    return ExactSample(
        input="equal weights",
        shape=layout.words,
        inputs=(query, make("gaussian", layout.key_shape, dtype, 0, "keys of equal weights"), value),
        expected=(mean.expand(layout.query_shape).to(dtype),),
    )


def long_gradient(precision: str, layout: Layout, mask: str = "") -> ExactSample:
    """A gradient of V that adds up 2^p + 1, where p bits stop counting, and then 1 from the next block of queries.

    All queries point at key 16, whose score is 0 so that P is exactly exp(0) in any base. The cotangent is not zero for
    queries 16 to 32 of the first head of each group alone, which every causal window of 32 keys lets see it. dV of that
    key is 2^p + 2 exactly; it stays 2^p where the sum over the first 32 queries is rounded to the operands' format
    before the next is added. In float32 p is 8, so that every
    bit is there. Values are zero, so dQ and dK are.
    """
    dtype, place = STORAGE[precision], 16
    zeros, output = torch.zeros(layout.key_shape, dtype=dtype), torch.zeros(layout.query_shape, dtype=dtype)
    limit = 256.0 if dtype == torch.float32 else 2.0 / torch.finfo(dtype).eps
    key = torch.full_like(zeros, -1.0)
    key[..., place, :] = 0.0
    cotangent = output.clone()
    first_heads = cotangent[:, :: layout.heads // layout.kv_heads]
    first_heads[..., place : 2 * place, :] = limit / place
    first_heads[..., place, :] += 1.0
    first_heads[..., 2 * place, :] = 1.0
    right, narrow = zeros.clone(), zeros.clone()
    right[..., place, :] = limit + 2.0
    narrow[..., place, :] = limit
    visible = torch.ones(layout.batch, 1, layout.queries, layout.keys, dtype=torch.bool)
    masks = {"": (), "boolean": (visible,), "additive": (additive(visible, dtype),)}
    return ExactSample(
        input="one weight of 1, gradient of values",
        shape=layout.words,
        inputs=(torch.full_like(output, POINTER), key, zeros, *masks[mask]),
        cotangents=(cotangent,),
        expected=(output,),
        gradients=(output, zeros, right),
        signatures={} if dtype == torch.float32 else {NARROW_GRADIENT: (output, zeros, narrow)},
    )


def special_values(precision: str, layout: Layout) -> Iterator[ExactSample]:
    """NaN in one query spoils its row and no other; an infinite value spoils its column and no other (IEEE 754)."""
    plain = equal_weights(precision, layout)
    query, key, value = plain.inputs
    spoiled, expected = query.clone(), plain.expected[0].clone()
    spoiled[..., 1, 0] = torch.nan
    expected[..., 1, :] = torch.nan
    yield ExactSample(
        input="NaN in a query", shape=plain.shape, inputs=(spoiled, key, value), expected=(expected,), special=True
    )
    infinite, expected = value.clone(), plain.expected[0].clone()
    infinite[..., 2, 0] = torch.inf
    expected[..., 0] = torch.inf
    yield ExactSample(
        input="infinity in a value",
        shape=plain.shape,
        inputs=(query, key, infinite),
        expected=(expected,),
        special=True,
    )


def padded_rows(precision: str, kind: str, layout: Layout) -> ExactSample:
    """Zero queries over the first half of the keys; the second half of the rows is padding and sees none.

    A boolean mask makes padding exactly zero. An additive one, the dtype's own minimum everywhere in such a row, leaves
    all its scores equal: the mean of all values, finite in any case.
    """
    dtype = STORAGE[precision]
    plain = equal_weights(precision, layout)
    valid = torch.arange(layout.keys) < layout.keys // 2
    visible = (valid[:, None] & valid[None, :]).expand(layout.batch, 1, layout.queries, layout.keys).contiguous()
    value = plain.inputs[2].double()
    seen = value[..., valid, :].mean(-2, keepdim=True).expand(layout.query_shape)
    everything = value.mean(-2, keepdim=True).expand(layout.query_shape)
    real = valid[:, None].expand(layout.query_shape)
    zeros = torch.zeros_like(seen)
    padding = zeros if kind == "boolean" else everything
    signatures = {PADDED_NAN: torch.full_like(seen, torch.nan)}
    if kind == "boolean":
        signatures[MASKED_FINITELY] = everything
    return ExactSample(
        input="equal weights, padded rows",
        shape=layout.words,
        inputs=(*plain.inputs, visible if kind == "boolean" else additive(visible, dtype)),
        expected=(torch.where(real, seen, padding).to(dtype),),
        signatures={name: (torch.where(real, seen, wrong).to(dtype),) for name, wrong in signatures.items()},
    )


def codes(keys: int, depth: int) -> Tensor:
    """+-1 keys [keys, depth], keys <= 2 depth: two differ in half of their places, or in all if `depth` rows apart."""
    rows = torch.from_numpy(hadamard(depth)).double()
    return torch.cat([rows, -rows])[:keys]


def pointed(precision: str, layout: Layout, window: int) -> ExactSample:
    """Each query points at one of the last `window` keys, half of them at its own, and twice as hard at hidden keys.

    Those just hidden, the next key and the one before the window, would win if they were seen: the output is a copy of
    one row of V, another row if the mask is off by one. Half of the queries lie where a window has no earlier key.
    """
    dtype, length = STORAGE[precision], layout.keys
    key = codes(length, layout.depth)
    rng = generator("targets of pointed queries", 0)
    rows = torch.arange(length)
    target = torch.from_numpy(rng.integers(torch.clamp(rows - min(window, 32) + 1, min=0).numpy(), rows.numpy() + 1))
    target = torch.where(rows % 2 == 0, rows, target)
    following, leaving = (rows + 1).clamp(max=length - 1), (rows - window).clamp(min=0)
    has_next, has_earlier = (rows + 1 < length)[:, None], (rows - window >= 0)[:, None]
    # Rows take turns, so that a mask wrong at one edge is named by the rows that point beyond that edge.
    ahead = (rows % 4 < 2)[:, None] & has_next if window < length else has_next
    query = key[target] + 2.0 * ahead * key[following] + 2.0 * (~ahead & has_earlier) * key[leaving]
    value = short_values(layout, dtype, "values of pointed queries")
    signatures = {SEES_FUTURE: torch.where(ahead[:, 0], following, target)}
    if window < length:
        signatures[WINDOW_WIDER] = torch.where((~ahead & has_earlier)[:, 0], leaving, target)
    return ExactSample(
        input="one weight of 1",
        shape=layout.words,
        inputs=(
            (POINTER * query).expand(layout.query_shape).to(dtype).contiguous(),
            key.expand(layout.key_shape).to(dtype).contiguous(),
            value,
        ),
        expected=(value[..., target, :],),
        signatures={name: (value[..., wrong, :],) for name, wrong in signatures.items()},
    )


def shared_heads(precision: str, layout: Layout) -> ExactSample:
    """Grouped queries that each point at one key up to their own: a copy of V of their own group's head."""
    dtype, group = STORAGE[precision], layout.heads // layout.kv_heads
    key = codes(layout.keys, layout.depth)
    latest = torch.arange(1, layout.queries + 1).numpy()
    target = torch.from_numpy(generator("targets of grouped queries", 0).integers(0, latest))
    value = short_values(layout, dtype, "values of grouped queries")
    interleaved = value.repeat(1, group, 1, 1)
    return ExactSample(
        input="one weight of 1",
        shape=layout.words,
        inputs=(
            (POINTER * key[target]).expand(layout.query_shape).to(dtype).contiguous(),
            key.expand(layout.key_shape).to(dtype).contiguous(),
            value,
        ),
        expected=(repeated(value, group)[..., target, :],),
        signatures={KV_INTERLEAVED: (interleaved[..., target, :],)},
    )


def long_cache(precision: str, layout: Layout) -> Iterator[ExactSample]:
    """One query: equal weights on ones, which saturate narrow sums, and a pointer at the newest of all keys."""
    dtype = STORAGE[precision]
    ones = torch.ones(layout.key_shape, dtype=dtype)
    key = make("gaussian", layout.key_shape, dtype, 0, "keys of a long cache")
    zero: Tensors = (torch.zeros(layout.query_shape, dtype=dtype), key, ones)
    # A sum of ones stops at 2^p in a format of p bits: 2^p / K if weights are added up, K / 2^p if their sum divides.
    stops = 2.0 / torch.finfo(dtype).eps
    narrow = {NARROW_OUTPUT: stops / layout.keys, NARROW_SUM: layout.keys / stops} if dtype != torch.float32 else {}
    output = torch.ones(layout.query_shape, dtype=dtype)
    yield ExactSample(
        input="equal weights on ones",
        shape=layout.words,
        inputs=zero,
        expected=(output,),
        signatures={name: (output * wrong,) for name, wrong in narrow.items()},
    )
    rng = generator("keys around a pointer", 0)
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], layout.key_shape))
    signs[..., -1, :] = 1.0
    # The last key but one is second best: the one found where the last is missing.
    signs[..., -2, :] = 1.0
    signs[..., -2, :8] = -1.0
    value = short_values(layout, dtype, "values of a long cache")
    yield ExactSample(
        input="one weight of 1 on the newest key",
        shape=layout.words,
        inputs=(torch.full(layout.query_shape, 4.0 * POINTER, dtype=dtype), signs.to(dtype), value),
        expected=(value[..., -1:, :],),
        signatures={LAST_MISSING: (value[..., -2:-1, :],)},
    )
