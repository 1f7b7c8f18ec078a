"""The whole mutation test as one report: operators of every family, and number formats."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

import numpy
import torch

from trnbench.backends.host import usable_cores
from trnbench.conformance.mutants import schemes
from trnbench.conformance.mutants.formats import FORMAT_MUTANTS
from trnbench.conformance.mutants.registry import operator_mutants
from trnbench.conformance.mutants.run import is_one_of, try_mutant
from trnbench.records.ids import utc_now
from trnbench.records.mutation import MUTATION_VERSION, MutantResult, MutationReport
from trnbench.records.schema import FAILED

if TYPE_CHECKING:
    from trnbench.conformance.mutants.formats import FormatMutant

FORMATS = "formats"


def subjects() -> list[str]:
    """What has mutants: every operator that has some, and `FORMATS`."""
    return [*dict.fromkeys(mutant.operator for mutant in operator_mutants()), FORMATS]


def mutation_report(subject: str | None = None) -> MutationReport:
    """Run every mutant, or only those of one subject. Takes minutes for all."""
    chosen = [index for index, mutant in enumerate(operator_mutants()) if subject in (None, mutant.operator)]
    # Each in one thread: the operators are small, and the processors better used side by side.
    with ProcessPoolExecutor(usable_cores(), multiprocessing.get_context("spawn"), initializer=_one_thread) as pool:
        results = list(pool.map(_try_by_index, chosen))
    if subject in (None, FORMATS):
        results += [try_format_mutant(mutant) for mutant in FORMAT_MUTANTS]
    return MutationReport(
        schema_version=MUTATION_VERSION,
        made_at=utc_now(),
        versions={"torch": str(torch.__version__), "numpy": numpy.__version__},
        results=results,
        schemes=schemes.WORDS,
    )


def _one_thread() -> None:
    torch.set_num_threads(1)


def _try_by_index(index: int) -> MutantResult:
    # A mutant holds functions made on the spot, which do not travel between processes; its place in the list does.
    return try_mutant(operator_mutants()[index])


def try_format_mutant(mutant: FormatMutant) -> MutantResult:
    """Judge one caster as a device's would be. Formats are compared code by code, so no other scheme applies."""
    failed = [check for check in mutant.run() if check.verdict in FAILED]
    names = [check.looks_like for check in failed if check.looks_like]
    right = next((name for name in names if is_one_of(name, mutant.looks_like)), None)
    return MutantResult(
        name=mutant.name,
        subject=FORMATS,
        precision="codes",
        expected=list(mutant.looks_like),
        tiers=["T0"] if failed else [],
        found=right or (names[0] if names else ""),
        named=right is not None,
        schemes={},
    )
