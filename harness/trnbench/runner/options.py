"""What one invocation of the driver is asked to do, and the checks that must fail before anything runs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from trnbench.case import PROFILES, QUALITY_PHASES, TIERS, Case
from trnbench.status import UsageError
from trnbench.wording import nearest

DEFAULT_TIMEOUT_SECONDS = 3600.0
"""Generous on purpose: a first compilation for an accelerator may take most of an hour."""


LONG_TIMEOUT_SECONDS = 24 * 3600.0
"""Of cases whose own rules ask for hours: every LoadGen test of the full profile alone lasts at least ten minutes."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One `trnbench run`. `rounds` None means the plugin's own default; `timeout` is in seconds per case, None
    means what suits the case."""

    backend: str
    suites: Path = Path("suites")
    results: Path = Path("results/local")
    tier: str | None = None
    rounds: int | None = None
    runs: int = 1
    seeds: int | None = None
    suite: str | None = None
    select: str | None = None
    deviations: Path | None = None
    timeout: float | None = None
    resume: bool = False
    instance_type: str | None = None
    region: str | None = None
    baseline: Path | None = None
    conformance: bool = True
    profile: str = "quick"
    data: str | None = None
    target_loss: float | None = None
    ci: bool = False

    def timeout_of(self, case: Case) -> float:
        """Seconds after which this case is ended."""
        if self.timeout is not None:
            return self.timeout
        long = case.profile == "full" or (case.phase in QUALITY_PHASES and case.tier != "smoke")
        return LONG_TIMEOUT_SECONDS if long else DEFAULT_TIMEOUT_SECONDS


def check_options(options: RunOptions) -> None:
    """Raise `UsageError` for what can be known to be wrong without starting anything or writing anything."""
    check_selection(options.suites, options.tier)
    for name, value in (("--rounds", options.rounds), ("--runs", options.runs), ("--seeds", options.seeds)):
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}; it must be at least 1")
    check_profile(options.profile)
    if options.target_loss is not None and not options.target_loss > 0:
        raise UsageError(f"--target-loss is {options.target_loss:g}; it must be a positive number, in nats per token")
    if options.timeout is not None and not options.timeout > 0:
        raise UsageError(f"--timeout is {options.timeout:g}; it must be a positive number of seconds")
    if options.resume and options.runs > 1:
        raise UsageError("--resume continues one run and cannot be combined with --runs; leave one of them out")
    if options.deviations is not None and not options.deviations.is_dir():
        raise UsageError(f"--deviations {options.deviations} is no folder; give the one that holds <backend>.toml")
    if options.baseline is not None and not options.baseline.exists():
        raise UsageError(f"--compare {options.baseline} does not exist; give a results folder or a record file")
    check_writable(options.results, "--results")


def check_profile(profile: str) -> None:
    """Raise `UsageError` for a profile that there is not."""
    known = [one for one in PROFILES if one]
    if profile not in known:
        raise UsageError(f"--profile {profile} is unknown; {nearest(profile, known, 'there are ' + ', '.join(known))}")


def deviations_beside(suites: Path) -> Path | None:
    """The folder of known deviations that belongs to `suites`: that of the conformance suite in or beside it."""
    root = (suites if suites.is_dir() else suites.parent).absolute()
    for folder in (root / "conformance", root, root.parent / "conformance"):
        if (folder / "deviations").is_dir():
            return folder / "deviations"
    return None


def check_selection(suites: Path, tier: str | None) -> None:
    """Raise `UsageError` unless the suites exist and the tier is one of those there are."""
    if not suites.exists():
        raise UsageError(f"--suites {suites} does not exist; give the folder that holds the suites")
    if tier is not None and tier not in TIERS:
        hint = nearest(tier, TIERS, f"the tiers are {', '.join(TIERS)}")
        raise UsageError(f"--tier {tier} is unknown; {hint}")


def check_writable(folder: Path, option: str) -> None:
    """Raise `UsageError` unless `folder` is, or could be made, a folder that this process may write into.

    Creates nothing: a run that is refused for another reason must leave no trace.
    """
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        raise UsageError(f"{option} {folder} cannot be used: {existing} is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {folder} cannot be used: {existing} is not writable")


def create_folder(folder: Path, option: str) -> None:
    """Create `folder` and prove with a temporary file that it takes data; raises `UsageError` where it does not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"x")
            probe.flush()
    except OSError as error:
        raise UsageError(f"{option} {folder} cannot be written: {error.strerror}") from None
