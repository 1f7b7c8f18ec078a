"""Simpler schemes of comparison that others use, applied to the same outputs for the record: reported, never gates.

Each takes a result, the float64 oracle, and the result of PyTorch's CPU implementation in the same precision, and says
whether it objects. Where their authors would compare with a tensor of the result's dtype, they get the oracle rounded
to it. Elements that rightly overflow to infinity are left out: not all of these schemes can take one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trnbench.conformance.model.comparables import ERROR_RATIO_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trnbench.conformance.implementation import Tensors

    Scheme = Callable[[Tensor, Tensor, Tensor], bool]

JAX_TOLERANCE: dict[torch.dtype, float] = {torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}
"""Absolute and relative; `default_tolerance` in jax/_src/public_test_util.py."""

COSINE_LIMIT = 0.999

WORDS: dict[str, str] = {
    "torch.testing.assert_close": "PyTorch's table of tolerances by dtype: 1.3e-6 and 1e-5 in float32, 1.6e-2 and 1e-5 "
    "in bfloat16, 1e-3 and 1e-5 in float16",
    "JAX defaults": "absolute and relative tolerance 1e-6 in float32, 1e-2 in bfloat16, 1e-3 in float16",
    "cosine": "cosine similarity with the oracle of at least 0.999",
    "AWS error ratio": "error norm over that of the same precision on the CPU, below 1.2",
}


def assert_close_objects(result: Tensor, oracle: Tensor, baseline: Tensor) -> bool:
    """`torch.testing.assert_close` with its defaults raises; NaN where NaN is right counts as equal."""
    try:
        torch.testing.assert_close(result, oracle.to(result.dtype), equal_nan=True)
    except AssertionError:
        return True
    return False


def jax_objects(result: Tensor, oracle: Tensor, baseline: Tensor) -> bool:
    """JAX's default tolerances, as atol and rtol both."""
    tolerance = JAX_TOLERANCE[result.dtype]
    close = torch.allclose(result.double(), oracle.to(result.dtype).double(), tolerance, tolerance, equal_nan=True)
    return not close


def cosine_objects(result: Tensor, oracle: Tensor, baseline: Tensor) -> bool:
    """Cosine similarity below the limit, or not a number."""
    # By hand: torch's own cosine takes norms below 1e-8 for 1e-8, and tensors of small numbers are no fault.
    y, right = result.double().flatten(), oracle.flatten()
    scale, right_scale = y.abs().max(), right.abs().max()
    if float(right_scale) == 0.0 or float(scale) == 0.0:
        return bool(float(scale) != float(right_scale))
    y, right = y / scale, right / right_scale
    return not float(y @ right / (y.norm() * right.norm())) >= COSINE_LIMIT


def error_ratio_objects(result: Tensor, oracle: Tensor, baseline: Tensor) -> bool:
    """Error norm over the baseline's error norm reaches the limit; a baseline without error forgives none."""
    error = float((result.double() - oracle).norm())
    usual = float((baseline.double() - oracle).norm())
    return not error < ERROR_RATIO_LIMIT * usual if usual > 0.0 else error != 0.0


SCHEMES: dict[str, Scheme] = {
    "torch.testing.assert_close": assert_close_objects,
    "JAX defaults": jax_objects,
    "cosine": cosine_objects,
    "AWS error ratio": error_ratio_objects,
}


def objections(results: Tensors, oracles: Tensors, baselines: Tensors) -> dict[str, bool]:
    """By scheme, whether it objects to any of the floating-point outputs; empty where none is of such a dtype."""
    found: dict[str, bool] = {}
    for result, oracle, baseline in zip(results, oracles, baselines, strict=False):
        if result.dtype not in JAX_TOLERANCE:
            continue
        if result.shape != oracle.shape:
            found |= dict.fromkeys(SCHEMES, True)
            continue
        exact = oracle.double()
        kept = ~(exact.to(result.dtype).isinf() & (result == exact.to(result.dtype)))
        if not bool(kept.any()):
            continue
        for name, objects in SCHEMES.items():
            found[name] = found.get(name, False) or objects(result[kept], exact[kept], baseline[kept])
    return found
