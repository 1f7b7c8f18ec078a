"""Wrong use of the command line: one sentence, the documented exit code, and nothing has run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from driver_world import World
from hypothesis import given
from hypothesis import strategies as st

from trnbench.cli import main
from trnbench.cli.booleans import FALSE_WORDS, TRUE_WORDS, plain_flags
from trnbench.status import ExitCode

DOCUMENT = Path(__file__).parents[2] / "docs" / "exit-codes.md"
PAIRS = {"--resume": "--no-resume"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.suite(cases=1)
    return made


def assert_refused(done: subprocess.CompletedProcess[str], world: World, *words: str) -> None:
    """Exit 2, the words on stderr, no traceback, no process of the run started and nothing written."""
    assert done.returncode == 2, done.stderr
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert world.logged() == []
    assert not world.results.exists()


def python(program: str, world: World) -> subprocess.CompletedProcess[str]:
    """Run a program in the world's folder and environment."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=world.folder, env=world.environment, capture_output=True, text=True, check=True)


def test_documented_exit_codes_are_those_of_the_code() -> None:
    rows = [line.split("|")[1:3] for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    documented = {int(code): name.strip(" `") for code, name in rows if code.strip().isdigit()}
    assert documented == {code.value: code.name for code in ExitCode}


@pytest.mark.parametrize("word", ["False", "false", "no", "OFF", "0"])
def test_a_boolean_told_to_be_off_is_off(word: str) -> None:
    """H2: `--x False` and `--x false` switch off, like `--no-x`."""
    assert plain_flags(["--resume", word, "--runs", "2"], PAIRS) == ["--no-resume", "--runs", "2"]
    assert plain_flags([f"--resume={word}"], PAIRS) == ["--no-resume"]


@given(st.lists(st.text()))
def test_other_arguments_stay_as_they_are(arguments: list[str]) -> None:
    """H2: only a known boolean and the word after it are ever rewritten, and nothing after `--`."""
    others = [text for text in arguments if not text.startswith("--resume")]
    assert plain_flags(others, PAIRS) == others
    assert plain_flags(["--", "--resume", "no"], PAIRS) == ["--", "--resume", "no"]


@given(st.sampled_from(sorted(TRUE_WORDS | FALSE_WORDS)), st.booleans())
def test_every_spelled_out_boolean_is_understood(word: str, upper: bool) -> None:
    (plain,) = plain_flags(["--resume", word.upper() if upper else word], PAIRS)
    assert plain == ("--resume" if word in TRUE_WORDS else "--no-resume")


@pytest.mark.parametrize("arguments", [["--resume", "maybe"], ["--resume=maybe"], ["--conformance", "maybe"]])
def test_a_boolean_told_maybe_is_refused(world: World, arguments: list[str]) -> None:
    """H2: `--x maybe` is a usage error."""
    assert_refused(world.run(*arguments), world, "maybe" if "=" not in arguments[0] else "--resume")


def test_a_boolean_told_false_reaches_the_command(world: World) -> None:
    """H2: `--resume False` starts a new run, and does not resume."""
    assert world.run().returncode == 0
    assert world.run("--resume", "False").returncode == 0
    assert world.cases_run() == [1, 1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--round", "3"], ["--round", "--rounds"]),
        (["--tiers", "smoke"], ["--tiers", "--tier"]),
        (["--tier", "smok"], ["smok", "'smoke'"]),
        (["--runs", "0"], ["--runs", "at least 1"]),
        (["--rounds", "many"], ["--rounds", "integer"]),
        (["--timeout", "-1"], ["--timeout", "positive"]),
        (["--timeout", "nan"], ["--timeout", "positive"]),
        (["--resume", "--runs", "2"], ["--resume", "--runs"]),
        (["extra"], ["extra"]),
    ],
)
def test_misspelt_and_impossible_options(world: World, arguments: list[str], words: list[str]) -> None:
    """H3, H4: no abbreviations; a misspelt option or value names the nearest right one."""
    assert_refused(world.run(*arguments), world, *words)


def test_unknown_backend_names_the_nearest(world: World) -> None:
    """H6: found before anything runs."""
    assert_refused(world.trnbench("run", "--backend", "nuron"), world, "'nuron'", "'neuron'")


def test_missing_baseline_is_found_at_the_start(world: World) -> None:
    """H6: not after the long run."""
    assert_refused(world.run("--compare", "nofile.json"), world, "nofile.json", "does not exist")


def test_missing_suites_are_found_at_the_start(world: World) -> None:
    assert_refused(world.run("--suites", "nowhere"), world, "nowhere", "does not exist")


def test_results_that_cannot_be_written(world: World) -> None:
    """H6: a results folder below a file, or on a read-only file system, is refused before any case starts."""
    (world.folder / "file").touch()
    assert_refused(world.trnbench("run", "--backend", "stand-in", "--results", "file/results"), world, "not a folder")
    locked = world.folder / "locked"
    locked.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(locked)]
    mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    if not mounted:
        locked.chmod(0o500)
    try:
        done = world.trnbench("run", "--backend", "stand-in", "--results", "locked/results")
        assert_refused(done, world, "locked", "not writable")
    finally:
        if mounted:
            subprocess.run(["umount", str(locked)], check=True)
        locked.chmod(0o700)


def test_unknown_command_names_the_nearest(world: World) -> None:
    done = world.trnbench("rum")
    assert done.returncode == 2
    assert "'run'" in done.stderr


def test_unexpected_error_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A bug of the tool is told in one sentence with a request to report it; `--debug` gives the traceback."""

    def broken() -> bytes:
        raise ZeroDivisionError("three\nlines\nof it")

    monkeypatch.setattr("trnbench.records.json_schema.schema_bytes", broken)
    assert main(["schema"]) == ExitCode.FAILED
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "ZeroDivisionError: three lines of it" in message
    assert "report" in message
    with pytest.raises(ZeroDivisionError):
        main(["--debug", "schema"])


def test_absent_accelerator_is_refused_without_loading_torch(world: World) -> None:
    """G2: `--backend neuron` here is refused at once with where to get it; nothing heavy is loaded, nothing written."""
    program = (
        "import json, sys, time; start = time.perf_counter(); from trnbench.cli import main\n"
        "code = main(['run', '--backend', 'neuron'])\n"
        "heavy = [name for name in ('torch', 'pandas', 'matplotlib', 'scipy', 'numpy') if name in sys.modules]\n"
        "print(json.dumps({'code': code, 'heavy': heavy, 'seconds': time.perf_counter() - start}))"
    )
    done = python(program, world)
    answer = json.loads(done.stdout)
    print(f"refused after {answer['seconds']:.2f} s")
    assert (answer["code"], answer["heavy"]) == (4, [])
    assert done.stderr.count("\n") == 1
    assert "neuron" in done.stderr
    assert "pip.repos.neuron.amazonaws.com" in done.stderr
    assert not (world.folder / "results").exists()
    assert world.logged() == []


def test_the_driver_itself_never_loads_torch(world: World) -> None:
    """Only children touch devices: after a whole run the parent has loaded neither torch nor the plotting stack."""
    program = (
        "import json, sys; from trnbench.cli import main\n"
        f"code = main({['run', '--backend', 'stand-in', '--results', 'results']!r})\n"
        "heavy = [name for name in ('torch', 'pandas', 'matplotlib', 'scipy') if name in sys.modules]\n"
        "print(json.dumps({'code': code, 'heavy': heavy}))"
    )
    done = python(program, world)
    assert json.loads(done.stdout.splitlines()[-1]) == {"code": 0, "heavy": []}
    assert world.cases_run() == [1]
