"""The oracle and the noise floor of one checked slice: what the device is judged by, independent of any device.

Both depend only on the slice, the weights, the tokens, and the host's own arithmetic, so they are kept in a cache that
is keyed by all of these: three runs of twelve cases need them six times, not thirty-six.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from trnbench.backends.switches import numerics_switches
from trnbench.conformance.cache import add_weights, cache_folder, host_arithmetic, keep, read_kept
from trnbench.conformance.model.errors import relative_error, worst_row_error
from trnbench.conformance.model.permute import permutation, permute, restore
from trnbench.conformance.model.runs import Weights, decoder_with, infer_once, train_once
from trnbench.conformance.model.variants import Variant, permitted_variants
from trnbench.workloads.initial import reference_model
from trnbench.workloads.version import workload_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trnbench.conformance.model.scope import Subject
    from trnbench.workloads.decoder import Decoder

PERMUTATIONS = 3
"""Runs of each permitted implementation."""

Results = dict[str, Weights]
"""Check -> what a run produced for it, by tensor name; float64 on the CPU."""

Errors = dict[str, dict[str, dict[str, dict[str, list[float]]]]]
"""Check -> tensor -> measure ("whole", "worst row", "signed") -> permitted implementation -> one error a run."""

MEASURES: dict[str, Callable[[torch.Tensor, torch.Tensor], float]] = {
    "whole": relative_error,
    "worst row": worst_row_error,
    "signed": lambda result, oracle: float((result - oracle) / oracle),
}


class Baseline(msgspec.Struct, frozen=True):
    """`oracle` by check and tensor, the floor's `errors` against it, and `digest`, which pins both."""

    oracle: Results
    errors: Errors
    digest: str


def measures_of(tensor: torch.Tensor) -> tuple[str, ...]:
    """Scalars are judged by their signed error, tensors by the whole and by the worst row."""
    return ("signed",) if tensor.ndim == 0 else ("whole", "worst row")


def run_model(subject: Subject, model: Decoder) -> Results:
    """What a model on the CPU computes for the slice, eagerly: the results that a device is judged by."""
    if subject.scope.case.phase == "train_step":
        trained = train_once(model, subject.batch, subject.scope.case.micro_batch)
        return training_results(trained.loss, trained.logits, trained.gradients)
    steps = subject.scope.decode_steps
    return inference_results(steps, infer_once(model, subject.batch, steps).logits)


def training_results(loss: float, logits: torch.Tensor, gradients: Weights) -> Results:
    """Training results under the names of their checks."""
    return {
        "logits": {"logits": logits},
        "loss": {"loss": torch.tensor(loss, dtype=torch.float64)},
        "gradients": gradients,
    }


def inference_results(steps: int, logits: torch.Tensor) -> Results:
    """Inference results under the name of their check."""
    name = "teacher-forced logits" if steps else "logits"
    return {name: {name: logits}}


def find_baseline(subject: Subject) -> Baseline:
    """The baseline of what a device was given, from the cache or computed now and kept there."""
    key = _key(subject)
    path = cache_folder("baselines") / f"{key}.pt"
    try:
        return _unpack(read_kept(path))
    except (OSError, ValueError):
        baseline = compute_baseline(subject, digest=key)
    keep(path, _pack(baseline))
    return baseline


def compute_baseline(subject: Subject, *, digest: str) -> Baseline:
    """Run the oracle, then every permitted implementation under every permutation.

    Under the switches of fp32, whatever the case's: a host that multiplies float32 coarsely is no reference.
    """
    with numerics_switches("fp32"):
        return _compute(subject, digest)


def _compute(subject: Subject, digest: str) -> Baseline:
    scope = subject.scope
    own = decoder_with(scope.preset, subject.weights, subject.compute_dtype, "unfused", scope.positions)
    oracle = run_model(subject, reference_model(own))
    errors: Errors = {
        check: {name: {measure: {} for measure in measures_of(exact)} for name, exact in tensors.items()}
        for check, tensors in oracle.items()
    }
    for variant in permitted_variants(scope.case.precision):
        for seed in range(PERMUTATIONS):
            results = _permuted_run(subject, variant, seed)
            for check, tensors in oracle.items():
                for name, exact in tensors.items():
                    for measure, groups in errors[check][name].items():
                        error = MEASURES[measure](results[check][name], exact)
                        groups.setdefault(variant.name, []).append(error)
    return Baseline(oracle=oracle, errors=errors, digest=digest)


def _permuted_run(subject: Subject, variant: Variant, seed: int) -> Results:
    scope = subject.scope
    orders = permutation(scope.preset, seed)
    own = operands(subject.weights, subject.compute_dtype) if variant.compute_dtype else subject.weights
    dtype = variant.compute_dtype or subject.compute_dtype
    model = decoder_with(scope.preset, permute(own, orders), dtype, variant.attention, scope.positions)
    with variant.mode():
        results = run_model(subject, model)
    if "gradients" in results:
        results["gradients"] = restore(results["gradients"], orders)
    return results


def operands(weights: Weights, compute_dtype: torch.dtype) -> Weights:
    """Matrices rounded to the compute dtype as the model rounds them where it multiplies, held in float32."""
    return {
        name: (weight.to(compute_dtype) if weight.ndim == 2 else weight).to(torch.float32)
        for name, weight in weights.items()
    }


def _key(subject: Subject) -> str:
    """SHA-256 over everything that the baseline depends on."""
    scope, batch = subject.scope, subject.batch
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    identity = (
        workload_version(scope.preset.name),
        msgspec.json.encode(scope.preset).decode(),
        scope.case.phase,
        scope.case.precision,
        scope.case.micro_batch,
        str(subject.compute_dtype),
        scope.decode_steps,
        *host_arithmetic(),
    )
    digest.update(repr(identity).encode())
    digest.update(batch.tokens.tobytes() + batch.targets.tobytes() + batch.lengths.tobytes())
    add_weights(digest, subject.weights)
    return digest.hexdigest()[:32]


def _pack(baseline: Baseline) -> bytes:
    stream = io.BytesIO()
    torch.save({"oracle": baseline.oracle, "errors": baseline.errors, "digest": baseline.digest}, stream)
    return stream.getvalue()


def _unpack(data: bytes) -> Baseline:
    stored = torch.load(io.BytesIO(data), weights_only=True)
    return Baseline(oracle=stored["oracle"], errors=stored["errors"], digest=stored["digest"])


def floor_groups(errors: Mapping[str, Mapping[str, Any]]) -> int:
    """How many (tensor, measure) pairs one check judges: the comparisons that share its false-alarm probability."""
    return sum(len(measures) for measures in errors.values())
