"""A decoder small enough to be judged in seconds, and the steps of judging it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from trnbench.case import Case, grid
from trnbench.conformance.model.baseline import find_baseline, inference_results, training_results
from trnbench.conformance.model.check import checked_model, judge_results, take_subject
from trnbench.conformance.model.runs import infer_once, optimize_once, train_once
from trnbench.conformance.model.scope import Scope
from trnbench.workloads.presets import Preset

if TYPE_CHECKING:
    from trnbench.records.schema import Check

PRESET = Preset(
    name="nano",
    vocab_size=384,
    layers=2,
    hidden=96,
    heads=6,
    kv_heads=2,
    head_dim=16,
    ffn_hidden=160,
    rope_theta=10_000.0,
    rope_scaling=None,
    norm_eps=1e-5,
    tied_head=False,
    max_positions=2048,
    source="made for tests",
)

Fault = Callable[[], contextlib.AbstractContextManager[None]]


def make_scope(phase: str, precision: str, *, sequence: int = 48, batch: int = 2) -> Scope:
    """A whole small case as the slice to check."""
    new_tokens = {"new_tokens": 8} if phase == "decode" else {}
    case: Case = grid(
        suite="test",
        workload="nano",
        phase=phase,
        precision=precision,
        mode="eager",
        tier="smoke",
        batch=batch,
        sequence=sequence,
        **new_tokens,
    )[0]
    return Scope(preset=PRESET, case=case, words="all of a small case")


@contextlib.contextmanager
def no_fault() -> Iterator[None]:
    """The correct implementation."""
    yield


def judge_with(fault: Fault, scope: Scope) -> dict[str, Check]:
    """Verdicts on the CPU, computing under `fault`, against a baseline computed without it."""
    model = checked_model(scope, "cpu")
    subject = take_subject(scope, model)
    find_baseline(subject)
    if scope.case.phase == "train_step":
        with fault():
            trained = train_once(model, subject.batch, scope.case.micro_batch)
            stepped = optimize_once(model)
        results = training_results(trained.loss, trained.logits, trained.gradients)
        checks = judge_results(subject, model, results, stepped)
    else:
        with fault():
            inferred = infer_once(model, subject.batch, scope.decode_steps)
        checks = judge_results(subject, model, inference_results(scope.decode_steps, inferred.logits), None)
    return {check.check: check for check in checks}
