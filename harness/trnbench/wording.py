"""The few sentences that must read the same wherever they appear.

The wording about the MLPerf benchmarks follows MLCommons' result messaging guidelines: the mark carries (R), is
never hyphenated, never part of a product name, and unofficial numbers are never set beside official ones.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

DISCLAIMER = (
    "Workloads modelled on the rules of the MLPerf(R) Training and MLPerf(R) Inference benchmarks; these are not "
    "MLPerf results and must not be compared with them. MLPerf is a trademark of MLCommons Association."
)
"""Carried by every page, plot and exported file."""

SIMULATED_NOTICE = "made on a simulated device: not a measurement of any accelerator"
"""Carried by everything that shows a record whose `simulated` is true."""


def nearest(given: str, known: Iterable[str], otherwise: str) -> str:
    """The end of a sentence about an unknown name: `did you mean 'device'?`, or `otherwise` where none is near."""
    found = difflib.get_close_matches(given, list(known), n=1, cutoff=0.5)
    return f"did you mean {found[0]!r}?" if found else otherwise
