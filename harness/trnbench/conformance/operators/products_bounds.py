"""Matrix products in float64, and how far a correct one may be off, element by element.

Every operator of the family is brought to one form first: contractions over the last axis of `left` and the second to
last of `right`. The bounds are those of an inner product (Higham, "Accuracy and Stability of Numerical Algorithms",
2002, section 3.1), with the constants of `Arithmetic`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.arithmetic import SIGNIFICANT_BITS

if TYPE_CHECKING:
    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Tensors


def product_error(left: Tensor, right: Tensor, arithmetic: Arithmetic, bias: Tensor | None = None) -> Tensor:
    """Error of left @ right (+ bias) before the last rounding; left [..., M, K], right [..., K, N], bias [N].

    Three parts add up, with S = |left| |right| (+ |bias|):

    * sums: growth(K) S. Products of 16-bit numbers are exact in float32; those of float32 numbers are rounded once,
      unless fused, which makes K roundings a term with the K - 1 additions, in whatever order. A bias is one more.
    * operands: ((1 + e)^2 - 1) S with e = operand_unit, nothing except for tf32. A subnormal operand loses up to the
      spacing of its shortened significand at the least normal number, tiny 2^-10, whatever its size.
    * underflow: every product of float32 may lose half the least subnormal; sums of subnormals are exact. Where
      subnormals are flushed, operands below `tiny` may count as zero and every product and partial sum below tiny
      may vanish.
    """
    a, b = left.double(), right.double()
    terms = a.shape[-1] + (0 if bias is None else 1)
    size = a.abs() @ b.abs()
    if bias is not None:
        size = size + bias.double().abs()
    operands = (1.0 + arithmetic.operand_unit) ** 2 - 1.0
    error = (arithmetic.growth(terms) * (1.0 + operands) + operands) * size
    single = torch.finfo(torch.float32)
    if arithmetic.operand_unit:
        lost = single.tiny * 2.0 ** (1 - SIGNIFICANT_BITS["tf32"])
        error = error + lost * (a.abs().sum(-1, keepdim=True) + b.abs().sum(-2, keepdim=True))
    if arithmetic.flushes_subnormals:
        error = error + (_subnormal(left) @ b.abs() + a.abs() @ _subnormal(right) + 2 * terms * single.tiny)
        return error if bias is None else error + _subnormal(bias)
    return error + terms * single.smallest_normal * single.eps / 2.0


def rounded_error(error: Tensor, exact: Tensor, arithmetic: Arithmetic, roundings: int = 1) -> Tensor:
    """Error after rounding to the output dtype: u |y| + (1 + u) error + underflow, `roundings` times.

    From |fl(x) - y| <= |x - y| + u |x| + underflow and |x| <= |y| + |x - y|.
    """
    unit = arithmetic.output_unit
    for _ in range(roundings):
        error = unit * exact.abs() + (1.0 + unit) * error + arithmetic.smallest
    return error


def product_bound(left: Tensor, right: Tensor, arithmetic: Arithmetic) -> Tensor:
    """Largest error of left @ right rounded once to the output dtype, [..., M, N]."""
    exact = left.double() @ right.double()
    return rounded_error(product_error(left, right, arithmetic), exact, arithmetic)


def linear_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """Largest error of x w^T + b, inputs x [..., K], w [N, K], b [N].

    One rounding where the bias is added in the accumulator. Where the passport found two, the product is rounded to
    the output dtype first, u |x w^T| more, and the sum is rounded again.
    """
    x, weight, bias = inputs
    product = x.double() @ weight.double().mT
    exact = product + bias.double()
    if arithmetic.epilogue_roundings < 2:
        return (rounded_error(product_error(x, weight.mT, arithmetic, bias), exact, arithmetic),)
    first = rounded_error(product_error(x, weight.mT, arithmetic), product, arithmetic)
    flushed = _subnormal(bias) if arithmetic.flushes_subnormals else torch.zeros_like(bias, dtype=torch.float64)
    return (rounded_error(first + flushed, exact, arithmetic),)


def linear_oracle(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x w^T + b in float64, where products of float32 numbers are exact and sums keep 53 bits."""
    return x.double() @ weight.double().mT + bias.double()


def linear_gradient_oracle(inputs: Tensors, cotangents: Tensors) -> Tensors:
    """Gradients of x [..., K], w [N, K] and b [N]: G w, G^T x and the sum of the rows of G."""
    x, weight, _ = inputs
    rows, of_rows = cotangents[0].double().flatten(0, -2), x.double().flatten(0, -2)
    return cotangents[0].double() @ weight.double(), rows.mT @ of_rows, rows.sum(0)


def linear_gradient_bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
    """Bounds of the gradients of x (contraction over N), w and b (both over all rows): each a product of its own.

    The bias gradient is the product of a row of ones with G; ones are exact in every format.
    """
    x, weight, _ = inputs
    rows, of_rows = cotangents[0].flatten(0, -2), x.flatten(0, -2)
    ones = torch.ones((1, rows.shape[0]), dtype=rows.dtype)
    return (
        product_bound(cotangents[0], weight, arithmetic),
        product_bound(rows.mT, of_rows, arithmetic),
        product_bound(ones, rows, arithmetic)[0],
    )


def _subnormal(tensor: Tensor) -> Tensor:
    """Magnitudes in float64 of the entries that are subnormal in the tensor's own dtype, zero elsewhere."""
    wide = tensor.double().abs()
    return torch.where(wide < torch.finfo(tensor.dtype).tiny, wide, torch.zeros_like(wide))
