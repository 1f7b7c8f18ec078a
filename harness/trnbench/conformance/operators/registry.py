"""All operators, by family; a family is one case of the conformance suite."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from trnbench.status import UsageError
from trnbench.wording import nearest

if TYPE_CHECKING:
    from trnbench.conformance.operators.base import Operator

FAMILIES: tuple[str, ...] = (
    "products",
    "attention",
    "normalisation",
    "activations",
    "reductions",
    "indexing",
    "updates",
)
"""Each is the module of the same name in this package, with its operators in `OPERATORS`."""


def operators_of(family: str) -> list[Operator]:
    """The operators of `family`, in the order in which they are checked. Raises `UsageError` for an unknown family."""
    if family not in FAMILIES:
        raise UsageError(
            f"no operator family {family!r}; {nearest(family, FAMILIES, 'there are ' + ', '.join(FAMILIES))}"
        )
    module = importlib.import_module(f"trnbench.conformance.operators.{family}")
    found: list[Operator] = module.OPERATORS
    return found


def operator(name: str) -> Operator:
    """The operator called `name`. Raises `UsageError` where there is none."""
    known = {one.name: one for family in FAMILIES for one in operators_of(family)}
    if name not in known:
        raise UsageError(f"no operator {name!r}; {nearest(name, known, 'there are ' + ', '.join(known))}")
    return known[name]
