"""`trnbench run` and `trnbench list`: measure the cases of the suites, or show them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trnbench.runner.options import RunOptions, deviations_beside
from trnbench.status import ExitCode, NothingMeasured

BackendOption = Annotated[str, typer.Option("--backend", help="How PyTorch reaches the device; see `trnbench doctor`.")]
SuitesOption = Annotated[Path, typer.Option("--suites", help="Folder or file that declares the cases.")]
TierOption = Annotated[str | None, typer.Option("--tier", help="Only cases of this tier: smoke, single, node, fleet.")]
SuiteOption = Annotated[
    str | None, typer.Option("--suite", help="Only cases of this suite: decoder, serving, training, conformance.")
]
SelectOption = Annotated[
    str | None,
    typer.Option("--select", "-k", help="Only cases whose name matches: a part of it, or a pytest -k expression."),
]


def run(
    *,
    backend: BackendOption,
    tier: TierOption = None,
    suite: SuiteOption = None,
    suites: SuitesOption = Path("suites"),
    results: Annotated[Path, typer.Option("--results", help="Where records are written.")] = Path("results/local"),
    rounds: Annotated[int | None, typer.Option("--rounds", help="Timed rounds per case.")] = None,
    runs: Annotated[int, typer.Option("--runs", help="Independent runs; a comparison needs at least 3.")] = 1,
    seeds: Annotated[
        int | None, typer.Option("--seeds", help="Seeds of every random input of an operator check; nightly: 200.")
    ] = None,
    select: SelectOption = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", help="Seconds after which a case is ended (default: an hour; a day for long ones)."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="Finish the newest run of this machine and code.")
    ] = False,
    instance_type: Annotated[
        str | None, typer.Option("--instance-type", help="Cloud instance type, for prices.")
    ] = None,
    region: Annotated[str | None, typer.Option("--region", help="Cloud region, for prices.")] = None,
    compare: Annotated[
        Path | None, typer.Option("--compare", help="Baseline: records to fail against if this run regresses.")
    ] = None,
    conformance: Annotated[
        bool, typer.Option("--conformance/--no-conformance", help="Check each case's numerics against its reference.")
    ] = True,
    deviations: Annotated[
        Path | None, typer.Option("--deviations", help="Known deviations (default: those of the conformance suite).")
    ] = None,
    profile: Annotated[
        str, typer.Option("--profile", help="Served cases of this profile: quick, or full, which takes hours.")
    ] = "quick",
    data: Annotated[
        str | None,
        typer.Option(
            "--data", help="Train to quality on this instead of the case's own: source, a text file, hf:NAME."
        ),
    ] = None,
    target_loss: Annotated[
        float | None, typer.Option("--target-loss", help="Train to this loss, in nats per token, not the case's own.")
    ] = None,
    ci: Annotated[
        bool, typer.Option("--ci/--no-ci", help="Do not start where the price to store is older than the limit.")
    ] = False,
) -> None:
    """Measure the cases of the suites on a backend, each in a process of its own."""
    from rich.console import Console

    from trnbench.runner.driver import run as run_cases
    from trnbench.runner.progress import reporter_for

    options = RunOptions(
        backend=backend,
        suites=suites,
        results=results,
        tier=tier,
        rounds=rounds,
        runs=runs,
        seeds=seeds,
        suite=suite,
        select=select,
        deviations=deviations or deviations_beside(suites),
        timeout=timeout,
        resume=resume,
        instance_type=instance_type,
        region=region,
        baseline=compare,
        conformance=conformance,
        profile=profile,
        data=data,
        target_loss=target_loss,
        ci=ci,
    )
    reporter = reporter_for(Console())
    result = run_cases(options, reporter)
    for note in result.check_notes():
        reporter.note(note)
    reporter.note(f"{result.summary()}; records are in {results}")
    code: int = result.exit_code()
    if code is ExitCode.INTERRUPTED:
        print("trnbench: interrupted; the same command with --resume goes on from here", file=sys.stderr)
    if code in (ExitCode.CLEAN, ExitCode.FAILED) and compare is not None:
        from trnbench.cli.comparing import gate_run

        code = code or gate_run(compare, results, result.run_ids)
    raise typer.Exit(code)


def list_cases(
    *,
    suites: SuitesOption = Path("suites"),
    tier: TierOption = None,
    suite: SuiteOption = None,
    select: SelectOption = None,
    as_json: Annotated[bool, typer.Option("--json/--no-json", help="Machine-readable output.")] = False,
) -> None:
    """List the cases that the suites declare; opens no device."""
    from trnbench.cli.output import print_json, print_table
    from trnbench.runner.collect import collect
    from trnbench.runner.interrupt import Stop
    from trnbench.runner.options import check_selection

    check_selection(suites, tier)
    with Stop() as stop:
        listed = collect(suites, stop=stop, backend=None, tier=tier, suite=suite, select=select)
    if stop.requested:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if not listed:
        raise NothingMeasured(f"no case in {suites} matches")
    if as_json:
        print_json([{"nodeid": item.nodeid, "id": item.case.id, "case": item.case} for item in listed])
        return
    rows = [[item.case.id, item.case.suite, item.case.tier, item.nodeid.partition("::")[0]] for item in listed]
    print_table(["case", "suite", "tier", "file"], rows)
    print(f"{len(listed)} cases")
