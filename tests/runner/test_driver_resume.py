"""Interrupting a run, and going on with it."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from driver_world import World, is_running, wait_until

from trnbench.status import Status

if TYPE_CHECKING:
    from pathlib import Path

HANG_ONCE = """
if n == 3 and not Path("hung").exists():
    Path("hung").write_text(str(os.getpid()))
    time.sleep(600)
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_ctrl_c_then_resume(world: World) -> None:
    """G11: SIGINT in case 3 of 5: two finished records, one interrupted, exit 130; resume runs 3 to 5 only."""
    world.suite(HANG_ONCE)
    driver = world.start()
    hung = world.pid("hung")
    driver.send_signal(signal.SIGINT)
    output, errors = driver.communicate(timeout=60)
    assert driver.returncode == 130
    assert "2 of 5 measured (1 interrupted, 2 not run)" in output
    assert "--resume" in errors
    assert "Traceback" not in output + errors
    assert world.statuses() == {1: Status.OK, 2: Status.OK, 3: Status.INTERRUPTED}
    wait_until(lambda: not is_running(hung))

    done = world.run("--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    assert world.cases_run() == [1, 2, 3, 3, 4, 5]
    assert "skipping 2 finished cases, running 3" in done.stdout
    assert "5 of 5 measured; 2 of them finished before this resume" in done.stdout
    assert len({record.run_id for record in world.records()}) == 1
    assert world.statuses() == dict.fromkeys(range(1, 6), Status.OK)


def test_killed_driver_then_resume(world: World) -> None:
    """G11: SIGKILL in case 3 of 5 leaves two finished records; resume runs 3 to 5 only."""
    world.suite(HANG_ONCE)
    driver = world.start()
    hung = world.pid("hung")
    driver.kill()
    driver.communicate()
    wait_until(lambda: not is_running(hung))
    assert world.statuses() == {1: Status.OK, 2: Status.OK}
    done = world.run("--resume")
    assert done.returncode == 0
    assert world.cases_run() == [1, 2, 3, 3, 4, 5]


def test_second_ctrl_c_is_immediate(world: World) -> None:
    """A case that ignores SIGTERM would get a grace period; a second Ctrl-C does not wait for it."""
    world.suite(
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path("hung").write_text(str(os.getpid()))
        time.sleep(600)
        """,
        cases=1,
    )
    driver = world.start()
    hung = world.pid("hung")
    driver.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        driver.wait(timeout=1)
    driver.send_signal(signal.SIGINT)
    driver.communicate(timeout=3)
    assert driver.returncode == 130
    wait_until(lambda: not is_running(hung))


def test_termination_counts_as_interruption(world: World) -> None:
    """A job scheduler's SIGTERM is answered like Ctrl-C: the running case gets its record."""
    world.suite(HANG_ONCE, cases=3)
    driver = world.start()
    world.pid("hung")
    driver.terminate()
    driver.communicate(timeout=60)
    assert driver.returncode == 130
    assert world.statuses()[3] is Status.INTERRUPTED


def test_interrupt_while_the_backend_opens(world: World) -> None:
    """Ctrl-C before the first case: exit 130, nothing written, no process left."""
    world.suite(cases=2)
    world.environment["STAND_IN_OPENS"] = "hang"
    driver = world.start()
    wait_until(lambda: any(line.startswith("open in") for line in world.logged()))
    (probe,) = [int(line.split()[-1]) for line in world.logged()]
    driver.send_signal(signal.SIGINT)
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == 130
    assert "0 of 2 measured (2 not run)" in output
    assert not world.results.exists()
    wait_until(lambda: not is_running(probe))


def test_resume_reruns_what_was_of_the_moment_only(world: World) -> None:
    """D2, D6: crashed cases run again, failed ones do not; every attempt is kept and the newest counts."""
    world.suite(
        """
        if n == 2 and not Path("crashed").exists():
            Path("crashed").touch()
            os._exit(139)
        if n == 3: return measure(Status.NONCONFORMANT, "error above its bound")
        """,
        cases=4,
    )
    first = world.run()
    assert first.returncode == 1
    assert world.statuses()[2] is Status.CRASHED
    again = world.run("--resume")
    assert world.cases_run() == [1, 2, 3, 4, 2]
    assert [record.status for record in world.records() if record.case.sequence == 2] == [Status.CRASHED, Status.OK]
    assert again.returncode == 1, "case 3 of the same run did not conform"
    assert "3 of 4 measured (1 nonconformant)" in again.stdout


def test_resume_of_a_complete_run_runs_nothing(world: World) -> None:
    world.suite(cases=2)
    assert world.run().returncode == 0
    done = world.run("--resume")
    assert done.returncode == 0
    assert world.cases_run() == [1, 2]
    assert "skipping 2 finished cases, running 0" in done.stdout


def test_resume_needs_the_same_stack_and_code(world: World) -> None:
    """Results of another version of the stack are no reason to leave a case out: a new run starts."""
    world.suite(cases=2)
    assert world.run().returncode == 0
    done = world.run("--resume", STAND_IN_VERSION="2.0")
    assert done.returncode == 0
    assert "nothing to resume" in done.stdout
    assert world.cases_run() == [1, 2, 1, 2]
    assert len({record.run_id for record in world.records()}) == 2


def test_resume_past_a_damaged_store(world: World) -> None:
    """D2, D3, D5: a cut, an empty and a foreign file are reported by path and reason; only the cut case runs again."""
    world.suite(cases=3)
    assert world.run().returncode == 0
    cut = next(stored.path for stored in world.load().records if stored.record.case.sequence == 2)
    cut.write_bytes(cut.read_bytes()[:200])
    (cut.parent / "empty.json").touch()
    (world.results / "foreign.json").write_text('{"benchmarks": []}')
    done = world.run("--resume")
    assert done.returncode == 0, done.stderr
    assert world.cases_run() == [1, 2, 3, 2]
    assert world.statuses() == {1: Status.OK, 2: Status.OK, 3: Status.OK}
    for name in (cut.name, "empty.json", "foreign.json"):
        assert name in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_run_in_a_plain_folder_without_git(world: World) -> None:
    """D8: outside a checkout, and with no git on PATH, a run works; commit and dirty are null, never false."""
    world.suite(cases=1)
    for environment in ({}, {"PATH": str(world.folder)}):
        assert world.run(**environment).returncode == 0
    for record in world.records():
        git = record.environment.git
        assert (git.commit, git.dirty, git.diff_hash) == (None, None, None)
        assert record.unknown["environment.git.dirty"]
