"""What the guides say is so: their commands run, their links lead somewhere, their options and paths exist."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import guides
import pytest
import typer

from trnbench.cli.app import app

if TYPE_CHECKING:
    from guides import Block

ROOT = guides.ROOT
PACKAGE = ROOT / "harness/trnbench"
EXAMPLE = ROOT / "tests/records/examples/record-v1.json"
TRAINIUM = ROOT / "docs/running-on-trainium.md"

FOREIGN_OPTIONS = {"--dry-run": "harness/neuron_environment.py", "--auto-cast": "neuronx-cc"}
"""Options that a guide names alone, and whose they are where they are not of `trnbench`."""

MADE_BY_USE = (".tox/", ".venv/", "results/local", "reports/")
"""Where paths appear only once the tool has run."""

TRIED = [
    ("2. Get the suite", "(tried: CI starts like this)", [".ci/run::python3 -m venv .venv && .venv/bin/pip install"]),
    (
        "3. Say where Neuron is",
        "(tried, with an environment that holds a stand-in torch-neuronx)",
        [
            "tests/backends/test_neuron_environment.py::def test_overlay(",
            "tests/environments/test_tox_trn2.py::def test_records(",
        ],
    ),
    (
        "3. Say where Neuron is",
        "(command line tried with --dry-run; the installation itself from AWS's documents)",
        ["tests/backends/test_neuron_environment.py::def test_what_would_be_installed("],
    ),
    (
        "3. Say where Neuron is",
        "(tried)",
        [
            "tests/backends/test_neuron_environment.py::def test_interpreters_that_are_refused(",
            "tests/backends/test_neuron_preflight.py::def test_placeholder(",
        ],
    ),
    (
        "3. Say where Neuron is",
        "(tried)",
        [
            "tests/environments/test_tox_trn2.py::def test_no_python_of_the_right_version(",
            "tests/environments/test_tox_trn2.py::def test_interpreter_without_neuron(",
        ],
    ),
    (
        "4. Check before you spend",
        "(tried)",
        ["tests/environments/test_tox_trn2.py::def test_environment_made_by_hand_and_described("],
    ),
    (
        "4. Check before you spend",
        "(tried: each one provoked, packages and driver on a made-up machine, cores on the simulated device)",
        [
            "tests/backends/test_neuron_preflight.py::def test_not_installed(",
            "tests/backends/test_neuron_preflight.py::def test_placeholder(",
            "tests/backends/test_neuron_preflight.py::def test_versions_of_different_releases(",
            "tests/backends/test_neuron_preflight.py::def test_driver_and_runtime(",
            "tests/backends/test_neuron_device.py::def test_two_processes_do_not_share_the_cores(",
        ],
    ),
    (
        "5. Run",
        "(tried with the smoke tier on the simulated device, from preflight to record and page)",
        ["tests/environments/test_tox_trn2.py::def test_records("],
    ),
    (
        "5. Run",
        "(tried)",
        [
            "tests/environments/test_tox_trn2.py::def test_exit_code(",
            "tests/environments/test_tox_trn2.py::def test_comparison_is_refused(",
            "tests/environments/test_tox_trn2.py::def test_page_shows_no_number(",
        ],
    ),
    (
        "5. Run",
        "(tried)",
        [
            "tests/measure/test_rounds.py::def test_recompiling_rounds_are_invalid_and_counted(",
            "tests/measure/test_rounds.py::def test_operators_on_the_host_make_a_fallback_not_a_slow_row(",
        ],
    ),
    (
        "5. Run",
        "(tried)",
        ["tests/environments/test_tox_trn2.py::def test_failed_case_is_the_exit_code_and_gets_its_page("],
    ),
    ("5. Run", "(tried)", ["tests/environments/test_tox_trn2.py::def test_resume_runs_what_is_missing("]),
    ("6. Compare", "(tried, with records from the CPU)", ["tests/docs/test_docs.py::def test_commands_of_a_guide("]),
    (
        "6. Compare",
        "(tried, with made-up records)",
        ["tests/report/test_report_own_prices.py::def test_a_deal_of_ones_own_is_a_scenario_of_its_own("],
    ),
]
"""Each remark of the Trainium guide that something was tried, in order, with what tries it: file::text in it."""

guide_by_guide = pytest.mark.parametrize("guide", guides.GUIDES, ids=lambda path: path.name)
with_tested_blocks = [guide for guide in guides.GUIDES if any(block.tested for block in guides.blocks(guide))]


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """What a reader has after cloning and a first run: suites, published records, one local record, the sources."""
    shutil.copytree(ROOT / "suites", tmp_path / "suites", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "results", tmp_path / "results", ignore=shutil.ignore_patterns("local"))
    (tmp_path / "results/local").mkdir()
    shutil.copy(EXAMPLE, tmp_path / "results/local/record.json")
    (tmp_path / "harness").symlink_to(ROOT / "harness")
    return tmp_path


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a reader would type it, with this environment's `trnbench` and `python3` first."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRNBENCH_", "PYTEST_"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=300,
        env={**kept, "PATH": path, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.parametrize("guide", with_tested_blocks, ids=lambda path: path.name)
def test_commands_of_a_guide(guide: Path, workplace: Path) -> None:
    """Blocks marked `tested`, in order in one folder: a Python block becomes a suite, a console block is run."""
    for block in filter(lambda block: block.tested, guides.blocks(guide)):
        if block.language == "python":
            declare(block, workplace)
            continue
        assert block.language == "console", f"{guide.name}:{block.line}: no way to test {block.language!r}"
        assert block.commands(), f"{guide.name}:{block.line}: a tested block without a command"
        for command in block.commands():
            done = shell(command, workplace)
            assert done.returncode == block.exit_code, (
                f"{guide.name}:{block.line}: `{command}` ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
            )


def declare(block: Block, workplace: Path) -> None:
    """Make a Python block a suite of its own, which must declare at least one case."""
    name = f"suites/test_line_{block.line}.py"
    (workplace / name).write_text(block.text, encoding="utf-8")
    listed = shell(f"trnbench list --json --suites {name}", workplace)
    assert listed.returncode == 0, listed.stderr
    assert json.loads(listed.stdout), f"line {block.line} declares no case"


def test_failing_command_is_found(tmp_path: Path) -> None:
    """The test above can fail: what it runs is the block's command, and what it looks at is its exit code."""
    guide = tmp_path / "guide.md"
    guide.write_text("```console tested exit=2\n$ trnbench compare \\\n    --no-such-option\noutput\n```\n")
    (block,) = guides.blocks(guide)
    assert block.tested
    (command,) = block.commands()
    assert shell(command, tmp_path).returncode == block.exit_code == 2


