"""How far attention may be off, element by element: scores, probabilities, output.

Scores must stay in the accumulator's format. Those rounded to 16 bits before the softmax, as in eager attention that
stores them, add u |s| to every exponent: that is a looser implementation, which the checks of whole models permit but
`scaled_dot_product_attention` is held against (PyTorch's documentation: "all intermediates are kept in torch.float").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor

from trnbench.conformance.arithmetic import CONFIDENCE

if TYPE_CHECKING:
    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.operators.attention_oracle import Attended

LEAST_FLOAT32 = torch.finfo(torch.float32).tiny


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what the softmax returns, [B, H, Q, K].

    `scores`: largest error of an exponent. `excess`: of an unnormalised weight, relative to the exact sum of a row;
    `norm` [B, H, Q, 1]: the least that the computed sum may be, relative to the exact one.
    """

    scores: Tensor
    excess: Tensor
    norm: Tensor


def operand_error(arithmetic: Arithmetic, terms: int) -> float:
    """Relative error of an inner product of `terms` products whose two factors may be taken in rounded (tf32)."""
    factors = (1.0 + arithmetic.operand_unit) ** 2 - 1.0
    return factors + (1.0 + factors) * arithmetic.growth(terms)


def weight_unit(arithmetic: Arithmetic) -> float:
    """Relative error with which P and dS enter a matrix product: they may be rounded to its operands' format."""
    return arithmetic.output_unit if arithmetic.dtype != torch.float32 else arithmetic.operand_unit


def underflow(arithmetic: Arithmetic) -> float:
    """Absolute error of one product in float32 that underflows."""
    return LEAST_FLOAT32 if arithmetic.flushes_subnormals else LEAST_FLOAT32 * 2.0**-24


def score_error(exact: Attended, arithmetic: Arithmetic) -> Tensor:
    """Largest error ds_ij of an exponent, and of exp itself, as an absolute error of s_ij [B, H, Q, K].

    The inner product contributes scale c(D) sum |q||k| (see `operand_error`). Each of these rounds once more: scale
    itself, the product with it, and the same twice again where the scale is folded into both factors or the exponent
    is taken to base 2: 4 u |q . k| scale. The mask's addition gives u |s|, subtraction of the row's maximum (and that
    of intermediate maxima, whose differences add up to at most the same) 2 u |s - max|, and exp its own relative error.
    An error that all s of a row share cancels in the quotient, so none of the maximum itself counts.
    Where the mask absorbs the product altogether (the dtype's own minimum in float32 and bfloat16), rounding to
    nearest returns the mask whatever the product is: no error. Truncation may return its neighbour instead, a whole
    unit of 2^104 away: nothing is promised then.
    """
    unit, depth = arithmetic.accumulator_unit, exact.query.shape[-1]
    magnitudes = exact.scale * (exact.query.abs() @ exact.key.abs().transpose(-1, -2))
    error = operand_error(arithmetic, depth) * magnitudes + 4.0 * unit * exact.products.abs()
    if arithmetic.flushes_subnormals:
        least = float(torch.finfo(arithmetic.dtype).tiny)
        sums = exact.query.abs().sum(-1, keepdim=True) + exact.key.abs().sum(-1)[..., None, :]
        error = error + exact.scale * least * sums
    error = error + unit * exact.scores.abs()
    error = torch.where(exact.absorbed, torch.inf if arithmetic.accumulates_toward_zero else 0.0, error)
    error = error + 2.0 * unit * (exact.scores - exact.peak).abs() + arithmetic.function("exp")
    return torch.where(exact.visible, error, torch.zeros_like(error))


def weights(exact: Attended, arithmetic: Arithmetic) -> Weights:
    """What errors of the exponents do to the weights, to all orders.

    With |e_j| <= ds_j the computed row is p_j exp(e_j) / sum_k p_k exp(e_k), of which numerators exceed p_j by at most
    p_j (exp(ds_j) - 1), and the sum is at least sum_k p_k exp(-ds_k).
    """
    error = score_error(exact, arithmetic)
    return Weights(
        scores=error,
        excess=raised(exact, error),
        norm=(exact.log_probabilities - error).exp().sum(-1, keepdim=True),
    )


def raised(exact: Attended, error: Tensor) -> Tensor:
    """p (exp(error) - 1) without cancellation or overflow times zero; 0 for hidden keys."""
    small = exact.probabilities * torch.expm1(error.clamp(max=1.0))
    large = (exact.log_probabilities + error).exp()
    return torch.where(exact.visible, torch.where(error < 1.0, small, large), torch.zeros_like(small))


