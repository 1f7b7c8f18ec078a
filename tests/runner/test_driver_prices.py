"""The price that a run stores: how old it is said to be before the run starts."""

from __future__ import annotations

import datetime
import io
from typing import TYPE_CHECKING

import pytest
from driver_world import World

from trnbench.catalog.prices import STALE_AFTER_DAYS, PriceRow, PriceTable
from trnbench.runner.driver import run
from trnbench.runner.options import RunOptions
from trnbench.runner.progress import PlainReporter
from trnbench.status import Status, UsageError

if TYPE_CHECKING:
    from pathlib import Path

TODAY = datetime.datetime.now(datetime.UTC).date()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose driver runs in this process, so that it can be given a price list."""
    made = World(tmp_path)
    made.suite(cases=1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    for name in ("PYTHONPATH", "STAND_IN_LOG"):
        monkeypatch.setenv(name, made.environment[name])
    return made


def start(world: World, monkeypatch: pytest.MonkeyPatch, *, days_old: int, ci: bool) -> str:
    """Run the one case on an instance whose price is so many days old; returns what the person at the terminal sees."""
    row = PriceRow(
        instance_type="trn2.3xlarge",
        region="us-east-1",
        term="on-demand",
        usd_per_hour=2.0,
        currency="USD",
        as_of=TODAY - datetime.timedelta(days=days_old),
        source="an offer",
    )
    monkeypatch.setattr(PriceTable, "load", lambda: PriceTable([row], "a list"))
    terminal = io.StringIO()
    options = RunOptions(
        backend="stand-in",
        suites=world.folder / "suites",
        results=world.results,
        instance_type="trn2.3xlarge",
        region="us-east-1",
        ci=ci,
    )
    run(options, PlainReporter(terminal))
    return terminal.getvalue()


@pytest.mark.parametrize(("days_old", "told"), [(STALE_AFTER_DAYS, False), (STALE_AFTER_DAYS + 1, True), (1064, True)])
def test_an_old_price_is_told_before_the_first_case(
    world: World, monkeypatch: pytest.MonkeyPatch, days_old: int, told: bool
) -> None:
    """E4: a warning with the price's age, and the run goes on."""
    seen = start(world, monkeypatch, days_old=days_old, ci=False)
    assert (f"{days_old} days old" in seen.partition("cases on")[0]) == told
    assert world.statuses() == {1: Status.OK}


def test_in_ci_a_run_with_an_old_price_does_not_start(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """E4: an error in CI mode, before the hours of the run; a fresh price is no obstacle."""
    with pytest.raises(UsageError, match="91 days old"):
        start(world, monkeypatch, days_old=91, ci=True)
    assert world.cases_run() == []
    assert not world.results.exists()
    start(world, monkeypatch, days_old=0, ci=True)
    assert world.statuses() == {1: Status.OK}
