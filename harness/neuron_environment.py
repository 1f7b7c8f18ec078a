"""Fill the virtual environment that runs this script for one Trainium generation: `neuron_environment.py trn2`.

Standard library only: it runs before anything is installed (tox environments trn1, trn2, trn3). Two ways:

* TRNBENCH_NEURON_PYTHON names an interpreter that already has Neuron, as AWS machine images ship it: its packages
  are laid under this environment, and torch and torch-neuronx are found there, never replaced.
* Otherwise the pinned versions of the Neuron catalog are installed from AWS's own index.

Then the project and its remaining dependencies are installed without touching torch. The public index holds
placeholders under the names of AWS's packages; they are refused wherever they turn up. Exit codes: 0 done, 2 the
environment cannot be made, and one sentence says why; --dry-run prints the commands and runs none of them.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shlex
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RELEASES = ROOT / "harness/trnbench/catalog/data/neuron_releases.csv"
AWS_INDEX = "https://pip.repos.neuron.amazonaws.com"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
INTERPRETER = "TRNBENCH_NEURON_PYTHON"
VERSION = "TRNBENCH_TORCH_NEURONX"
OVERLAY = "neuron_packages.pth"

TARGETS = {"trn1": ("xla", "2.9.0.2.13.26312"), "trn2": ("native", "2.14.3.0"), "trn3": ("native", "2.14.3.0")}
"""Generation to product and default version; trn1 trains on SDK 2.29 only, the last that supports it."""

PLACEHOLDERS = {
    "torch-neuronx": ("1.0",),
    "neuronx-cc": ("1.0", "1.0.post1"),
    "libneuronxla": ("1.0",),
    "neuronx-distributed": ("0.1",),
    "neuronx-distributed-inference": ("0.1.0",),
    "nki": ("0.0.1",),
    "nki-library": ("0.0.2",),
    "nrtpy": ("0.0.1",),
    "jax-neuronx": ("0.0.0",),
    "vllm-neuron": ("0.1.0",),
    "torchtitan-neuron": ("0.0.1",),
    "libtorch-neuronx-lite": ("0.0.1",),
}
"""What the public index offers under the names of AWS's packages; importing one raises WRONG PACKAGE."""

INSPECT = """
import importlib.metadata, json, platform, sysconfig, sys
names = json.loads(sys.argv[1])
found = {}
for name in names:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
folders = [folder for folder in sys.path if folder and folder.endswith(("site-packages", "dist-packages"))]
print(json.dumps({"python": ".".join(platform.python_version_tuple()[:2]), "versions": found, "folders": folders}))
"""


class Release(NamedTuple):
    """The columns of the release table that an installation needs."""

    torch_neuronx: str
    stack: str
    torch: str
    neuronx_cc: str
    python_first: str
    python_last: str


class Found(NamedTuple):
    """What an interpreter has: its Python as X.Y, versions of the asked packages, and its package folders."""

    python: str
    versions: dict[str, str]
    folders: list[str]


class EnvironmentRefusedError(Exception):
    """One sentence for the user; the script then exits with 2."""


def read_release(torch_neuronx: str) -> Release:
    """The row of the release table for a version of torch-neuronx."""
    with RELEASES.open(encoding="utf-8", newline="") as table:
        rows = {row["torch_neuronx"]: row for row in csv.DictReader(table)}
    if torch_neuronx not in rows:
        raise EnvironmentRefusedError(
            f"torch-neuronx {torch_neuronx} is not in {RELEASES.name}; it holds {', '.join(rows)}"
        )
    return Release(**{field: rows[torch_neuronx][field] for field in Release._fields})


def choose_release(target: str, asked: str | None) -> Release:
    """The release for a generation, or the one the user asked for if it is of the generation's product."""
    stack, default = TARGETS[target]
    release = read_release(asked or default)
    if release.stack != stack:
        raise EnvironmentRefusedError(
            f"{VERSION}={asked} is the {release.stack} product, and {target} runs on the {stack} one"
        )
    return release


def inspect(interpreter: str) -> Found:
    """Ask an interpreter what it has, without importing any package of it."""
    names = json.dumps([*PLACEHOLDERS, "torch", "torch-xla"])
    try:
        done = subprocess.run([interpreter, "-c", INSPECT, names], capture_output=True, text=True, check=True)
        return Found(**json.loads(done.stdout))
    except (OSError, subprocess.CalledProcessError, json.JSONDecodeError, TypeError) as error:
        raise EnvironmentRefusedError(f"{INTERPRETER}={interpreter} does not run as a Python: {error}") from None


def check_overlay(found: Found, interpreter: str, target: str) -> None:
    """Refuse an interpreter of another Python, or without the right product of torch-neuronx."""
    running = python_version()
    if found.python != running:
        raise EnvironmentRefusedError(
            f"{INTERPRETER}={interpreter} is Python {found.python} and this environment Python {running}; they must be "
            f"the same: make the environment with python{found.python}"
        )
    refuse_placeholders(found.versions)
    version = found.versions.get("torch-neuronx")
    if version is None or "torch" not in found.versions:
        missing = "torch-neuronx" if version is None else "torch"
        raise EnvironmentRefusedError(f"{INTERPRETER}={interpreter} has no {missing}: name the interpreter that has it")
    stack = "native" if numbers(version) >= (2, 13) else "xla"
    wanted = TARGETS[target][0]
    if stack != wanted:
        raise EnvironmentRefusedError(
            f"{INTERPRETER}={interpreter} has torch-neuronx {version}, the {stack} product; {target} runs on the "
            f"{wanted} one"
        )


