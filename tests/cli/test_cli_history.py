"""Results of commits that the clone at hand does not have: shown and judged like any other, in the order of time."""

from __future__ import annotations

import random
import subprocess
from typing import TYPE_CHECKING

import pytest
from factory import H100, make_device, make_environment, make_record, make_runs

from trnbench.cli import main
from trnbench.records.build import explain
from trnbench.records.ids import instant
from trnbench.records.schema import Git
from trnbench.records.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from trnbench.records.schema import Record

STEADY = [1000.0, 1010.0, 990.0, 1005.0]


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.com", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three commits in a depth-1 clone, the working folder: rebased away, cut off by the depth, and the newest."""
    origin = tmp_path / "origin"
    origin.mkdir()
    git(origin, "init", "--quiet")
    for number in range(2):
        (origin / "file").write_text(str(number))
        git(origin, "add", "file")
        git(origin, "commit", "--quiet", "-m", str(number))
    git(tmp_path, "clone", "--quiet", "--depth", "1", origin.as_uri(), "clone")
    monkeypatch.chdir(tmp_path / "clone")
    older, newest = git(origin, "rev-parse", "HEAD~1", "HEAD").split()
    absent = subprocess.run(["git", "cat-file", "-e", older], check=False, capture_output=True)
    assert absent.returncode != 0, "the clone is not shallow"
    return ["d" * 40, older, newest]


def record_of(commit: str, day: int) -> Record:
    environment = make_environment(git=Git(commit=commit, dirty=False, diff_hash=None))
    # With offsets of both signs the odd day begins last, though as text it does not.
    started = f"2026-11-{day:02}T23:30:00-05:00" if day % 2 else f"2026-11-{day:02}T08:00:00+09:00"
    return explain(make_record(f"night-{day}", device=make_device(**H100), environment=environment, started_at=started))


def test_every_result_is_shown_in_the_order_of_time(tmp_path: Path, commits: list[str]) -> None:
    """D10: one of 3 results is of a commit that a shallow clone lacks, one of a commit that is nowhere: 3 are shown."""
    records = [record_of(commit, day) for day, commit in enumerate(commits, start=10)]
    shuffled = random.Random(10).sample(records, len(records))
    for record in shuffled:
        Store(tmp_path / "results").write(record)
    assert main(["report", str(tmp_path / "results"), "--out", str(tmp_path / "site")]) == 0
    runs = (tmp_path / "site" / "runs.html").read_text("utf-8")
    places = [runs.find(record.run_id) for record in sorted(records, key=lambda one: instant(one.started_at))]
    assert -1 not in places
    assert places in (sorted(places), sorted(places, reverse=True))
    pages = "".join(page.read_text("utf-8") for page in (tmp_path / "site" / "runs").glob("*.html"))
    assert all(commit in pages for commit in commits)


def test_a_baseline_of_an_absent_commit_is_a_baseline(tmp_path: Path, commits: list[str]) -> None:
    """D10: machine and workload version make a baseline comparable; nothing asks git where its commit is."""
    for name, commit in (("before", commits[0]), ("now", commits[2])):
        environment = make_environment(git=Git(commit=commit, dirty=False, diff_hash=None))
        for record in make_runs(STEADY, name, environment=environment):
            Store(tmp_path / name).write(explain(record))
    assert main(["compare", "--baseline", str(tmp_path / "before"), "--current", str(tmp_path / "now")]) == 0
