"""The decoder: a Llama-architecture language model in plain PyTorch, with a static key-value cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from trnbench.status import UsageError
from trnbench.workloads.layers import (
    Attention,
    CacheSlot,
    Embedding,
    FeedForward,
    GroupedQueryAttention,
    LayerCache,
    Linear,
    RMSNorm,
    RotaryTable,
    Rotation,
    attention_mask,
    wide,
)

if TYPE_CHECKING:
    from trnbench.workloads.presets import Preset

Cache = list[LayerCache]
"""One pair of key and value tensors per layer; every shape is fixed when it is made."""


class Block(nn.Module):
    """One layer: attention and feed-forward, each behind a norm and added to the residual stream."""

    def __init__(self, preset: Preset, attention: Attention, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(preset.hidden, preset.norm_eps, dtype, device)
        self.attention = GroupedQueryAttention(preset, attention, dtype, device)
        self.feed_forward_norm = RMSNorm(preset.hidden, preset.norm_eps, dtype, device)
        self.feed_forward = FeedForward(preset, dtype, device)

    def forward(
        self, x: Tensor, rotation: Rotation, cache: LayerCache | None = None, slot: CacheSlot | None = None
    ) -> Tensor:
        """x [B, T, hidden] -> [B, T, hidden]; `cache` and `slot` as in `GroupedQueryAttention`."""
        attended: Tensor = x + self.attention(self.attention_norm(x), rotation, cache, slot)
        output: Tensor = attended + self.feed_forward(self.feed_forward_norm(attended))
        return output


class Decoder(nn.Module):
    """Tokens to logits. Parameters are uninitialised: `initial.build_model` or `weights` gives them values.

    `parameter_dtype` defaults to `compute_dtype`; `positions` is the longest sequence plus new tokens that will be
    asked for, by default all that the preset allows. Raises `UsageError` where the preset allows fewer.
    """

    def __init__(
        self,
        preset: Preset,
        compute_dtype: torch.dtype,
        attention: Attention = "fused",
        *,
        parameter_dtype: torch.dtype | None = None,
        device: torch.device | str = "cpu",
        positions: int | None = None,
    ) -> None:
        super().__init__()
        if positions is not None and positions > preset.max_positions:
            raise UsageError(f"{preset.name} has {preset.max_positions} positions; {positions} were asked for")
        self.preset = preset
        self.compute_dtype = compute_dtype
        dtype, device = parameter_dtype or compute_dtype, torch.device(device)
        self.rotary = RotaryTable(preset, positions or preset.max_positions, compute_dtype, device)
        self.embedding = Embedding(preset.vocab_size, preset.hidden, dtype, device)
        self.layers = nn.ModuleList(Block(preset, attention, dtype, device) for _ in range(preset.layers))
        self.norm = RMSNorm(preset.hidden, preset.norm_eps, dtype, device)
        self.head = None if preset.tied_head else Linear(preset.hidden, preset.vocab_size, dtype, device)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens [B, T] -> logits [B, T, vocab_size] in the wide dtype.

        Padding stands on the right, where causal attention already hides it from every real token.
        """
        return self._logits(self._hidden(tokens, None))

    def prefill(self, tokens: Tensor, lengths: Tensor, cache: Cache) -> Tensor:
        """Right-padded prompts [B, T] of `lengths` [B] -> logits [B, vocab_size] after each prompt's last token.

        Fills slots 0..T-1 of `cache`; `decode` overwrites or hides what padding left there.
        """
        hidden = self._hidden(tokens, cache)
        last = (lengths - 1).view(-1, 1, 1).expand(-1, 1, hidden.shape[-1])
        return self._logits(hidden.gather(1, last)).squeeze(1)

    def decode(self, tokens: Tensor, positions: Tensor, cache: Cache) -> Tensor:
        """One token [B] for each sequence at its own position [B] -> logits [B, vocab_size] for the next.

        Positions live on the device, so no position makes a new graph. Updates `cache` in place.
        """
        slots = torch.arange(cache[0][0].shape[2], device=tokens.device)
        mask = attention_mask(slots[None, :] <= positions[:, None], self.compute_dtype)[:, None, None, :]
        cos, sin = self.rotary(positions)
        rotation = (cos[:, None, None, :], sin[:, None, None, :])
        x = self.embedding(tokens[:, None]).to(self.compute_dtype)
        for index, block in enumerate(self.layers):
            x = block(x, rotation, cache[index], CacheSlot(positions, mask))
        return self._logits(self.norm(x)).squeeze(1)

    def new_cache(self, batch: int, slots: int) -> Cache:
        """An empty cache of `slots` positions for `batch` sequences, on the model's device."""
        shape = (batch, self.preset.kv_heads, slots, self.preset.head_dim)
        device = self.embedding.weight.device
        return [
            (
                torch.zeros(shape, dtype=self.compute_dtype, device=device),
                torch.zeros(shape, dtype=self.compute_dtype, device=device),
            )
            for _ in range(self.preset.layers)
        ]

    def _hidden(self, tokens: Tensor, cache: Cache | None) -> Tensor:
        length = tokens.shape[1]
        rotation = (self.rotary.cos[:length], self.rotary.sin[:length])
        x = self.embedding(tokens).to(self.compute_dtype)
        for index, block in enumerate(self.layers):
            x = block(x, rotation, None if cache is None else cache[index])
        hidden: Tensor = self.norm(x)
        return hidden

    def _logits(self, hidden: Tensor) -> Tensor:
        if self.head is None:
            logits = functional.linear(hidden, self.embedding.weight.to(hidden.dtype))
        else:
            logits = self.head(hidden)
        return logits.to(wide(self.compute_dtype))
