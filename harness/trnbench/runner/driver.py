"""The driver: every selected case in a process of its own, and a record of every case whatever becomes of it.

The process that runs this never imports torch and never touches a device.
"""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING

import msgspec

from trnbench.backends.select import backend_class, preflight
from trnbench.catalog.prices import price_in_force, staleness
from trnbench.records.deviations import load_deviations
from trnbench.records.ids import new_id
from trnbench.runner.collect import Listed, collect, pytest_command, suites_root
from trnbench.runner.interrupt import Stop
from trnbench.runner.ledger import Ledger
from trnbench.runner.machine import Machine, check_parallel_plan, devices_missing, probe_machine
from trnbench.runner.options import RunOptions, check_options, create_folder
from trnbench.runner.outcome import Outcome, judge
from trnbench.runner.process import run_child
from trnbench.runner.result import RunResult
from trnbench.runner.resume import find_run
from trnbench.status import NothingMeasured, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.device import Device
    from trnbench.records.schema import Record
    from trnbench.runner.progress import Reporter


def run(options: RunOptions, reporter: Reporter) -> RunResult:
    """Check, collect, probe, then run every case; returns once every planned case has its record.

    Raises `UsageError` before any case ran, `BackendUnavailable` where the device is not here or busy,
    `NothingMeasured` where no case is selected, `TrnBenchError` where the results folder stops taking records.
    """
    check_options(options)
    preflight(options.backend)
    deviations = load_deviations(options.deviations, options.backend)
    with Stop() as stop:
        listed = collect(
            options.suites,
            stop=stop,
            backend=options.backend,
            tier=options.tier,
            suite=options.suite,
            select=options.select,
            more=["--profile", options.profile, *_trained_on(options)],
        )
        if stop.requested:
            return _interrupted_before_start(options, listed)
        if not listed:
            raise NothingMeasured(f"0 of 0 measured: no case in {options.suites} matches {_selection(options)}")
        machine = probe_machine(
            options.backend,
            stop=stop,
            instance_type=options.instance_type,
            region=options.region,
            results=options.results,
        )
        if machine is None:
            return _interrupted_before_start(options, listed)
        for item in listed:
            check_parallel_plan(item.case, machine.device)
        _check_price_age(machine.device, reporter, ci=options.ci)
        create_folder(options.results, "--results")
        ledger = Ledger(options.results, machine)
        result = _run_all(options=options, listed=listed, machine=machine, ledger=ledger, reporter=reporter, stop=stop)
        return msgspec.structs.replace(result, deviations=deviations)


def _check_price_age(device: Device, reporter: Reporter, *, ci: bool) -> None:
    """Say at the start that the price to be stored is old; in CI mode refuse it, before hours went into the run."""
    today = datetime.datetime.now(datetime.UTC).date()
    price, _ = price_in_force(device.instance_type, device.region, today)
    warning = staleness(price, today, ci=ci) if price is not None else ""
    if warning:
        reporter.note(f"warning: {warning}")


def _run_all(
    *,
    options: RunOptions,
    listed: Sequence[Listed],
    machine: Machine,
    ledger: Ledger,
    reporter: Reporter,
    stop: Stop,
) -> RunResult:
    run_ids: list[str] = []
    records: list[Record] = []
    carried_over = 0
    for repetition in range(options.runs):
        if stop.requested:
            break
        # What is checked and not measured has no spread between runs: one run of it is all there is to know.
        run_id, todo = new_id(), list(listed) if repetition == 0 else _measured(listed)
        if options.resume:
            run_id, todo, earlier = _continue(listed, machine, ledger, reporter)
            records += earlier
            carried_over = len(earlier)
        run_ids.append(run_id)
        reporter.note(f"run {run_id}: {len(todo)} cases on {machine.device.chip} through {machine.device.backend}")
        reporter.start(len(todo))
        try:
            for item in todo:
                if stop.requested:
                    break
                reporter.case_started(item.case)
                started = time.monotonic()
                outcome = _run_case(options, item, run_id, ledger=ledger, machine=machine, stop=stop)
                assert outcome.record is not None
                records.append(outcome.record)
                reporter.case_ended(item.case, outcome.status, outcome.reason, time.monotonic() - started)
        finally:
            reporter.finish()
    return RunResult(
        run_ids=run_ids,
        planned=_planned(options, listed),
        records=records,
        carried_over=carried_over,
        interrupted=stop.requested,
        selected=options.select is not None,
    )


