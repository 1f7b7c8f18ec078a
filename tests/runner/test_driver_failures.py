"""The driver: one process per case, and a record of every case whatever becomes of it."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from driver_world import World, is_running, wait_until

from trnbench.status import Status

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ("if n == 2: raise MemoryError('12 GiB')", Status.OOM, "MemoryError"),
        ("if n == 2: os._exit(137)", Status.CRASHED, "SIGKILL"),
    ],
)
def test_one_bad_case_spoils_no_other(world: World, body: str, status: Status, word: str) -> None:
    """G7, D20: 4 cases; case 2 runs out of memory or crashes: 1, 3 and 4 are valid, the run ends with 1."""
    world.suite(body, cases=4)
    done = world.run()
    assert world.statuses() == {1: Status.OK, 2: status, 3: Status.OK, 4: Status.OK}, done.stdout + done.stderr
    bad = next(record for record in world.records() if record.case.sequence == 2)
    assert word in bad.reason
    assert bad.measurement is None
    assert len(world.records()) == 4
    assert done.returncode == 1
    assert "3 of 4 measured" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


ENDINGS = [
    ("raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')", Status.OOM, "2147483648"),
    ("os.write(2, b'NRT: Failed to alloc DEVICE memory: 1024'); os._exit(1)", Status.OOM, "1024"),
    ("os.kill(os.getpid(), signal.SIGKILL)", Status.CRASHED, "SIGKILL"),
    ("os.kill(os.getpid(), signal.SIGSEGV)", Status.CRASHED, "SIGSEGV"),
    ("print('Killed', flush=True); os._exit(137)", Status.CRASHED, "SIGKILL"),
    ("print('std::bad_alloc', flush=True); os.kill(os.getpid(), signal.SIGABRT)", Status.OOM, "SIGABRT"),
    ("os._exit(70)", Status.CRASHED, "70"),
    ("assert n == 0", Status.FAILED, "assert 8 == 0"),
]


def test_every_ending_gets_a_status_and_a_reason(world: World) -> None:
    """G7, G8: whichever way a child ends without a record, the driver writes one that says how; none is left out."""
    body = "\n".join(f"if n == {number}: {ending}" for number, (ending, _, _) in enumerate(ENDINGS, 1))
    world.suite(body, cases=len(ENDINGS))
    done = world.run()
    assert done.returncode == 1
    records = {record.case.sequence: record for record in world.records()}
    for number, (ending, status, word) in enumerate(ENDINGS, 1):
        assert records[number].status is status, (ending, records[number].reason)
        assert word in records[number].reason
        assert records[number].measurement is None


def test_timeout_ends_the_whole_group(world: World) -> None:
    """A case that hangs, and the sleeper it started, are both gone after its time; the record says timeout."""
    world.suite(
        """
        if n == 1:
            sleeper = subprocess.Popen(["sleep", "600"])
            Path("sleeper").write_text(str(sleeper.pid))
            Path("case").write_text(str(os.getpid()))
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        """,
        cases=2,
    )
    done = world.run("--timeout", "8")
    assert done.returncode == 1, done.stderr
    assert world.statuses() == {1: Status.TIMEOUT, 2: Status.OK}
    assert "limit of 8 s" in world.records()[0].reason
    for name in ("case", "sleeper"):
        wait_until(lambda name=name: not is_running(world.pid(name)))


def test_nothing_stays_behind_a_case_that_ended(world: World) -> None:
    """A process that a finished case left running is ended: it would disturb the next measurement."""
    world.suite("Path('sleeper').write_text(str(subprocess.Popen(['sleep', '600']).pid))", cases=1)
    assert world.run().returncode == 0
    wait_until(lambda: not is_running(world.pid("sleeper")))


def test_a_talkative_case_neither_blocks_nor_fills_the_record(world: World) -> None:
    world.suite("os.write(1, b'x' * 5_000_000); os._exit(3)", cases=1)
    done = world.run()
    (record,) = world.records()
    assert record.status is Status.SKIPPED
    assert len(record.reason) < 1000
    assert done.returncode == 3


def test_case_for_more_devices_is_skipped_not_run(world: World) -> None:
    """H8: a case that needs 8 devices on a 1-device machine is skipped with that reason and never started."""
    world.suite(cases=1, parallel=({"tp": 8},))
    done = world.run()
    (record,) = world.records()
    assert (record.status, record.reason) == (Status.SKIPPED, "needs 8 devices, have 1")
    assert world.cases_run() == []
    assert done.returncode == 3
    assert "0 of 1 measured (1 skipped)" in done.stdout


TRAINIUM2 = {"chip": "trainium2", "chips": 1, "cores": 4}
TRN1 = {"chip": "trainium1", "chips": 16, "cores": 32, "instance_type": "trn1.32xlarge"}


@pytest.mark.parametrize(
    ("device", "cores", "allowed"), [(TRAINIUM2, 3, "1, 2, 4"), (TRN1, 24, "1, 2, 8, 32"), (TRN1, 6, "1, 2, 8, 32")]
)
def test_core_counts_that_no_group_has_are_refused(world: World, device: dict, cores: int, allowed: str) -> None:
    """H7: 3 cores on Trainium2, or 24 where 1, 2, 8 and 32 are allowed: refused with that list before any case runs."""
    world.suite(cases=2, parallel=({}, {"tp": cores}))
    done = world.run(STAND_IN_DEVICE=json.dumps(device))
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"groups of {allowed} cores only" in done.stderr
    assert f"tp{cores}" in done.stderr
    assert done.stderr.count("\n") == 1
    assert world.cases_run() == []
    assert not world.results.exists()


@pytest.mark.parametrize(
    ("device", "cores", "status"),
    [
        (TRN1, 8, Status.OK),  # a group that the instance forms, though one chip has two cores only
        (TRN1, 64, Status.SKIPPED),  # H8: too many for this machine says nothing against the count
        ({**TRN1, "instance_type": None}, 24, Status.OK),  # several chips of an unknown instance: nothing is known
        ({"chip": "other", "chips": 1, "cores": 4}, 3, Status.OK),
    ],
)
def test_only_counts_known_to_be_wrong_are_refused(world: World, device: dict, cores: int, status: Status) -> None:
    """H7, H8."""
    world.suite(cases=1, parallel=({"tp": cores},))
    world.run(STAND_IN_DEVICE=json.dumps(device))
    assert [record.status for record in world.records()] == [status]


def test_the_machine_knows_its_own_instance_type(world: World) -> None:
    """What it says is kept where no option names one, and an option that contradicts it is refused."""
    world.suite("if n == 1: os._exit(1)", cases=1)
    device = json.dumps(TRN1)
    done = world.run("--instance-type", "trn2.48xlarge", STAND_IN_DEVICE=device)
    assert done.returncode == 2
    assert "this machine is a trn1.32xlarge" in done.stderr
    assert world.cases_run() == []
    assert world.run(STAND_IN_DEVICE=device).returncode == 1
    assert [record.device.instance_type for record in world.records()] == ["trn1.32xlarge"]


def test_all_skipped_is_not_green(world: World) -> None:
    """G12: nothing measured has its own exit code, and the gap is on record."""
    world.suite("pytest.skip('no such device')", cases=3)
    done = world.run()
    assert done.returncode == 3
    assert "0 of 3 measured (3 skipped)" in done.stdout
    assert {record.status for record in world.records()} == {Status.SKIPPED}


def test_no_case_selected_is_not_green(world: World) -> None:
    """G12: a selection that matches nothing measured nothing."""
    world.suite(cases=2)
    done = world.run("-k", "no-such-case")
    assert done.returncode == 3
    assert "no-such-case" in done.stderr
    assert not world.results.exists()


def test_skipped_and_unsupported_alone_do_not_fail(world: World) -> None:
    world.suite("if n == 2: return measure(Status.UNSUPPORTED, 'no such precision')", cases=2)
    assert world.run().returncode == 0
    assert world.statuses() == {1: Status.OK, 2: Status.UNSUPPORTED}


@pytest.mark.parametrize("status", [Status.NONCONFORMANT, Status.INVALID, Status.FALLBACK, Status.COMPILE_FAILED])
def test_recorded_failures_fail_the_run(world: World, status: Status) -> None:
    """What the child recorded is kept as it is: one record, its status, exit code 1."""
    world.suite(f"if n == 2: return measure(Status('{status.value}'), 'because')", cases=2)
    done = world.run()
    assert done.returncode == 1
    assert world.statuses() == {1: Status.OK, 2: status}
    assert len(world.records()) == 2


def test_selection_and_runs(world: World) -> None:
    """`--runs N` makes N runs of their own; `-k` takes a plain part of a case's name."""
    world.suite(cases=3)
    done = world.run("--runs", "2", "-k", "s2")
    assert done.returncode == 0, done.stderr
    assert [record.case.sequence for record in world.records()] == [2, 2]
    assert len({record.run_id for record in world.records()}) == 2
    assert "2 of 2 measured" in done.stdout


