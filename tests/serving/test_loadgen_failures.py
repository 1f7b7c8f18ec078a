"""Whatever goes wrong around a real LoadGen ends within the timeout, with its own status, and leaves no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from loadgen_world import Children, Echo, accuracy, children, server, single_stream

from trnbench.serving.link import run_loadgen
from trnbench.serving.protocol import DETAIL
from trnbench.serving.system import Completion, FirstToken, Request, Step
from trnbench.status import CaseError, Status

__all__ = ["children"]  # a fixture

PATIENCE = 30.0


def failing(system: Echo, folder: Path, children: Children, **options: float) -> CaseError:
    """Run, expect a `CaseError`, and see that the child is gone."""
    with pytest.raises(CaseError) as caught:
        run_loadgen(single_stream(), system, folder=folder, timeout=options.pop("timeout", PATIENCE), **options)
    assert children.all_gone()
    return caught.value


class AtSecondStep(Echo):
    """Does something else in its second step."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0

    def step(self) -> Step:
        self._steps += 1
        return self.second() if self._steps == 2 else super().step()

    def second(self) -> Step:
        raise NotImplementedError


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_killed_child_is_a_crash_that_names_the_signal(
    number: signal.Signals, tmp_path: Path, children: Children
) -> None:
    class Killer(AtSecondStep):
        def second(self) -> Step:
            children.signal_last(number)
            return Step([], [])

    error = failing(Killer(), tmp_path, children)
    assert error.status is Status.CRASHED
    assert f"killed by {number.name}" in str(error)
    assert "waited for an answer" in str(error)


def test_an_exception_in_the_system_passes_on_unchanged(tmp_path: Path, children: Children) -> None:
    # Of a kind that the link itself meets when its child dies.
    boom = BrokenPipeError("the device's own")

    class Raising(AtSecondStep):
        def second(self) -> Step:
            children.signal_last(signal.SIGSTOP)  # Such a child does not end by itself.
            raise boom

    with pytest.raises(BrokenPipeError) as caught:
        run_loadgen(single_stream(), Raising(), folder=tmp_path, timeout=PATIENCE)
    assert caught.value is boom
    assert children.all_gone()


def test_an_exception_in_submit_passes_on_too(tmp_path: Path, children: Children) -> None:
    class Refusing(Echo):
        def submit(self, requests: object) -> None:
            raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        run_loadgen(single_stream(), Refusing(), folder=tmp_path, timeout=PATIENCE)
    assert children.all_gone()


def test_ctrl_c_passes_on_and_the_child_is_gone(tmp_path: Path, children: Children) -> None:
    class Interrupted(AtSecondStep):
        def second(self) -> Step:
            os.kill(os.getpid(), signal.SIGINT)
            return super().step()

    with pytest.raises(KeyboardInterrupt):
        run_loadgen(single_stream(), Interrupted(), folder=tmp_path, timeout=PATIENCE)
    assert children.all_gone()


def test_a_lost_sample_is_invalid(tmp_path: Path, children: Children) -> None:
    class Losing(Echo):
        def submit(self, requests: list[Request]) -> None:
            super().submit([request for request in requests if request.index != 5])

    error = failing(Losing(), tmp_path, children, stall=0.3)
    assert error.status is Status.INVALID
    assert str(error).startswith("lost sample: ")
    assert "owes 1 of" in str(error)


def test_a_sample_lost_under_load_is_invalid_too(tmp_path: Path, children: Children) -> None:
    class Losing(Echo):
        lost = False

        def submit(self, requests: list[Request]) -> None:
            if not self.lost:
                self.lost, requests = True, requests[1:]
            super().submit(requests)

    with pytest.raises(CaseError, match=r"lost sample: .* owes 1 of") as caught:
        run_loadgen(server(), Losing(), folder=tmp_path, timeout=PATIENCE, stall=0.3)
    assert caught.value.status is Status.INVALID
    assert children.all_gone()


def test_an_answer_that_is_late_though_the_system_looks_idle_is_not_lost(tmp_path: Path) -> None:
    class Absent(Echo):
        """Says that it is idle for a while after the requests came."""

        since = 0.0

        def submit(self, requests: list[Request]) -> None:
            super().submit(requests)
            self.since = time.monotonic()

        @property
        def busy(self) -> bool:
            return super().busy and time.monotonic() - self.since > 0.3

    assert run_loadgen(accuracy(), Absent(), folder=tmp_path, timeout=PATIENCE, stall=10.0).samples == 12


def test_a_first_token_that_never_comes_is_a_timeout(tmp_path: Path, children: Children) -> None:
    class Silent(Echo):
        def step(self) -> Step:
            time.sleep(0.01)
            return Step([], [])

    begun = time.monotonic()
    error = failing(Silent(), tmp_path, children, timeout=1.5)
    assert error.status is Status.TIMEOUT
    assert "after its 1.5 s" in str(error)
    assert "1 waited for an answer, 1 of them not even a first token" in str(error)
    assert time.monotonic() - begun < 1.5 + PATIENCE


@pytest.mark.parametrize("tokens", [2, 2_000_000], ids=["while-waiting", "while-sending"])
def test_a_child_that_stands_still_is_a_timeout(tokens: int, tmp_path: Path, children: Children) -> None:
    class Stopping(AtSecondStep):
        def second(self) -> Step:
            # An answer of 8 MB blocks the sender, for the pipe does not hold it.
            children.signal_last(signal.SIGSTOP)
            return Echo.step(self)

        def tokens_of(self, request: Request) -> list[int]:
            return super().tokens_of(request)[:1] + [0] * tokens

    assert failing(Stopping(), tmp_path, children, timeout=1.5).status is Status.TIMEOUT


