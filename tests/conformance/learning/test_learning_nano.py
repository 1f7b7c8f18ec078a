"""The real recipe tells the mutants that matter from correct training, and in the right direction."""

from __future__ import annotations

import os

import pytest

from trnbench.conformance.learning.arms import Trainer
from trnbench.conformance.learning.check import judge_runs
from trnbench.conformance.learning.judge import FINAL, TOO_FAST, TOO_SLOW
from trnbench.conformance.learning.mutants import FasterRate, NarrowParameters
from trnbench.conformance.learning.recipe import choose_recipe
from trnbench.conformance.learning.reference import find_reference
from trnbench.workloads.presets import preset


@pytest.mark.slow
@pytest.mark.skipif("TRNBENCH_NIGHTLY" not in os.environ, reason="a minute of training; set TRNBENCH_NIGHTLY")
@pytest.mark.parametrize(
    ("trainer", "looks_like"), [(Trainer, ""), (FasterRate, TOO_FAST), (NarrowParameters, TOO_SLOW)]
)
def test_nano_in_bfloat16_is_judged_both_ways(trainer: type[Trainer], looks_like: str) -> None:
    recipe = choose_recipe(preset("nano"))
    checks = judge_runs(recipe, trainer(recipe, "bf16").train_all(), find_reference(recipe, "bf16"))
    final = next(check for check in checks if check.check == FINAL)
    assert final.looks_like == looks_like, final
    assert (final.verdict == "pass") == (looks_like == "")
