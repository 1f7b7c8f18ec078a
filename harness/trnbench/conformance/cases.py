"""One case of the conformance suite: which level it belongs to, what answers it, and the version of what was asked."""

from __future__ import annotations

import functools
import hashlib
from importlib import resources
from typing import TYPE_CHECKING

from trnbench.case import SHAPELESS_PHASES
from trnbench.workloads.version import add_source, workload_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from importlib.resources.abc import Traversable

    from trnbench.backends.base import Backend
    from trnbench.case import Case
    from trnbench.records.schema import Check


def check_conformance(case: Case, backend: Backend, seeds: int = 1) -> list[Check]:
    """Every verdict of `case`, whose phase is a level of conformance; operators are tried from `seeds` seeds.

    Raises `UsageError` where the level does not know the case's workload, and whatever the device raises.
    """
    if case.phase == "formats":
        from trnbench.conformance.formats.check import check_formats

        return check_formats(backend, case.mode, case.workload, sparing=is_sparing(case, backend.modes))
    if case.phase == "operators":
        from trnbench.conformance.operators.check import check_family

        return check_family(case, backend, seeds)
    if case.phase == "model":
        from trnbench.conformance.model.check import check_model

        return check_model(case, backend)
    if case.phase == "learning":
        from trnbench.conformance.learning.check import check_learning

        return check_learning(case, backend)
    from trnbench.conformance.generation.check import check_generation

    return check_generation(case, backend)


def is_sparing(case: Case, modes: Iterable[str]) -> bool:
    """Whether a case tries only what a compiler may change: at smoke tier, where an eager mode tries all of it.

    Every shape and every question is a compilation; a backend that always compiles has no other mode to try them in.
    """
    return case.tier == "smoke" and case.mode == "compiled" and "eager" in modes


@functools.cache
def conformance_version(phase: str, workload: str) -> str:
    """16 hex digits over the sources that decide what a level checks, and over the workload where it is a preset.

    Line ends are normalised, and torch is not imported. Raises `UsageError` for an unknown preset.
    """
    digest = hashlib.sha256()
    root = resources.files("trnbench.conformance")
    for name, text in _sources(root, phase):
        add_source(digest, name, text)
    digest.update((workload if phase in SHAPELESS_PHASES else workload_version(workload)).encode())
    return digest.hexdigest()[:16]


def _sources(root: Traversable, phase: str) -> Iterator[tuple[str, bytes]]:
    """The level's own folder, and the modules that all levels share."""
    for folder in (root, root / phase):
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
            if entry.name.endswith(".py"):
                yield f"{folder.name}/{entry.name}", entry.read_bytes()
