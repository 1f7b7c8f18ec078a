"""Command-line options of the pytest face, checked before anything is collected or opened.

Wrong values end the session with the documented exit code 2 rather than pytest's own 4, which here means that the
backend is not available.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from trnbench.backends.select import backend_class, preflight
from trnbench.case import PROFILES, TIERS
from trnbench.measure.rounds import check_round_count
from trnbench.records.deviations import Deviation, load_deviations
from trnbench.records.ids import new_id
from trnbench.status import TrnBenchError, UsageError

NAMED_DATA = ("source", "shipped")
HUB = "hf:"
"""What `--data` may name beside a file, as `workloads.text` understands it; importing that would import torch."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for; `backend` None means that nothing is measured in this session."""

    backend: str | None
    results: Path
    run_id: str
    tier: str | None
    profile: str | None
    """Of the served cases those of this profile; None takes all, to list them."""

    rounds: int | None
    list_file: Path | None
    instance_type: str | None
    region: str | None
    conformance: bool
    deviations: list[Deviation]
    seeds: int
    data: str | None
    """What to train to quality on instead of the case's own data."""

    target_loss: float | None
    """The loss that ends such a training, instead of the case's own."""

    resume: bool
    """Whether an interrupted training goes on from its checkpoint instead of starting anew."""

    references: Path
    """Folder of the reference convergence points that belongs to the suites."""


def add_options(parser: pytest.Parser) -> None:
    """Declare the options; none has a type or choices, so that every mistake passes through `read_settings`."""
    group = parser.getgroup("trnbench", "TrnBench")
    group.addoption("--backend", metavar="NAME", help="measure on this backend: cpu, cuda, neuron or xla")
    group.addoption("--results-dir", metavar="DIR", default="results/local", help="where records are written")
    group.addoption("--run-id", metavar="ID", help="id that the records of this session share (default: a new one)")
    group.addoption("--tier", metavar="NAME", help=f"only cases of this tier: {', '.join(TIERS)}")
    group.addoption(
        "--profile", metavar="NAME", help="served cases of this profile: quick (default) or full, for hours"
    )
    group.addoption("--rounds", metavar="N", help="timed rounds a case, instead of the suite's own number")
    group.addoption("--trnbench-list", metavar="FILE", help="write the collected cases to FILE as JSON; run nothing")
    group.addoption("--instance-type", metavar="TYPE", help="the cloud instance this runs on, for its price")
    group.addoption("--region", metavar="NAME", help="the region this runs in, for its price")
    group.addoption("--seeds", metavar="N", help="seeds of every random input of an operator check (default: 1)")
    group.addoption("--data", metavar="SPEC", help="train to quality on this: source, a text file, or hf:NAME")
    group.addoption("--target-loss", metavar="NATS", help="train until the loss, in nats per token, is at most this")
    group.addoption("--resume-training", action="store_true", help="go on where a training to quality was interrupted")
    group.addoption("--deviations", metavar="DIR", help="folder of known deviations, one TOML file a backend")
    group.addoption("--no-conformance", action="store_true", help="measure only; records then say 'not checked'")


def read_settings(config: pytest.Config) -> Settings:
    """The checked options. Raises `UsageError` for a wrong value and `BackendUnavailable` where there is no device."""
    here = config.invocation_params.dir
    tier = config.getoption("--tier")
    if tier is not None and tier not in TIERS:
        raise UsageError(f"--tier is {tier!r}; it must be one of {', '.join(TIERS)}")
    list_file = config.getoption("--trnbench-list")
    backend, listed = config.getoption("--backend"), config.getoption("--deviations")
    settings = Settings(
        backend=backend,
        results=here / config.getoption("--results-dir"),
        run_id=config.getoption("--run-id") or new_id(),
        tier=tier,
        profile=_profile(config.getoption("--profile"), measuring=backend is not None and list_file is None),
        rounds=_rounds(config.getoption("--rounds")),
        list_file=None if list_file is None else here / list_file,
        instance_type=config.getoption("--instance-type"),
        region=config.getoption("--region"),
        conformance=not config.getoption("--no-conformance"),
        deviations=load_deviations(here / listed, backend) if listed and backend else [],
        seeds=_seeds(config.getoption("--seeds")),
        data=_data(config.getoption("--data"), here),
        target_loss=_target_loss(config.getoption("--target-loss")),
        resume=config.getoption("--resume-training"),
        references=_references(config.rootpath),
    )
    if settings.backend is not None:
        _check_backend(config, settings.backend)
    return settings


def refuse(error: TrnBenchError) -> NoReturn:
    """End the pytest session with the error's sentence and exit code."""
    pytest.exit(str(error), returncode=int(error.exit_code))


def _profile(name: str | None, *, measuring: bool) -> str | None:
    """The full profile takes hours on any device, so only who names it gets it."""
    known = [one for one in PROFILES if one]
    if name is not None and name not in known:
        raise UsageError(f"--profile is {name!r}; it must be one of {', '.join(known)}")
    return name or ("quick" if measuring else None)


def _rounds(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return check_round_count(int(text))
    except ValueError:
        raise UsageError(f"--rounds is {text!r}; it must be a whole number") from None


def _seeds(text: str | None) -> int:
    if text is None:
        return 1
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--seeds is {text!r}; it must be a whole number of at least 1")
    return int(text)


def _data(text: str | None, here: Path) -> str | None:
    """A file is named from the folder that the command was given in."""
    if text is None or text in NAMED_DATA or text.startswith(HUB):
        return text
    if not (here / text).is_file():
        raise UsageError(
            f"--data {text}: there is no such file; it takes {', '.join(NAMED_DATA)}, a file, or {HUB}NAME"
        )
    return str(here / text)


def _target_loss(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"--target-loss is {text!r}; it must be a positive number, in nats per token")
    return value


def _references(root: Path) -> Path:
    """The root is the suites' own folder under the driver, and their checkout under plain pytest."""
    inside = root / "suites" / "training" / "reference"
    return inside if inside.is_dir() else root / "training" / "reference"


def _check_backend(config: pytest.Config, name: str) -> None:
    if _distributed(config):
        raise UsageError(
            "--backend refuses to measure in pytest-xdist workers, whose rounds would disturb each other; drop -n"
        )
    backend_class(name)
    for argument in config.args:
        path = config.invocation_params.dir / argument.partition("::")[0]
        if not path.exists():
            raise UsageError(f"there is no {argument.partition('::')[0]}")
    if not config.option.collectonly and config.getoption("--trnbench-list") is None:
        preflight(name)


def _distributed(config: pytest.Config) -> bool:
    return bool(
        "PYTEST_XDIST_WORKER" in os.environ
        or config.getoption("dist", "no") != "no"
        or config.getoption("numprocesses", None)
        or config.getoption("tx", None)
    )