def refuse_placeholders(versions: dict[str, str]) -> None:
    """Raise where a package of AWS's is the public index's placeholder."""
    for name, version in versions.items():
        if version in PLACEHOLDERS.get(name, ()):
            raise EnvironmentRefusedError(
                f"WRONG PACKAGE: {name} {version} is the public index's placeholder; the real one is on {AWS_INDEX}"
            )


def python_refusal(release: Release) -> str | None:
    """Why the running Python cannot take a release, None where it can."""
    running = python_version()
    if numbers(release.python_first) <= numbers(running) <= numbers(release.python_last):
        return None
    return (
        f"torch-neuronx {release.torch_neuronx} is built for Python {release.python_first} to {release.python_last}, "
        f"and this environment has Python {running}"
    )


def neuron_command(release: Release) -> list[str]:
    """The pip command that installs torch and Neuron, pinned, so that no placeholder can be chosen."""
    pins = [
        f"torch-neuronx=={release.torch_neuronx}",
        f"neuronx-cc=={release.neuronx_cc}",
        f"torch=={release.torch}.*",
    ]
    if release.stack == "xla":
        pins.append(f"torch-xla=={release.torch}.*")
    return [*pip(), *pins, "--extra-index-url", AWS_INDEX, "--extra-index-url", TORCH_INDEX]


def project_commands() -> list[list[str]]:
    """Install the dependencies that are not torch, with torch held where it is, then the project itself."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        needed = tomllib.load(file)["project"]["dependencies"]
    others = [requirement for requirement in needed if requirement_name(requirement) != "torch"]
    return [[*pip(), *others], [*pip(), "--no-deps", "--editable", str(ROOT)]]


def requirement_name(requirement: str) -> str:
    """Name of the distribution that a requirement asks for: "torch>=2.9" is torch."""
    return "".join(
        character if character.isalnum() or character in "-_." else " " for character in requirement
    ).split()[0]


def write_overlay(packages: Path, folders: list[str]) -> Path:
    """Append another interpreter's package folders to this environment's path; its own packages come first.

    `site.addsitedir`, since packages there may themselves rely on .pth files.
    """
    lines = [f"import site; site.addsitedir({folder!r})\n" for folder in folders]
    overlay = packages / OVERLAY
    overlay.write_text("".join(lines), encoding="utf-8")
    return overlay


def pip() -> list[str]:
    """`pip install` of the running interpreter."""
    return [sys.executable, "-m", "pip", "install"]


def numbers(version: str) -> tuple[int, ...]:
    """Leading numbers of a version, for comparing."""
    return tuple(int(part) for part in version.partition("+")[0].split(".") if part.isdigit())


def python_version() -> str:
    """The running Python as X.Y."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def run(command: list[str], dry_run: bool) -> None:
    """Print a command, and run it unless this is a dry run."""
    print(shlex.join(command), flush=True)
    if not dry_run and subprocess.run(command, check=False).returncode:
        raise EnvironmentRefusedError(f"this command failed: {shlex.join(command)}")


def make(target: str, interpreter: str | None, asked: str | None, dry_run: bool) -> None:
    """Fill the running environment for `target`; raises `EnvironmentRefusedError`."""
    if not dry_run and sys.prefix == sys.base_prefix:
        raise EnvironmentRefusedError("this Python is not a virtual environment: run this through tox, or in one")
    if interpreter:
        lay_under(interpreter, target, dry_run)
    else:
        install_neuron(choose_release(target, asked), dry_run)
    before = neuron_versions(dry_run)
    for command in project_commands():
        run(command, dry_run)
    after = neuron_versions(dry_run)
    if before != after:
        raise EnvironmentRefusedError(f"installing the project changed {before} to {after}; Neuron must stay as it was")


def lay_under(interpreter: str, target: str, dry_run: bool) -> None:
    """Make the packages of an interpreter that has Neuron visible here."""
    found = inspect(interpreter)
    check_overlay(found, interpreter, target)
    packages = Path(sysconfig.get_path("purelib"))
    print(f"overlay {packages / OVERLAY}: {' '.join(found.folders)}", flush=True)
    if not dry_run:
        write_overlay(packages, found.folders)


def install_neuron(release: Release, dry_run: bool) -> None:
    """Install torch and Neuron from AWS's index; a dry run goes on with a warning where the Python is wrong."""
    refusal = python_refusal(release)
    if refusal is not None:
        if not dry_run:
            raise EnvironmentRefusedError(refusal)
        print(f"warning: {refusal}; without --dry-run this would stop here", file=sys.stderr)
    run(neuron_command(release), dry_run)


def neuron_versions(dry_run: bool) -> dict[str, str]:
    """Versions of torch and of AWS's packages in this environment, none of them a placeholder; {} in a dry run."""
    if dry_run:
        return {}
    versions = inspect(sys.executable).versions
    refuse_placeholders(versions)
    return versions


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(description="Fill this virtual environment for one Trainium generation.")
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run none of them")
    options = parser.parse_args(arguments)
    try:
        make(options.target, os.environ.get(INTERPRETER), os.environ.get(VERSION), options.dry_run)
    except EnvironmentRefusedError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
