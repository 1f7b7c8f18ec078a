"""The checks themselves under test: every broken implementation is caught and named, no correct one raises an alarm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from trnbench.conformance.mutants import schemes
from trnbench.conformance.mutants.formats import FORMAT_MUTANTS
from trnbench.conformance.mutants.registry import mutants_of, operator_mutants
from trnbench.conformance.mutants.report import try_format_mutant
from trnbench.conformance.mutants.run import try_mutant
from trnbench.conformance.operators.registry import FAMILIES, operators_of
from trnbench.records.mutation import (
    MUTATION_VERSION,
    MutantResult,
    MutationReport,
    missed,
    read_mutation_report,
    write_mutation_report,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEAST_WRONG, LEAST_CORRECT, NAMED_SHARE = 40, 15, 0.95


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The operators are small: threads cost more than they bring."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def report(*results: MutantResult) -> MutationReport:
    return MutationReport(
        schema_version=MUTATION_VERSION,
        made_at="2026-11-30T00:00:00.000000Z",
        versions={"torch": "2"},
        results=list(results),
        schemes=schemes.WORDS,
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_every_fault_of_a_family_is_caught_and_named(family: str) -> None:
    found = report(*(try_mutant(mutant, compare_schemes=False) for mutant in mutants_of(family)))
    print(f"{family}: {found.summary()}")
    assert [one.name for one in found.wrong if not one.caught] == []
    assert [one.name for one in found.right if one.caught] == []
    assert sum(one.named for one in found.wrong) >= NAMED_SHARE * len(found.wrong), missed(found.results)


def test_every_fault_of_a_format_is_caught_and_named() -> None:
    found = report(*(try_format_mutant(mutant) for mutant in FORMAT_MUTANTS))
    print(f"formats: {found.summary()}")
    assert missed(found.results) == []


def test_there_are_enough_of_them_for_every_operator() -> None:
    mutants = operator_mutants()
    assert sum(not mutant.correct for mutant in mutants) >= LEAST_WRONG
    assert sum(mutant.correct for mutant in mutants) >= LEAST_CORRECT
    assert len({(mutant.operator, mutant.precision, mutant.name) for mutant in mutants}) == len(mutants)
    broken = {mutant.operator for mutant in mutants if not mutant.correct}
    assert all(any(one.name in broken for one in operators_of(family)) for family in FAMILIES)


def result(**changes: object) -> MutantResult:
    plain = {
        "name": "sum in bf16",
        "subject": "sum",
        "precision": "bf16",
        "expected": ["bf16 accumulator"],
        "tiers": ["T0"],
        "found": "bf16 accumulator (exact constant)",
        "named": True,
        "schemes": {"cosine": True},
    }
    return MutantResult(**{**plain, **changes})


def test_what_falls_short_is_said_by_name() -> None:
    silent = result(name="silent", tiers=[], found="", named=False)
    misnamed = result(name="misnamed", found="TF32 operands (bitwise match)", named=False)
    alarm = result(name="correct", expected=[], named=False)
    found = report(result(), silent, misnamed, alarm)
    assert found.summary() == "caught 2 of 3, named 1 of 3; 1 false alarms in 1 correct variants"
    assert [sentence.split(" ")[0] for sentence in missed(found.results)] == ["missed", "misnamed", "false"]


def test_a_report_is_stored_whole_and_read_back(tmp_path: Path) -> None:
    assert read_mutation_report(tmp_path) is None
    kept = report(result())
    write_mutation_report(tmp_path, kept)
    write_mutation_report(tmp_path, kept)
    assert read_mutation_report(tmp_path) == kept
    assert len(list((tmp_path / "mutants").iterdir())) == 1


def test_the_other_schemes_by_hand() -> None:
    """Each objects to what its authors would object to, and to nothing where the result is the rounded oracle."""
    oracle = torch.linspace(1.0, 2.0, 64, dtype=torch.float64)
    right = oracle.bfloat16()
    assert not any(schemes.objections((right,), (oracle,), (right,)).values())
    far = (right.float() * 1.5).bfloat16()
    assert schemes.objections((far,), (oracle,), (right,)) == {
        "torch.testing.assert_close": True,
        "JAX defaults": True,
        "cosine": False,
        "AWS error ratio": True,
    }
    assert schemes.objections((-right,), (oracle,), (right,))["cosine"]
    tiny = oracle.float() * 1e-30
    assert not schemes.objections((tiny,), (tiny.double(),), (tiny,))["cosine"], "small numbers are no fault"
    infinite = torch.full((4,), float("inf"), dtype=torch.float16)
    assert schemes.objections((infinite,), (torch.full((4,), 1e6, dtype=torch.float64),), (infinite,)) == {}
    assert all(schemes.objections((right[:3],), (oracle,), (right,)).values()), "another shape"
