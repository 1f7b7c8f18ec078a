"""Floating-point operations of a step, by a named convention.

All conventions count matrix multiplications only, a multiply-add as 2, a backward pass as twice its forward pass,
and recomputation not at all. They differ in which tokens and which query-key pairs they count; two numbers compare
only under the same name. Norms, softmax, rotary embedding, the embedding look-up and the optimizer are left out.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from trnbench.status import UsageError
from trnbench.workloads.data import length_set
from trnbench.workloads.presets import Preset, parameter_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.case import Case

CONVENTION = "matmul-real-causal"
"""The convention of stored records and of MFU."""

CONVENTIONS: MappingProxyType[str, str] = MappingProxyType(
    {
        "matmul-real-causal": (
            "matmuls that real tokens need: padding left out, a token attends to itself and its predecessors, the "
            "head runs where a result is used; decode is the mean over the positions of one cache filling"
        ),
        "matmul-padded-full": (
            "matmuls that the static shapes execute: padding included, every query against every key of the padded "
            "sequence or cache"
        ),
        "6N+12LdT": (
            "PaLM (arXiv:2204.02311, appendix B): 6 per parameter and token plus 12 x layers x width x sequence, "
            "attention not halved for causality, over the padded shape; training only"
        ),
        "6N+6LdT": "as 6N+12LdT with attention halved for causality; training only",
    }
)
"""Every convention by name, with its definition."""


def attention_pairs(queries: int, keys: int, *, causal: bool = True, window: int | None = None) -> int:
    """Query-key pairs that one head evaluates for the last `queries` of `keys` positions.

    With `causal` a query at position p sees keys 0..p; with `window` only the newest `window` of those.
    Raises `UsageError` where there are more causal queries than keys, or a window without causality.
    """
    if not causal:
        if window is not None:
            raise UsageError("attention pairs: a window needs causal attention")
        return queries * keys
    if queries > keys:
        raise UsageError(f"attention pairs: {queries} causal queries cannot be the last of {keys} keys")
    seen_first = keys - queries + 1
    if window is None or window >= keys:
        return queries * (seen_first + keys) // 2
    growing = max(0, window - seen_first)
    return growing * (seen_first + window - 1) // 2 + (queries - growing) * window


def layer_flops(preset: Preset) -> int:
    """Forward FLOPs of one token's projections and feed-forward in all layers, attention and head left out."""
    attention = 2 * preset.hidden * preset.head_dim * (preset.heads + preset.kv_heads)
    feed_forward = 3 * preset.hidden * preset.ffn_hidden
    return 2 * preset.layers * (attention + feed_forward)


def head_flops(preset: Preset) -> int:
    """Forward FLOPs of the output head for one position."""
    return 2 * preset.hidden * preset.vocab_size


def pair_flops(preset: Preset) -> int:
    """Forward FLOPs of one query-key pair in all layers and heads: the score and the weighted value.

    Grouped heads share keys and values but every query head multiplies them, so the count follows `heads`.
    """
    return 2 * 2 * preset.layers * preset.heads * preset.head_dim


def forward_flops(preset: Preset, *, tokens: int, head_positions: int, pairs: int) -> int:
    """Forward FLOPs of `tokens` through the layers, `head_positions` through the head and `pairs` per head."""
    return layer_flops(preset) * tokens + head_flops(preset) * head_positions + pair_flops(preset) * pairs


def tokenwise_flops(parameters: int, layers: int, width: int, sequence: int, attention_factor: int) -> int:
    """Training FLOPs of one token as `6 N + attention_factor x L x d x T`; d is the width of all query heads.

    Published figures use 12 (PaLM), 7 or 6 as the factor; N counts every parameter.
    """
    return 6 * parameters + attention_factor * layers * width * sequence


def decode_flops(preset: Preset, visible: Sequence[int]) -> int:
    """FLOPs of one decode step; `visible[b]` is how many keys sequence b attends to, the new token included."""
    return forward_flops(preset, tokens=len(visible), head_positions=len(visible), pairs=sum(visible))


def flops_per_round(case: Case, preset: Preset, convention: str = CONVENTION) -> int:
    """FLOPs of one round of `case` on all its devices together, under one of `CONVENTIONS`.

    train_step counts one optimizer step over the global batch; prefill counts all prompts; decode one token for
    every sequence. Raises `UsageError` for an unknown convention, or one that does not cover the phase.
    """
    if convention not in CONVENTIONS:
        raise UsageError(f"there is no FLOP convention {convention!r}; the conventions are {', '.join(CONVENTIONS)}")
    if convention.startswith("6N"):
        if case.phase != "train_step":
            raise UsageError(f"FLOP convention {convention} covers train_step only, not {case.phase}")
        factor = 12 if convention == "6N+12LdT" else 6
        width = preset.heads * preset.head_dim
        per_token = tokenwise_flops(parameter_count(preset), preset.layers, width, case.sequence, factor)
        return per_token * case.batch * case.sequence

    real = convention == "matmul-real-causal"
    lengths = length_set(case.batch, case.sequence) if real else [case.sequence] * case.batch
    if case.phase == "decode":
        if not real:
            return decode_flops(preset, [case.sequence + case.new_tokens] * case.batch)
        # Summed over the cycle, then divided: the mean number of visible keys may be a half.
        cycle = [decode_flops(preset, [length + new for length in lengths]) for new in range(1, case.new_tokens + 1)]
        return sum(cycle) // case.new_tokens
    tokens = sum(lengths)
    pairs = sum(attention_pairs(length, length, causal=real) for length in lengths)
    if case.phase == "prefill":
        return forward_flops(preset, tokens=tokens, head_positions=case.batch, pairs=pairs)
    return 3 * forward_flops(preset, tokens=tokens, head_positions=tokens, pairs=pairs)
