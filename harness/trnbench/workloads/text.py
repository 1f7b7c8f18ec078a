"""What a model is trained on to quality: the token source, or a text that stands in its place.

A text is a local UTF-8 file, the one that this package ships, or a data set of the Hugging Face hub. Its last fifth, by
position in tokens, is held out for evaluation; training windows begin anywhere in the rest and never reach into it.
Nobody knows the loss that the best predictor of a text would have, so a text has no floor.
"""

from __future__ import annotations

import hashlib
import importlib
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from trnbench.status import UsageError
from trnbench.workloads.data import TokenBatch, raw_bits
from trnbench.workloads.source import Tokens, TokenSource, halves, whole_batch
from trnbench.workloads.weights import SMOLLM2_PRESET, smollm2_file

if TYPE_CHECKING:
    from trnbench.device import Scalar
    from trnbench.workloads.presets import Preset
    from trnbench.workloads.recipe import Recipe

SOURCE = "source"
SHIPPED = "shipped"
HUB = "hf:"

SHIPPED_TEXT = "texts/measuring.txt"
"""A glossary of measuring accelerators, written for this package: every entry has the same four lines."""

EVALUATION_ONE_IN = 5
"""The last one in this many tokens of a text is held out."""

HUB_CHARACTERS = 1 << 26
"""A data set of the hub is read row by row until it has given this many characters; none is needed whole."""

BYTE_VALUES = 256

_DOMAIN = 0x74657874
_NO_TEXT_FLOOR = "the loss of the best possible predictor of a text is not known"


class Data(Protocol):
    """Training batches by seed and step, and one evaluation set for all seeds."""

    floor: float | None
    """Mean Bayes-optimal loss of the evaluation set, nats per token; None where it is not known."""

    floor_reason: str
    """Why there is no floor; empty where there is one."""

    bigram_floor: float | None
    """Mean loss of the evaluation set that the last token alone allows; None where it is not known."""

    def batch(self, seed: int, step: int) -> TokenBatch:
        """The global batch of step 0, 1, ... in the order of `seed`."""
        ...

    def evaluation(self) -> TokenBatch:
        """All evaluation sequences, the same at every call."""
        ...

    def describe(self) -> dict[str, Scalar]:
        """What the data are, for a record."""
        ...


class SourceData:
    """Sequences of a `TokenSource`; the place of a sequence in a seed's list does not depend on the batch size."""

    def __init__(self, recipe: Recipe, preset: Preset) -> None:
        if recipe.symbols > preset.vocab_size:
            raise UsageError(
                f"the recipe has {recipe.symbols} symbols; the vocabulary of {preset.name} has {preset.vocab_size}"
            )
        self._source = TokenSource(recipe.symbols, recipe.tables)
        self._batch, self._length = recipe.batch, recipe.sequence
        self._held_out = self._source.sequences("evaluation", 0, 0, recipe.evaluation_sequences, recipe.sequence)
        self.floor: float | None = self._source.floor(self._held_out)
        self.bigram_floor: float | None = self._source.bigram_floor(self._held_out)
        self.floor_reason = ""

    def batch(self, seed: int, step: int) -> TokenBatch:
        return whole_batch(self._source.sequences("train", seed, step * self._batch, self._batch, self._length))

    def evaluation(self) -> TokenBatch:
        return whole_batch(self._held_out)

    def describe(self) -> dict[str, Scalar]:
        return {
            "data": "token source",
            "symbols": self._source.symbols,
            "tables": self._source.tables,
            "entropy_rate": self._source.entropy_rate,
            "unigram_floor": self._source.unigram_floor,
        }


class TextData:
    """Windows of one text of tokens, int64 [N], called `name` in messages.

    Raises `UsageError` where the text has too few tokens for one training window and all evaluation windows.
    """

    floor: float | None = None
    floor_reason = _NO_TEXT_FLOOR
    bigram_floor: float | None = None

    def __init__(self, tokens: Tokens, name: str, kind: str, recipe: Recipe) -> None:
        self._sha256 = hashlib.sha256(tokens.astype("<i8").tobytes()).hexdigest()
        held_out = tokens.size // EVALUATION_ONE_IN
        self._train, evaluation = tokens[: tokens.size - held_out], tokens[tokens.size - held_out :]
        self._name, self._kind, self._batch, self._length = name, kind, recipe.batch, recipe.sequence
        count, needed = recipe.evaluation_sequences, recipe.evaluation_sequences * recipe.sequence + 1
        if evaluation.size < needed or self._train.size <= recipe.sequence:
            least = max(needed * EVALUATION_ONE_IN, 2 * recipe.sequence + 2)
            raise UsageError(
                f"text {name} has {tokens.size} tokens; {count} evaluation sequences of {recipe.sequence} tokens from "
                f"its last fifth need a text of at least {least}"
            )
        # Spread over the held-out part; windows that follow each other share the token between them as in `batch`.
        starts = np.arange(count) * (evaluation.size - 1 - recipe.sequence) // max(count - 1, 1)
        self._held_out = self._windows(evaluation, starts)

    def _windows(self, tokens: Tokens, starts: Tokens) -> Tokens:
        windows: Tokens = tokens[starts[:, None] + np.arange(self._length + 1)]
        return windows

    def batch(self, seed: int, step: int) -> TokenBatch:
        """Windows whose starts are drawn with replacement, each from the seed and its place in the seed's list."""
        places = range(step * self._batch, (step + 1) * self._batch)
        words = np.concatenate([raw_bits(1, [_DOMAIN, *halves(seed), *halves(place), 1]) for place in places])
        starts = (words % np.uint64(self._train.size - self._length)).astype(np.int64)
        return whole_batch(self._windows(self._train, starts))

    def evaluation(self) -> TokenBatch:
        return whole_batch(self._held_out)

    def describe(self) -> dict[str, Scalar]:
        return {
            "data": self._name,
            "data_sha256": self._sha256,
            "tokens_are": self._kind,
            "train_tokens": int(self._train.size),
            "split": f"the last 1/{EVALUATION_ONE_IN} of the tokens is held out for evaluation",
        }


