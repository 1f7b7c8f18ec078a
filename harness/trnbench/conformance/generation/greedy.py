"""Greedy decoding through prefill and the cache, and where two decodings part.

Two correct implementations part where the two best tokens are nearer to each other than the rounding of the logits.
Token equality is therefore no check. What is checked is the margin: how far below the best token, by the float64 oracle
at the first position that differs, the device's own choice lies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor

from trnbench.conformance.model.runs import CompileFunction, Wait, as_is, no_wait
from trnbench.workloads.inference import decode_step, prefill_step

if TYPE_CHECKING:
    from trnbench.workloads.decoder import Decoder


class Greedy(msgspec.Struct, frozen=True):
    """`tokens` int64 [B, N]; `logits` float64 [B, N, vocab_size], those that each token was chosen from."""

    tokens: Tensor
    logits: Tensor


class Divergence(msgspec.Struct, frozen=True):
    """Where a sequence leaves the oracle's: `index` of the new token, None if never; the oracle's `margin` there."""

    index: int | None
    margin: float


@torch.no_grad()
def decode_greedily(
    model: Decoder, prompts: Tensor, steps: int, compile_function: CompileFunction = as_is, wait: Wait = no_wait
) -> Greedy:
    """Continue `prompts` [B, P] by `steps` tokens, each the most probable one, through the key-value cache."""
    device = model.embedding.weight.device
    batch, length = prompts.shape
    cache = model.new_cache(batch, length + steps)
    tokens = prompts.to(device)
    positions = torch.full((batch,), length, dtype=torch.int64).to(device)

    def run_prefill(tokens: Tensor, lengths: Tensor, first: Tensor, cache: Any) -> tuple[Tensor, Tensor]:
        return prefill_step(model, tokens, lengths, first, cache)

    def run_decode(tokens: Tensor, positions: Tensor, cache: Any) -> tuple[Tensor, Tensor, Tensor]:
        return decode_step(model, tokens, positions, cache)

    chosen, logits = compile_function(run_prefill)(tokens, positions, tokens[:, 0].clone(), cache)
    decode = compile_function(run_decode)
    said, seen = [], []
    for step in range(steps):
        wait([chosen, logits])
        said.append(chosen.cpu())
        seen.append(logits.cpu().to(torch.float64))
        if step + 1 < steps:
            chosen, positions, logits = decode(chosen, positions, cache)
    return Greedy(tokens=torch.stack(said, 1), logits=torch.stack(seen, 1))


def divergences(device: Greedy, oracle: Greedy) -> list[Divergence]:
    """For each sequence its first differing token. Up to there the prefix is the same, so the oracle's logits hold."""
    found = []
    for said, right, logits in zip(device.tokens, oracle.tokens, oracle.logits, strict=True):
        differs = (said != right).nonzero()
        if differs.numel() == 0:
            found.append(Divergence(index=None, margin=0.0))
            continue
        index = int(differs[0])
        margin = logits[index].max() - logits[index, said[index]]
        found.append(Divergence(index=index, margin=float(margin)))
    return found


def survival(found: list[Divergence], steps: int) -> str:
    """The divergences as a survival curve in words: the share of sequences that still agree after 8, 16, ... tokens."""
    points = sorted({max(1, steps * part // 4) for part in (1, 2, 3, 4)})
    shares = [sum(one.index is None or one.index >= point for one in found) for point in points]
    curve = ", ".join(f"{share} of {len(found)} after {point}" for share, point in zip(shares, points, strict=True))
    return f"sequences that still agree: {curve} tokens"
