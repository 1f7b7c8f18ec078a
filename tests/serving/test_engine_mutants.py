"""Faults of a serving engine, put into it one at a time: comparing with plain decoding must see each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from engine_world import drain, plain_answers, samples_of, serving_case, warm_engine

from trnbench.serving import rows as rows_module
from trnbench.serving.rows import Rows
from trnbench.workloads import decoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trnbench.serving.samples import Samples

COUNT = 16

_prefill, _decode_rows, _attention_mask, _decode, _run_decode = (
    rows_module.prefill_rows,
    rows_module.decode_rows,
    decoder.attention_mask,
    Rows.decode,
    Rows._run_decode,
)


def prefill_with(change: Any) -> Any:
    """`prefill_rows` on a group that `change(group, last)` has altered; the tokens stay right."""

    def mutant(model: Any, group: Any, last: Any, barred: Any, cache: Any) -> Any:
        kept = [(keys.clone(), values.clone()) for keys, values in cache]
        right = _prefill(model, group, last, barred, cache)
        for layer, before in zip(cache, kept, strict=True):
            for tensor, old in zip(layer, before, strict=True):
                tensor.copy_(old)
        _prefill(model, change(group, last), last, barred, cache)
        return right

    return mutant


def swapped_rows(group: Any, last: Any) -> Any:
    return group._replace(rows=group.rows.flip(0))


def padding_into_the_first_row(group: Any, last: Any) -> Any:
    scratch = last.shape[0] - 1
    return group._replace(rows=torch.where(group.rows == scratch, 0, group.rows))


def prompt_moved_by_one(group: Any, last: Any) -> Any:
    return group._replace(tokens=group.tokens.roll(1, 1))


def former_values_stay(model: Any, group: Any, last: Any, barred: Any, cache: Any) -> Any:
    """The row's former values under the new request's keys."""
    kept = [values.clone() for _, values in cache]
    result = _prefill(model, group, last, barred, cache)
    for (_, values), old in zip(cache, kept, strict=True):
        values.copy_(old)
    return result


def one_slot_too_many_visible(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return _attention_mask(visible | visible.roll(1, -1), dtype)


def one_slot_too_few_visible(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return _attention_mask(visible & visible.roll(-1, -1), dtype)


def position_one_too_late(self: Rows, positions: Mapping[int, int]) -> dict[int, int]:
    return _decode(self, {row: position + 1 for row, position in positions.items()})


def position_one_too_early(self: Rows, positions: Mapping[int, int]) -> dict[int, int]:
    return _decode(self, {row: position - 1 for row, position in positions.items()})


def oldest_token_fed_back(self: Rows, positions: Mapping[int, int]) -> list[int]:
    before = self._tokens
    produced = _run_decode(self, positions)
    self._tokens = before
    return produced


def idle_rows_disturb_a_running_one(model: Any, positions: Any, last: Any, cache: Any) -> Any:
    """Wherever a bucket has an idle row, the keys of the row that is furthest on move by one slot."""
    result = _decode_rows(model, positions, last, cache)
    furthest = int(positions.argmax())
    for keys, _ in cache:
        if (positions == 0).any():
            keys[furthest] = keys[furthest].roll(1, 1)
    return result


MUTANTS = {
    "rows of a group swapped": (rows_module, "prefill_rows", prefill_with(swapped_rows)),
    "padding written to row 0": (rows_module, "prefill_rows", prefill_with(padding_into_the_first_row)),
    "prompt moved by one": (rows_module, "prefill_rows", prefill_with(prompt_moved_by_one)),
    "row inherits former values": (rows_module, "prefill_rows", former_values_stay),
    "stale slot visible": (decoder, "attention_mask", one_slot_too_many_visible),
    "own slot hidden": (decoder, "attention_mask", one_slot_too_few_visible),
    "position too late": (Rows, "decode", position_one_too_late),
    "position too early": (Rows, "decode", position_one_too_early),
    "old token fed back": (Rows, "_run_decode", oldest_token_fed_back),
    "idle row disturbs another": (rows_module, "decode_rows", idle_rows_disturb_a_running_one),
}


@pytest.fixture(scope="module")
def samples() -> Samples:
    return samples_of(serving_case(), COUNT)


@pytest.fixture(scope="module")
def plain(samples: Samples) -> dict[int, list[int]]:
    return plain_answers(serving_case(), samples)


def answers_of(samples: Samples) -> dict[int, list[int]]:
    """Three join a long answer: their group does not fill its bucket."""
    longest = samples.limits.index(max(samples.limits))
    others = [index for index in range(COUNT) if index != longest]
    return drain(warm_engine(serving_case(), samples), [[longest], [], others[:3], [], others[3:]])[0]


def test_without_a_mutant_all_answers_are_right(samples: Samples, plain: dict[int, list[int]]) -> None:
    assert answers_of(samples) == plain


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_the_mutant_is_seen(
    mutant: tuple[Any, str, Any], samples: Samples, plain: dict[int, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, name, faulty = mutant
    monkeypatch.setattr(place, name, faulty)
    assert answers_of(samples) != plain
