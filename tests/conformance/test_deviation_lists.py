"""The published lists of deviations: they load, name operators that exist, and their reproductions are Python."""

from __future__ import annotations

import ast
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from trnbench.conformance.operators.registry import FAMILIES, operators_of
from trnbench.records.deviations import Deviation, load_deviations

FOLDER = Path(__file__).parents[2] / "suites" / "conformance" / "deviations"
BACKENDS = sorted(path.stem for path in FOLDER.glob("*.toml"))
OPERATORS = [operator.name for family in FAMILIES for operator in operators_of(family)]
ENTRIES = [(backend, entry) for backend in BACKENDS for entry in load_deviations(FOLDER, backend)]


def test_there_are_lists() -> None:
    assert {"cpu", "xla"} <= set(BACKENDS)


@pytest.mark.parametrize(("backend", "entry"), ENTRIES, ids=[f"{backend}-{entry.id}" for backend, entry in ENTRIES])
def test_an_entry_names_operators_that_exist_and_can_be_tried(backend: str, entry: Deviation) -> None:
    for pattern in entry.checks:
        level, _, rest = pattern.partition("/")
        if level == "operators":
            names = [
                name for name in OPERATORS if fnmatchcase(f"operators/{name}/forward/x", f"operators/{rest}".rstrip())
            ]
            names += [name for name in OPERATORS if fnmatchcase(f"operators/{name}/backward/x", f"operators/{rest}")]
            assert names, f"{pattern} names no operator"
    ast.parse(entry.reproduction.strip())
    assert len(entry.reproduction.strip().splitlines()) <= 5
    assert entry.link.startswith("https://")
