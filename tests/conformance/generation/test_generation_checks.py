"""Generation: what is judged, what is excused, and that faults of cache, position and copy are seen."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))

from small import PRESET

from trnbench.backends.select import open_backend
from trnbench.case import grid
from trnbench.conformance.generation import check as generation
from trnbench.conformance.generation.checkpoint import DELICATE, changed_tensors, delicate, same_bits
from trnbench.conformance.generation.greedy import Divergence, Greedy, divergences, survival
from trnbench.conformance.model.comparables import error_ratio, logit_matching
from trnbench.conformance.text import NEW_TOKENS, PROMPTS, SMOLLM2_TOKENS, TEXT, prompts, text_tokens
from trnbench.workloads import decoder
from trnbench.workloads.weights import smollm2_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.records.schema import Check


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with mock.patch.dict("os.environ", {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}):
        yield


def checks(precision: str) -> dict[str, Check]:
    """All checks of a small decoder on the CPU."""
    (case,) = grid(
        suite="x",
        tier="smoke",
        workload="nano",
        phase="generation",
        precision=precision,
        mode="eager",
        batch=4,
        sequence=48,
    )
    with mock.patch.object(generation, "preset", return_value=PRESET):
        found = generation.check_generation(case, open_backend("cpu"))
    return {check.check.removeprefix("generation/"): check for check in found}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_cpu_generates_as_it_should(precision: str) -> None:
    found = checks(precision)
    assert {name: check.verdict for name, check in found.items() if check.verdict not in ("pass", "reported")} == {}
    judged = ["teacher-forced logits", "perplexity", "greedy tokens", "repeatability", "checkpoint"]
    assert [found[name].verdict for name in judged] == ["pass"] * 5
    assert found["batch invariance"].verdict == "reported"
    assert ", by the oracle " in found["perplexity"].where
    assert "4 prompts of 16 tokens" in found["greedy tokens"].where


def test_a_cache_read_one_slot_too_far_shows_in_the_tokens() -> None:
    """Only decoding uses the cache, so the logits of the whole text stay right and the tokens do not."""
    true_decode = decoder.Decoder.decode

    def decode(self: decoder.Decoder, tokens: torch.Tensor, positions: torch.Tensor, cache: object) -> torch.Tensor:
        shifted = positions + (0 if self.compute_dtype == torch.float64 else 1)
        return true_decode(self, tokens, shifted.clamp(max=self.rotary.cos.shape[0] - 1), cache)  # type: ignore[arg-type]

    with mock.patch.object(decoder.Decoder, "decode", decode):
        found = checks("fp32")
    assert found["teacher-forced logits"].verdict == "pass"
    assert found["greedy tokens"].verdict == "fail"
    assert found["greedy tokens"].value > 1.0


def test_a_nondeterministic_device_is_flagged_and_its_noise_judged() -> None:
    """C8: the same shape twice gives equal bits, or it is told."""
    true_forward = decoder.Decoder.forward
    calls = []

    def forward(self: decoder.Decoder, tokens: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return true_forward(self, tokens) * (1.0 + 1e-7 * len(calls))

    with mock.patch.object(decoder.Decoder, "forward", forward):
        found = checks("fp32")
    assert found["repeatability"].verdict == "reported"
    assert "not deterministic" in found["repeatability"].where


def test_a_result_that_is_not_finite_is_judged_first() -> None:
    true_forward = decoder.Decoder.forward
    spoilt = mock.patch.object(decoder.Decoder, "forward", lambda self, x: true_forward(self, x).fill_(math.nan))
    with spoilt:
        found = checks("fp32")
    assert [check.verdict for check in found.values()] == ["non-finite"]
    assert next(iter(found.values())).value is None


def greedy(tokens: list[list[int]], logits: list[list[list[float]]]) -> Greedy:
    return Greedy(tokens=torch.tensor(tokens), logits=torch.tensor(logits, dtype=torch.float64))


def test_the_margin_is_the_oracles_at_the_first_difference() -> None:
    oracle = greedy([[0, 1, 0]], [[[3.0, 1.0, 0.0], [0.0, 2.0, 1.5], [9.0, 0.0, 0.0]]])
    device = greedy([[0, 2, 2]], [[[0.0, 0.0, 0.0]] * 3])
    assert divergences(device, oracle) == [Divergence(index=1, margin=0.5)]
    assert divergences(oracle, oracle) == [Divergence(index=None, margin=0.0)]
    assert survival([Divergence(index=1, margin=0.5), Divergence(index=None, margin=0.0)], 4) == (
        "sequences that still agree: 2 of 2 after 1, 1 of 2 after 2, 1 of 2 after 3, 1 of 2 after 4 tokens"
    )


@given(st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=4))
def test_a_sequence_agrees_up_to_its_divergence(said: list[list[int]]) -> None:
    oracle = greedy([[0] * 5] * len(said), [[[4.0, 3.0, 2.0, 1.0]] * 5] * len(said))
    for tokens, found in zip(said, divergences(greedy(said, oracle.logits.tolist()), oracle), strict=True):
        kept = 5 if found.index is None else found.index
        assert tokens[:kept] == [0] * kept
        assert found.margin == (0.0 if found.index is None else tokens[found.index])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_delicate_values_are_delicate(dtype: torch.dtype) -> None:
    """A copy through another dtype, or one that flushes, changes some; the patterns are of every kind."""
    values = delicate(dtype)
    assert changed_tensors({DELICATE: values}, torch.device("cpu"), lambda outputs: None) == []
    flushed = torch.where(values.abs() < torch.finfo(dtype).tiny, torch.zeros_like(values), values)
    assert not same_bits(values, flushed)
    assert not same_bits(values, torch.nan_to_num(values))
    assert not same_bits(values, values + 0.0), "adding zero loses the sign of -0 or the payload of NaN"
    assert bool(values.isnan().any() & values.isinf().any() & torch.signbit(values).any())


def test_a_copy_that_narrows_or_loses_a_bit_is_named() -> None:
    weights = {"a": torch.ones(3), "b": torch.full((2,), 1.0 + 2**-20)}
    narrowing = mock.patch.object(torch.Tensor, "to", lambda self, device: self.bfloat16().float())
    with narrowing:
        assert changed_tensors(weights, torch.device("cpu"), lambda outputs: None) == ["b"]
    assert not same_bits(torch.ones(2), torch.ones(2).bfloat16())
    assert not same_bits(torch.ones(2), torch.ones(2, 1))


def test_prompts_are_windows_of_the_text() -> None:
    text = text_tokens("smollm2-135m", 49152)
    found = prompts(text)
    assert found.shape == (PROMPTS, 16)
    whole = text[0].tolist()
    for row in found.tolist():
        assert any(whole[start : start + 16] == row for start in range(len(whole)))
    assert text_tokens("nano", 4096).shape == text.shape
    assert text.shape[1] >= NEW_TOKENS + 16


@pytest.mark.real_model
def test_the_tokens_are_the_texts() -> None:
    """Byte-level BPE of the weight file itself: joining the pieces gives back the text."""
    pytest.importorskip("gguf", reason="needs the extra real-model")
    from gguf import GGUFReader

    field = GGUFReader(smollm2_file()).get_field("tokenizer.ggml.tokens")
    assert field is not None
    pieces = [field.contents(token) for token in SMOLLM2_TOKENS]
    assert "".join(pieces).replace("\u0120", " ") == TEXT


def test_the_comparables_by_hand() -> None:
    """AWS's ratio is a quotient of errors; logit matching forgives a constant offset and nothing else."""
    assert error_ratio(3.0, [1.0, 3.0]) == 1.5
    oracle = torch.tensor([[10.0, 5.0, 1.0], [8.0, 0.0, 4.0]], dtype=torch.float64)
    assert logit_matching(oracle + 0.25, oracle, None) == 0.0
    changed = oracle.clone()
    changed[0, 1] += 0.3
    assert logit_matching(changed, oracle, None) == pytest.approx(0.2 / 10.0)
    assert logit_matching(changed, oracle, 1) == 0.0
