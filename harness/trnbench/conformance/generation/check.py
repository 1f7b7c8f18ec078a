"""Generation on a device: logits of a fixed text, perplexity, greedy tokens, invariance, and checkpoints."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor

from trnbench.conformance.cases import is_sparing
from trnbench.conformance.floor import norm_error_limit, signed_error_limit
from trnbench.conformance.generation.baseline import (
    Baseline,
    Subject,
    compute_baseline,
    negative_log_likelihood,
)
from trnbench.conformance.generation.checkpoint import DELICATE, changed_tensors, delicate
from trnbench.conformance.generation.greedy import decode_greedily, divergences, survival
from trnbench.conformance.model.comparables import reported_checks
from trnbench.conformance.model.errors import relative_error, worst_row_error
from trnbench.conformance.model.finite import first_nonfinite
from trnbench.conformance.model.real import has_trained_weights, trained_model
from trnbench.conformance.model.scope import harden
from trnbench.conformance.text import NEW_TOKENS, PROMPT_TOKENS, PROMPTS, SEED, prompts, text_tokens
from trnbench.conformance.verdicts import ratio_check
from trnbench.records.schema import Check
from trnbench.workloads.initial import build_model
from trnbench.workloads.presets import preset

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.backends.base import Backend
    from trnbench.case import Case
    from trnbench.records.schema import Verdict

LOGITS_METRIC = "largest error to the float64 oracle over its noise-floor limit"


def check_generation(case: Case, backend: Backend) -> list[Check]:
    """Every generation check of the preset `case.workload`; trained weights where the preset has them.

    Raises `CaseError(SKIPPED)` where those are not installed, and whatever the device raises.
    """
    subject = take_subject(case, backend.device)

    compile_function = functools.partial(backend.compile, mode=case.mode)
    forward = compile_function(subject.model)
    logits = _forward(forward, subject.text, backend)
    greedy = decode_greedily(subject.model, subject.prompts, NEW_TOKENS, compile_function, backend.materialize)
    bad = first_nonfinite({"logits": logits, "greedy logits": greedy.logits})
    if bad is not None:
        return [_nonfinite(bad)]
    baseline = compute_baseline(subject)
    return [
        *judge_logits(logits, subject, baseline),
        _greedy_check(greedy, baseline),
        _repeat_check(logits, _forward(forward, subject.text, backend)),
        _batch_check(forward, subject, backend, sparing=is_sparing(case, backend.modes)),
        _checkpoint_check(subject, backend),
    ]


def take_subject(case: Case, device: torch.device) -> Subject:
    """The model on `device`, its own weights on the host, and the tokens of the text and the prompts."""
    shape = preset(case.workload)
    text = text_tokens(shape.name, shape.vocab_size)
    positions = max(text.shape[1], PROMPT_TOKENS + NEW_TOKENS)
    if has_trained_weights(shape.name):
        model = trained_model(shape, case.precision, device, inference=True, positions=positions)
    else:
        model = build_model(shape, case.precision, device, SEED, inference=True, positions=positions)
        harden(model, SEED)
    weights = {name: parameter.detach().cpu().clone() for name, parameter in model.named_parameters()}
    return Subject(
        model=model,
        weights=weights,
        precision=case.precision,
        text=text,
        prompts=prompts(text),
        positions=positions,
    )


def judge_logits(logits: Tensor, subject: Subject, baseline: Baseline) -> list[Check]:
    """Teacher-forced logits and perplexity against the noise floor, and what AWS's tools would say of the logits."""
    noise, tokens = baseline.noise, subject.text.shape[1]
    where = f"{tokens} tokens of the fixed text, all layers"
    measures = (
        ("whole", relative_error(logits, baseline.logits), norm_error_limit(noise.whole, comparisons=2)),
        ("worst row", worst_row_error(logits, baseline.logits), norm_error_limit(noise.worst_row, comparisons=2)),
    )
    name, error, limit = max(measures, key=lambda one: one[1] / one[2].limit)
    ratio = error / limit.limit
    right, found = baseline.nll, negative_log_likelihood(logits, subject.text)
    nll_limit = signed_error_limit(noise.nll)
    nll_ratio = abs(found - right) / nll_limit.limit
    return [
        _check(
            "teacher-forced logits",
            LOGITS_METRIC,
            ratio,
            where=f"{name}: relative error {error:.3g}, limit {limit.limit:.3g} from {limit.runs} runs of "
            f"{limit.groups} permitted implementations; {where}",
            digest=baseline.digest,
        ),
        _check(
            "perplexity",
            "error of the mean negative log-likelihood over its noise-floor limit",
            nll_ratio,
            where=f"perplexity {math.exp(found):.6g}, by the oracle {math.exp(right):.6g}; {where}",
            digest=baseline.digest,
        ),
        *reported_checks(
            logits,
            baseline.logits,
            relative_error(logits, baseline.logits),
            next(iter(noise.whole.values())),
            level="generation",
            where=where,
        ),
    ]


