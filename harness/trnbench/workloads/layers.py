"""The decoder's layers, and the precision policy that they share.

Parameters keep the dtype they were made in. Matrix operands are cast to the compute dtype where they are used, by an
explicit cast and never by autocast, so every backend computes the same policy. Statistics of norms, softmax and
rotary embedding run in `wide(compute dtype)`: float32, or float64 where the model computes in float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from trnbench.workloads.rope import rotary_angles

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.workloads.presets import Preset

Attention = Literal["fused", "unfused"]
LayerCache = tuple[Tensor, Tensor]
"""Keys and values of one layer, each [B, kv_heads, slots, head_dim] in the compute dtype."""

Rotation = tuple[Tensor, Tensor]
"""cos and sin in the wide dtype, broadcast against [B, heads, T, head_dim / 2]."""


class CacheSlot(NamedTuple):
    """Where one new token per sequence goes, `positions` [B], and what it sees: an additive mask [B, 1, 1, slots]."""

    positions: Tensor
    mask: Tensor


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of statistics beside operands of `dtype`: float32 or wider."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class Linear(nn.Module):
    """x [..., in] -> x @ weight.T [..., out] in x's dtype, without bias; `weight` is [out, in]."""

    def __init__(self, inputs: int, outputs: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, dtype=dtype, device=device))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight.to(x.dtype))


class Embedding(nn.Module):
    """Integer tokens [...] -> rows of `weight` [..., hidden], in the weight's dtype."""

    def __init__(self, vocab_size: int, hidden: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, hidden, dtype=dtype, device=device))

    def forward(self, tokens: Tensor) -> Tensor:
        return functional.embedding(tokens, self.weight)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, in the wide dtype, rounded once to x's dtype."""

    def __init__(self, hidden: int, eps: float, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden, dtype=dtype, device=device))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        widened = x.to(wide(x.dtype))
        scale = torch.rsqrt(widened.square().mean(-1, keepdim=True) + self.eps)
        return (widened * scale * self.weight.to(widened.dtype)).to(x.dtype)


class RotaryTable(nn.Module):
    """cos and sin of every position, [positions, head_dim / 2] in the wide dtype; not part of the state dict."""

    cos: Tensor
    sin: Tensor

    def __init__(self, preset: Preset, positions: int, compute_dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        angles = torch.from_numpy(rotary_angles(preset, positions))
        self.register_buffer("cos", angles.cos().to(wide(compute_dtype)).to(device), persistent=False)
        self.register_buffer("sin", angles.sin().to(wide(compute_dtype)).to(device), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryTable:
        # `model.bfloat16()` must move the table and never narrow it.
        del recurse
        self.cos = self.cos.to(fn(self.cos).device)
        self.sin = self.sin.to(fn(self.sin).device)
        return self

    def forward(self, positions: Tensor) -> Rotation:
        """Integer positions [...] -> cos, sin [..., head_dim / 2]."""
        return functional.embedding(positions, self.cos), functional.embedding(positions, self.sin)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn dimension pairs (i, i + head_dim / 2) of x [B, heads, T, head_dim]; the Hugging Face weight layout.

    cos and sin broadcast against [B, heads, T, head_dim / 2]. Computed in their dtype, returned in x's.
    """
    cos, sin = rotation
    first, second = x.to(cos.dtype).chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def attention_mask(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Boolean `visible` -> additive mask in `dtype`: 0 where visible, the dtype's own minimum elsewhere.

    float32's minimum becomes -inf in bfloat16, and a row without any visible key then turns to NaN
    (aws-neuron/aws-neuron-sdk#593); with the own minimum such a row stays finite.
    """
    hidden = torch.full((), torch.finfo(dtype).min, dtype=dtype, device=visible.device)
    return torch.where(visible, torch.zeros((), dtype=dtype, device=visible.device), hidden)


def causal_visibility(length: int, device: torch.device) -> Tensor:
    """Boolean [length, length]: query row sees the key columns up to its own position."""
    positions = torch.arange(length, device=device)
    return positions[None, :] <= positions[:, None]


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, attention: Attention) -> Tensor:
    """Softmax attention; query [B, heads, Q, D], key and value [B, heads, K, D] -> [B, heads, Q, D].

    `mask` is additive, broadcast to [B, heads, Q, K]; None means causal over Q = K. Scores are scaled by D ** -0.5.
    "unfused" rounds scores and probabilities to the compute dtype around a wide softmax; "fused" leaves both to
    `scaled_dot_product_attention`.
    """
    if attention == "fused":
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None)
    if mask is None:
        mask = attention_mask(causal_visibility(query.shape[-2], query.device), query.dtype)
    scores = torch.matmul(query, key.transpose(-2, -1)).to(wide(query.dtype)) * query.shape[-1] ** -0.5
    probabilities = torch.softmax(scores + mask, dim=-1).to(query.dtype)
    return torch.matmul(probabilities, value)