def test_a_completion_without_its_first_token_is_invalid_and_never_reaches_loadgen(
    tmp_path: Path, children: Children
) -> None:
    class Mute(Echo):
        def step(self) -> Step:
            return Step([], super().step().complete)

    error = failing(Mute(), tmp_path, children)
    assert error.status is Status.INVALID
    assert "without having given its first token" in str(error)


def wrong(kind: str) -> Echo:
    class Wrong(Echo):
        def step(self) -> Step:
            first, complete = super().step()
            if kind == "completed twice":
                return Step(first, complete * 2)
            if kind == "completed unasked":
                return Step(first, [*complete, Completion(4242, [1, 2])])
            if kind == "first token twice":
                return Step(first * 2, complete)
            if kind == "first token unasked":
                return Step([*first, FirstToken(4242, 1)], complete)
            if kind == "one token":
                return Step(first, [Completion(one.id, one.tokens[:1]) for one in complete])
            return Step(first, [Completion(one.id, [7, *one.tokens[1:]]) for one in complete])

    return Wrong()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("completed twice", "never asked or is already complete"),
        ("completed unasked", "never asked or is already complete"),
        ("first token twice", "a second first token"),
        ("first token unasked", "a first token for nothing asked"),
        ("one token", "has 1 tokens"),
        ("another first token", "begins with token 7"),
    ],
)
def test_answers_that_loadgen_would_take_for_valid_are_refused(
    kind: str, said: str, tmp_path: Path, children: Children
) -> None:
    error = failing(wrong(kind), tmp_path, children)
    assert error.status is Status.INVALID
    assert said in str(error)


def test_a_missing_folder_is_a_failure(tmp_path: Path, children: Children) -> None:
    error = failing(Echo(), tmp_path / "missing", children)
    assert error.status is Status.FAILED
    assert "cannot be written into their folder: No such file or directory" in str(error)


def test_a_file_in_place_of_the_folder_is_a_failure(tmp_path: Path, children: Children) -> None:
    place = tmp_path / "file"
    place.write_text("")
    error = failing(Echo(), place, children)
    assert error.status is Status.FAILED
    assert "cannot be written into their folder: Not a directory" in str(error)


def test_a_folder_that_nobody_may_write_to_is_a_failure(tmp_path: Path, children: Children) -> None:
    place = tmp_path
    if os.geteuid() == 0:
        place = Path("/proc/self")  # Not even root may create files there.
        if not place.is_dir():
            pytest.skip("root may write everywhere on this system")
    else:
        place.chmod(0o555)
    error = failing(Echo(), place, children)
    assert error.status is Status.FAILED
    assert "cannot be written into their folder" in str(error)


def test_logs_of_an_earlier_test_are_neither_read_nor_overwritten(tmp_path: Path, children: Children) -> None:
    run_loadgen(accuracy(), Echo(), folder=tmp_path, timeout=PATIENCE)
    before = (tmp_path / DETAIL).read_bytes()
    error = failing(Echo(), tmp_path, children)
    assert error.status is Status.FAILED
    assert f"already holds {DETAIL}" in str(error)
    assert (tmp_path / DETAIL).read_bytes() == before


def test_logs_that_vanish_are_a_failure(tmp_path: Path, children: Children) -> None:
    class Vandal(Echo):
        def step(self) -> Step:
            (tmp_path / DETAIL).unlink(missing_ok=True)
            return super().step()

    error = failing(Vandal(), tmp_path, children)
    assert error.status is Status.FAILED
    assert f"without writing {DETAIL}" in str(error)


def test_without_loadgen_the_case_is_unsupported(
    tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow, logs = tmp_path / "shadow", tmp_path / "logs"
    shadow.mkdir()
    logs.mkdir()
    (shadow / "mlperf_loadgen.py").write_text("raise ModuleNotFoundError(\"No module named 'mlperf_loadgen'\")\n")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(shadow), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    )
    error = failing(Echo(), logs, children)
    assert error.status is Status.UNSUPPORTED
    assert "pip install mlcommons-loadgen; it has no wheel for Python 3.14" in str(error)


def test_a_child_that_breaks_says_why(tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    shadow, logs = tmp_path / "shadow", tmp_path / "logs"
    shadow.mkdir()
    logs.mkdir()
    (shadow / "mlperf_loadgen.py").write_text("raise ImportError('wheel for another machine')\n")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(shadow), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    )
    error = failing(Echo(), logs, children)
    assert error.status is Status.FAILED
    assert "exit code 1" in str(error)
    assert "its last words: ImportError: wheel for another machine" in str(error)


def test_the_child_follows_its_parents_death(tmp_path: Path) -> None:
    script = """
        import os, pathlib, signal, sys, time
        sys.path.insert(0, sys.argv[1])
        import subprocess
        from loadgen_world import Echo, single_stream
        from trnbench.serving.link import run_loadgen

        start = subprocess.Popen.__init__
        def noted(self, *arguments, **options):
            start(self, *arguments, **options)
            print(self.pid, flush=True)
        subprocess.Popen.__init__ = noted

        class Dying(Echo):
            def step(self):
                os.kill(os.getpid(), signal.SIGKILL)

        run_loadgen(single_stream(), Dying(), folder=pathlib.Path(sys.argv[2]), timeout=60)
    """
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), here, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    child = int(done.stdout)
    deadline = time.monotonic() + PATIENCE
    while alive(child):
        assert time.monotonic() < deadline, "the child outlives its parent"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be collected does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.is_file() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z")
