"""`trnbench passport`: take a backend's numerics passport, show one, or put two side by side."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.status import ExitCode, UsageError

if TYPE_CHECKING:
    from trnbench.records.passport import Passport, StoredPassport

CHILD = "trnbench.cli.passport_child"


def passport(
    *,
    backend: Annotated[str | None, typer.Option("--backend", help="Take the passport of this backend.")] = None,
    mode: Annotated[
        str | None, typer.Option("--mode", help="eager or compiled; the backend's first by default.")
    ] = None,
    results: Annotated[Path, typer.Option("--results", help="Folder to store it in.")] = Path("results/local"),
    show: Annotated[Path | None, typer.Option("--show", help="Print a stored passport: a file, or a folder.")] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--compare", metavar="A B", help="Print where two differ: files, or folders (newest of each)."),
    ] = None,
    fail_on_difference: Annotated[
        bool, typer.Option("--fail-on-difference/--no-fail-on-difference", help="With --compare: exit 1 if any.")
    ] = False,
    details: Annotated[bool, typer.Option("--details/--no-details", help="Print the numbers behind it.")] = False,
    as_json: Annotated[bool, typer.Option("--json/--no-json", help="Machine-readable output.")] = False,
) -> None:
    """Measure how a backend rounds, adds, casts and propagates NaN. Nothing is judged."""
    chosen = [name for name, value in (("--backend", backend), ("--show", show), ("--compare", compare)) if value]
    if len(chosen) != 1:
        given = f"not {' and '.join(chosen)}" if chosen else "none was given"
        raise UsageError(f"give exactly one of --backend, --show and --compare; {given}")
    if fail_on_difference and compare is None:
        raise UsageError("--fail-on-difference needs --compare")
    if backend is not None:
        _take(backend, mode, results, details=details, as_json=as_json)
    elif show is not None:
        stored = _found(show)
        _print(stored.passport, details=details, as_json=as_json)
    elif compare is not None:
        _compare(compare[0], compare[1], as_json=as_json, fail=fail_on_difference)


def _take(backend: str, mode: str | None, results: Path, *, details: bool, as_json: bool) -> None:
    from trnbench.backends.select import backend_class, preflight
    from trnbench.cli.output import warn
    from trnbench.records.passport import PassportStore
    from trnbench.runner.interrupt import Stop
    from trnbench.runner.passport import passport_of

    preflight(backend)
    kind = backend_class(backend)
    wanted = mode or kind.modes[0]
    absent = kind.no_such_mode(wanted)
    if absent is not None:
        raise UsageError(absent)
    warn(f"taking the passport of backend {backend}, {wanted}; about a minute on a CPU")
    with Stop() as stop:
        taken = passport_of(backend, wanted, child_module=CHILD, stop=stop, results=results)
    if taken is None:
        raise typer.Exit(ExitCode.INTERRUPTED)
    path = PassportStore(results).write(taken)
    _print(taken, details=details, as_json=as_json)
    warn(f"stored as {path}")


def _found(place: Path) -> StoredPassport:
    from trnbench.cli.output import warn
    from trnbench.records.passport import find_passport

    stored, rejected = find_passport(place)
    for item in rejected:
        warn(f"ignored {item.reason}")
    return stored


def _print(taken: Passport, *, details: bool, as_json: bool) -> None:
    from trnbench.cli.output import print_json, print_table
    from trnbench.records.passport import spoken
    from trnbench.wording import SIMULATED_NOTICE

    if as_json:
        print_json(taken)
        return
    print(f"Passport of {_title(taken)}")
    for group, members in groupby(enumerate(taken.probes), key=lambda item: item[1].group):
        rows = []
        for index, probe in members:
            rows.append([probe.name, probe.precision, spoken(taken, index)])
            if details:
                rows += [[f"  {name}", "", str(value)] for name, value in probe.details.items()]
        print_table([group, "precision", "found"], rows)
    unknown = sum(probe.verdict is None for probe in taken.probes)
    seconds = _seconds(taken)
    print(f"{len(taken.probes)} probes in {seconds:.0f} s, {unknown} of them without an answer. Nothing is judged.")
    if taken.simulated:
        print(SIMULATED_NOTICE)


def _seconds(taken: Passport) -> float:
    from trnbench.records.ids import instant

    return (instant(taken.finished_at) - instant(taken.started_at)).total_seconds()


def _title(taken: Passport) -> str:
    torch = taken.environment.versions.get("torch", "unknown version")
    return f"{taken.device.backend} ({taken.mode}) on {taken.device.chip}, torch {torch}, {taken.started_at}"


def _compare(first: Path, second: Path, *, as_json: bool, fail: bool) -> None:
    from trnbench.cli.output import print_json, print_table
    from trnbench.records.passport import compare_passports

    a, b = _found(first).passport, _found(second).passport
    differences = compare_passports(a, b)
    if as_json:
        print_json(differences)
    else:
        print(f"A: {_title(a)}")
        print(f"B: {_title(b)}")
        for group, members in groupby(sorted(differences, key=lambda each: each.group), key=lambda each: each.group):
            print_table(
                [group, "precision", "A", "B"], [[each.name, each.precision, each.a, each.b] for each in members]
            )
        total = len({(probe.group, probe.name, probe.precision) for probe in [*a.probes, *b.probes]})
        print(f"{len(differences)} of {total} properties differ.")
    if differences and fail:
        raise typer.Exit(ExitCode.FAILED)
