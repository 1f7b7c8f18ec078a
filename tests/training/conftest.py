"""Trainings of a test are no benchmark of anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _out_of_the_table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep their times out of pytest-benchmark's summary."""
    yield
    request.config.pluginmanager.get_plugin("pytest-benchmark").benchmarks.clear()
