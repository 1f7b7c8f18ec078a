"""What holds for every test: no network, no display, and a browser where one is promised."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import settings

# Model hubs are never asked: what a test needs, it makes or finds in an installed wheel.
os.environ["HF_HUB_OFFLINE"] = "1"
# Tests run beside each other on small machines; a case that is about threads sets its own count.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("trnbench", deadline=None)
settings.load_profile("trnbench")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests skip where there is no Chromium, and fail where CI has promised one."""
    if shutil.which("chromium") or os.environ.get("TRNBENCH_REQUIRE_BROWSER"):
        return
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason="needs chromium on PATH (apt-get install chromium)"))
