"""A text in the source's place: its split, its tokens, and one sentence for each way in which it can be wrong."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from trnbench.status import UsageError
from trnbench.workloads import text
from trnbench.workloads.presets import Preset, preset
from trnbench.workloads.recipes import recipe_of
from trnbench.workloads.source import TokenSource

if TYPE_CHECKING:
    from pathlib import Path

    from trnbench.workloads.recipe import Recipe


@pytest.fixture
def recipe() -> Recipe:
    return msgspec.structs.replace(
        recipe_of("nano", "pretrain"), batch=4, micro_batch=2, sequence=8, evaluation_sequences=6
    )


@pytest.fixture
def nano() -> Preset:
    return preset("nano")


def test_a_file_gives_the_bytes_of_its_text(tmp_path: Path, recipe: Recipe, nano: Preset) -> None:
    path = tmp_path / "numbers.txt"
    path.write_text("é" + "".join(f"{number} " for number in range(300)), "utf-8")
    raw = path.read_bytes()
    data = text.open_data(str(path), nano, recipe)
    for batch in (data.batch(0, 0), data.batch(3, 7), data.evaluation()):
        for tokens, targets in zip(batch.tokens, batch.targets, strict=True):
            window = bytes([*tokens.tolist(), int(targets[-1])])
            assert window in raw
            assert window[1:] == bytes(targets.tolist())
    assert data.floor is None
    assert data.bigram_floor is None
    assert "not known" in data.floor_reason
    assert data.describe()["data"] == "numbers.txt"
    assert data.describe()["tokens_are"] == "bytes of UTF-8"


def test_training_windows_never_reach_into_the_held_out_part(recipe: Recipe) -> None:
    """Every token is its own place, so a window shows where it lies; all training starts are drawn at last."""
    data = text.TextData(np.arange(300), "places", "places", recipe)
    train = np.concatenate([data.batch(seed, step).targets for seed in range(5) for step in range(200)])
    assert train.max() == 239
    assert train.min() == 1
    held_out = data.evaluation()
    assert held_out.tokens.shape == (6, 8)
    assert held_out.tokens.min() == 240
    assert held_out.targets.max() == 299
    assert len(np.unique(held_out.targets)) == held_out.targets.size


def test_the_shortest_text_is_long_enough(recipe: Recipe) -> None:
    least = 5 * (6 * 8 + 1)
    assert text.TextData(np.arange(least), "short", "places", recipe).evaluation().targets.max() == least - 1
    with pytest.raises(UsageError, match=rf"text short has 240 tokens; 6 evaluation .* a text of at least {least}"):
        text.TextData(np.arange(240), "short", "places", recipe)


def test_seed_and_step_decide_and_the_batch_size_does_not(recipe: Recipe) -> None:
    data = text.TextData(np.arange(300), "places", "places", recipe)
    halved = text.TextData(np.arange(300), "places", "places", msgspec.structs.replace(recipe, batch=2))
    whole = data.batch(5, 1).tokens
    assert (np.concatenate([halved.batch(5, 2).tokens, halved.batch(5, 3).tokens]) == whole).all()
    assert not (data.batch(6, 1).tokens == whole).all()
    assert not (data.batch(5, 2).tokens == whole).all()


def test_the_source_knows_its_floors(recipe: Recipe, nano: Preset) -> None:
    data = text.open_data("source", nano, recipe)
    source = TokenSource(recipe.symbols, recipe.tables)
    held_out = source.sequences("evaluation", 0, 0, 6, 8)
    assert (data.evaluation().tokens == held_out[:, :-1]).all()
    assert data.floor == source.floor(held_out)
    assert data.bigram_floor == source.bigram_floor(held_out)
    assert data.floor_reason == ""
    assert (data.batch(2, 3).tokens == source.sequences("train", 2, 12, 4, 8)[:, :-1]).all()
    with pytest.raises(UsageError, match=r"has 16 symbols; the vocabulary of nano has 8"):
        text.open_data("source", msgspec.structs.replace(nano, vocab_size=8), recipe)


def test_the_shipped_text_is_plain_and_long_enough() -> None:
    shipped = text.read_text("shipped")
    assert 8_000 < len(shipped.encode()) < 20_000
    assert shipped.isascii()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"text .*wrong\.txt is empty"),
        (b" \n", r"text .*wrong\.txt is empty"),
        (b"fine\xff", r"wrong\.txt is not UTF-8: byte 4 is 0xff"),
        (b"short", r"text wrong\.txt has 5 tokens"),
    ],
)
def test_a_wrong_file_is_one_sentence(
    tmp_path: Path, recipe: Recipe, nano: Preset, content: bytes, message: str
) -> None:
    path = tmp_path / "wrong.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        text.open_data(str(path), nano, recipe)


def test_a_missing_file_and_a_folder_are_one_sentence(tmp_path: Path, recipe: Recipe, nano: Preset) -> None:
    with pytest.raises(UsageError, match=r"there is no text file .*none\.txt; data are 'source', 'shipped'"):
        text.open_data(str(tmp_path / "none.txt"), nano, recipe)
    with pytest.raises(UsageError, match=r"cannot be read: Is a directory"):
        text.open_data(str(tmp_path), nano, recipe)


def test_bytes_need_a_vocabulary_of_256(recipe: Recipe, nano: Preset) -> None:
    with pytest.raises(UsageError, match="vocabulary of 255; the bytes of a text need 256"):
        text.open_data("shipped", msgspec.structs.replace(nano, vocab_size=255), recipe)


def test_without_the_hub_client_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, recipe: Recipe, nano: Preset
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match="reading hf:some/name needs the package datasets"):
        text.open_data("hf:some/name", nano, recipe)


def test_rows_of_the_hub_become_one_text(monkeypatch: pytest.MonkeyPatch, recipe: Recipe, nano: Preset) -> None:
    asked: list[tuple[Any, ...]] = []

    def load_dataset(name: str, configuration: str | None, *, split: str, streaming: bool) -> list[dict[str, str]]:
        asked.append((name, configuration, split, streaming))
        if name == "absent":
            raise ConnectionError("the hub is away")
        return [{"content": "x"}] if name == "other" else [{"text": f"row {number}"} for number in range(99)]

    client = types.ModuleType("datasets")
    client.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", client)
    assert text.read_text("hf:some/name:plain").startswith("row 0\nrow 1\n")
    assert asked == [("some/name", "plain", "train", True)]
    assert text.open_data("hf:some/name", nano, recipe).describe()["data"] == "hf:some/name"
    monkeypatch.setattr(text, "HUB_CHARACTERS", 11)
    assert text.read_text("hf:some/name") == "row 0\nrow 1"
    with pytest.raises(UsageError, match=r"hf:other has no column of strings called 'text'; it has \['content'\]"):
        text.read_text("hf:other")
    with pytest.raises(UsageError, match="hf:absent cannot be read: the hub is away"):
        text.read_text("hf:absent")


@pytest.mark.real_model
def test_the_models_own_tokenizer_is_used() -> None:
    """Against tokens of a fixed text that were made by another reader of the same vocabulary; digits stand alone."""
    pytest.importorskip("transformers", reason="needs the extra real-model")
    gguf = pytest.importorskip("gguf", reason="needs the extra real-model")
    from trnbench.conformance.text import SMOLLM2_TOKENS, TEXT
    from trnbench.workloads.weights import smollm2_file

    tokens, kind = text.encode(f"{TEXT} 128\n", preset("smollm2-135m"))
    assert tuple(tokens[: len(SMOLLM2_TOKENS)].tolist()) == SMOLLM2_TOKENS
    field = gguf.GGUFReader(smollm2_file()).get_field("tokenizer.ggml.tokens")
    assert field is not None
    vocabulary = field.contents()
    assert [vocabulary[token] for token in tokens[len(SMOLLM2_TOKENS) :]] == ["\u0120", "1", "2", "8", "\u010a"]
    assert "SmolLM2" in kind


def test_without_the_tokenizer_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(text, "smollm2_file", lambda: tmp_path / "model.gguf")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match="the tokenizer of smollm2-135m needs transformers; install the extra"):
        text.encode("a text", preset("smollm2-135m"))
