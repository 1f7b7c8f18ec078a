"""`trnbench training-log`: one line a file, its complaints below, and the documented exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from log_samples import lines, log_text, without

from trnbench.training.rule_data import NEWEST

if TYPE_CHECKING:
    from pathlib import Path


def run_command(*arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "trnbench.cli", "training-log", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200"})
    return done.returncode, done.stdout, done.stderr


def test_the_command_prints_one_line_for_each_good_log(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"result_{number}.txt").write_text(log_text(number))
    files = [str(path) for path in sorted(tmp_path.iterdir())]
    code, out, _ = run_command(*files)
    assert code == 0
    printed = out.splitlines()
    assert len(printed) == 3
    for number, line in enumerate(printed, 1):
        assert line.startswith(
            f"{files[number - 1]}: follows rule set {NEWEST}; seed {number}: success after 480 samples"
        )


def test_the_command_fails_for_complaints_and_says_them(tmp_path: Path) -> None:
    good, bad, other = tmp_path / "result_1.txt", tmp_path / "result_2.txt", tmp_path / "other" / "result_1.txt"
    good.write_text(log_text(7))
    bad.write_text(without(log_text(7), "micro_batch_size"))
    other.parent.mkdir()
    # In another folder, so another set, in which the same seed is fine.
    other.write_text(log_text(7))
    code, out, _ = run_command(str(good), str(bad), str(other))
    assert code == 1
    assert f"{good}: follows rule set" in out
    assert f"{bad}: 2 complaints by rule set" in out
    assert f"{bad}: micro_batch_size is missing" in out
    assert f"seed is 7 as in {good}" in out
    assert f"{other}: follows rule set" in out
    code, out, _ = run_command("--json", str(bad))
    assert code == 1
    (found,) = json.loads(out)
    assert [one["key"] for one in found["complaints"]] == ["micro_batch_size"]


def test_the_command_refuses_what_is_no_log(tmp_path: Path) -> None:
    broken, empty, binary = (tmp_path / name for name in ("broken.txt", "empty.txt", "binary.txt"))
    broken.write_text(log_text() + ":::MLLOG {\n")
    empty.write_text("nothing\n")
    binary.write_bytes(b"\xff\xfe")
    for path, message in (
        (broken, f"line {len(lines(log_text())) + 1}: not an :::MLLOG event"),
        (empty, "is no training log: no line begins with ':::MLLOG'"),
        (binary, "is not UTF-8 at byte 0"),
        (tmp_path / "none.txt", "cannot be read: No such file"),
    ):
        code, _, error = run_command(str(path))
        assert code == 2
        assert message in error
    code, _, error = run_command("--rules", "0.9", str(empty))
    assert code == 2
    assert "no rule set '0.9'" in error
