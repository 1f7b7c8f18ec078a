"""Cases as pytest items: the `cases` marker, selection by tier, and the list that the driver reads."""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from trnbench.backends.select import backend_class
from trnbench.case import CHECK_PHASES, QUALITY_PHASES, SERVING_PHASES, Case
from trnbench.conformance.cases import conformance_version
from trnbench.status import TrnBenchError, UsageError
from trnbench.workloads.quality_version import quality_version
from trnbench.workloads.version import workload_version

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MARKER = "cases"
ONLY_COMPILED = "where_only_compiled"
"""Keyword of the marker: cases for backends without an eager mode, which would be tried in that mode elsewhere."""

MARKER_LINE = f"{MARKER}(cases): measure every one of these trnbench cases; gives the fixture `case`"


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Give a test that uses `case` one item per case of its `cases` marker.

    Parameters are the cases' ids, never the cases: pytest-benchmark writes parameters into its JSON, where an
    object becomes the word UNSERIALIZABLE and an address.
    """
    if "case" not in metafunc.fixturenames:
        return
    try:
        ids = list(marked_cases(metafunc.definition))
    except TrnBenchError as error:
        raise pytest.fail.Exception(f"{metafunc.definition.nodeid}: {error}", pytrace=False) from None
    metafunc.parametrize("case", ids, indirect=True)


def marked_cases(node: pytest.Item) -> dict[str, Case]:
    """Cases of the node's nearest marker by id. Raises `UsageError` for a wrong marker, fixture, or repeated case."""
    marker = node.get_closest_marker(MARKER)
    if marker is None:
        raise UsageError("uses the fixture `measure`, `conform` or `case` without @pytest.mark.cases([...])")
    declared = [*marker.args, *marker.kwargs.values()]
    known = len(marker.args) == 1 and set(marker.kwargs) <= {ONLY_COMPILED}
    if not known or not all(isinstance(case, Case) for cases in declared for case in cases):
        raise UsageError(
            "@pytest.mark.cases takes one list of trnbench cases, as trnbench.case.grid returns it, and maybe a second "
            f"one as {ONLY_COMPILED}"
        )
    found: dict[str, Case] = {}
    for case in [*marker.args[0], *(marker.kwargs.get(ONLY_COMPILED, []) if _only_compiles(node) else [])]:
        wrong = "measure" if case.checks_only else "conform"
        if wrong in getattr(node, "fixturenames", ()):
            raise UsageError(f"case {case.id} of phase {case.phase} cannot use the fixture `{wrong}`")
        stamped = msgspec.structs.replace(case, version=_version(case.phase, case.workload, _data(node, case)))
        if stamped.id in found:
            raise UsageError(f"declares case {stamped.id} twice")
        found[stamped.id] = stamped
    return found


def _only_compiles(node: pytest.Item) -> bool:
    """Whether the session's backend has no eager mode; a session without a backend lists every case there is."""
    name = node.config.getoption("--backend")
    return name is None or "eager" not in backend_class(name).modes


def case_of(item: pytest.Item) -> Case | None:
    """The case that an item measures, its version stamped; None for any other item."""
    callspec: Any = getattr(item, "callspec", None)
    uses = {"measure", "conform"} & set(getattr(item, "fixturenames", ()))
    if callspec is None or "case" not in callspec.params or not uses:
        return None
    return marked_cases(item)[callspec.params["case"]]


def keep_cases(config: pytest.Config, items: list[pytest.Item], wanted: Callable[[Case], bool]) -> None:
    """Keep the items whose case is `wanted`, and every item that measures no case."""
    left_out = [item for item in items if (case := case_of(item)) is not None and not wanted(case)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def write_list(items: list[pytest.Item], file: Path) -> None:
    """Write `[{"nodeid": ..., "case": {...}}, ...]`, in the order the items would run. Raises `UsageError`."""
    listed = [
        {"nodeid": item.nodeid, "case": msgspec.to_builtins(case)}
        for item in items
        if (case := case_of(item)) is not None
    ]
    try:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(listed), indent=1) + b"\n")
    except OSError as error:
        raise UsageError(f"cannot write the list of cases to {file}: {error.strerror}") from None


def _data(node: pytest.Item, case: Case) -> str:
    """What a case is trained on and until when, where the session does not leave that to it; a file by its content."""
    spec: str | None = node.config.getoption("--data")
    target: str | None = node.config.getoption("--target-loss")
    if (spec is None and target is None) or case.phase not in QUALITY_PHASES:
        return ""
    path = node.config.invocation_params.dir / (spec or "")
    return f"{_content(path) if path.is_file() else spec} until {target}"


@functools.cache
def _content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@functools.cache
def _version(phase: str, workload: str, data: str) -> str:
    """The hash of what decides what is computed or asked. Other data than a case's own make it another case."""
    if phase in CHECK_PHASES:
        return conformance_version(phase, workload)
    if phase in SERVING_PHASES:
        from trnbench.serving.version import serving_version

        return serving_version(workload)
    if phase in QUALITY_PHASES:
        version = quality_version(workload, phase)
        return hashlib.sha256(f"{version} {data}".encode()).hexdigest()[:16] if data else version
    return workload_version(workload)
