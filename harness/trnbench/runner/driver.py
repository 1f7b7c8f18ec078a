"""The driver: every selected case in a process of its own, and a record of every case whatever becomes of it.

The process that runs this never imports torch and never touches a device.
"""

from __future__ import annotations

import datetime
import time
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from trnbench.backends.select import preflight
from trnbench.case import Case
from trnbench.catalog.prices import price_in_force, staleness
from trnbench.records.ids import new_id
from trnbench.runner.collect import Listed, collect, pytest_command, suites_root
from trnbench.runner.interrupt import Stop
from trnbench.runner.ledger import Ledger
from trnbench.runner.machine import Machine, check_parallel_plan, devices_missing, probe_machine
from trnbench.runner.options import RunOptions, check_options, create_folder
from trnbench.runner.outcome import BENIGN, Outcome, judge
from trnbench.runner.process import run_child
from trnbench.runner.resume import find_run
from trnbench.status import ExitCode, NothingMeasured, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.device import Device
    from trnbench.runner.progress import Reporter


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of every planned case, in order; `carried_over` of them were finished before by the resumed run."""

    run_ids: list[str]
    planned: int
    outcomes: list[tuple[Case, Status]]
    carried_over: int = 0
    interrupted: bool = False

    @property
    def measured(self) -> int:
        """Cases that have a speed which may be compared."""
        return sum(status is Status.OK for _, status in self.outcomes)

    def exit_code(self) -> ExitCode:
        """The documented exit code; a failed case outweighs that nothing was measured."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if any(status not in BENIGN for _, status in self.outcomes):
            return ExitCode.FAILED
        return ExitCode.CLEAN if self.measured else ExitCode.NOTHING_MEASURED

    def summary(self) -> str:
        """One line: `4 of 5 measured (1 oom); 2 of them by an earlier start of this run`."""
        others = Counter(status.value for _, status in self.outcomes if status is not Status.OK)
        missing = self.planned - len(self.outcomes)
        if missing:
            others["not run"] = missing
        text = f"{self.measured} of {self.planned} measured"
        if others:
            text += f" ({', '.join(f'{count} {name}' for name, count in sorted(others.items()))})"
        if self.carried_over:
            text += f"; {self.carried_over} of them finished before this resume"
        return text


def run(options: RunOptions, reporter: Reporter) -> RunResult:
    """Check, collect, probe, then run every case; returns once every planned case has its record.

    Raises `UsageError` before any case ran, `BackendUnavailable` where the device is not here or busy,
    `NothingMeasured` where no case is selected, `TrnBenchError` where the results folder stops taking records.
    """
    check_options(options)
    preflight(options.backend)
    with Stop() as stop:
        listed = collect(options.suites, stop=stop, backend=options.backend, tier=options.tier, select=options.select)
        if stop.requested:
            return _interrupted_before_start(options, len(listed))
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
            return _interrupted_before_start(options, len(listed))
        for item in listed:
            check_parallel_plan(item.case, machine.device)
        _check_price_age(machine.device, reporter, ci=options.ci)
        create_folder(options.results, "--results")
        ledger = Ledger(options.results, machine)
        return _run_all(options=options, listed=listed, machine=machine, ledger=ledger, reporter=reporter, stop=stop)


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
    outcomes: list[tuple[Case, Status]] = []
    carried_over = 0
    for _ in range(options.runs):
        if stop.requested:
            break
        run_id, todo = new_id(), list(listed)
        if options.resume:
            run_id, todo, earlier = _continue(listed, machine, ledger, reporter)
            outcomes += earlier
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
                outcomes.append((item.case, outcome.status))
                reporter.case_ended(item.case, outcome.status, outcome.reason, time.monotonic() - started)
        finally:
            reporter.finish()
    planned = options.runs * len(listed)
    return RunResult(
        run_ids=run_ids,
        planned=planned,
        outcomes=outcomes,
        carried_over=carried_over,
        interrupted=stop.requested,
    )


def _run_case(
    options: RunOptions, item: Listed, run_id: str, *, ledger: Ledger, machine: Machine, stop: Stop
) -> Outcome:
    """Run one case and return what its record says; writes that record where the child left none."""
    missing = devices_missing(item.case, machine.device)
    ledger.begin(item.case, run_id)
    if missing is not None:
        return ledger.write(Outcome(Status.SKIPPED, missing))
    child = run_child(_case_command(options, item, run_id), timeout=options.timeout, stop=stop)
    written = ledger.written_by_child()
    return written if written is not None else ledger.write(judge(child, options.timeout))


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
    if options.instance_type is not None:
        command += ["--instance-type", options.instance_type]
    if options.region is not None:
        command += ["--region", options.region]
    if not options.conformance:
        command.append("--no-conformance")
    return command


def _continue(
    listed: Sequence[Listed], machine: Machine, ledger: Ledger, reporter: Reporter
) -> tuple[str, list[Listed], list[tuple[Case, Status]]]:
    """Run id, cases still to run, and the outcomes that an earlier start of the same run already settled."""
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
    earlier = [
        (item.case, found.finished[item.case.identity()]) for item in listed if item.case.identity() in found.finished
    ]
    reporter.note(f"resuming run {found.run_id}: skipping {len(earlier)} finished cases, running {len(todo)}")
    return found.run_id, todo, earlier


def _selection(options: RunOptions) -> str:
    chosen = []
    if options.tier is not None:
        chosen.append(f"--tier {options.tier}")
    if options.select is not None:
        chosen.append(f"--select {options.select!r}")
    return " and ".join(chosen) or "(the suites declare none)"


def _interrupted_before_start(options: RunOptions, cases: int) -> RunResult:
    return RunResult(run_ids=[], planned=options.runs * cases, outcomes=[], interrupted=True)
