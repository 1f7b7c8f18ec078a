"""Inputs of softmax, losses and norms that only these operators need, and which shapes a plan tries with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import torch

from trnbench.conformance import inputs
from trnbench.conformance.inputs import COMMON, Shape, rounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.random import Generator
    from numpy.typing import NDArray
    from torch import Tensor

    from trnbench.conformance.operators.base import Plan

LOGITS: tuple[str, ...] = (*COMMON, "offset", "offset 1000", "one-hot", "confident")
ROWS: tuple[str, ...] = (*COMMON, "offset", "offset 100", "offset 1000", "tiny", "large")
FEW: tuple[str, ...] = ("gaussian", "huge", "offset 1000")
"""What a further shape is tried with: it is there for the code path that a shape selects."""


class Shapes(msgspec.Struct, frozen=True, kw_only=True):
    """`main` is tried with every input, `further` with a few, `many` in the nightly plan alone, with every input."""

    main: Shape
    further: tuple[Shape, ...] = ()
    many: tuple[Shape, ...] = ()

    def tried(self, plan: Plan, names: tuple[str, ...]) -> Iterator[tuple[Shape, int, str]]:
        """Shape, seed and name of each input of `plan`; one without chance in it comes once a shape."""
        several = [(self.main, names)]
        if plan.shapes == "several":
            several += [(shape, FEW) for shape in self.further]
        if plan.shapes == "all":
            several += [(shape, names) for shape in (*self.further, *self.many)]
        for shape, chosen in several:
            for seed in plan.seeds:
                for name in chosen:
                    wanted = not plan.inputs or name in plan.inputs
                    if wanted and not (name in WITHOUT_CHANCE and seed != plan.seeds[0]):
                        yield shape, seed, name


def offset_100(rng: Generator, shape: Shape) -> NDArray[np.float64]:
    """Standard deviation 1 around 100."""
    return rng.standard_normal(shape) + 100.0


def offset_1000(rng: Generator, shape: Shape) -> NDArray[np.float64]:
    """Standard deviation 1 around 1000: a difference of float32 means has no digit left, one of differences has all."""
    return rng.standard_normal(shape) + 1000.0


def one_hot(rng: Generator, shape: Shape) -> NDArray[np.float64]:
    """Normal values and one logit of 40 a row: a probability of one beside others near 1e-17."""
    values = rng.standard_normal(shape)
    places = rng.integers(0, shape[-1], shape[:-1])
    np.put_along_axis(values, places[..., None], 40.0, axis=-1)
    return values


def confident(rng: Generator, shape: Shape) -> NDArray[np.float64]:
    """One logit lies log(1000) above the logarithm of the sum of all the others: its log-probability is about -0.001.

    A sum rounded to 16 bits is then 1, its logarithm 0.
    """
    values = rng.standard_normal(shape)
    places = rng.integers(0, shape[-1], shape[:-1])[..., None]
    np.put_along_axis(values, places, -np.inf, axis=-1)
    others = np.logaddexp.reduce(values, axis=-1, keepdims=True)
    # A row of one column has no others; its only logit stays what it is.
    shifted = np.asarray(values - np.where(np.isfinite(others), others, 0.0) - np.log(1000.0))
    np.put_along_axis(shifted, places, 0.0, axis=-1)
    return shifted


def tiny(rng: Generator, shape: Shape) -> NDArray[np.float64]:
    """Standard deviation 1e-3, so that the variance is no larger than the epsilon added to it."""
    return rng.standard_normal(shape) * 1e-3


def large(rng: Generator, shape: Shape) -> NDArray[np.float64]:
    """Around plus or minus 7600: a square, and every sum of squares, is beyond what float16 can hold."""
    signs = np.where(rng.random(shape) < 0.5, -1.0, 1.0)
    return np.asarray(signs * 7600.0 * (1.0 + 0.1 * rng.standard_normal(shape)))


OWN: dict[str, Callable[[Generator, Shape], NDArray[np.float64]]] = {
    "offset 100": offset_100,
    "offset 1000": offset_1000,
    "one-hot": one_hot,
    "confident": confident,
    "tiny": tiny,
    "large": large,
}
WITHOUT_CHANCE: tuple[str, ...] = ("all equal",)
"""The same whatever the seed."""


def make(name: str, shape: Shape, dtype: torch.dtype, seed: int, part: str = "") -> Tensor:
    """The input `name` of `shape`, one of this family's own or of those in `inputs.GENERATORS`."""
    if name in OWN:
        return rounded(OWN[name](inputs.generator(f"{name} {part}", seed), shape), dtype)
    return inputs.make(name, shape, dtype, seed, part)


def affine(features: int, dtype: torch.dtype, seed: int, part: str, centre: float) -> Tensor:
    """Weights of a norm (`centre` 1) or biases (`centre` 0), 0.1 around it."""
    rng = inputs.generator(f"affine {part}", seed)
    return rounded(centre + 0.1 * rng.standard_normal(features), dtype)


def targets(logits: Tensor, name: str, seed: int) -> Tensor:
    """int64 classes, one a row: the largest logit where the input is about confident tokens, else any.

    The first and the last row of "one-hot" get another class, the last one there is: a confident token that is wrong.
    """
    rng = inputs.generator(f"targets {name}", seed)
    if name not in ("confident", "one-hot"):
        return torch.from_numpy(rng.integers(0, logits.shape[-1], logits.shape[0]))
    best = logits.double().argmax(dim=-1)
    if name == "one-hot":
        best[0] = best[-1] = logits.shape[-1] - 1
    return best


def words(shape: Shape) -> str:
    """`8x4096`."""
    return "x".join(str(size) for size in shape)
