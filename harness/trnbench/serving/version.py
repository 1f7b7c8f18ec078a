"""What pins a served case: the workload itself, and all that decides what is asked of it and how it is answered."""

from __future__ import annotations

import hashlib
from importlib import resources

from trnbench.workloads.version import add_source, workload_version

SOURCES = (
    "buckets.py",
    "build.py",
    "curve.py",
    "engine.py",
    "profiles.py",
    "rows.py",
    "samples.py",
    "scoring.py",
    "search.py",
    "settings.py",
    "text_samples.py",
)
"""Files whose change makes served records incomparable: prompts, limits, counts, batching, and the search."""


def serving_version(workload: str) -> str:
    """16 hex digits over the workload's version and the sources of serving that belong to the case.

    Line ends are normalised, as in `workload_version`, which raises `UsageError` for an unknown preset.
    """
    digest = hashlib.sha256(workload_version(workload).encode())
    for name in SOURCES:
        add_source(digest, name, resources.files("trnbench.serving").joinpath(name).read_bytes())
    return digest.hexdigest()[:16]
