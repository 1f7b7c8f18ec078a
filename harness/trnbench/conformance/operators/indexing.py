"""Reading rows by index, adding into rows by index, and the integers that indices are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.conformance.operators.indexing_accumulate import ACCUMULATE
from trnbench.conformance.operators.indexing_integers import INTEGERS
from trnbench.conformance.operators.indexing_lookup import LOOKUPS

if TYPE_CHECKING:
    from trnbench.conformance.operators.base import Operator

OPERATORS: list[Operator] = [*LOOKUPS, *ACCUMULATE, *INTEGERS]
