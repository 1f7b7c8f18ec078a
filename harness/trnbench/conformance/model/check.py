"""Model-level conformance of one case: logits, loss, every parameter's gradient and one optimizer step.

The device runs the case's model, precision, mode and shapes, on weights and tokens drawn from a fixed seed. The oracle
is float64 on the CPU from the device's own rounded weights. The limits come from the noise floor: permitted
implementations on the CPU at the same precision, each under function-preserving permutations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import torch

from trnbench.conformance.model import judge
from trnbench.conformance.model.baseline import Results, find_baseline, inference_results, training_results
from trnbench.conformance.model.comparables import reported_checks
from trnbench.conformance.model.errors import relative_error
from trnbench.conformance.model.finite import first_nonfinite, first_nonfinite_layer
from trnbench.conformance.model.optimizer import step_error
from trnbench.conformance.model.real import has_trained_weights, text_batch, trained_model
from trnbench.conformance.model.runs import OptimizerResult, infer_once, optimize_once, train_once
from trnbench.conformance.model.scope import Scope, Subject, choose_scope, harden
from trnbench.workloads.data import token_batch
from trnbench.workloads.initial import build_model
from trnbench.workloads.presets import preset

if TYPE_CHECKING:
    from collections.abc import Callable

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

    def compile_function(function: Callable[..., Any]) -> Callable[..., Any]:
        return backend.compile(function, case.mode)

    if case.phase == "train_step":
        trained = train_once(model, subject.batch, scope.case.micro_batch, compile_function, backend.materialize)
        results = training_results(trained.loss, trained.logits, trained.gradients)
        return judge_results(subject, model, results, optimize_once(model, backend.materialize))
    inferred = infer_once(model, subject.batch, scope.decode_steps, compile_function, backend.materialize)
    return judge_results(subject, model, inference_results(scope.decode_steps, inferred.logits), None)


def check_model(case: Case, backend: Backend) -> list[Check]:
    """Logits, loss, every gradient and one optimizer step of the preset `case.workload`, and AWS's own measures.

    Trained weights and a text where the preset has them, else weights and tokens from a seed. Raises
    `CaseError(SKIPPED)` where trained weights are not installed, and whatever the device raises.
    """
    scope = choose_scope(msgspec.structs.replace(case, phase="train_step"), preset(case.workload))
    trained = has_trained_weights(case.workload)
    if trained:
        own = trained_model(scope.preset, case.precision, backend.device, inference=False, positions=scope.positions)
        subject = msgspec.structs.replace(take_subject(scope, own), batch=text_batch(scope))
    else:
        own = checked_model(scope, backend.device)
        subject = take_subject(scope, own)

    def compile_function(function: Callable[..., Any]) -> Callable[..., Any]:
        return backend.compile(function, case.mode)

    once = train_once(own, subject.batch, scope.case.micro_batch, compile_function, backend.materialize)
    results = training_results(once.loss, once.logits, once.gradients)
    checks = judge_results(subject, own, results, optimize_once(own, backend.materialize))
    renamed = [msgspec.structs.replace(check, check=f"model/{check.check}") for check in checks]
    if any(check.verdict == "non-finite" for check in checks):
        return renamed
    baseline = find_baseline(subject)
    oracle = baseline.oracle["logits"]["logits"]
    established = next(iter(baseline.errors["logits"]["logits"]["whole"].values()))
    error = relative_error(once.logits, oracle)
    return renamed + reported_checks(once.logits, oracle, error, established, level="model", where=scope.words)


def checked_model(scope: Scope, device: torch.device | str) -> Decoder:
    """The slice's model on `device`, with weights that make faults visible."""
    inference = scope.case.phase != "train_step"
    model = build_model(
        scope.preset, scope.case.precision, device, SEED, inference=inference, positions=scope.positions
    )
    harden(model, SEED)
    return model


def take_subject(scope: Scope, model: Decoder) -> Subject:
    """Copies of the device's own weights, which an optimizer step will change, and the slice's tokens."""
    return Subject(
        scope=scope,
        compute_dtype=model.compute_dtype,
        weights={name: parameter.detach().cpu().clone() for name, parameter in model.named_parameters()},
        batch=token_batch(scope.preset.vocab_size, scope.case.batch, scope.case.sequence, SEED),
    )


def judge_results(subject: Subject, model: Decoder, results: Results, stepped: OptimizerResult | None) -> list[Check]:
    """Judge what a device computed for `subject`; `model` is its model, asked only for the first bad layer.

    Results that are not finite are judged first, and then nothing else is.
    """
    words = subject.scope.words
    everything = {**results, **({"optimizer step": stepped.after} if stepped else {})}
    bad = {check: what for check, tensors in everything.items() if (what := first_nonfinite(tensors)) is not None}
    if bad:
        tokens = torch.from_numpy(subject.batch.tokens).to(model.embedding.weight.device)
        layer = first_nonfinite_layer(model, tokens)
        return [judge.nonfinite_check(check, what, layer, scope=words) for check, what in bad.items()]
    baseline = find_baseline(subject)
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
