"""One case from start to stored record: whatever happens in between, exactly one record, the moment the case ends."""

from __future__ import annotations

import datetime
import gc
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trnbench.catalog.prices import price_in_force
from trnbench.plugin.work import Attempt
from trnbench.records.build import assemble
from trnbench.records.environment import collect_with_reasons
from trnbench.records.ids import utc_now
from trnbench.records.store import Store
from trnbench.runner.machine import check_parallel_plan, devices_missing
from trnbench.status import BackendUnavailable, CaseError, Status, UsageError

if TYPE_CHECKING:
    from trnbench.backends.base import Backend
    from trnbench.case import Case
    from trnbench.device import Device
    from trnbench.plugin.options import Settings
    from trnbench.plugin.session import MeasuringSession
    from trnbench.plugin.work import Work
    from trnbench.records.schema import Record


def run_case(session: MeasuringSession, case: Case, work: Work) -> tuple[Record, Path, BaseException | None]:
    """Do `work` on `case`, store its record and return it with its path and the unforeseen error, if any.

    Passes on `KeyboardInterrupt` once the record is stored. Raises as `MeasuringSession.backend` does where the backend
    is not open yet, before anything ran.
    """
    backend, opened = session.backend()
    started_at = utc_now()
    attempt = Attempt()
    interrupt: KeyboardInterrupt | None = None
    try:
        _check_able(case, backend, opened)
        work(attempt, backend, case, session.settings)
    except KeyboardInterrupt as caught:
        interrupt = caught
        session.interrupted = True
        attempt.end(Status.INTERRUPTED, f"stopped by {session.stop_signal.name}")
        attempt.measurement = None
    except CaseError as error:
        attempt.end(error.status, str(error))
        _release(error)
    except BackendUnavailable as error:
        attempt.end(error.status, str(error))
    except UsageError as error:
        attempt.end(Status.FAILED, str(error))
    except (Exception, SystemExit) as error:
        attempt.end(backend.classify(error), _sentence(error))
        attempt.error = error if attempt.status is Status.FAILED else None
        _release(error)
    record = _record(attempt, case, backend, session.settings, device=opened, started_at=started_at)
    path = Store(session.settings.results).write(record, attempt.files)
    session.records.append(record)
    gc.collect()
    if interrupt is not None:
        raise interrupt
    return record, path, attempt.error


def _check_able(case: Case, backend: Backend, device: Device) -> None:
    missing = devices_missing(case, device)
    if missing is not None:
        raise CaseError(Status.SKIPPED, missing)
    check_parallel_plan(case, device)
    case.require_one_device()
    refusal = backend.unsupported(case.precision, case.mode)
    if refusal is not None:
        raise CaseError(Status.UNSUPPORTED, refusal)


def _record(
    attempt: Attempt, case: Case, backend: Backend, settings: Settings, *, device: Device, started_at: str
) -> Record:
    device = _read_back(attempt, backend, device).placed(settings.instance_type, settings.region)
    # Records stored before this one must not make the checkout look changed.
    environment, environment_reasons = collect_with_reasons(
        device, backend.versions(), backend.flags(), Path.cwd(), outputs=[settings.results]
    )
    # The switches follow from the case's precision, so they are no part of what fingerprints the machine.
    environment = msgspec.structs.replace(environment, flags={**environment.flags, **attempt.switches})
    price, no_price = price_in_force(device.instance_type, device.region, datetime.datetime.now(datetime.UTC).date())
    reasons = {**environment_reasons, **attempt.unknown, "price": no_price}
    if attempt.measurement is None and attempt.reason:
        reasons["measurement"] = attempt.reason
    return assemble(
        case=case,
        device=device,
        environment=environment,
        run_id=settings.run_id,
        started_at=started_at,
        status=attempt.status,
        reason=attempt.reason,
        measurement=attempt.measurement,
        conformance=attempt.conformance,
        simulated=backend.simulated,
        price=price,
        reasons=reasons,
    )


def _read_back(attempt: Attempt, backend: Backend, opened: Device) -> Device:
    """The device as its runtime describes it after the run; as found at opening where a fault left it mute."""
    try:
        return backend.describe()
    except Exception as error:
        if attempt.status is Status.OK:
            attempt.end(backend.classify(error), f"the device could not be read back after the run: {error}")
        return opened


def _sentence(error: BaseException) -> str:
    """Type and first line of an error: runtimes append pages of frames to their messages."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def _release(error: BaseException) -> None:
    """Drop the local variables of the error's frames: they hold the failed case's tensors, the next one's memory."""
    traceback.clear_frames(error.__traceback__)
