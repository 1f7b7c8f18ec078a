"""Known deviations as data: checks that are expected to fail, why, and until when.

One TOML file a backend, `deviations/<backend>.toml`:

    [[deviation]]
    id = "embedding-gradient-16-bit"
    checks = ["operators/embedding/backward/*"]
    looks_like = ["bf16 accumulator*"]
    precision = ["bf16", "fp16"]
    mode = ["eager"]
    packages = { torch = ">=2.9" }
    suite = ["conformance"]
    reason = "PyTorch adds the rows of one token in the gradient's own dtype."
    link = "https://github.com/pytorch/pytorch/issues/1"
    reproduction = '''
    ...
    '''
    expires = 2027-06-30

Patterns are those of `fnmatch`. A deviation excuses only what it names: with `looks_like`, a check that fails in
another way still fails. After `expires` everything it names fails again. A listed check that passes is reported.
"""

from __future__ import annotations

import datetime
import tomllib
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from trnbench.case import MODES, PRECISIONS
from trnbench.records.schema import FAILED
from trnbench.status import BENIGN, Status, UsageError
from trnbench.wording import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trnbench.case import Case
    from trnbench.records.schema import Check, Record


class Deviation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One listed deviation; `looks_like`, `precision`, `mode` and `packages` narrow what it excuses.

    It speaks of cases of the conformance suite unless `suite` names others.
    """

    id: str
    checks: list[str]
    reason: str
    link: str
    reproduction: str
    expires: datetime.date
    looks_like: list[str] = []
    precision: list[str] = []
    mode: list[str] = []
    suite: tuple[str, ...] = ("conformance",)
    packages: dict[str, str] = {}

    def applies(self, case: Case, versions: Mapping[str, str]) -> bool:
        """Whether it speaks of this case and software stack at all."""
        return (
            (not self.precision or case.precision in self.precision)
            and (not self.mode or case.mode in self.mode)
            and case.suite in self.suite
            and all(
                name in versions and SpecifierSet(wanted).contains(versions[name].partition("+")[0], prereleases=True)
                for name, wanted in self.packages.items()
            )
        )

    def names(self, check: Check) -> bool:
        """Whether one of its patterns names the check."""
        return any(fnmatchcase(check.check, pattern) for pattern in self.checks)

    def excuses(self, check: Check) -> bool:
        """Whether it names the check, and the fault that the failure looks like."""
        like = not self.looks_like or any(fnmatchcase(check.looks_like, pattern) for pattern in self.looks_like)
        return self.names(check) and like


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    deviation: list[Deviation]


def load_deviations(folder: Path | None, backend: str) -> list[Deviation]:
    """The deviations of `backend` listed in `folder`; none where there is no such file.

    Raises `UsageError` naming file, entry and key for anything that is not as described above.
    """
    if folder is None:
        return []
    path = folder / f"{backend}.toml"
    if not path.exists():
        return []
    try:
        plain = tomllib.loads(path.read_text("utf-8"))
        found = msgspec.convert(plain, _File, strict=True).deviation
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 at byte {error.start}") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {error}") from None
    seen: set[str] = set()
    for entry in found:
        _check(entry, path, seen)
    return found


def _check(entry: Deviation, path: Path, seen: set[str]) -> None:
    where = f"{path}: deviation {entry.id!r}"
    if entry.id in seen:
        raise UsageError(f"{where} is listed twice; ids must differ")
    seen.add(entry.id)
    for name in ("id", "reason", "link", "reproduction"):
        if not getattr(entry, name).strip():
            raise UsageError(f"{where}: key '{name}' is empty")
    for name, what in (("checks", "check or pattern"), ("suite", "suite")):
        if not getattr(entry, name):
            raise UsageError(f"{where}: key '{name}' is empty; name at least one {what}")
    for key, known in (("precision", PRECISIONS), ("mode", MODES)):
        for value in getattr(entry, key):
            if value not in known:
                hint = nearest(value, known, f"there are {', '.join(known)}")
                raise UsageError(f"{where}: key '{key}' holds {value!r}; {hint}")
    for name, wanted in entry.packages.items():
        try:
            SpecifierSet(wanted)
        except InvalidSpecifier:
            raise UsageError(f"{where}: packages.{name} is {wanted!r}, which is no version specifier") from None


def apply_deviations(
    checks: Sequence[Check],
    deviations: Sequence[Deviation],
    case: Case,
    versions: Mapping[str, str],
    today: datetime.date,
) -> list[Check]:
    """The checks, those that a deviation covers marked with its id.

    A failed check becomes "known deviation" where an entry excuses it and has not expired; an expired entry is named in
    `where` and excuses nothing. A check that an entry names without a wildcard, and that passes, becomes "unexpected
    pass"; whether anything else that an entry names still fails is told of whole runs (`idle`).
    """
    result = list(checks)
    for entry in deviations:
        if not entry.applies(case, versions):
            continue
        named = [index for index, check in enumerate(result) if entry.names(check)]
        excused = [i for i in named if result[i].verdict in FAILED and entry.excuses(result[i])]
        if today > entry.expires:
            for i in excused:
                where = f"{result[i].where}; deviation {entry.id} expired on {entry.expires.isoformat()}"
                result[i] = msgspec.structs.replace(result[i], where=where)
            continue
        for i in excused:
            result[i] = msgspec.structs.replace(result[i], verdict="known deviation", deviation=entry.id)
        for i in named:
            if result[i].verdict == "pass" and result[i].check in entry.checks:
                result[i] = msgspec.structs.replace(result[i], verdict="unexpected pass", deviation=entry.id)
    return result


def unmatched(
    deviations: Sequence[Deviation], outcomes: Sequence[tuple[Case, Mapping[str, str], Sequence[Check]]]
) -> list[str]:
    """Ids of the entries that apply to some case of a run and name no check in any of those: misspelt, or out of date.

    `outcomes` are the cases of the run with their versions and checks.
    """
    found = []
    for entry in deviations:
        levels = {pattern.partition("/")[0] for pattern in entry.checks if "/" in pattern}
        scope = [
            checks
            for case, versions, checks in outcomes
            if checks and entry.applies(case, versions) and (not case.checks_only or case.phase in levels)
        ]
        if scope and not any(entry.names(check) for checks in scope for check in checks):
            found.append(entry.id)
    return found


def idle(
    deviations: Sequence[Deviation], outcomes: Sequence[tuple[Case, Mapping[str, str], Sequence[Check]]]
) -> list[str]:
    """Ids of the entries that name checks of a run of which none fails any more; `outcomes` as for `unmatched`."""
    found = []
    for entry in deviations:
        scope = [checks for case, versions, checks in outcomes if entry.applies(case, versions)]
        verdicts = {check.verdict for checks in scope for check in checks if entry.names(check)}
        if verdicts & {"pass", "unexpected pass"} and not verdicts & {*FAILED, "known deviation"}:
            found.append(entry.id)
    return found


def fails_run(record: Record) -> bool:
    """Whether a record makes its run fail: neither measured, nor left out for a reason, nor off only as listed."""
    if record.status is Status.NONCONFORMANT:
        listed = any(check.verdict == "known deviation" for check in record.conformance)
        return not listed or any(check.verdict in FAILED for check in record.conformance)
    return record.status not in BENIGN