def open_data(spec: str, preset: Preset, recipe: Recipe) -> Data:
    """The data that `spec` names: "source", "shipped", "hf:NAME" or "hf:NAME:CONFIGURATION", or the path of a text.

    Raises `UsageError` where the text is missing, empty, not UTF-8 or too short, where the hub's client or the
    tokenizer is not installed, and where the preset's vocabulary is too small.
    """
    if spec == SOURCE:
        return SourceData(recipe, preset)
    text = read_text(spec)
    tokens, kind = encode(text, preset)
    name = spec if spec == SHIPPED or spec.startswith(HUB) else Path(spec).name
    return TextData(tokens, name, kind, recipe)


def read_text(spec: str) -> str:
    """The text that `spec` names; raises `UsageError` as `open_data`."""
    if spec == SHIPPED:
        return resources.files("trnbench.workloads").joinpath(SHIPPED_TEXT).read_text("utf-8")
    text = _read_hub(spec.removeprefix(HUB)) if spec.startswith(HUB) else _read_file(Path(spec))
    if not text.strip():
        raise UsageError(f"text {spec} is empty")
    return text


def _read_file(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise UsageError(
            f"there is no text file {path}; data are {SOURCE!r}, {SHIPPED!r}, '{HUB}NAME' or the path of a UTF-8 file"
        ) from None
    except OSError as error:
        raise UsageError(f"the text file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"the text file {path} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}"
        ) from None


def _read_hub(name: str) -> str:
    """The column "text" of the split "train", rows joined by line ends, up to `HUB_CHARACTERS`."""
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise UsageError(f"reading {HUB}{name} needs the package datasets, which is not installed here") from None
    repository, _, configuration = name.partition(":")
    try:
        rows = datasets.load_dataset(repository, configuration or None, split="train", streaming=True)
        return _join(rows, name)
    except UsageError:
        raise
    except Exception as error:
        # The client raises its own, its transport's and its file formats' errors; all of them mean the same here.
        raise UsageError(f"the data set {HUB}{name} cannot be read: {error}") from error


def _join(rows: Any, name: str) -> str:
    parts: list[str] = []
    length = 0
    for row in rows:
        if not isinstance(row.get("text"), str):
            raise UsageError(f"the data set {HUB}{name} has no column of strings called 'text'; it has {sorted(row)}")
        parts.append(row["text"])
        length += len(row["text"]) + 1
        if length >= HUB_CHARACTERS:
            break
    return "\n".join(parts)[:HUB_CHARACTERS]


def encode(text: str, preset: Preset) -> tuple[Tokens, str]:
    """The text's tokens, int64 [N], and what they are: the model's own, or bytes where the preset has no tokenizer.

    Raises `UsageError` where the tokenizer is not installed or the vocabulary has fewer than 256 entries.
    """
    if preset.name == SMOLLM2_PRESET:
        return np.array(_smollm2_tokens(text), dtype=np.int64), "tokens of SmolLM2's tokenizer"
    if preset.vocab_size < BYTE_VALUES:
        raise UsageError(
            f"preset {preset.name} has a vocabulary of {preset.vocab_size}; the bytes of a text need {BYTE_VALUES}"
        )
    return np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.int64), "bytes of UTF-8"


def _smollm2_tokens(text: str) -> list[int]:
    """By the tokenizer inside the weight file, without marks of beginning or end."""
    path = smollm2_file()
    try:
        transformers = importlib.import_module("transformers")
        importlib.import_module("gguf")
    except ImportError as error:
        raise UsageError(
            f"the tokenizer of {SMOLLM2_PRESET} needs {error.name}; install the extra 'real-model'"
        ) from None
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name, local_files_only=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
