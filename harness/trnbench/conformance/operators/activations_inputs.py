"""Inputs of activation functions: every number of a 16-bit format, every exponent of float32, and special values.

An activation is a function of one number, so the 16-bit formats are tried exhaustively: 65536 numbers cost less than
choosing among them. float32 is stratified: random significands in every binade, and the binades' own edges.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.inputs import generator, make, rounded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from trnbench.conformance.operators.base import Plan

SHAPE = (64, 640)
"""Holds each band of a 16-bit format: the largest, fp16 up to 16, has 32768 numbers."""

MORE_SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "one": (),
    "several": ((1,), (15,), (17, 3)),
    "all": ((1,), (7,), (15,), (16,), (17, 3), (129, 127), (1024, 1024)),
}
"""One element, and lengths on both sides of a vector register: other code runs there."""

SATURATED = 16.0
"""Magnitude beyond which GELU equals x or 0, and SiLU equals x, in every format up to float32 (see their bounds)."""

RANDOM = ("gaussian", "wide range", "huge", "outlier channels", "all equal")


def bands(precision: str, seed: int) -> dict[str, Tensor]:
    """All finite numbers of a 16-bit precision, or a stratified sample of float32's, in three bands of `SHAPE`.

    "subnormal" has the zeros too, and the numbers up to 4 times the least normal one, whose halves (f(x) is x / 2
    near 0) are subnormal or nearly so; "moderate magnitudes" ends below 16, "large magnitudes" goes to the largest
    number. Each band is repeated until `SHAPE` is full.
    """
    values = _stratified(seed) if precision == "fp32" else every_code(STORAGE[precision])
    size, least = values.abs().double(), 4.0 * torch.finfo(values.dtype).tiny
    chosen = {
        "subnormal": size < least,
        "moderate magnitudes": (size >= least) & (size < SATURATED),
        "large magnitudes": size >= SATURATED,
    }
    return {name: _filled(values[mask]) for name, mask in chosen.items()}


def every_code(dtype: torch.dtype) -> Tensor:
    """The finite numbers among the 65536 codes of a 16-bit `dtype`."""
    codes = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    return codes[torch.isfinite(codes.float())]


def _stratified(seed: int) -> Tensor:
    """float32: in each binade, of either sign, its first and last number and 96 random ones; and all powers of two.

    Powers of two and their neighbours include the edges of table-driven activation units, which clamp their argument
    at powers of two (Neuron NKI documentation, "Supported Activation Functions": ranges such as 2^-64 to 2^64).
    """
    rng = generator("every exponent", seed)
    inside = rng.integers(0, 2**23, (255, 96), dtype=np.int64)
    significands = np.concatenate([np.zeros((255, 1), np.int64), np.full((255, 1), 2**23 - 1), inside], axis=1)
    bits = (np.arange(255, dtype=np.int64)[:, None] << 23 | significands).reshape(-1)
    values = torch.from_numpy(bits.astype(np.int32)).view(torch.float32)
    return torch.cat([values, -values])


def _filled(values: Tensor) -> Tensor:
    """`values`, as often as fit into `SHAPE`; a band of more values than that raises `ValueError`."""
    count = math.prod(SHAPE)
    if values.numel() > count:
        raise ValueError(f"{values.numel()} values do not fit into {SHAPE}")
    return values.repeat(-(-count // values.numel()))[:count].reshape(SHAPE)


def named(precision: str, plan: Plan) -> Iterator[tuple[str, int, Tensor]]:
    """Name, seed and numbers of every input: the bands, then random ones; the gaussian one in further shapes."""
    dtype = STORAGE[precision]
    for seed in plan.seeds:
        if precision == "fp32" or seed == plan.seeds[0]:
            for name, values in bands(precision, seed).items():
                yield name, seed, values
        for name in RANDOM:
            yield name, seed, make(name, SHAPE, dtype, seed)
        for shape in MORE_SHAPES[plan.shapes]:
            yield "gaussian", seed, make("gaussian", shape, dtype, seed)


def cotangents(values: Tensor, seed: int) -> Tensor:
    """Normal values shaped as `values`, never so small that a product with a derivative underflows by their fault."""
    rng = generator("activation cotangents", seed)
    drawn = rng.standard_normal(tuple(values.shape))
    return rounded(np.sign(drawn) * np.maximum(np.abs(drawn), 2.0**-4), values.dtype)


def filled(value: float, precision: str, plan: Plan) -> Iterator[Tensor]:
    """Tensors of one value: `SHAPE`, which takes the vector code, and one element, which does not."""
    yield torch.full(SHAPE, value, dtype=STORAGE[precision])
    if plan.shapes != "one":
        yield torch.full((1,), value, dtype=STORAGE[precision])


def words(values: Tensor) -> str:
    """A shape as checks name it: 64x640."""
    return "x".join(str(size) for size in values.shape)
