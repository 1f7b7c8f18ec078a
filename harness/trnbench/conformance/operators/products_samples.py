"""Random inputs of matrix products: which generators, which sizes, and how products of them stay in range."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.inputs import COMMON, GENERATORS, generator, make, rounded
from trnbench.conformance.operators.base import Plan, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch import Tensor

    from trnbench.conformance.operators.products_views import View

Size = tuple[tuple[int, ...], int, int, int]
"""Batch sizes, M, K, N."""

INPUTS = (*COMMON, "tail")

SIGNAL_IN_TAIL = 8
"""Terms at the end of K that carry nearly all of a `tail` input, where kernels that work in tiles go wrong."""

ONE: dict[str, Size] = {
    "matmul": ((), 16, 2304, 24),
    "batched matmul": ((2,), 8, 2304, 8),
    "transposed matmul": ((), 16, 2304, 24),
    "strided matmul": ((), 16, 2304, 24),
    "linear": ((2,), 8, 2304, 24),
}
"""The shape of every exact sample, and of all random inputs where a plan has one shape; 2304 = 9 * 2^8 ones sum to a
number that bfloat16 holds, and more than float16 can count."""

SEVERAL: dict[str, tuple[Size, ...]] = {
    "matmul": (
        ((), 17, 129, 33),
        ((), 1, 4096, 64),
        ((), 256, 512, 64),
        ((), 5, 1, 7),
        ((), 8, 31, 9),
        ((), 4, 127, 6),
        ((), 4, 128, 6),
        ((), 2, 65536, 3),
    ),
    "batched matmul": (((2, 3), 17, 129, 33), ((4,), 1, 512, 64), ((3,), 2, 127, 5)),
    "transposed matmul": (((), 17, 129, 33), ((), 1, 512, 64), ((2,), 16, 128, 8)),
    "strided matmul": (((), 17, 129, 33), ((), 1, 512, 64)),
    "linear": (((), 17, 129, 33), ((), 1, 4096, 64), ((), 256, 512, 64), ((2, 3), 4, 127, 5)),
}
"""Beside `ONE`: odd sizes, edges of tiles of 128, decode (M = 1), long sums. Precision paths switch on shape."""

ALL: dict[str, tuple[Size, ...]] = {
    "matmul": (
        ((), 64, 1024, 1024),
        ((), 1, 1024, 1024),
        ((), 128, 11008, 32),
        ((), 33, 65536, 17),
        ((), 512, 33, 511),
    ),
    "batched matmul": (((8, 4), 128, 64, 128), ((2, 3), 65, 4096, 7)),
    "transposed matmul": (((), 128, 4096, 64), ((4,), 33, 65536, 2)),
    "strided matmul": (((), 128, 4096, 64),),
    "linear": (((2, 128), 1, 4096, 64), ((4,), 64, 1024, 1024), ((), 8, 65536, 5)),
}
"""Beside `SEVERAL`, in plans of all shapes."""

FEW = ("gaussian", "positive", "cancelling")
"""Inputs at sizes other than `ONE`: between them they show operands, accumulators and partial sums."""


LONG = 65536
"""Terms from which on only sums that grow are tried in plans of several shapes: they lose most in a long sum."""


def sizes(operator: str, plan: Plan) -> list[tuple[Size, tuple[str, ...]]]:
    """Sizes of `operator` under `plan`, each with the inputs tried at it."""
    found: list[tuple[Size, tuple[str, ...]]] = [(ONE[operator], INPUTS)]
    if plan.shapes != "one":
        found += [(size, FEW if size[2] < LONG else ("positive",)) for size in SEVERAL[operator]]
    if plan.shapes == "all":
        found += [(size, INPUTS) for size in ALL[operator]]
    if plan.inputs:
        found = [(size, tuple(name for name in names if name in plan.inputs)) for size, names in found]
    return found


def pair(name: str, size: Size, precision: str, seed: int) -> tuple[Tensor, Tensor]:
    """Matrices [..., M, K] and [..., K, N] of the input `name`, in the precision's dtype.

    Sums stay in the range of float16 except for "huge", whose exact results beyond 65504 must become infinite.
    "cancelling" has terms x y and -x y in pairs, in the same random order in both factors, and sums 2^-6 of them;
    "subnormal" multiplies subnormal numbers by normal ones; "all equal" are ones: sums of any other constant have
    roundings all of one sign, for which no probabilistic bound holds.
    """
    batch, rows, terms, columns = size
    dtype = STORAGE[precision]
    place = f"{batch} {rows} {terms} {columns}"
    left_shape, right_shape = (*batch, rows, terms), (*batch, terms, columns)
    if name == "cancelling":
        return _cancelling(generator(f"cancelling {place}", seed), size, dtype)
    if name == "tail":
        rng = generator(f"tail {place}", seed)
        weights = np.full(terms, 2.0**-10)
        weights[-SIGNAL_IN_TAIL:] = 1.0
        left = rng.standard_normal(left_shape) * weights
        return rounded(left, dtype), rounded(rng.standard_normal(right_shape), dtype)
    left = make(name, left_shape, dtype, seed, f"left {place}")
    rng = generator(f"{name} right {place}", seed)
    if name in ("subnormal", "outlier channels"):
        return left, rounded(GENERATORS["gaussian"](rng, right_shape, dtype), dtype)
    right = GENERATORS[name](rng, right_shape, dtype)
    if name == "wide range":
        right = right * 2.0**-4
    return left, rounded(right, dtype)


def _cancelling(rng: np.random.Generator, size: Size, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    batch, rows, terms, columns = size
    half = terms // 2
    order = rng.permutation(terms)
    x = rng.standard_normal((*batch, rows, half))
    y = rng.standard_normal((*batch, half, columns))
    left = np.concatenate([x, -x, np.zeros((*batch, rows, terms - 2 * half))], axis=-1)
    right = np.concatenate([y, y, np.zeros((*batch, terms - 2 * half, columns))], axis=-2)
    left = left + 2.0**-6 * rng.standard_normal(left.shape)
    right = right + 2.0**-6 * rng.standard_normal(right.shape)
    return rounded(left[..., order], dtype), rounded(right[..., order, :], dtype)


def words(size: Size) -> str:
    """`2x3x17x129 by 2x3x129x33`."""
    batch, rows, terms, columns = size
    return " by ".join("x".join(map(str, (*batch, *matrix))) for matrix in ((rows, terms), (terms, columns)))


def cotangent(size: Size, precision: str, seed: int) -> Tensor:
    """Normal values shaped as the output."""
    batch, rows, _, columns = size
    return make("gaussian", (*batch, rows, columns), STORAGE[precision], seed, f"cotangent {words(size)}")


def view_samples(view: View, precision: str, plan: Plan) -> Iterator[Sample]:
    """Samples of one of the products without bias."""
    for seed in plan.seeds:
        for size, names in sizes(view.name, plan):
            for name in names:
                yield Sample(
                    input=name,
                    shape=words(size),
                    inputs=view.stored(*pair(name, size, precision, seed)),
                    cotangents=(cotangent(size, precision, seed),),
                    seed=seed,
                )


def linear_samples(precision: str, plan: Plan) -> Iterator[Sample]:
    """Samples of `linear`; "cancelling bias" takes away the first row's product, rounded, so that a product that is
    rounded before the bias is added shows in every digit that is left."""
    for seed in plan.seeds:
        for size, names in sizes("linear", plan):
            for name in names if plan.inputs else (*names, "cancelling bias"):
                x, weight = pair("gaussian" if name == "cancelling bias" else name, ((), *_rows(size)), precision, seed)
                if name == "cancelling bias":
                    bias = rounded(-(x[0].double() @ weight.double()).numpy(), x.dtype)
                else:
                    bias = make("gaussian", (size[3],), x.dtype, seed, f"bias {words(size)}")
                yield Sample(
                    input=name,
                    shape=f"{words(size)}, bias",
                    inputs=(x.reshape(*size[0], size[1], size[2]), weight.mT.contiguous(), bias),
                    cotangents=(cotangent(size, precision, seed),),
                    seed=seed,
                )


def _rows(size: Size) -> tuple[int, int, int]:
    batch, rows, terms, columns = size
    return int(np.prod(batch, dtype=np.int64)) * rows, terms, columns
