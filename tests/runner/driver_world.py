"""A small world for the driver: a folder with a suite, a stand-in backend, and the command line as a real process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.records.store import Loaded, Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.records.schema import Record
    from trnbench.status import Status

HERE = Path(__file__).parent
TIMEOUT = 120

SUITE = """
import os, signal, subprocess, sys, time
from pathlib import Path

import pytest
from trnbench.case import grid
from trnbench.status import Status

CASES = grid(
    suite="demo", tier="{tier}", workload="nano", phase="prefill", precision="fp32", mode="eager", batch=1,
    sequence={sequences}, parallel={parallel},
)


@pytest.mark.cases(CASES)
def test_case(measure, case):
    n = case.sequence
    Path(os.environ["STAND_IN_LOG"]).open("a").write(f"case {{n}}\\n")
{body}
    measure()
"""


class World:
    """Everything lies in `folder`, which is no git checkout and is the working directory of the commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = folder / "results"
        self.log = folder / "log.txt"
        packages = folder / "packages"
        metadata = packages / "stand_in-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: stand-in\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text("[trnbench.backends]\nstand-in = stand_in_backend:StandInBackend\n")
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(packages), str(HERE)]),
            "STAND_IN_LOG": str(self.log),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.environment.pop("PYTEST_ADDOPTS", None)

    def suite(self, body: str = "", cases: int = 5, tier: str = "smoke", parallel: object = ({},)) -> None:
        """A suite of `cases` cases, numbered from 1 by their sequence length; `body` runs before `measure()`."""
        suites = self.folder / "suites"
        suites.mkdir(exist_ok=True)
        (suites / "conftest.py").write_text("from stand_in_measure import measure\n")
        text = SUITE.format(
            tier=tier,
            sequences=list(range(1, cases + 1)),
            parallel=list(parallel) if isinstance(parallel, tuple) else parallel,
            body=textwrap.indent(textwrap.dedent(body), "    "),
        )
        (suites / "test_demo.py").write_text(text)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "trnbench.cli", *arguments]

    def run_command(self, *arguments: str) -> list[str]:
        return self.command("run", "--backend", "stand-in", "--results", str(self.results), *arguments)

    def trnbench(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the tool to its end."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """`trnbench run` on the stand-in backend, to its end."""
        return self.trnbench(*self.run_command(*arguments)[3:], **environment)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """`trnbench run` on the stand-in backend, in the background and in a session of its own, as from a shell."""
        return subprocess.Popen(
            self.run_command(*arguments),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def load(self) -> Loaded:
        return Store(self.results).load()

    def records(self) -> list[Record]:
        return [stored.record for stored in self.load().records]

    def statuses(self) -> dict[int, Status]:
        """Newest status by case number."""
        return {record.case.sequence: record.status for record in self.records()}

    def cases_run(self) -> list[int]:
        """Numbers of the cases whose test body was entered, in order, with repetitions."""
        return [int(line.split()[1]) for line in self.logged() if line.startswith("case ")]

    def logged(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def pid(self, name: str) -> int:
        """The process id that a case wrote into the file `name`."""
        file = self.folder / name
        wait_until(lambda: file.exists() and file.read_text().strip() != "")
        return int(file.read_text())


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Poll until `condition` holds; fails the test if it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")
