"""Initial weights: the same bits everywhere, rounded once, and an oracle on the device's own weights."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from trnbench.status import UsageError
from trnbench.workloads.initial import build_model, initial_values, reference_model

if TYPE_CHECKING:
    from trnbench.workloads.presets import Preset


def test_bits_are_the_same_on_every_machine() -> None:
    """Pinned once; torch, NumPy, threads and device must not change them."""
    values = initial_values("layers.0.feed_forward.up.weight", (37, 53), 0)
    assert hashlib.sha256(values.astype("<f4").tobytes()).hexdigest()[:16] == "d872d25648116c18"


def test_values_are_exact_in_float32_and_spread_evenly() -> None:
    values = initial_values("embedding.weight", (300, 301), 1).astype(np.float64)
    assert (values * 2**28 == np.round(values * 2**28)).all()
    assert -1 / 32 <= values.min() < -0.031
    assert 0.031 < values.max() < 1 / 32
    assert abs(values.std() - 2**-5 / 3**0.5) < 1e-4
    assert abs(values.mean()) < 3e-4


def test_chunks_leave_no_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = initial_values("head.weight", (50, 7), 2)
    monkeypatch.setattr("trnbench.workloads.initial._CHUNK_WORDS", 16)
    assert (initial_values("head.weight", (50, 7), 2) == whole).all()


def test_seed_and_name_decide(tiny: Preset) -> None:
    weights = dict(build_model(tiny, "fp32", "cpu", 5, positions=8).named_parameters())
    assert not torch.equal(weights["layers.0.attention.query.weight"], weights["layers.1.attention.query.weight"])
    other = dict(build_model(tiny, "fp32", "cpu", 6, positions=8).named_parameters())
    assert not torch.equal(weights["embedding.weight"], other["embedding.weight"])
    assert torch.equal(weights["norm.weight"], torch.ones(tiny.hidden))


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("fp32", torch.float32), ("tf32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)],
)
def test_inference_holds_the_weights_rounded_once(tiny: Preset, precision: str, dtype: torch.dtype) -> None:
    exact = dict(build_model(tiny, "fp64", "cpu", 0, positions=8).named_parameters())
    model = build_model(tiny, precision, "cpu", 0, inference=True, positions=8)
    for name, parameter in model.named_parameters():
        assert parameter.dtype == dtype
        assert not parameter.requires_grad
        # Every initial value is exact in float32, so this cast is the only rounding there can have been.
        assert torch.equal(parameter, exact[name].to(torch.float32).to(dtype))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_training_keeps_float32_masters(tiny: Preset, precision: str) -> None:
    model = build_model(tiny, precision, "cpu", 0, positions=8)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_reference_computes_on_the_weights_as_they_are_multiplied(tiny: Preset) -> None:
    model = build_model(tiny, "bf16", "cpu", 0, positions=8)
    operands = dict(reference_model(model).named_parameters())
    masters = dict(reference_model(model, as_operands=False).named_parameters())
    for name, parameter in model.named_parameters():
        rounded = parameter.to(torch.bfloat16) if parameter.ndim == 2 else parameter
        assert torch.equal(operands[name], rounded.double())
        assert torch.equal(masters[name], parameter.double())


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_each_precision_is_as_far_from_the_reference_as_its_format(tiny: Preset, precision: str) -> None:
    model = build_model(tiny, precision, "cpu", 0, positions=24)
    tokens = torch.arange(48).view(2, 24) % tiny.vocab_size
    got, true = model(tokens), reference_model(model)(tokens)
    assert got.dtype == torch.float32
    assert true.dtype == torch.float64
    error = ((got.double() - true).norm() / true.norm()).item()
    unit = torch.finfo(model.compute_dtype).eps / 2
    assert 0.1 * unit < error < 10 * unit


def test_unknown_precision_and_too_many_positions_are_refused(tiny: Preset) -> None:
    with pytest.raises(UsageError, match="no precision 'fp8'"):
        build_model(tiny, "fp8", "cpu", 0)
    with pytest.raises(UsageError, match="tiny has 4096 positions; 5000 were asked for"):
        build_model(tiny, "fp32", "cpu", 0, positions=5000)
