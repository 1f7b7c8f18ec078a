"""What a device's generation is judged by: the float64 oracle, and the noise of permitted implementations."""

from __future__ import annotations

import hashlib

import msgspec
import torch
from torch import Tensor

from trnbench.backends.switches import numerics_switches
from trnbench.conformance.cache import add_weights, cache_folder, host_arithmetic, keep, read_kept
from trnbench.conformance.generation.greedy import Greedy, decode_greedily
from trnbench.conformance.model.baseline import PERMUTATIONS, operands
from trnbench.conformance.model.errors import relative_error, worst_row_error
from trnbench.conformance.model.permute import permutation, permute
from trnbench.conformance.model.runs import decoder_with
from trnbench.conformance.model.variants import Variant, permitted_variants
from trnbench.conformance.text import NEW_TOKENS
from trnbench.workloads.decoder import Decoder
from trnbench.workloads.initial import reference_model
from trnbench.workloads.version import workload_version

NOISE_QUANTILE = 0.999


class Subject(msgspec.Struct, frozen=True):
    """What the device was given: its model's own weights on the host, the text [1, T] and the prompts [B, P]."""

    model: Decoder
    weights: dict[str, Tensor]
    precision: str
    text: Tensor
    prompts: Tensor
    positions: int


class Noise(msgspec.Struct, frozen=True):
    """Errors of the permitted implementations on the text, by measure and implementation.

    `token_noise` is the quantile over positions of the largest logit difference to the oracle, the worst of the
    implementations; `nll` holds signed errors of the mean negative log-likelihood in nats.
    """

    whole: dict[str, list[float]]
    worst_row: dict[str, list[float]]
    nll: dict[str, list[float]]
    token_noise: float


class Baseline(msgspec.Struct, frozen=True):
    """`logits` float64 [T, vocab_size] of the text, its mean negative log-likelihood, greedy tokens, and the noise."""

    logits: Tensor
    nll: float
    greedy: Greedy
    noise: Noise
    digest: str


def compute_baseline(subject: Subject) -> Baseline:
    """Run the oracle, and the permitted implementations unless their noise is in the cache."""
    with numerics_switches("fp32"):
        oracle = reference_model(subject.model)
        logits = text_logits(oracle, subject.text)
        greedy = decode_greedily(oracle, subject.prompts, NEW_TOKENS)
        key = _key(subject)
        noise = _kept(key)
        if noise is None:
            noise = _measure_noise(subject, logits)
            keep(cache_folder("generation") / f"{key}.json", msgspec.json.encode(noise))
    return Baseline(
        logits=logits, nll=negative_log_likelihood(logits, subject.text), greedy=greedy, noise=noise, digest=key
    )


@torch.no_grad()
def text_logits(model: Decoder, text: Tensor) -> Tensor:
    """float64 [T, vocab_size] of the whole text at once, on the host."""
    logits: Tensor = model(text)
    return logits[0].to(torch.float64)


def negative_log_likelihood(logits: Tensor, text: Tensor) -> float:
    """Mean over the text's tokens but the first, in nats; its exponential is the perplexity."""
    return float(torch.nn.functional.cross_entropy(logits[:-1], text[0, 1:]))


def _measure_noise(subject: Subject, oracle: Tensor) -> Noise:
    right = negative_log_likelihood(oracle, subject.text)
    noise = Noise(whole={}, worst_row={}, nll={}, token_noise=0.0)
    largest = 0.0
    for variant in permitted_variants(subject.precision):
        for seed in range(PERMUTATIONS):
            logits = _permuted_logits(subject, variant, seed)
            noise.whole.setdefault(variant.name, []).append(relative_error(logits, oracle))
            noise.worst_row.setdefault(variant.name, []).append(worst_row_error(logits, oracle))
            error = negative_log_likelihood(logits, subject.text) - right
            noise.nll.setdefault(variant.name, []).append(error)
            by_position = (logits - oracle).abs().amax(-1)
            largest = max(largest, float(by_position.quantile(NOISE_QUANTILE)))
    return msgspec.structs.replace(noise, token_noise=largest)


def _permuted_logits(subject: Subject, variant: Variant, seed: int) -> Tensor:
    preset, dtype = subject.model.preset, subject.model.compute_dtype
    orders = permutation(preset, seed)
    own = operands(subject.weights, dtype) if variant.compute_dtype else subject.weights
    model = decoder_with(
        preset, permute(own, orders), variant.compute_dtype or dtype, variant.attention, subject.positions
    )
    with variant.mode():
        return text_logits(model, subject.text)


def _kept(key: str) -> Noise | None:
    try:
        return msgspec.json.decode(read_kept(cache_folder("generation") / f"{key}.json"), type=Noise)
    except (OSError, ValueError):
        return None


def _key(subject: Subject) -> str:
    """SHA-256 over everything that the noise depends on."""
    from trnbench.conformance.cases import conformance_version

    digest = hashlib.sha256()
    name = subject.model.preset.name
    versions = (workload_version(name), conformance_version("model", name), conformance_version("generation", name))
    digest.update(repr((host_arithmetic(), versions, subject.precision, subject.positions)).encode())
    digest.update(subject.text.numpy().tobytes())
    add_weights(digest, subject.weights)
    return digest.hexdigest()[:32]
