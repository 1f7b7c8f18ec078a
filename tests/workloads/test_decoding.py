"""Prefill and decode over a static cache give what one full forward pass gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.workloads.inference import decode_step, prefill_step
from trnbench.workloads.initial import build_model

if TYPE_CHECKING:
    from trnbench.workloads.presets import Preset, RopeScaling


def stepwise_logits(model: Any, tokens: torch.Tensor, lengths: list[int], new_tokens: int) -> list[torch.Tensor]:
    """Logits [B, V] of the prefill and of each decode step, teacher-forced along `tokens` [B, T + new]."""
    prompt = tokens.shape[1] - new_tokens
    cache = model.new_cache(tokens.shape[0], tokens.shape[1])
    for keys, values in cache:
        keys.fill_(1e3)
        values.fill_(1e3)
    padded = tokens[:, :prompt].clone()
    for row, length in enumerate(lengths):
        padded[row, length:] = 0
    positions = torch.tensor(lengths)
    found = [model.prefill(padded, positions, cache)]
    for step in range(new_tokens):
        following = tokens[torch.arange(len(lengths)), positions + step]
        found.append(model.decode(following, positions + step, cache))
    return found


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(0, 4), st.sampled_from(["fused", "unfused"]))
def test_cache_and_full_forward_agree(tiny: Preset, lengths: list[int], new_tokens: int, attention: Any) -> None:
    """Unequal lengths; what padding or an earlier use left in the cache is never seen."""
    model = build_model(tiny, "fp64", "cpu", 1, attention=attention, inference=True, positions=16)
    generator = torch.Generator().manual_seed(len(lengths))
    tokens = torch.randint(tiny.vocab_size, (len(lengths), 7 + new_tokens), generator=generator)
    full = model(tokens)
    for step, logits in enumerate(stepwise_logits(model, tokens, lengths, new_tokens)):
        rows = torch.arange(len(lengths))
        assert torch.allclose(logits, full[rows, torch.tensor(lengths) - 1 + step], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("tied_head", [True, False])
def test_every_head_grouping_agrees(tiny: Preset, scaling: RopeScaling, kv_heads: int, tied_head: bool) -> None:
    changed = msgspec.structs.replace(tiny, kv_heads=kv_heads, tied_head=tied_head, rope_scaling=scaling)
    model = build_model(changed, "fp64", "cpu", 1, inference=True, positions=16)
    tokens = torch.arange(27).view(3, 9) % tiny.vocab_size
    full = model(tokens)
    for step, logits in enumerate(stepwise_logits(model, tokens, [5, 1, 3], 4)):
        assert torch.allclose(logits, full[torch.arange(3), torch.tensor([4, 0, 2]) + step], rtol=1e-12, atol=1e-14)


def test_padding_cannot_reach_a_real_token(tiny: Preset) -> None:
    model = build_model(tiny, "fp64", "cpu", 0, positions=8)
    tokens = torch.arange(8)[None] + 1
    other = tokens.clone()
    other[:, 5:] = 40
    assert torch.equal(model(tokens)[:, :5], model(other)[:, :5])
    assert not torch.equal(model(tokens)[:, 5:], model(other)[:, 5:])


def test_steps_choose_the_largest_logit_and_advance(tiny: Preset) -> None:
    model = build_model(tiny, "fp32", "cpu", 0, inference=True, positions=8)
    cache = model.new_cache(2, 8)
    tokens, lengths, first = torch.tensor([[9, 2, 3], [9, 5, 0]]), torch.tensor([3, 2]), torch.tensor([1, 4])
    token, logits = prefill_step(model, tokens, lengths, first, cache)
    expected = model(torch.tensor([[1, 2, 3], [4, 5, 0]]))[torch.arange(2), lengths - 1]
    assert torch.allclose(logits, expected, rtol=1e-5, atol=1e-6)
    assert token.tolist() == expected.argmax(-1).tolist()
    token, positions, logits = decode_step(model, token, lengths, cache)
    assert positions.tolist() == [4, 3]
    assert token.tolist() == logits.argmax(-1).tolist()