class GroupedQueryAttention(nn.Module):
    """Attention in which `heads / kv_heads` query heads share each key and value head (arXiv:2305.13245)."""

    def __init__(self, preset: Preset, attention: Attention, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = preset.heads, preset.kv_heads, preset.head_dim
        self.attention: Attention = attention
        query_width, kv_width = preset.heads * preset.head_dim, preset.kv_heads * preset.head_dim
        self.query = Linear(preset.hidden, query_width, dtype, device)
        self.key = Linear(preset.hidden, kv_width, dtype, device)
        self.value = Linear(preset.hidden, kv_width, dtype, device)
        self.output = Linear(query_width, preset.hidden, dtype, device)

    def _project(self, x: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor, Tensor]:
        """x [B, T, hidden] -> query [B, heads, T, D], key and value [B, kv_heads, T, D], rotated."""
        batch, length, _ = x.shape
        query = self.query(x).view(batch, length, self.heads, self.head_dim).transpose(1, 2)
        key = self.key(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        value = self.value(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        return rotate(query, rotation), rotate(key, rotation), value

    def _expand(self, x: Tensor) -> Tensor:
        """[B, kv_heads, T, D] -> [B, heads, T, D]: every shared head repeated for its group of queries."""
        batch, _, length, _ = x.shape
        grouped = x[:, :, None].expand(batch, self.kv_heads, self.heads // self.kv_heads, length, self.head_dim)
        return grouped.reshape(batch, self.heads, length, self.head_dim)

    def forward(
        self, x: Tensor, rotation: Rotation, cache: LayerCache | None = None, slot: CacheSlot | None = None
    ) -> Tensor:
        """x [B, T, hidden] -> [B, T, hidden].

        Without `slot`: causal attention over x, filling slots 0..T-1 of `cache` where one is given. With `slot`: T is
        1, x is written to its slot of the cache and attends to what the mask shows.
        """
        query, key, value = self._project(x, rotation)
        if slot is None or cache is None:
            mixed = self._whole(query, key, value, cache)
        else:
            mixed = self._next(query, key, value, cache, slot)
        output: Tensor = self.output(mixed)
        return output

    def _whole(self, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache | None) -> Tensor:
        """Causal attention over all T positions -> [B, T, heads * D]."""
        batch, _, length, _ = query.shape
        if cache is not None:
            cache[0][:, :, :length].copy_(key)
            cache[1][:, :, :length].copy_(value)
        mixed = attend(query, self._expand(key), self._expand(value), None, self.attention)
        return mixed.transpose(1, 2).reshape(batch, length, self.heads * self.head_dim)

    def _next(self, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache, slot: CacheSlot) -> Tensor:
        """Attention of one new token per sequence to the cache -> [B, 1, heads * D]."""
        batch = query.shape[0]
        index = slot.positions.view(batch, 1, 1, 1).expand(batch, self.kv_heads, 1, self.head_dim)
        cache[0].scatter_(2, index, key)
        cache[1].scatter_(2, index, value)
        # The queries of a group stand in the query-length dimension, so the cache is read once and never expanded.
        grouped = query.reshape(batch, self.kv_heads, self.heads // self.kv_heads, self.head_dim)
        mixed = attend(grouped, cache[0], cache[1], slot.mask, self.attention)
        return mixed.reshape(batch, 1, self.heads * self.head_dim)


class FeedForward(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)) (arXiv:2002.05202)."""

    def __init__(self, preset: Preset, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.gate = Linear(preset.hidden, preset.ffn_hidden, dtype, device)
        self.up = Linear(preset.hidden, preset.ffn_hidden, dtype, device)
        self.down = Linear(preset.ffn_hidden, preset.hidden, dtype, device)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return output
