"""A real run and its site, made on a private machine under a poor locale: what may be published, and that it is."""

from __future__ import annotations

import getpass
import re
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest
from driver_world import TIMEOUT, World

from trnbench.measure.settle import LEAST_HOST_FLUSH_BYTES
from trnbench.records.store import Store
from trnbench.status import Status

if TYPE_CHECKING:
    from pathlib import Path

HOST = "secret-box"
SUITE = """
import socket
from pathlib import Path

import pytest
from trnbench.case import grid

COMMON = dict(suite="decoder", tier="smoke", workload="nano", precision="fp32", mode="eager", batch=2, sequence=16)


@pytest.mark.cases(grid(phase="prefill", cache=["warm", "cold"], **COMMON))
def test_prefill(measure):
    measure()


@pytest.mark.cases(grid(phase="train_step", **COMMON))
def test_broken(measure):
    raise RuntimeError(f"lost 3 \\u00b5s in {Path.home()}/model.py on {socket.gethostname()}, for {Path(__file__)}")
"""
POOR_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}


class Private(World):
    """A world in a home folder of its own and, where the kernel lets it, on a host of its own name."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.home = folder / "home" / "someone"
        self.home.mkdir(parents=True)
        self.environment |= {**POOR_LOCALE, "HOME": str(self.home), "OMP_NUM_THREADS": "1"}
        self.environment.pop("XDG_CACHE_HOME", None)
        rename = ["unshare", "--uts", "sh", "-c", f'hostname {HOST} && exec "$@"', "sh"]
        self.renamed = subprocess.run([*rename, "true"], capture_output=True, check=False).returncode == 0
        self._prefix = rename if self.renamed else []

    def command(self, *arguments: str) -> list[str]:
        return [*self._prefix, *super().command(*arguments)]

    def measure(self, results: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
        """`trnbench run` on the real cpu backend; its output as bytes, since the locale has no say in reading it."""
        command = ["run", "--backend", "cpu", "--results", results, "--rounds", "3"]
        return self.finish(*command, *arguments, **environment)

    def finish(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Private:
    """Two measured cases with conformance and one that failed saying private things, and the site of all three."""
    made = Private(tmp_path_factory.mktemp("private"))
    (made.folder / "suites").mkdir()
    (made.folder / "suites" / "test_decoder.py").write_text(SUITE, "utf-8")
    done = made.measure("results")
    assert done.returncode == 1, done.stderr
    assert b"2 of 3 measured (1 failed)" in done.stdout, done.stdout
    assert b"Traceback" not in done.stderr
    published = made.finish("report", "results", "--out", "site")
    assert published.returncode == 0, published.stderr
    assert published.stdout.isascii()
    return made


def test_neither_host_nor_home_is_in_any_output(world: Private) -> None:
    """D19: HOME=.../home/someone on host secret-box: neither occurs in records, pages, plots or file names."""
    private = {"someone", str(world.home), str(world.folder), HOST}
    private |= {name for name in (socket.gethostname(), f"/{getpass.getuser()}/") if len(name) > 5}
    files = [path for root in ("results", "site") for path in (world.folder / root).rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".json", ".html", ".svg"}
    for path in files:
        text = f"{path.relative_to(world.folder)}\n".encode() + path.read_bytes()
        found = [word for word in private if re.search(re.escape(word.encode()), text, re.IGNORECASE)]
        assert not found, (path, found)


def test_what_failed_is_told_without_them(world: Private) -> None:
    """D18, D19: the reason keeps its words, the micro sign too, and loses the home, the path and the host."""
    (failed,) = (record for record in world.records() if record.status is Status.FAILED)
    assert "lost 3 \u00b5s in <home> on " in failed.reason
    assert ("on <host>" in failed.reason) == (world.renamed or len(socket.gethostname()) > 4)
    assert failed.reason.endswith("for <path>")
    pages = [page for page in (world.folder / "site").rglob("*.html") if "lost 3 \u00b5s" in page.read_text("utf-8")]
    assert pages, "the failure shows on the site, in UTF-8"


def test_cold_and_warm_are_measured_as_two_cases(world: Private) -> None:
    """A8: a cold case is measured beside its warm twin, as a case of its own that no comparison takes for the other."""
    measured = {record.case.cache: record for record in world.records() if record.status is Status.OK}
    assert set(measured) == {"warm", "cold"}
    assert measured["cold"].case.id == f"{measured['warm'].case.id}-cold"
    assert all(record.conformance for record in measured.values())
    memory = {cache: record.measurement.memory.peak_bytes for cache, record in measured.items() if record.measurement}
    if None not in memory.values():  # a kernel may keep the peak to itself
        assert memory["cold"] > memory["warm"] + LEAST_HOST_FLUSH_BYTES // 2, "the buffer that flushes is in the peak"
    assert world.finish("compare", "results").returncode == 5


def test_a_changed_flag_is_another_fingerprint(world: Private) -> None:
    """C1: a setting that makes float32 products coarser, made before the run, is stored and starts a new history."""
    before = {record.environment.fingerprint for record in world.records()}
    assert len(before) == 1
    done = world.measure("coarse", "--no-conformance", "-k", "cold", ONEDNN_DEFAULT_FPMATH_MODE="BF16")
    assert done.returncode == 0, done.stderr
    (changed,) = (stored.record for stored in Store(world.folder / "coarse").load().records)
    assert changed.environment.flags["ONEDNN_DEFAULT_FPMATH_MODE"] == "BF16"
    assert changed.environment.fingerprint not in before
