"""What holds for every test: no network, no display, and a browser where one is promised."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

# Model hubs are never asked: what a test needs, it makes or finds in an installed wheel.
os.environ["HF_HUB_OFFLINE"] = "1"
# Tests run beside each other on small machines; a case that is about threads sets its own count.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("trnbench", deadline=None)
settings.load_profile("trnbench")


@pytest.fixture(scope="session", autouse=True)
def _no_trace_of_workers() -> None:
    """The product refuses to measure in a worker of pytest-xdist; what these tests start is none, wherever they run."""
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        os.environ.pop(name, None)


@pytest.fixture
def benchmark(benchmark: BenchmarkFixture) -> BenchmarkFixture:
    """pytest-benchmark switches itself off in workers, whose times mean nothing; here it is run to be tested."""
    benchmark.disabled = False
    return benchmark


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests skip where there is no Chromium, and fail where CI has promised one."""
    if shutil.which("chromium") or os.environ.get("TRNBENCH_REQUIRE_BROWSER"):
        return
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason="needs chromium on PATH (apt-get install chromium)"))