def _greedy_check(greedy: Any, baseline: Baseline) -> Check:
    """Flips are excused where the oracle's margin is within twice the noise of a logit: both tokens may move by it."""
    found = divergences(greedy, baseline.greedy)
    allowed = 2.0 * baseline.noise.token_noise
    worst = max(found, key=lambda one: one.margin)
    first = min((one.index for one in found if one.index is not None), default=None)
    told = "no sequence diverges" if first is None else f"first divergence at new token {first}"
    margin = f", largest margin {worst.margin:.3g} of {allowed:.3g} allowed" if first is not None else ""
    return _check(
        "greedy tokens",
        "oracle's margin at the first differing token, over twice the noise of a logit",
        worst.margin / allowed,
        where=f"{told}{margin}; {survival(found, NEW_TOKENS)}; {PROMPTS} prompts of {PROMPT_TOKENS} tokens",
        digest=baseline.digest,
    )


def _repeat_check(one: Tensor, other: Tensor) -> Check:
    """The same input twice: equal bits, or the device is flagged as not deterministic."""
    differing = int((one != other).sum())
    where = (
        "two runs give the same bits" if not differing else f"not deterministic: {differing} of {one.numel()} differ"
    )
    metric = "logits that differ between two runs of the same input"
    return _count_check("repeatability", metric, differing, verdict="reported" if differing else "pass", where=where)


def _batch_check(forward: Callable[[Tensor], Tensor], subject: Subject, backend: Backend, *, sparing: bool) -> Check:
    """A prompt alone and in a batch: another shape may take another order, so this is told and not judged."""
    metric = "logits that differ with the batch"
    if sparing:
        why = "two more graphs to compile; the single tier has it"
        return _count_check("batch invariance", metric, None, verdict="not checked", where=why)
    together = _forward(forward, subject.prompts, backend)
    alone = _forward(forward, subject.prompts[:1], backend)
    first = together[: alone.shape[0]]
    differing = int((first != alone).sum())
    largest = float((first - alone).abs().max())
    where = f"{differing} of {alone.numel()} logits differ between batch 1 and {PROMPTS}, by at most {largest:.3g}"
    return _count_check("batch invariance", metric, differing, verdict="reported", where=where)


def _checkpoint_check(subject: Subject, backend: Backend) -> Check:
    """Weights to the device and back through files, and the values that careless copies change."""
    dtype = next(iter(subject.weights.values())).dtype
    weights = {**subject.weights, DELICATE: delicate(dtype)}
    changed = changed_tensors(weights, backend.device, backend.materialize)
    where = f"{len(weights)} tensors, every bit the same" if not changed else f"changed: {', '.join(changed[:5])}"
    metric = "tensors that change on the way to the device and back"
    check = _count_check("checkpoint", metric, len(changed), verdict="fail" if changed else "pass", where=where)
    like = (
        "delicate values flushed or rewritten by the copy" if changed == [DELICATE] else "weights changed by the copy"
    )
    return msgspec.structs.replace(check, looks_like=like if changed else "")


def _forward(forward: Callable[[Tensor], Tensor], tokens: Tensor, backend: Backend) -> Tensor:
    """float64 [B * T, vocab_size] on the host."""
    with torch.no_grad():
        logits = forward(tokens.to(backend.device))
    backend.materialize([logits])
    return logits.cpu().to(torch.float64).flatten(0, 1)


def _check(name: str, metric: str, ratio: float, *, where: str, digest: str) -> Check:
    reference = f"float64 on the CPU from the device's own rounded weights, seed {SEED}, baseline {digest[:16]}"
    return ratio_check(f"generation/{name}", "generation", metric, ratio, reference=reference, where=where)


def _count_check(name: str, metric: str, count: int | None, *, verdict: Verdict, where: str) -> Check:
    """A count that should be zero, of the device against itself."""
    return Check(
        check=f"generation/{name}",
        level="generation",
        metric=metric,
        value=None if count is None else float(count),
        limit=0.0,
        verdict=verdict,
        reference="the device itself",
        where=where,
    )


def _nonfinite(what: str) -> Check:
    return Check(
        check="generation/teacher-forced logits",
        level="generation",
        metric=LOGITS_METRIC,
        value=None,
        limit=1.0,
        verdict="non-finite",
        reference="none: a result that is not finite is judged before any bound",
        where=what,
    )
