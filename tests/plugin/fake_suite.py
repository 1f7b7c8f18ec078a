"""Puts the scripted backend under pytest's command line: `--backend fake` runs scripts instead of models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[1] / "measure"))

from typing import TYPE_CHECKING

from fake_backend import FakeBackend, FakeProgram, Step

from trnbench.backends import select
from trnbench.case import Case
from trnbench.records.schema import Check
from trnbench.workloads import steps

if TYPE_CHECKING:
    import pytest

Script = Callable[[Case], Sequence[Step]]

PASSED = Check(
    check="logits",
    level="model",
    metric="error / bound",
    value=0.5,
    limit=1.0,
    verdict="pass",
    reference="fp64",
    where="",
)


def install(
    patch: pytest.MonkeyPatch,
    script: Script = lambda case: [Step()],
    check: Callable[[Case], list[Check]] = lambda case: [PASSED],
    backend: type[FakeBackend] = FakeBackend,
) -> None:
    """Register `backend` as "fake", play `script(case)` as every case's program and answer conformance by `check`."""
    patch.setitem(select._registered, "fake", backend)
    patch.setattr(steps, "build", lambda case, *_: FakeProgram(FakeBackend.latest, script(case), case))
    conformance = SimpleNamespace(check_case=lambda case, _backend: check(case))
    patch.setitem(sys.modules, "trnbench.conformance.model.check", conformance)


SUITE = """
import pytest
from fake_backend import CLOCK
from trnbench.case import grid

CASES = grid(suite="fake", tier="smoke", workload="nano", phase="train_step", precision="fp32", mode="eager",
             batch={batches}, sequence=16)

@pytest.mark.cases(CASES)
@pytest.mark.benchmark(timer=CLOCK)
def test_train_step(measure):
    measure(rounds=4)
"""
"""One case per batch size, on the scripted clock."""
