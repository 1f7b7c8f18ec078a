"""The driver with nothing stood in: the cpu backend, the pytest face and a real measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from driver_world import World

from trnbench.status import Status

if TYPE_CHECKING:
    from pathlib import Path

SUITE = """
import pytest
from trnbench.case import grid

CASES = grid(
    suite="decoder", tier="smoke", workload="nano", phase="prefill", precision=["fp32", "tf32"], mode="eager",
    batch=2, sequence=16,
)


@pytest.mark.cases(CASES)
def test_prefill(measure):
    measure()
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.environment["OMP_NUM_THREADS"] = "1"
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "test_decoder.py").write_text(SUITE)
    return made


def test_measure_then_resume_on_the_cpu(world: World) -> None:
    """A measured case and one that this chip cannot compute: exit 0; the resume knows both, by the same fingerprint.

    The record of the measured case comes from the child, and what the probe reported must match it, or no case would
    ever be skipped.
    """
    command = ["run", "--backend", "cpu", "--results", str(world.results), "--rounds", "3", "--no-conformance"]
    done = world.trnbench(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 2 measured (1 unsupported)" in done.stdout
    measured, unsupported = world.records()
    assert (measured.status, unsupported.status) == (Status.OK, Status.UNSUPPORTED)
    assert measured.measurement is not None
    assert len(measured.measurement.rounds) == 3
    again = world.trnbench(*command, "--resume")
    assert again.returncode == 0
    assert "skipping 2 finished cases, running 0" in again.stdout
    assert len(world.records()) == 2


def test_timeout_is_recorded_as_timeout_with_the_real_machine(world: World) -> None:
    """The record that the driver writes for a child it ended carries the same device and fingerprint as a child's."""
    command = ["run", "--backend", "cpu", "--results", str(world.results), "--rounds", "3", "--no-conformance"]
    assert world.trnbench(*command, "-k", "fp32").returncode == 0
    done = world.trnbench(*command, "-k", "fp32", "--timeout", "0.3")
    assert done.returncode == 1
    measured, late = world.records()
    assert (measured.status, late.status) == (Status.OK, Status.TIMEOUT)
    assert late.environment.fingerprint == measured.environment.fingerprint
    assert (late.device.chip, late.device.backend) == (measured.device.chip, measured.device.backend)
    assert late.case == measured.case
