"""What the driver knows of the machine: read in a child process, because the driver never touches a device."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trnbench.backends.failures import classify_error, failure_reason
from trnbench.catalog.cores import check_core_count, core_counts
from trnbench.device import Device
from trnbench.records.schema import Environment
from trnbench.runner.process import run_child
from trnbench.status import BackendUnavailable, ExitCode, Status, TrnBenchError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trnbench.case import Case
    from trnbench.runner.interrupt import Stop
    from trnbench.runner.process import ChildResult

PROBE_TIMEOUT_SECONDS = 300.0


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a precision runs in a mode; `reason` says why not, and is empty where it does."""

    precision: str
    mode: str
    reason: str = ""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The device as its runtime describes it, the software around it, and what was found to work by trying.

    `unknown` maps the dotted record path of a null in `device` or `environment` to its reason.
    """

    device: Device
    environment: Environment
    simulated: bool
    sync_method: str
    unknown: dict[str, str] = {}
    supported: list[Capability] = []


class ProbeFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why the backend could not be opened: the sentence, the status it means and the exit code it asks for."""

    message: str
    exit_code: int
    status: Status | None = None


class ProbeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the probe prints: exactly one of the two is set."""

    machine: Machine | None = None
    failure: ProbeFailure | None = None


def devices_missing(case: Case, device: Device) -> str | None:
    """Why the case's parallel plan does not fit this machine, None where it does."""
    if case.devices_needed <= device.parallel_devices:
        return None
    return f"needs {case.devices_needed} devices, have {device.parallel_devices}"


def check_parallel_plan(case: Case, device: Device) -> None:
    """Refuse a plan that fits the machine but spreads over a number of cores that its accelerator cannot group.

    Raises `UsageError` with the allowed counts. Where the catalog has no counts for the instance type, nor for the
    chip of a machine with only one, nothing is known to be wrong.
    """
    profiles = {row.profile for row in core_counts()}
    candidates = [device.instance_type, device.chip if device.chips == 1 else None]
    profile = next((name for name in candidates if name in profiles), None)
    if profile is None or devices_missing(case, device) is not None:
        return
    logical = device.read_back.get("logical_core_config")
    try:
        check_core_count(profile, case.devices_needed, logical if isinstance(logical, int) else None)
    except UsageError as error:
        raise UsageError(f"case {case.id} cannot run here: {error}; leave it out with --tier or -k") from None


def probe_machine(
    backend: str,
    *,
    stop: Stop,
    combinations: Iterable[tuple[str, str]] = (),
    instance_type: str | None = None,
    region: str | None = None,
    results: Path | None = None,
    timeout: float = PROBE_TIMEOUT_SECONDS,
) -> Machine | None:
    """Open the backend in a child process and return what it reports; None where `stop` was requested meanwhile.

    `combinations` are (precision, mode) pairs to try out, which may compile. `results` is
    where records will go: it does not count as a change of the checkout. Raises `BackendUnavailable` where the
    backend does not open, is busy, or takes longer than `timeout` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="trnbench-") as folder:
        answer_file = Path(folder) / "machine.json"
        command = [sys.executable, "-m", "trnbench.runner.probe", "--backend", backend, "--out", str(answer_file)]
        for precision, mode in combinations:
            command += ["--try", f"{precision}:{mode}"]
        if instance_type is not None:
            command += ["--instance-type", instance_type]
        if region is not None:
            command += ["--region", region]
        if results is not None:
            command += ["--results-dir", str(results.absolute())]
        child = run_child(command, timeout=timeout, stop=stop)
        if child.interrupted:
            return None
        if child.timed_out:
            raise BackendUnavailable(f"backend {backend} did not open within {timeout:g} s", Status.TIMEOUT)
        if not answer_file.exists():
            raise BackendUnavailable(f"backend {backend} cannot be opened: {how_it_ended(child)}", Status.CRASHED)
        answer = msgspec.json.decode(answer_file.read_bytes(), type=ProbeAnswer)
    if answer.failure is not None:
        raise as_error(answer.failure)
    assert answer.machine is not None
    return answer.machine


def failure_of(error: Exception, what: str) -> ProbeFailure:
    """What a child reports of an error: its own sentence where it is ours, else `what` and the runtime's reason.

    A runtime may raise anything while it looks for its device.
    """
    if isinstance(error, TrnBenchError):
        status = error.status if isinstance(error, BackendUnavailable) else None
        return ProbeFailure(message=str(error), exit_code=error.exit_code, status=status)
    return ProbeFailure(
        message=f"{what}: {failure_reason(f'{type(error).__name__}: {error}')}",
        exit_code=ExitCode.BACKEND_UNAVAILABLE,
        status=classify_error(error),
    )


def as_error(failure: ProbeFailure) -> TrnBenchError:
    """The exception that a failure reported by a child means."""
    if failure.exit_code == ExitCode.USAGE:
        return UsageError(failure.message)
    return BackendUnavailable(failure.message, failure.status or Status.UNSUPPORTED)


def how_it_ended(child: ChildResult) -> str:
    """The exit code of a child that left no answer, and the last line it printed."""
    lines = [line.strip() for line in child.output.splitlines() if line.strip()]
    last = f": {lines[-1][:300]}" if lines else ""
    return f"its process ended with code {child.returncode}{last}"
