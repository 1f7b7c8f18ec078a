"""Correct products in other orders of summation, on the host: what the noise floor of tier T3 is made of.

All take float32 or 16-bit matrices, accumulate in float32 and round once to the dtype of their inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.arithmetic import SIGNIFICANT_BITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.conformance.arithmetic import Arithmetic

TILE = 128
"""Terms that Trainium's systolic array sums before it adds to PSUM; also a usual tile of other kernels."""

FUSED = 16
"""Terms that a tensor core adds at once, aligned to the largest and cut off (Fasi et al., "Numerical behavior of
NVIDIA tensor cores", PeerJ Computer Science 7:e330, 2021)."""


def tiled(left: Tensor, right: Tensor) -> Tensor:
    """Products of tiles of 128 of K, added in order in float32."""
    a, b = left.float(), right.float()
    total = a[..., :TILE] @ b[..., :TILE, :]
    for start in range(TILE, a.shape[-1], TILE):
        total = total + a[..., start : start + TILE] @ b[..., start : start + TILE, :]
    return total


def pairwise(left: Tensor, right: Tensor) -> Tensor:
    """A balanced tree over K: neighbours first."""
    terms = left.float().mT.unsqueeze(-1) * right.float().unsqueeze(-2)
    while terms.shape[-3] > 1:
        if terms.shape[-3] % 2:
            terms = torch.cat([terms, torch.zeros_like(terms[..., :1, :, :])], dim=-3)
        terms = terms[..., 0::2, :, :] + terms[..., 1::2, :, :]
    return terms[..., 0, :, :]


def serial(left: Tensor, right: Tensor) -> Tensor:
    """One term after the other, product and sum both rounded."""
    a, b = left.float(), right.float()
    total = torch.zeros((*a.shape[:-1], b.shape[-1]))
    for k in range(a.shape[-1]):
        total = total + a[..., k, None] * b[..., k, None, :]
    return total


def toward_zero(left: Tensor, right: Tensor) -> Tensor:
    """16 exact products and the accumulator summed exactly and cut off to float32, as tensor cores do."""
    a, b = left.double(), right.double()
    total = torch.zeros((*a.shape[:-1], b.shape[-1]), dtype=torch.float64)
    for start in range(0, a.shape[-1], FUSED):
        total = _cut(total + a[..., start : start + FUSED] @ b[..., start : start + FUSED, :])
    return total.float()


def _cut(values: Tensor) -> Tensor:
    nearest = values.float()
    return torch.where(nearest.double().abs() > values.abs(), nearest.nextafter(torch.zeros(())), nearest).double()


def as_tf32(operand: Tensor) -> Tensor:
    """float32 rounded to 11 significant bits, to nearest even."""
    bits = operand.view(torch.int32)
    dropped = 24 - SIGNIFICANT_BITS["tf32"]
    half = (1 << (dropped - 1)) - 1
    return (((bits + half + ((bits >> dropped) & 1)) >> dropped) << dropped).view(torch.float32)


ORDERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "tiles of 128": tiled,
    "pairwise": pairwise,
    "serial": serial,
}
"""Permitted to every device: float32 accumulation, rounded to nearest."""


def further_orders(arithmetic: Arithmetic) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """Permitted where the passport found truncating sums, or where the precision shortens operands."""
    found: dict[str, Callable[[Tensor, Tensor], Tensor]] = {}
    if arithmetic.accumulates_toward_zero:
        found["toward zero"] = toward_zero
    if arithmetic.operand_unit:
        found["operands in TF32"] = lambda left, right: tiled(as_tf32(left), as_tf32(right))
        found["operands cut off to TF32"] = lambda left, right: tiled(_cut_tf32(left), _cut_tf32(right))
    return found


def _cut_tf32(operand: Tensor) -> Tensor:
    dropped = 24 - SIGNIFICANT_BITS["tf32"]
    return ((operand.view(torch.int32) >> dropped) << dropped).view(torch.float32)
