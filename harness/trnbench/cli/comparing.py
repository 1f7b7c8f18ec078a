"""`trnbench compare`: two sides along one axis, or current records against a baseline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from trnbench.cli.loading import load_records
from trnbench.cli.output import print_json, print_table, warn
from trnbench.cli.price_age import CiOption, tell_stale_prices
from trnbench.compare.model import Axis
from trnbench.status import ExitCode, NoBaseline, UsageError
from trnbench.wording import nearest

if TYPE_CHECKING:
    from trnbench.compare.gate import GateReport

AXES: tuple[Axis, ...] = get_args(Axis)
RED_VERDICTS = frozenset({"not conformant", "inconsistent timing"})


def compare(
    *,
    results: Annotated[list[str] | None, typer.Argument(help="Results folders or record files.")] = None,
    axis: Annotated[str, typer.Option("--axis", help=f"What the two sides differ in: {', '.join(AXES)}.")] = "device",
    baseline: Annotated[Path | None, typer.Option("--baseline", help="Gate: the records not to fall behind.")] = None,
    current: Annotated[Path | None, typer.Option("--current", help="Gate: records to judge.")] = None,
    aliases: Annotated[Path | None, typer.Option("--aliases", help="TOML file: old case name to new.")] = None,
    prices: Annotated[
        Path | None, typer.Option("--prices", help="A price CSV of your own, beside the package's.")
    ] = None,
    allow_simulated: Annotated[
        bool, typer.Option("--allow-simulated/--no-allow-simulated", help="Let records of stand-in devices take part.")
    ] = False,
    ci: CiOption = False,
    as_json: Annotated[bool, typer.Option("--json/--no-json", help="Machine-readable output.")] = False,
) -> None:
    """Compare records along one axis, or gate current records against a baseline of the same machine."""
    if baseline is not None or current is not None:
        if baseline is None or current is None or results:
            raise UsageError("the gate takes --baseline and --current, both, and no further folders")
        raise typer.Exit(gate_paths(baseline, current, aliases, as_json=as_json))
    if not results:
        raise UsageError("give at least one results folder, or --baseline and --current")
    if aliases is not None:
        raise UsageError("--aliases belongs to the gate; give --baseline and --current too")
    raise typer.Exit(
        compare_sides(
            [Path(text) for text in results],
            _axis(axis),
            prices=prices,
            allow_simulated=allow_simulated,
            ci=ci,
            as_json=as_json,
        )
    )


def compare_sides(
    results: list[Path], axis: Axis, *, prices: Path | None, allow_simulated: bool, ci: bool, as_json: bool
) -> ExitCode:
    """Print every comparison along `axis` and warn of old prices, which in CI mode are a failure.

    Raises `NoBaseline` where no two sides differ in that axis only.
    """
    from trnbench.catalog.prices import PriceTable
    from trnbench.cli.comparison_text import print_comparisons
    from trnbench.cli.comparison_view import comparison_view, left_out_view
    from trnbench.compare.cost import stale_prices
    from trnbench.compare.engine import compare_all

    table = PriceTable.extended(prices)
    found = compare_all(load_records(results), axis, table, allow_simulated)
    if as_json:
        comparisons = [comparison_view(item) for item in found.comparisons]
        print_json({"axis": axis, "comparisons": comparisons, "not_compared": left_out_view(found.not_compared)})
    else:
        print_comparisons(found)
    if not found.comparisons:
        raise NoBaseline(f"nothing to compare: no two sets of records are alike in all but their {axis}")
    age = tell_stale_prices((sentence for item in found.comparisons for sentence in stale_prices(item)), ci=ci)
    return ExitCode.FAILED if any(item.verdict in RED_VERDICTS for item in found.comparisons) else age


def gate_paths(baseline: Path, current: Path, aliases: Path | None, *, as_json: bool) -> ExitCode:
    """Judge the records at `current` against those at `baseline`, print the verdicts and return the exit code."""
    from trnbench.compare.gate import gate, load_aliases

    names = load_aliases(aliases) if aliases is not None else None
    return print_gate(gate(load_records([baseline]), load_records([current]), names), as_json=as_json)


def gate_run(baseline: Path, results: Path, run_ids: list[str]) -> ExitCode:
    """Judge the records that the given runs left in `results` against those at `baseline`."""
    from trnbench.compare.gate import gate

    own = [record for record in load_records([results]) if record.run_id in run_ids]
    return print_gate(gate(load_records([baseline]), own), as_json=False)


def print_gate(report: GateReport, *, as_json: bool) -> ExitCode:
    """Print one line per case, and what is red on stderr too, where a CI log shows it last."""
    if as_json:
        print_json({"threshold": report.threshold, "exit_code": report.exit_code, "entries": report.entries})
    else:
        rows = [[entry.outcome, entry.name, entry.reason] for entry in report.entries]
        print_table(["outcome", "case", "reason"], rows)
    if report.exit_code is ExitCode.NO_BASELINE:
        warn("no comparable baseline for some cases, so the gate decides nothing about them")
    elif report.exit_code is not ExitCode.CLEAN:
        red = [entry.name for entry in report.entries if entry.outcome in ("regressed", "failed", "missing")]
        warn(f"the gate is red: {', '.join(red)}")
    return report.exit_code


def _axis(text: str) -> Axis:
    for axis in AXES:
        if axis == text:
            return axis
    hint = nearest(text, AXES, f"the axes are {', '.join(AXES)}")
    raise UsageError(f"--axis {text} is unknown; {hint}")
