"""Between rounds: cache policies and the state of Python's collector."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from fake_backend import FakeBackend, fake_case

from trnbench.collector import collector_paused
from trnbench.measure.settle import (
    DEVICE_FLUSH_BYTES,
    LEAST_HOST_FLUSH_BYTES,
    Settle,
    flush_bytes,
    last_level_cache_bytes,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_a_cold_case_touches_more_than_the_last_level_cache() -> None:
    """A8: 'cold' writes at least 64 MiB and twice the largest cache before each round, 'warm' a few bytes."""
    backend = FakeBackend()
    cold = Settle(backend, "cold")
    assert cold.touched_bytes >= max(LEAST_HOST_FLUSH_BYTES, 2 * (last_level_cache_bytes() or 0))
    before = cold._touched.clone()
    cold()
    assert bool((cold._touched == before + 1).all())
    assert Settle(backend, "warm").touched_bytes < 100
    assert flush_bytes("cuda") == DEVICE_FLUSH_BYTES


def test_the_cache_policy_is_part_of_the_identity() -> None:
    """A8: a warm and a cold case differ in identity and id, so no comparison pairs them by mistake."""
    warm, cold = fake_case(), fake_case(cache="cold")
    assert warm.identity() != cold.identity()
    assert warm.identity(without=["cache"]) == cold.identity(without=["cache"])
    assert cold.id.endswith("-cold")


@pytest.mark.parametrize(
    ("sizes", "expected"), [(["48K", "2048K", "105M"], 105 * 2**20), (["512"], 512), (["odd"], None), ([], None)]
)
def test_cache_sizes_as_linux_writes_them(tmp_path: Path, sizes: list[str], expected: int | None) -> None:
    for index, size in enumerate(sizes):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(f"{size}\n")
    assert last_level_cache_bytes(tmp_path) == expected


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was(enabled: bool) -> None:
    """Also where the caller had switched it off, and where the block raises."""
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ZeroDivisionError), collector_paused():
            _ = 1 / (0 if not gc.isenabled() else 1)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()
