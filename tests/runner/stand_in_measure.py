"""The fixture `measure` for suites on the stand-in backend: the plugin's own, except that nothing is computed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trnbench.plugin import SESSION
from trnbench.records.build import assemble
from trnbench.records.environment import collect
from trnbench.records.ids import utc_now
from trnbench.records.schema import Compile, Measurement, Memory, Record, Round, WarmupStep
from trnbench.records.store import Store
from trnbench.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.case import Case

MEASUREMENT = Measurement(
    clock="perf_counter",
    sync="nothing to wait for",
    warmup=[WarmupStep(seconds=0.1, compiles=0)],
    rounds=[Round(seconds=0.1, items={"tokens": 1}, compiles=0, fallbacks=0, energy_joules=None)],
    compile=Compile(count=0, seconds=0.0, first_step_seconds=0.1, cache="none"),
    memory=Memory(peak_bytes=None, source="none"),
    flops=None,
    energy_source=None,
)


@pytest.fixture
def measure(request: pytest.FixtureRequest, case: Case) -> Callable[..., Record]:
    """Call it to store a record with the given status, ok by default."""

    def measure_case(status: Status = Status.OK, reason: str = "") -> Record:
        session = request.config.stash[SESSION]
        backend, device = session.backend()
        record = assemble(
            case=case,
            device=device,
            environment=collect(device, backend.versions(), backend.flags(), Path.cwd()),
            run_id=session.settings.run_id,
            started_at=utc_now(),
            status=status,
            reason=reason,
            measurement=MEASUREMENT if status is Status.OK else None,
        )
        Store(session.settings.results).write(record)
        session.records.append(record)
        return record

    return measure_case
