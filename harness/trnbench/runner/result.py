"""What became of a run: the tally, the exit code, and what its listed deviations have to be told about."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from trnbench.records.deviations import Deviation, fails_run, idle, unmatched
from trnbench.records.schema import Record
from trnbench.status import ExitCode, Status

if TYPE_CHECKING:
    from collections.abc import Iterator


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The record of every planned case, in order; `carried_over` of them were finished before by the resumed run.

    `selected` says whether only a part of the suites was asked for: a listed deviation may then rightly match nothing.
    """

    run_ids: list[str]
    planned: int
    records: list[Record]
    carried_over: int = 0
    interrupted: bool = False
    deviations: list[Deviation] = []
    selected: bool = False

    @property
    def measured(self) -> int:
        """Cases that ended well: with a speed which may be compared, or with every check passed."""
        return sum(record.status is Status.OK for record in self.records)

    def exit_code(self) -> ExitCode:
        """The documented exit code; a failed case outweighs that nothing was measured."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if any(fails_run(record) for record in self.records):
            return ExitCode.FAILED
        return ExitCode.CLEAN if self.measured else ExitCode.NOTHING_MEASURED

    def summary(self) -> str:
        """One line: `4 of 5 measured, 12 checked (1 oom); 2 of them finished before this resume`."""
        well = [record.case.checks_only for record in self.records if record.status is Status.OK]
        parts = []
        if any(not record.case.checks_only for record in self.records) or not self.records:
            parts.append(f"{well.count(False)} of {self.planned - self._checked()} measured")
        if self._checked():
            parts.append(f"{well.count(True)} of {self._checked()} checked")
        others = Counter(record.status.value for record in self.records if record.status is not Status.OK)
        missing = self.planned - len(self.records)
        if missing:
            others["not run"] = missing
        text = ", ".join(parts)
        if others:
            text += f" ({', '.join(f'{count} {name}' for name, count in sorted(others.items()))})"
        if self.carried_over:
            text += f"; {self.carried_over} of them finished before this resume"
        return text

    def _checked(self) -> int:
        return sum(record.case.checks_only for record in self.records)

    def check_notes(self) -> Iterator[str]:
        """One line on all conformance verdicts, then one for each listed deviation that is out of date."""
        verdicts = Counter(check.verdict for record in self.records for check in record.conformance)
        if verdicts:
            counts = ", ".join(f"{count} {name}" for name, count in verdicts.most_common())
            yield f"{verdicts.total()} conformance checks: {counts}"
        for record in self.records:
            for check in record.conformance:
                if check.verdict == "unexpected pass":
                    yield f"deviation {check.deviation} is listed, but {check.check} passes in {record.case.id}"
        if self.selected or self.interrupted:
            return
        known = [(record.case, record.environment.versions, record.conformance) for record in self.records]
        for deviation in idle(self.deviations, known):
            yield f"deviation {deviation} is listed, but nothing that it names fails: narrow or remove it"
        for deviation in unmatched(self.deviations, known):
            yield f"deviation {deviation} names no check that was run: is its pattern misspelt?"
