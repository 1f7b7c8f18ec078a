"""Model-level conformance of one case: logits, loss, every parameter's gradient and one optimizer step.

The device runs the case's model, precision, mode and shapes, on weights and tokens drawn from a fixed seed. The oracle
is float64 on the CPU from the device's own rounded weights. The limits come from the noise floor: permitted
implementations on the CPU at the same precision, each under function-preserving permutations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trnbench.conformance.model import judge
from trnbench.conformance.model.baseline import Results, find_baseline, inference_results, training_results
from trnbench.conformance.model.finite import first_nonfinite, first_nonfinite_layer
from trnbench.conformance.model.optimizer import step_error
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
