"""How many NeuronCores a process group may use: other counts start, and fail deep inside the runtime.

The counts are data (`data/core_counts.csv`), by chip and by instance type, and by how many physical cores form a
logical one (`NEURON_LOGICAL_NC_CONFIG`).
"""

from __future__ import annotations

import functools

import msgspec

from trnbench.catalog.tables import read_package_table
from trnbench.status import UsageError
from trnbench.wording import nearest


class CoreCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Allowed sizes of a process group on one profile (a chip's key or an instance type), in logical cores."""

    profile: str
    logical_core_config: int
    default: bool
    counts: str
    source: str

    @property
    def allowed(self) -> tuple[int, ...]:
        """The counts as numbers, ascending."""
        return tuple(int(count) for count in self.counts.split())


@functools.cache
def core_counts() -> tuple[CoreCounts, ...]:
    """All rows of the table."""
    return tuple(read_package_table("core_counts.csv", CoreCounts, key=("profile", "logical_core_config")))


def allowed_core_counts(profile: str, logical_core_config: int | None = None) -> tuple[int, ...]:
    """Allowed counts of logical cores; None for `logical_core_config` means the profile's default.

    Raises `UsageError` for a profile or configuration that the table does not hold, naming the nearest or the known.
    """
    rows = [row for row in core_counts() if row.profile == profile.lower()]
    if not rows:
        known = sorted({row.profile for row in core_counts()})
        hint = nearest(profile.lower(), known, f"known are {', '.join(known)}")
        raise UsageError(f"there are no core counts for {profile!r}; {hint}")
    for row in rows:
        if row.default if logical_core_config is None else row.logical_core_config == logical_core_config:
            return row.allowed
    configurations = ", ".join(str(row.logical_core_config) for row in rows)
    raise UsageError(f"{profile} has no logical core configuration {logical_core_config}; it has {configurations}")


def check_core_count(profile: str, count: int, logical_core_config: int | None = None) -> None:
    """Refuse a number of cores that the accelerator cannot form a group of, before anything starts.

    `profile` is a chip ("trainium2", in any case) or an instance type ("trn1.32xlarge"). Raises `UsageError` with the
    allowed list.
    """
    allowed = allowed_core_counts(profile, logical_core_config)
    if count not in allowed:
        listed = ", ".join(str(number) for number in allowed)
        raise UsageError(f"{count} cores were asked for, but {profile} forms groups of {listed} cores only")