def _measured(listed: Sequence[Listed]) -> list[Listed]:
    return [item for item in listed if not item.case.checks_only]


def _planned(options: RunOptions, listed: Sequence[Listed]) -> int:
    return len(listed) + (options.runs - 1) * len(_measured(listed))


def _run_case(
    options: RunOptions, item: Listed, run_id: str, *, ledger: Ledger, machine: Machine, stop: Stop
) -> Outcome:
    """Run one case and return what its record says; writes that record where the child left none."""
    missing = devices_missing(item.case, machine.device)
    ledger.begin(item.case, run_id)
    if missing is not None:
        return ledger.write(Outcome(Status.SKIPPED, missing))
    absent = backend_class(options.backend).no_such_mode(item.case.mode)
    if absent is not None:
        return ledger.write(Outcome(Status.UNSUPPORTED, absent))
    timeout = options.timeout_of(item.case)
    child = run_child(_case_command(options, item, run_id), timeout=timeout, stop=stop)
    written = ledger.written_by_child()
    return written if written is not None else ledger.write(judge(child, timeout))


def _case_command(options: RunOptions, item: Listed, run_id: str) -> list[str]:
    # Without capture, what a runtime prints from C before it takes the process down reaches the reason in the record.
    command = [
        *pytest_command(options.suites),
        "--capture=no",
        "--tb=short",
        f"{suites_root(options.suites)}/{item.nodeid}",
        *("--backend", options.backend, "--results-dir", str(options.results.absolute()), "--run-id", run_id),
    ]
    if options.rounds is not None:
        command += ["--rounds", str(options.rounds)]
    if options.seeds is not None:
        command += ["--seeds", str(options.seeds)]
    if options.instance_type is not None:
        command += ["--instance-type", options.instance_type]
    if options.region is not None:
        command += ["--region", options.region]
    if options.deviations is not None:
        command += ["--deviations", str(options.deviations.absolute())]
    if options.resume:
        command.append("--resume-training")
    command += ["--profile", options.profile, *_trained_on(options)]
    if not options.conformance:
        command.append("--no-conformance")
    return command


def _trained_on(options: RunOptions) -> list[str]:
    """What makes another case of a training to quality, so that listing must know it too."""
    told = []
    if options.data is not None:
        told += ["--data", options.data]
    if options.target_loss is not None:
        told += ["--target-loss", repr(options.target_loss)]
    return told


def _continue(
    listed: Sequence[Listed], machine: Machine, ledger: Ledger, reporter: Reporter
) -> tuple[str, list[Listed], list[Record]]:
    """Run id, cases still to run, and the records with which an earlier start of the same run settled the others."""
    loaded = ledger.load()
    for rejected in loaded.rejected:
        reporter.note(f"ignored {rejected.reason}")
    found = find_run(loaded.records, [item.case for item in listed], machine)
    if found is None:
        reporter.note("nothing to resume: no run of this backend, machine and code has these cases; starting a new one")
        return new_id(), list(listed), []
    if machine.environment.git.commit is None:
        reporter.note("the state of the code is unknown (no git); cases are matched by their workload version alone")
    todo = [item for item in listed if item.case.identity() not in found.finished]
    earlier = [found.finished[item.case.identity()] for item in listed if item.case.identity() in found.finished]
    reporter.note(f"resuming run {found.run_id}: skipping {len(earlier)} finished cases, running {len(todo)}")
    return found.run_id, todo, earlier


def _selection(options: RunOptions) -> str:
    chosen = []
    if options.suite is not None:
        chosen.append(f"--suite {options.suite}")
    if options.tier is not None:
        chosen.append(f"--tier {options.tier}")
    if options.select is not None:
        chosen.append(f"--select {options.select!r}")
    return " and ".join(chosen) or "(the suites declare none)"


def _interrupted_before_start(options: RunOptions, listed: Sequence[Listed]) -> RunResult:
    return RunResult(run_ids=[], planned=_planned(options, listed), records=[], interrupted=True)
