"""The state of the code: real repositories, real git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from trnbench.records import git as git_module
from trnbench.records.git import git_state
from trnbench.records.schema import Git

NOTHING = Git(commit=None, dirty=None, diff_hash=None)


def run(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.invalid", "-c", "commit.gpgsign=false"]
    finished = subprocess.run(
        ["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True, encoding="utf-8"
    )
    return finished.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one committed module and one ignored pattern."""
    folder = tmp_path / "checkout"
    (folder / "suites").mkdir(parents=True)
    run(tmp_path, "init", "-q", str(folder))
    (folder / "suites" / "module.py").write_text("x = 1\n", encoding="utf-8")
    (folder / ".gitignore").write_text("*.ignored\n", encoding="utf-8")
    run(folder, "add", ".")
    run(folder, "commit", "-q", "-m", "start")
    return folder


def test_clean_checkout(checkout: Path) -> None:
    state, reasons = git_state(checkout)
    assert state == Git(commit=run(checkout, "rev-parse", "HEAD"), dirty=False, diff_hash=None)
    assert reasons == {"diff_hash": "nothing differs from the commit"}
    assert git_state(checkout / "suites") == (state, reasons)


def test_plain_folder(tmp_path: Path) -> None:
    """D8: commit null and dirty null, never false."""
    state, reasons = git_state(tmp_path)
    assert state == NOTHING
    assert reasons == dict.fromkeys(("commit", "dirty", "diff_hash"), "not in a git checkout")


