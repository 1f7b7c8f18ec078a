"""Correct softmax, log-softmax, log-sum-exp and cross-entropy in other orders and forms: the floor of tier T3.

Each takes tensors of one dtype, computes in float32 and rounds the result once to that dtype.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

BLOCK = 128
"""Columns of one partial sum, as a tile of 128 has."""


def _largest(x: Tensor) -> Tensor:
    return x.amax(-1, keepdim=True)


def plain_sum(terms: Tensor) -> Tensor:
    """In PyTorch's own order."""
    return terms.sum(-1, keepdim=True)


def block_sum(terms: Tensor) -> Tensor:
    """Sums of blocks of 128 columns, then their running sum."""
    padded = torch.nn.functional.pad(terms, (0, -terms.shape[-1] % BLOCK))
    partial = padded.reshape(*terms.shape[:-1], -1, BLOCK).sum(-1)
    return torch.cumsum(partial, dim=-1)[..., -1:]


def strided_sum(terms: Tensor) -> Tensor:
    """Sixteen lanes, each running through every sixteenth column, added up pairwise at the end."""
    padded = torch.nn.functional.pad(terms, (0, -terms.shape[-1] % 16))
    lanes = torch.cumsum(padded.reshape(*terms.shape[:-1], -1, 16), dim=-2)[..., -1, :]
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes


def _exp(shifted: Tensor) -> Tensor:
    return torch.exp(shifted)


def _exp2(shifted: Tensor) -> Tensor:
    """exp as hardware has it: a product with log2(e), rounded to float32, and a power of two."""
    return torch.exp2(shifted * math.log2(math.e))


def _coarse_exp(shifted: Tensor) -> Tensor:
    """Off by about 2 units in the last place, within what `arithmetic.function("exp")` allows."""
    exact = torch.exp(shifted)
    disturbance = torch.sin(shifted * 12345.0) * 2.0**-22
    return exact + exact * disturbance


VARIANTS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "PyTorch's order": (_exp, plain_sum),
    "blocks of 128": (_exp, block_sum),
    "sixteen lanes, powers of two": (_exp2, strided_sum),
    "exp of 2 ulp": (_coarse_exp, block_sum),
}


def _softmax(exp: Callable[[Tensor], Tensor], add: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def compute(x: Tensor) -> Tensor:
        wide = x.float()
        terms = exp(wide - _largest(wide))
        return (terms * add(terms).reciprocal()).to(x.dtype)

    return compute


def _log_softmax(exp: Callable[[Tensor], Tensor], add: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def compute(x: Tensor) -> Tensor:
        wide = x.float()
        shifted = wide - _largest(wide)
        return (shifted - add(exp(shifted)).log()).to(x.dtype)

    return compute


def _logsumexp(exp: Callable[[Tensor], Tensor], add: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def compute(x: Tensor) -> Tensor:
        wide = x.float()
        largest = _largest(wide)
        return (largest + add(exp(wide - largest)).log()).squeeze(-1).to(x.dtype)

    return compute


def _cross_entropy(
    exp: Callable[[Tensor], Tensor], add: Callable[[Tensor], Tensor]
) -> Callable[[Tensor, Tensor], Tensor]:
    def compute(x: Tensor, target: Tensor) -> Tensor:
        wide = x.float()
        largest = _largest(wide)
        lse = largest + add(exp(wide - largest)).log()
        return (lse - wide.gather(-1, target.unsqueeze(-1))).squeeze(-1).to(x.dtype)

    return compute


SOFTMAX: dict[str, Callable[..., Tensor]] = {name: _softmax(*variant) for name, variant in VARIANTS.items()}
LOG_SOFTMAX: dict[str, Callable[..., Tensor]] = {name: _log_softmax(*variant) for name, variant in VARIANTS.items()}
LOGSUMEXP: dict[str, Callable[..., Tensor]] = {name: _logsumexp(*variant) for name, variant in VARIANTS.items()}
CROSS_ENTROPY: dict[str, Callable[..., Tensor]] = {name: _cross_entropy(*variant) for name, variant in VARIANTS.items()}
