"""What the mutation test of the checks found: one file, `mutants/mutants.json`, in a results folder.

It describes the checks and no device: which implementations broken on purpose they caught and named, whether correct
ones passed, and what simpler schemes say of the same implementations on the same inputs. Format history, newest first:

* 1 (2026-11): first format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.records.schema import Stored
from trnbench.records.serialise import decode_as, strict_bytes
from trnbench.records.store import replace_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MUTATION_VERSION = 1
MUTATION_FILE = "mutants/mutants.json"


class MutantResult(Stored, frozen=True, kw_only=True):
    """One implementation: `expected` lists the names that are right, none for a correct implementation.

    `tiers` are those that objected, `found` the name that the diagnosis gave ("" where nothing failed), `schemes` what
    each simpler scheme did: True where it objects; absent where the scheme does not apply to such outputs.
    """

    name: str
    subject: str
    precision: str
    expected: list[str]
    tiers: list[str]
    found: str
    named: bool
    schemes: dict[str, bool]

    @property
    def correct(self) -> bool:
        """Whether no check may object."""
        return not self.expected

    @property
    def caught(self) -> bool:
        """Whether some check objected."""
        return bool(self.tiers)


class MutationReport(Stored, frozen=True, kw_only=True):
    """All implementations, with the versions of what ran them. `schemes` explains each simpler scheme in a sentence."""

    schema_version: int
    made_at: str
    versions: dict[str, str]
    results: list[MutantResult]
    schemes: dict[str, str]

    @property
    def wrong(self) -> list[MutantResult]:
        """Implementations that are broken."""
        return [one for one in self.results if not one.correct]

    @property
    def right(self) -> list[MutantResult]:
        """Implementations that are correct."""
        return [one for one in self.results if one.correct]

    def summary(self) -> str:
        """`caught 58 of 58, named 57 of 58; 0 false alarms in 21 correct variants`."""
        wrong, right = self.wrong, self.right
        caught, named = sum(one.caught for one in wrong), sum(one.named for one in wrong)
        alarms = sum(one.caught for one in right)
        return (
            f"caught {caught} of {len(wrong)}, named {named} of {len(wrong)}; {alarms} false alarms in {len(right)} "
            "correct variants"
        )


def write_mutation_report(results: Path, report: MutationReport) -> Path:
    """Replace the report of a results folder, whole or not at all. Raises `StoreError` where the disk refuses."""
    what = "the mutation report"
    return replace_file(results / MUTATION_FILE, strict_bytes(report, what), what=what)


def read_mutation_report(results: Path) -> MutationReport | None:
    """The report of a results folder, None where it has none. Raises `RecordError` for a file that is none."""
    path = results / MUTATION_FILE
    if not path.exists():
        return None
    return decode_as(path.read_bytes(), str(path), MutationReport, MUTATION_VERSION, {})


def missed(results: Sequence[MutantResult]) -> list[str]:
    """What a mutation test must be ashamed of, a sentence each: misses, false alarms and wrong names."""
    told = []
    for one in results:
        who = f"{one.subject} in {one.precision}: {one.name}"
        if one.correct and one.caught:
            told.append(f"false alarm for {who} ({', '.join(one.tiers)}, as {one.found})")
        elif not one.correct and not one.caught:
            told.append(f"missed {who}")
        elif not one.correct and not one.named:
            told.append(f"misnamed {who}: {one.found}, expected {' or '.join(one.expected)}")
    return told
