"""`trnbench passport`: taken in a child, stored, shown, and two side by side."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from driver_world import World, is_running, wait_until

from trnbench.cli import main
from trnbench.records.passport import Passport, PassportStore, decode_passport

if TYPE_CHECKING:
    from pathlib import Path

ALL_GROUPS = {
    *("matrix product", "accumulator", "accumulation order", "invariance", "reduction accumulators", "variance"),
    *("elementwise", "excess precision", "correct rounding", "function error", "special values", "casts"),
    *("randomness", "integers", "attention"),
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real passport of this machine's CPU, taken once by the command."""
    results = tmp_path_factory.mktemp("results")
    command = [sys.executable, "-m", "trnbench.cli", "passport", "--backend", "cpu", "--results", str(results)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=results)
    assert done.returncode == 0, done.stderr
    (stored,) = PassportStore(results).load().passports
    assert f"stored as {stored.path}" in done.stderr
    assert "Nothing is judged." in done.stdout
    return stored.path


def read(path: Path) -> Passport:
    return decode_passport(path.read_bytes(), str(path))


def test_the_passport_of_this_cpu(taken: Path) -> None:
    passport = read(taken)
    verdicts = {(probe.group, probe.name, probe.precision): probe.verdict for probe in passport.probes}
    assert {group for group, _, _ in verdicts} == ALL_GROUPS
    assert {"fp32", "bf16", "fp16"} <= set(passport.numerics)
    assert passport.mode == "eager"
    assert not passport.simulated
    # True on every CPU that PyTorch runs on, whatever its instruction sets.
    assert verdicts["matrix product", "operand bits", "fp32"] == "fp32 operands"
    assert verdicts["accumulator", "width", "bf16"] == "fp32 accumulator"
    assert verdicts["reduction accumulators", "embedding gradient", "bf16"] == "8-bit accumulator"
    assert verdicts["excess precision", "float32 to bf16 and back", "bf16"] == "rounded as written"
    assert verdicts["integers", "int64 width", "fp32"] == "64 bits"
    assert verdicts["function error", "sin", "bf16"] == "0.50 ulp"
    unknown = [key for key, verdict in verdicts.items() if verdict is None]
    assert all(group == "casts" or precision in ("tf32", "e4m3fn", "e5m2") for group, _, precision in unknown), unknown


def test_show(taken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["passport", "--show", str(taken)]) == 0
    shown = capsys.readouterr().out
    assert "accumulator" in shown
    assert "8-bit accumulator" in shown
    assert main(["passport", "--show", str(taken.parents[3]), "--details"]) == 0
    assert "right operand bits, 256 rows" in capsys.readouterr().out
    assert main(["passport", "--show", str(taken), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passport_id"] == read(taken).passport_id


def test_compare(taken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passport = read(taken)
    changed = [
        msgspec.structs.replace(probe, verdict="rounds toward zero") if probe.name == "rounding" else probe
        for probe in passport.probes
    ]
    other = PassportStore(tmp_path).write(msgspec.structs.replace(passport, probes=changed, passport_id="other"))
    assert main(["passport", "--compare", str(taken), str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "rounds to nearest, ties to even" in shown
    assert "rounds toward zero" in shown
    assert "operand bits" not in shown
    assert main(["passport", "--compare", str(taken), str(other), "--fail-on-difference"]) == 1
    capsys.readouterr()
    assert main(["passport", "--compare", str(taken), str(taken), "--fail-on-difference"]) == 0
    assert "0 of" in capsys.readouterr().out
    assert main(["passport", "--compare", str(taken), str(other), "--json"]) == 0
    assert {item["b"] for item in json.loads(capsys.readouterr().out)} == {"rounds toward zero"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "none was given"),
        (["--backend", "cpu", "--show", "x"], "not --backend and --show"),
        (["--show", "nowhere"], "does not exist"),
        (["--backend", "cpu", "--mode", "fast"], "has no fast mode"),
        (["--backend", "cpu", "--fail-on-difference"], "needs --compare"),
    ],
)
def test_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["passport", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_an_absent_or_busy_backend_is_one_sentence(world: World) -> None:
    for how, words in (("absent", "is not here"), ("busy", "is busy")):
        done = world.trnbench("passport", "--backend", "stand-in", STAND_IN_OPENS=how)
        assert done.returncode == 4
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    crashed = world.trnbench("passport", "--backend", "stand-in", STAND_IN_OPENS="crash")
    assert crashed.returncode == 1
    assert "was not finished: its process ended with code 11" in crashed.stderr


def test_ctrl_c_ends_the_child_too(world: World) -> None:
    process = subprocess.Popen(
        world.command("passport", "--backend", "stand-in"),
        cwd=world.folder,
        env={**world.environment, "STAND_IN_OPENS": "hang"},
        start_new_session=True,
    )
    wait_until(lambda: bool(world.logged()))
    child = int(world.logged()[0].split()[-1])
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=30) == 130
    wait_until(lambda: not is_running(child))


def test_the_schema_of_passports(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["schema", "passport"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["title"] == "TrnBench passport, version 1"
