"""Dropout that is broken on purpose, and a correct one with a generator of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from trnbench.conformance.implementation import HostImplementation, Implementation, Tensors
from trnbench.conformance.mutants.base import Mutant
from trnbench.conformance.operators.activations_dropout import RATES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _kept(x: Tensor, rate: float) -> Tensor:
    """Which elements stay, by PyTorch's generator."""
    return torch.rand(x.shape) >= rate


def _repeated(x: Tensor, rate: float) -> Tensor:
    """128 draws, over and over."""
    return _kept(torch.empty(128), rate).repeat(x.numel() // 128).reshape(x.shape)


def _one_seed(x: Tensor, rate: float) -> Tensor:
    return torch.from_numpy(np.random.default_rng(7).random(tuple(x.shape)) >= rate)


def _own_generator(x: Tensor, rate: float) -> Tensor:
    """NumPy's generator, seeded by PyTorch's."""
    seed = int(torch.randint(2**31, ()))
    return torch.from_numpy(np.random.default_rng(seed).random(tuple(x.shape)) >= rate)


def _dropping(
    mask: Callable[[Tensor, float], Tensor] = _kept, rescaled: bool = True, excess: float = 0.0
) -> Callable[[], Implementation]:
    """Dropout at the rates of the check with a mask of one's own; the gradient draws it again, from the same state.

    `excess` is added to the rates between 0 and 1.
    """

    def function(x: Tensor) -> Tensors:
        outputs = [
            torch.where(mask(x, rate + excess), x * (1.0 / (1.0 - rate) if rescaled else 1.0), 0.0) for rate in RATES
        ]
        return (*outputs, x.clone(), torch.zeros_like(x) * x.abs().clamp(max=0.0))

    return lambda: HostImplementation(function)


class _OwnMaskBackward(HostImplementation):
    """Draws once in vain before the backward pass."""

    def backward(self, inputs: Tensors, cotangents: Tensors, wrt: Sequence[int]) -> Tensors:
        torch.rand(1)
        return super().backward(inputs, cotangents, wrt)


def _own_mask_backward() -> Implementation:
    def function(x: Tensor) -> Tensors:
        return (*(torch.where(_kept(x, rate), x / (1.0 - rate), 0.0) for rate in RATES), x.clone(), 0.0 * x)

    return _OwnMaskBackward(function)


MUTANTS: list[Mutant] = [
    Mutant(
        name="dropout that does not rescale",
        operator="dropout",
        precision="fp32",
        make=_dropping(rescaled=False),
        looks_like=("dropout without rescaling",),
    ),
    Mutant(
        name="dropout at 0.11 instead of 0.1",
        operator="dropout",
        precision="bf16",
        make=_dropping(excess=0.01),
        looks_like=("wrong dropout rate",),
    ),
    Mutant(
        name="dropout mask repeated every 128 elements",
        operator="dropout",
        precision="fp32",
        make=_dropping(_repeated),
        looks_like=("dropout mask repeats",),
    ),
    Mutant(
        name="dropout that ignores the seed",
        operator="dropout",
        precision="fp16",
        make=_dropping(_one_seed),
        looks_like=("dropout mask independent of the seed",),
    ),
    Mutant(
        name="dropout with another mask in its gradient",
        operator="dropout",
        precision="fp32",
        make=_own_mask_backward,
        looks_like=("backward draws its own mask",),
    ),
    Mutant(name="dropout by another generator", operator="dropout", precision="bf16", make=_dropping(_own_generator)),
]
