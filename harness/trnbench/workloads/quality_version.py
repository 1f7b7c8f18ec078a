"""The version of a workload that is trained to quality: of its model, of what is added for it, and of its recipe."""

from __future__ import annotations

import functools
import hashlib
from importlib import resources

import msgspec

from trnbench.workloads.recipes import recipe_of
from trnbench.workloads.version import add_source, workload_version

QUALITY_SOURCES = (
    *("lora.py", "quality.py", "recipe.py", "source.py", "text.py", "weights.py"),
    "texts/measuring.txt",
)
"""The files that decide what a run computes beside those of `version.SOURCES`; of `recipes` only the values count."""


@functools.cache
def quality_version(workload: str, phase: str) -> str:
    """16 hex digits over `workload_version`, `QUALITY_SOURCES` and the recipe; line ends are normalised as there.

    The shape is left out: it is the case's. No import of torch is needed. Raises `UsageError` for an unknown preset, or
    a phase without a recipe.
    """
    digest = hashlib.sha256(workload_version(workload).encode())
    for name in QUALITY_SOURCES:
        add_source(digest, name, resources.files("trnbench.workloads").joinpath(name).read_bytes())
    values = msgspec.structs.asdict(recipe_of(workload, phase))
    for shape in ("batch", "micro_batch", "sequence"):
        del values[shape]
    digest.update(msgspec.json.encode(values, order="deterministic"))
    return digest.hexdigest()[:16]