def test_no_git_on_path(checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """D8."""
    monkeypatch.setenv("PATH", str(tmp_path))
    state, reasons = git_state(checkout)
    assert state == NOTHING
    assert set(reasons) == {"commit", "dirty", "diff_hash"}
    assert "git is not installed" in reasons["dirty"]


def fake_git(folder: Path, script: str) -> None:
    folder.mkdir()
    program = folder / "git"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exec sleep 30", "git did not answer within 0.2 s"),
        ("echo \"fatal: detected dubious ownership in repository at '/home/someone'\" >&2; exit 128", "safe.directory"),
        ("echo 'fatal: something about /home/someone' >&2; exit 128", "git failed with exit code 128"),
    ],
)
def test_git_that_fails(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, reason: str
) -> None:
    """D8, D19: whatever goes wrong is a null with a reason, and git's own words, which hold paths, stay out."""
    fake_git(tmp_path / "bin", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(git_module, "TIMEOUT_SECONDS", 0.2)
    state, reasons = git_state(checkout)
    assert state == NOTHING
    assert reason in reasons["commit"]
    assert "someone" not in str(reasons)


def test_git_that_cannot_be_run(checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """D8: a file called git that is no program."""
    fake_git(tmp_path / "bin", "")
    (tmp_path / "bin" / "git").write_bytes(b"\0\1")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    state, reasons = git_state(checkout)
    assert state == NOTHING
    assert "could not be started" in reasons["commit"]


def test_no_commit_yet(tmp_path: Path) -> None:
    """D8."""
    run(tmp_path, "init", "-q", ".")
    state, reasons = git_state(tmp_path)
    assert state == Git(commit=None, dirty=False, diff_hash=None)
    assert reasons["commit"] == "the checkout has no commit yet"


def change_unstaged(folder: Path) -> None:
    (folder / "suites" / "module.py").write_text("x = 2\n", encoding="utf-8")


def change_staged(folder: Path) -> None:
    change_unstaged(folder)
    run(folder, "add", ".")


def add_untracked(folder: Path) -> None:
    (folder / "suites" / "imported by the case.py").write_text("y = 1\n", encoding="utf-8")


def add_untracked_in_new_folder(folder: Path) -> None:
    (folder / "new" / "deep").mkdir(parents=True)
    (folder / "new" / "deep" / "m\N{LATIN SMALL LETTER O WITH DIAERESIS}dule\n.py").write_text("y", encoding="utf-8")


def delete(folder: Path) -> None:
    (folder / "suites" / "module.py").unlink()


def rename(folder: Path) -> None:
    run(folder, "mv", "suites/module.py", "suites/renamed.py")


def stage_and_undo_on_disk(folder: Path) -> None:
    change_staged(folder)
    (folder / "suites" / "module.py").write_text("x = 1\n", encoding="utf-8")


def replace_by_link(folder: Path) -> None:
    delete(folder)
    (folder / "suites" / "module.py").symlink_to("elsewhere.py")


def make_executable(folder: Path) -> None:
    (folder / "suites" / "module.py").chmod(0o755)


def nest_repository(folder: Path) -> None:
    run(folder, "init", "-q", "nested")
    (folder / "nested" / "x.py").write_text("z = 1\n", encoding="utf-8")


CHANGES = [
    change_unstaged,
    change_staged,
    add_untracked,
    add_untracked_in_new_folder,
    delete,
    rename,
    stage_and_undo_on_disk,
    replace_by_link,
    make_executable,
    nest_repository,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_every_kind_of_change_is_dirty(checkout: Path, change: object) -> None:
    """D9: staged, unstaged, untracked and their relatives, each with a short hash."""
    change(checkout)
    state, reasons = git_state(checkout)
    assert state.dirty is True
    assert state.diff_hash is not None
    assert len(state.diff_hash) == 16
    assert reasons == {}
    assert git_state(checkout / "suites") == (state, reasons)


@pytest.mark.parametrize("change", [change_unstaged, change_staged, add_untracked], ids=lambda change: change.__name__)
def test_hash_follows_the_content(checkout: Path, change: object) -> None:
    """D9: other content, other hash; the same content again, the same hash."""
    change(checkout)
    before = git_state(checkout)[0].diff_hash
    changed = next(path for path in (checkout / "suites").iterdir() if change is not add_untracked or " " in path.name)
    text = changed.read_text(encoding="utf-8")
    changed.write_text(text + "\n# more\n", encoding="utf-8")
    assert git_state(checkout)[0].diff_hash != before
    changed.write_text(text, encoding="utf-8")
    assert git_state(checkout)[0].diff_hash == before


def test_all_kinds_of_change_hash_apart(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> None:
    """D9."""
    hashes = set()
    for change in CHANGES:
        copy = tmp_path_factory.mktemp("copy") / "checkout"
        subprocess.run(["cp", "-a", str(checkout), str(copy)], check=True)
        change(copy)
        hashes.add(git_state(copy)[0].diff_hash)
    assert len(hashes) == len(CHANGES)


def test_what_the_tool_writes_does_not_make_it_dirty(checkout: Path) -> None:
    """D9: results and reports at the top, and folders named as outputs, do not count; elsewhere the same names do."""
    for folder in ("results/decoder", "reports", "elsewhere [1]/deep"):
        (checkout / folder).mkdir(parents=True)
        (checkout / folder / "file.json").write_text("{}", encoding="utf-8")
    assert git_state(checkout)[0].dirty is True
    outputs = [checkout / "elsewhere [1]"]
    assert git_state(checkout, outputs)[0].dirty is False
    assert git_state(checkout / "suites", outputs)[0].dirty is False
    (checkout / "suites" / "results").mkdir()
    (checkout / "suites" / "results" / "module.py").write_text("x", encoding="utf-8")
    assert git_state(checkout, outputs)[0].dirty is True


def test_an_output_folder_is_a_name_and_no_pattern(checkout: Path) -> None:
    """D9: a folder called `*` must not hide every change."""
    for folder in ("suites/*", "suites/other"):
        (checkout / folder).mkdir()
        (checkout / folder / "module.py").write_text("x", encoding="utf-8")
    assert git_state(checkout, [checkout / "suites" / "*"])[0].dirty is True


def test_outputs_outside_the_checkout_or_above_it_are_ignored(checkout: Path, tmp_path: Path) -> None:
    """D9: an output folder that holds the checkout, or is the checkout, must not hide every change."""
    add_untracked(checkout)
    for outputs in ([tmp_path], [checkout], [tmp_path / "far"], [Path("/")]):
        assert git_state(checkout, outputs)[0].dirty is True


def test_ignored_files_do_not_count(checkout: Path) -> None:
    (checkout / "cache.ignored").write_text("x", encoding="utf-8")
    assert git_state(checkout)[0].dirty is False


def test_user_settings_have_no_say(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D9: a user may hide untracked files from status, or come from a hook that points git at another repository."""
    add_untracked(checkout)
    expected = git_state(checkout)
    for name, value in {
        "status.showUntrackedFiles": "no",
        "core.quotePath": "true",
        "diff.noprefix": "true",
        "status.branch": "true",
        "color.ui": "always",
    }.items():
        run(checkout, "config", name, value)
    other = tmp_path / "other"
    run(tmp_path, "init", "-q", str(other))
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / "index"))
    assert git_state(checkout) == expected


def test_reading_the_state_changes_nothing(checkout: Path) -> None:
    """Not even the index, which `git status` likes to refresh: a run must not disturb a commit in progress."""
    os.utime(checkout / "suites" / "module.py", (1, 1))
    index = (checkout / ".git" / "index").read_bytes()
    git_state(checkout)
    assert (checkout / ".git" / "index").read_bytes() == index


def test_worktrees_and_submodules_have_a_git_file(checkout: Path, tmp_path: Path) -> None:
    run(checkout, "worktree", "add", "-q", str(tmp_path / "tree"))
    add_untracked(tmp_path / "tree")
    state, _ = git_state(tmp_path / "tree" / "suites")
    assert state.dirty is True
    assert state.diff_hash is not None
    assert git_state(checkout)[0].dirty is False


@pytest.mark.parametrize(("name", "value"), [("MAX_HASHED_BYTES", 3), ("MAX_HASHED_FILES", 0)])
def test_too_much_to_hash_is_still_dirty(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    """D9: a data set left in the checkout makes the hash null with a reason, not the run slow and never clean."""
    add_untracked(checkout)
    monkeypatch.setattr(git_module, name, value)
    state, reasons = git_state(checkout)
    assert (state.dirty, state.diff_hash) == (True, None)
    assert "too many or too large" in reasons["diff_hash"]
