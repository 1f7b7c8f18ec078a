"""Model-level conformance of one case: logits, loss, every parameter's gradient and one optimizer step.

The device runs the case's model, precision, mode and shapes, on weights and tokens drawn from a fixed seed. The oracle
is float64 on the CPU from the device's own rounded weights. The limits come from the noise floor: permitted
implementations on the CPU at the same precision, each under function-preserving permutations.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import msgspec
import torch

from trnbench.conformance.model import judge
from trnbench.conformance.model.baseline import Baseline, Results, find_baseline, inference_results, training_results
from trnbench.conformance.model.comparables import reported_checks
from trnbench.conformance.model.errors import relative_error
from trnbench.conformance.model.finite import first_nonfinite, first_nonfinite_layer
from trnbench.conformance.model.optimizer import step_error
from trnbench.conformance.model.real import has_trained_weights, text_batch, trained_model
from trnbench.conformance.model.runs import CompileFunction, OptimizerResult, infer_once, optimize_once, train_once
from trnbench.conformance.model.scope import Scope, Subject, choose_scope, harden
from trnbench.workloads.data import TokenBatch, token_batch
from trnbench.workloads.initial import build_model
from trnbench.workloads.presets import preset

if TYPE_CHECKING:
    from trnbench.backends.base import Backend
    from trnbench.case import Case
    from trnbench.records.schema import Check
    from trnbench.workloads.decoder import Decoder

SEED = 20_261
"""Of the weights and tokens that every case is checked on."""


def check_case(case: Case, backend: Backend) -> list[Check]:
    """Verdicts on what `backend` computes for `case`, checked outside any timed region.

    Raises whatever the device raises; the caller maps it to a status.
    """
    scope = choose_scope(case, preset(case.workload))
    model = checked_model(scope, backend.device)
    subject = take_subject(scope, model)
    if case.phase == "train_step":
        return judge_results(subject, model, *_train(subject, model, backend, case.mode))
    steps = scope.decode_steps
    inferred = infer_once(model, subject.batch, steps, _compiler(backend, case.mode), backend.materialize)
    return judge_results(subject, model, inference_results(steps, inferred.logits), None)


def check_model(case: Case, backend: Backend) -> list[Check]:
    """Logits, loss, every gradient and one optimizer step of the preset `case.workload`, and AWS's own measures.

    Trained weights and a text where the preset has them, else weights and tokens from a seed. Raises
    `CaseError(SKIPPED)` where trained weights are not installed, and whatever the device raises.
    """
    scope = choose_scope(msgspec.structs.replace(case, phase="train_step"), preset(case.workload))
    if has_trained_weights(case.workload):
        own = trained_model(scope.preset, case.precision, backend.device, inference=False, positions=scope.positions)
        subject = take_subject(scope, own, text_batch(scope))
    else:
        own = checked_model(scope, backend.device)
        subject = take_subject(scope, own)
    results, stepped = _train(subject, own, backend, case.mode)
    bad = nonfinite_checks(subject, own, results, stepped)
    if bad:
        return [_named(check) for check in bad]
    baseline = find_baseline(subject)
    checks = [_named(check) for check in judge_finite(subject, results, stepped, baseline)]
    logits, oracle = results["logits"]["logits"], baseline.oracle["logits"]["logits"]
    established = next(iter(baseline.errors["logits"]["logits"]["whole"].values()))
    error = relative_error(logits, oracle)
    return checks + reported_checks(logits, oracle, error, established, level="model", where=scope.words)


def _named(check: Check) -> Check:
    return msgspec.structs.replace(check, check=f"model/{check.check}")


def _train(subject: Subject, model: Decoder, backend: Backend, mode: str) -> tuple[Results, OptimizerResult]:
    """Forward, backward and one optimizer step on the device."""
    micro_batch = subject.scope.case.micro_batch
    trained = train_once(model, subject.batch, micro_batch, _compiler(backend, mode), backend.materialize)
    results = training_results(trained.loss, trained.logits, trained.gradients)
    return results, optimize_once(model, backend.materialize)


def _compiler(backend: Backend, mode: str) -> CompileFunction:
    return functools.partial(backend.compile, mode=mode)


def checked_model(scope: Scope, device: torch.device | str) -> Decoder:
    """The slice's model on `device`, with weights that make faults visible."""
    inference = scope.case.phase != "train_step"
    model = build_model(
        scope.preset, scope.case.precision, device, SEED, inference=inference, positions=scope.positions
    )
    harden(model, SEED)
    return model


def take_subject(scope: Scope, model: Decoder, batch: TokenBatch | None = None) -> Subject:
    """Copies of the device's own weights, which an optimizer step will change, and `batch`, by default from a seed."""
    if batch is None:
        batch = token_batch(scope.preset.vocab_size, scope.case.batch, scope.case.sequence, SEED)
    return Subject(
        scope=scope,
        compute_dtype=model.compute_dtype,
        weights={name: parameter.detach().cpu().clone() for name, parameter in model.named_parameters()},
        batch=batch,
    )


def judge_results(subject: Subject, model: Decoder, results: Results, stepped: OptimizerResult | None) -> list[Check]:
    """Judge what a device computed for `subject`; `model` is its model, asked only for the first bad layer.

    Results that are not finite are judged first, and then nothing else is.
    """
    bad = nonfinite_checks(subject, model, results, stepped)
    return bad or judge_finite(subject, results, stepped, find_baseline(subject))


def nonfinite_checks(
    subject: Subject, model: Decoder, results: Results, stepped: OptimizerResult | None
) -> list[Check]:
    """A check for each result that is not finite; none where all are."""
    everything = {**results, **({"optimizer step": stepped.after} if stepped else {})}
    bad = {check: what for check, tensors in everything.items() if (what := first_nonfinite(tensors)) is not None}
    if not bad:
        return []
    tokens = torch.from_numpy(subject.batch.tokens).to(model.embedding.weight.device)
    layer = first_nonfinite_layer(model, tokens)
    return [judge.nonfinite_check(check, what, layer, scope=subject.scope.words) for check, what in bad.items()]


def judge_finite(
    subject: Subject, results: Results, stepped: OptimizerResult | None, baseline: Baseline
) -> list[Check]:
    """Judge finite results by the subject's baseline."""
    words = subject.scope.words
    reference = (
        f"float64 on the CPU from the device's own rounded weights, seed {SEED}, baseline {baseline.digest[:16]}"
    )
    checks = [
        judge.floor_check(check, tensors, baseline, scope=words, reference=reference)
        for check, tensors in results.items()
    ]
    if stepped is not None:
        checks.append(judge.step_check(step_error(stepped), scope=words))
    return checks