def forward_bound(exact: Attended, arithmetic: Arithmetic) -> Tensor:
    """Largest absolute error of the output [B, H, Q, D].

    1. Weights: since sum_j p_j (v_j - o) = 0, o_hat - o = sum_j p_j (exp(e_j) - 1)(v_j - o) / sum_j p_j exp(e_j), at
       most sum_j excess_j |v_j - o| / norm. A softmax is never negative, so o_hat also stays among the values that it
       averages: at most max_j |v_j - o| over all keys, which takes over where exponents are not determined (huge scores
       in tf32).
    2. P rounded to the operands' format, before or after the division, with the sum taken of either: u_p p_j times
       |v_j| or |v_j - o|, and an underflow to zero or to the nearest subnormal. Hard: the sum; probabilistic:
       lambda times the root of the sum of squares, but truncated tf32 operands keep the sum.
    3. Sums of K terms above and below the fraction: c(K) u (sum_j p_j |v_j| + |o|); exp and rescaling by
       block maxima are in ds, the division and the last rescaling in 4 u |o|. V may be taken in as tf32.
    4. Underflow: exp below 2^-126 may vanish, one product may, and the result.
    5. One rounding to the output's dtype, of the computed value.
    """
    found = weights(exact, arithmetic)
    likely = torch.clamp(exact.probabilities + found.excess / found.norm, max=1.0)
    likely = torch.nan_to_num(likely, nan=1.0) * exact.visible
    keys = exact.key.shape[-2]
    average, total = likely @ exact.value.abs(), exact.visible.double() @ exact.value.abs()
    inner = (arithmetic.growth(keys) + arithmetic.operand_unit) * average
    inner = inner + (arithmetic.growth(keys) + 4.0 * arithmetic.accumulator_unit) * exact.output.abs()
    inner = (
        _shifted(exact, found)
        + _rounded(exact, likely, arithmetic)
        + inner
        + LEAST_FLOAT32 * total
        + keys * underflow(arithmetic)
    )
    if arithmetic.flushes_subnormals:
        inner = inner + torch.finfo(arithmetic.dtype).tiny
    return inner + arithmetic.output_unit * (exact.output.abs() + inner) + arithmetic.smallest


def rounding(errors: Tensor, factors: Tensor, arithmetic: Arithmetic) -> Tensor:
    """Effect of independent errors of weights [.., I, J] on their product with factors [.., J, D]: [.., I, D].

    Hard: their sum. Probabilistic: lambda times the root of the sum of squares (Higham and Mary 2019, theorem 2.4),
    which needs errors of mean zero, so that truncation keeps the sum.
    """
    if arithmetic.bounds == "hard" or arithmetic.operand_unit > 0.0:
        return errors @ factors.abs()
    return CONFIDENCE * ((errors * errors) @ (factors * factors)).sqrt()


def vanishing(weights_: Tensor, arithmetic: Arithmetic, scale: float = 1.0) -> Tensor:
    """Absolute error of weights that underflow in their format: at most themselves."""
    if arithmetic.dtype == torch.float32:
        return torch.zeros_like(weights_)
    return torch.clamp(weights_, max=arithmetic.smallest * scale)


def _distances(weights_: Tensor, exact: Attended) -> Tensor:
    """sum_j w_j (v_j - o)^2 for non-negative w [.., Q, K]: [.., Q, D], multiplied out into matrix products."""
    value, output = exact.value, exact.output
    squares = weights_ @ (value * value) - 2.0 * output * (weights_ @ value)
    return torch.clamp(squares + output * output * weights_.sum(-1, keepdim=True), min=0.0)


def _averaged(weights_: Tensor, exact: Attended) -> Tensor:
    """At least sum_j w_j |v_j - o|, by Cauchy and Schwarz: the root of sum_j w_j times sum_j w_j (v_j - o)^2."""
    return (weights_.sum(-1, keepdim=True) * _distances(weights_, exact)).sqrt()


def _shifted(exact: Attended, found: Weights) -> Tensor:
    """Part 1 of the forward bound, [B, H, Q, D]."""
    average = torch.nan_to_num(_averaged(found.excess, exact) / found.norm, nan=torch.inf, posinf=torch.inf)
    above = exact.value.amax(-2, keepdim=True) - exact.output
    below = exact.output - exact.value.amin(-2, keepdim=True)
    return torch.minimum(average, torch.maximum(above, below) * exact.visible.any(-1, keepdim=True))


def _rounded(exact: Attended, likely: Tensor, arithmetic: Arithmetic) -> Tensor:
    """Part 2 of the forward bound, [B, H, Q, D]."""
    errors, lost = weight_unit(arithmetic) * likely, vanishing(likely, arithmetic)
    before = rounding(errors, exact.value, arithmetic)
    if arithmetic.bounds == "hard" or arithmetic.operand_unit > 0.0:
        after = _averaged(errors, exact)
    else:
        after = CONFIDENCE * _distances(errors * errors, exact).sqrt()
    return torch.maximum(before, after) + lost @ exact.value.abs() + lost.sum(-1, keepdim=True) * exact.output.abs()
