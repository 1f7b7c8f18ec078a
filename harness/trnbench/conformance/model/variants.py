"""Permitted implementations: the freedom that a conforming device has in computing the same function.

Each changes only what the precision's definition leaves open, so none of them may fail a check:

* `fused`: attention in one operator, scores and probabilities kept wide;
* `unfused`: scores and probabilities rounded to the compute dtype around a wide softmax;
* `serial`: matrix products accumulated in float32 one product after the other, the longest of all summation trees:
  any order is permitted, so the one with the largest error belongs to the floor (measured on nano in float32: 1.4
  times the error of a blocked library, 2.2 times that of tiles of 16);
* `wide activations`: operands rounded to the compute dtype, everything between matrix products kept in float32, as a
  compiler that fuses pointwise operators into one kernel does (bfloat16 and float16 only).

For tf32, which no host CPU computes, matrix operands are rounded to 11 significant bits, once to nearest and once
toward zero: NVIDIA documents the format, and leaves the rounding of float32 operands to the library.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from trnbench.workloads.layers import Attention

TF32_SIGNIFICANT_BITS = 11
_NARROW_SIGNIFICANT_BITS = {"bf16": 8, "fp16": 11}

MatrixProduct = Callable[[Tensor, Tensor], Tensor]

_aten = torch.ops.aten


class Variant(msgspec.Struct, frozen=True):
    """`mode` makes the context manager under which the implementation runs on the CPU.

    `compute_dtype` replaces the precision's own where the variant rounds operands by itself.
    """

    name: str
    attention: Attention
    mode: Callable[[], contextlib.AbstractContextManager[Any]]
    compute_dtype: torch.dtype | None = None


class MatrixProductMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Replaces every matrix product, forward and backward, by `product(a, b)` for a [..., M, K] and b [..., K, N]."""

    def __init__(self, product: MatrixProduct) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._product = product

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (_aten.mm.default, _aten.bmm.default):
            return self._product(args[0], args[1])
        return func(*args, **(kwargs or {}))


def serial_product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b, accumulated in float32 along the contracted dimension one by one, rounded once to the operands' dtype."""
    with torch._C._DisableTorchDispatch():
        wide_a, wide_b = a.float(), b.float()
        total = torch.zeros(*a.shape[:-1], b.shape[-1])
        for index in range(a.shape[-1]):
            column, row = wide_a[..., index : index + 1], wide_b[..., index : index + 1, :]
            if total.ndim == 2:
                total.addmm_(column, row)
            else:
                total.baddbmm_(column, row)
        return total.to(a.dtype)


def rounded_operands(significant_bits: int, *, toward_zero: bool = False) -> MatrixProduct:
    """A float32 matrix product whose operands are first rounded to `significant_bits`."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        with torch._C._DisableTorchDispatch():
            return torch.matmul(
                round_significand(a, significant_bits, toward_zero=toward_zero),
                round_significand(b, significant_bits, toward_zero=toward_zero),
            )

    return product


def round_significand(x: Tensor, significant_bits: int, *, toward_zero: bool = False) -> Tensor:
    """float32 `x` rounded to `significant_bits` (the leading one included), to nearest even or toward zero.

    Works on the bit pattern, where a carry out of the significand rightly enters the exponent. Infinities stay; NaN
    stays NaN because its upper payload bit is kept.
    """
    dropped = 24 - significant_bits
    bits = x.contiguous().view(torch.int32)
    if not toward_zero:
        odd = (bits >> dropped) & 1
        rounded = bits + ((1 << (dropped - 1)) - 1) + odd
        bits = torch.where(torch.isfinite(x), rounded, bits)
    return ((bits >> dropped) << dropped).view(torch.float32)


def permitted_variants(precision: str) -> list[Variant]:
    """The implementations that the noise floor of `precision` is taken over."""
    plain = contextlib.nullcontext
    if precision == "tf32":
        nearest = rounded_operands(TF32_SIGNIFICANT_BITS)
        truncated = rounded_operands(TF32_SIGNIFICANT_BITS, toward_zero=True)
        return [
            Variant("operands to nearest", "unfused", lambda: MatrixProductMode(nearest)),
            Variant("operands toward zero", "unfused", lambda: MatrixProductMode(truncated)),
        ]
    variants = [
        Variant("fused", "fused", plain),
        Variant("unfused", "unfused", plain),
        Variant("serial", "unfused", lambda: MatrixProductMode(serial_product)),
    ]
    if precision in _NARROW_SIGNIFICANT_BITS:
        operands = rounded_operands(_NARROW_SIGNIFICANT_BITS[precision])
        variants.append(
            Variant("wide activations", "unfused", lambda: MatrixProductMode(operands), compute_dtype=torch.float32)
        )
    return variants