@guide_by_guide
def test_links_lead_somewhere(guide: Path) -> None:
    for target in guides.links(guide):
        name, _, fragment = target.partition("#")
        file = (guide.parent / name).resolve() if name else guide
        assert file.exists(), f"{guide.name} links to {target}"
        if fragment and file.suffix == ".md":
            assert fragment in guides.anchors(file), f"{guide.name} links to {target}, and there is no such heading"


def command_lines(guide: Path) -> list[str]:
    """Every command that a guide shows: in code blocks, line by line, and in code spans."""
    shown = [line for block in guides.blocks(guide) for line in block.text.replace("\\\n", " ").splitlines()]
    return [line.removeprefix("$ ") for line in [*shown, *guides.code_spans(guide)]]


def trnbench_options() -> dict[str, set[str]]:
    """The options of each command of `trnbench`, "" for those before the command."""
    group = typer.main.get_command(app)
    commands = {"": group, **group.commands}
    return {
        name: {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
        for name, command in commands.items()
    }


def trnbench_calls(line: str) -> list[list[str]]:
    """The words after each `trnbench` of a shell line, up to the next command."""
    words = shlex.split(line.replace("'", '"') if line.count("'") % 2 else line, comments=True)
    calls = []
    for index, word in enumerate(words):
        if word == "trnbench" or word.endswith("/trnbench"):
            rest = itertools.takewhile(lambda word: word not in ("&&", "||", "|", ";"), words[index + 1 :])
            calls.append([word for word in rest if word != "..."])
    return calls


def tox_calls(line: str) -> list[tuple[list[str], list[str]]]:
    """The environments of each `tox -e` of a shell line, and what is passed on after `--`."""
    found = re.findall(r"\btox (?:run )?(?:-q )?-e ([\w,-]+)([^&|;]*)", line)
    return [(names.split(","), shlex.split(rest.partition(" -- ")[2])) for names, rest in found]


@guide_by_guide
def test_commands_and_options_exist(guide: Path) -> None:
    options = trnbench_options()
    every = set().union(*options.values())
    for line in command_lines(guide):
        for words in trnbench_calls(line):
            before = list(itertools.takewhile(lambda word: word.startswith("-"), words))
            assert set(before) <= options[""], f"{guide.name}: `{line}`"
            if len(words) > len(before) and words[len(before)].isalpha() and words[len(before)].islower():
                command, *rest = words[len(before) :]
                assert command in options, f"{guide.name}: `{line}`: there is no command {command}"
                unknown = {word.partition("=")[0] for word in rest if word.startswith("-")} - options[command]
                assert not unknown, f"{guide.name}: `{line}`: {command} has no {unknown}"
        if line.startswith("--"):
            option = re.split(r"[ =]", line)[0]
            assert option in every or option in FOREIGN_OPTIONS, f"{guide.name}: `{line}`"


@guide_by_guide
def test_tox_environments_exist(guide: Path) -> None:
    """And what is passed on to one that measures are options of `trnbench run`."""
    listed = subprocess.run(
        [sys.executable, "-m", "tox", "list", "--no-desc", "-c", str(ROOT / "tox.ini")],
        capture_output=True,
        text=True,
        check=True,
    )
    options = trnbench_options()
    for line in command_lines(guide):
        for names, passed in tox_calls(line):
            assert set(names) <= set(listed.stdout.split()), f"{guide.name}: `{line}`"
            if set(names) <= {"cpu", "cuda", "xla", "trn1", "trn2", "trn3"}:
                unknown = {word for word in passed if word.startswith("-")} - options["run"]
                assert not unknown, f"{guide.name}: `{line}`: trnbench run has no {unknown}"


def looks_like_a_path(word: str) -> bool:
    """A relative path with a folder in it, or a file name with an ending that this repository uses."""
    if not re.fullmatch(r"[A-Za-z0-9_.][\w.-]*(/[\w.-]+)*/?", word):
        return False
    return ("/" in word and word != "n/a") or word.endswith((".py", ".md", ".toml", ".ini", ".csv"))


@guide_by_guide
def test_paths_exist(guide: Path) -> None:
    """Given from the checkout or from the package, or a file's name alone; what only use creates is left out."""
    tops = {path.name for path in ROOT.iterdir()}
    spans = set(guides.code_spans(guide))
    for line in command_lines(guide):
        for word in line.split():
            named_alone = word in spans
            if not looks_like_a_path(word) or not (named_alone or word.partition("/")[0] in tops):
                continue
            if word.startswith(MADE_BY_USE):
                continue
            found = (
                (ROOT / word).exists() or (PACKAGE / word).exists() or ("/" not in word and any(PACKAGE.rglob(word)))
            )
            assert found, f"{guide.name} names {word}"


def test_every_tried_remark_names_what_tries_it() -> None:
    assert guides.remarks(TRAINIUM, "tried") == [(section, remark) for section, remark, _ in TRIED]
    for _, remark, proofs in TRIED:
        assert proofs, remark
        for proof in proofs:
            file, _, text = proof.partition("::")
            assert text in (ROOT / file).read_text(encoding="utf-8"), proof