@pytest.mark.parametrize(
    ("how", "word"),
    [("absent", "not here"), ("busy", "busy"), ("mismatch", "found 1"), ("crash", "code 11")],
)
def test_unavailable_backend(world: World, how: str, word: str) -> None:
    """G3, G4: a backend that does not open ends the run with 4 and one sentence before any case, nothing written."""
    world.suite(cases=2)
    done = world.run(STAND_IN_OPENS=how)
    assert done.returncode == 4
    assert word in done.stderr
    assert done.stderr.count("\n") == 1
    assert world.cases_run() == []
    assert not world.results.exists()


def test_suite_that_cannot_be_read(world: World) -> None:
    """H3: a misspelt field of a case is named with the nearest right one, before anything runs."""
    world.suite(cases=1)
    suite = world.folder / "suites" / "test_demo.py"
    suite.write_text(suite.read_text().replace("batch=1", "batchsize=1"))
    done = world.run()
    assert done.returncode == 2
    assert "batchsize" in done.stderr
    assert "'batch'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert world.logged() == []


def test_killed_driver_takes_its_case_along(world: World) -> None:
    """G11: SIGKILL of the driver leaves no process of the running case behind."""
    world.suite(
        """
        if n == 2:
            Path("sleeper").write_text(str(subprocess.Popen(["sleep", "600"]).pid))
            Path("case").write_text(str(os.getpid()))
            time.sleep(600)
        """,
        cases=2,
    )
    driver = world.start()
    case, sleeper = world.pid("case"), world.pid("sleeper")
    driver.kill()
    driver.wait()
    wait_until(lambda: not is_running(case) and not is_running(sleeper))
    assert world.statuses() == {1: Status.OK}


def test_full_disk_stops_with_one_sentence(world: World) -> None:
    """A results folder that stops taking records ends the run; what was written before stays readable."""
    world.suite(
        """
        if n == 2:
            with Path(os.environ["FILLER"]).open("wb") as filler:
                try:
                    while True:
                        filler.write(b"x" * 1024); filler.flush()
                except OSError:
                    pass
        """,
        cases=3,
    )
    world.results.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(world.results)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        done = world.run(FILLER=str(world.results / "filler"))
        assert done.returncode == 1
        assert "disk is full" in done.stderr
        assert "Traceback" not in done.stderr
        assert world.statuses() == {1: Status.OK}
        assert world.load().rejected == []
        assert world.cases_run() == [1, 2]
    finally:
        subprocess.run(["umount", str(world.results)], check=True)
