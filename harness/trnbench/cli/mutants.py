"""`trnbench mutants`: test the conformance checks themselves with implementations broken on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.status import ExitCode, UsageError
from trnbench.wording import nearest

if TYPE_CHECKING:
    from trnbench.records.mutation import MutantResult, MutationReport

NAMED_SHARE = 0.95
"""Of the wrong implementations, at least so many must be named rightly."""


ResultsOption = Annotated[Path | None, typer.Option("--results", help="Also store the outcome here, for the pages.")]
SubjectOption = Annotated[str | None, typer.Option("--subject", help="Only mutants of this operator, or 'formats'.")]


def mutants(
    *,
    results: ResultsOption = None,
    subject: SubjectOption = None,
    as_json: Annotated[bool, typer.Option("--json/--no-json", help="Machine-readable output.")] = False,
) -> None:
    """Run every broken and every correct implementation through the checks; 1 where the checks fall short."""
    from trnbench.cli.output import print_json
    from trnbench.conformance.mutants.report import mutation_report, subjects
    from trnbench.records.mutation import missed, write_mutation_report

    known = subjects()
    if subject is not None and subject not in known:
        hint = nearest(subject, known, f"there are {', '.join(known)}")
        raise UsageError(f"--subject {subject} has no mutants; {hint}")
    if results is not None and subject is not None:
        raise UsageError("--results stores the whole outcome; leave out --subject")
    report = mutation_report(subject)
    if as_json:
        print_json(report)
    else:
        _print(report)
    for sentence in missed(report.results):
        print(sentence)
    print(report.summary())
    if results is not None:
        print(f"stored in {write_mutation_report(results, report)}")
    raise typer.Exit(ExitCode.CLEAN if _good(report) else ExitCode.FAILED)


def _good(report: MutationReport) -> bool:
    wrong = report.wrong
    named = sum(one.named for one in wrong)
    alarms = any(one.caught for one in report.right)
    return all(one.caught for one in wrong) and not alarms and named >= NAMED_SHARE * len(wrong)


def _print(report: MutationReport) -> None:
    from trnbench.cli.output import print_table

    rows = [
        [one.subject, one.precision, one.name, ", ".join(one.tiers) or "-", one.found or "-", *_schemes(one, report)]
        for one in report.results
    ]
    print_table(["subject", "precision", "implementation", "caught by", "looks like", *report.schemes], rows)


def _schemes(one: MutantResult, report: MutationReport) -> list[str]:
    return ["n/a" if name not in one.schemes else "objects" if one.schemes[name] else "-" for name in report.schemes]
