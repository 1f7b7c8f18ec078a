"""How far softmax, log-softmax, log-sum-exp and cross-entropy may lie from their exact values, element by element.

Rows lie along the last axis. With m the maximum of a row, z_i = x_i - m <= 0, e_i = exp(z_i), s = sum e, p = e / s,
S = sum_j p_j |z_j|, and u the unit roundoff of float32 (of the accumulator, if that is coarser):

* exp: z_i is one subtraction, and at most two more roundings where 2^(z log2 e) is computed instead, so the argument is
  off by 3 u |z_i| and e_i relatively by 3 u |z_i| + E_exp, E_exp being the error allowed to the function;
* sum: each term brings its own error and the sum `growth(n)`, so s is relatively off by 3 u S + E_exp + growth(n);
* logarithm: log s is off by that relative error and by E_log |log s|.

The maximum itself is exact. (Blanchard, Higham and Higham, "Accurately computing the log-sum-exp and softmax
functions", IMA J. Numer. Anal. 41(4), 2021, derive the same terms for the form that subtracts the maximum.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor

from trnbench.conformance.arithmetic import CONFIDENCE, Arithmetic

if TYPE_CHECKING:
    from trnbench.conformance.implementation import Tensors


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Exact quantities of each row in float64, and how far float32 may be off; notation of the module."""

    distance: Tensor
    """|z|, shaped as the logits."""

    probability: Tensor
    log_probability: Tensor
    log_sum: Tensor
    """log s, one a row."""

    exp_error: Tensor
    """Relative, of each exponential."""

    sum_error: Tensor
    """Relative, of their sum, one a row; below 1."""

    @property
    def log_sum_error(self) -> Tensor:
        """Absolute error of log s from that of s: -log(1 - sum_error)."""
        return -torch.log1p(-self.sum_error)


def row(x: Tensor, arithmetic: Arithmetic) -> Row:
    """The quantities above for logits `x`."""
    logits = x.double()
    unit = arithmetic.accumulator_unit
    distance = (logits - logits.amax(-1, keepdim=True)).abs()
    log_probability = logits.log_softmax(-1)
    probability = log_probability.exp()
    # Inputs taken as zero move two logits, the maximum and this one, by less than a least normal number each.
    flushed = 2.0 * flushed_input(arithmetic)
    exp_error = torch.expm1(3.0 * unit * distance + flushed) + arithmetic.function("exp")
    sum_error = (probability * exp_error).sum(-1, keepdim=True) + arithmetic.growth(x.shape[-1])
    return Row(
        distance=distance,
        probability=probability,
        log_probability=log_probability,
        log_sum=torch.log(torch.exp(-distance).sum(-1, keepdim=True)),
        exp_error=exp_error,
        sum_error=sum_error.clamp(max=1.0),
    )


def flushed_input(arithmetic: Arithmetic) -> float:
    """Largest change of an input that a device may take as zero."""
    return torch.finfo(arithmetic.dtype).tiny if arithmetic.flushes_subnormals else 0.0


def float32_underflow(arithmetic: Arithmetic) -> float:
    """Absolute error of a float32 intermediate that underflows, rounded to nearest; a function may be off by twice."""
    facts = torch.finfo(torch.float32)
    return facts.tiny if arithmetic.flushes_subnormals else facts.smallest_normal * facts.eps / 2.0


def spread(terms: Tensor, arithmetic: Arithmetic) -> Tensor:
    """Largest |sum of terms| along the last axis, kept, whose signs are unknown.

    Hard: sum |terms|. Probabilistic: lambda sqrt(sum terms^2) if that is less, by Hoeffding's inequality: the terms are
    products with cotangents, which are drawn with random signs, independent of any rounding.
    """
    magnitudes = terms.abs()
    hard = magnitudes.sum(-1, keepdim=True)
    if arithmetic.bounds == "hard":
        return hard
    return torch.minimum(hard, CONFIDENCE * magnitudes.square().sum(-1, keepdim=True).sqrt())


def probability_error(known: Row, arithmetic: Arithmetic) -> Tensor:
    """Absolute error of p in float32: p ((1 + exp_error)(1 + 4 u) / (1 - sum_error) - 1).

    4 u are a division, or a reciprocal of 2 ulp and a product.
    """
    quotient = (1.0 + known.exp_error) * (1.0 + 4.0 * arithmetic.accumulator_unit) / (1.0 - known.sum_error)
    return known.probability * (quotient - 1.0) + 3.0 * float32_underflow(arithmetic)


def softmax_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """p's error in float32, enlarged by the one rounding of the result: u_o (p + error) + smallest."""
    (x,) = inputs
    known = row(x, arithmetic)
    error = probability_error(known, arithmetic)
    return (error + arithmetic.output_unit * (known.probability + error) + arithmetic.smallest,)


def softmax_gradient_bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
    """dx = p (g - t), t = sum_j p_j g_j, from the saved p, which is already rounded to the output dtype.

    * t: each saved p_j is off by b_j, the bound of the forward pass. What the p_j of a row have in common (their sum's
      error) scales t as a whole, so it counts once with |t|; the rest, exponentials and the rounding to the dtype, adds
      up as `spread` says. The products and their sum add growth(n) sum_j p_j |g_j|.
    * dx: b_i |g_i - t| + (p_i + b_i) (error of t), then at most three roundings of terms no larger than p (|g| + |t|),
      for p g - p t is also permitted (products
      that may underflow), and the rounding of the result.
    """
    (x,), (g,) = inputs, cotangents
    known = row(x, arithmetic)
    cotangent = g.double()
    unit, flushed = arithmetic.accumulator_unit, flushed_input(arithmetic)
    (saved,) = softmax_bound(inputs, arithmetic)
    p = known.probability
    products = p * cotangent
    total = products.sum(-1, keepdim=True)
    common = p * known.sum_error / (1.0 - known.sum_error)
    own = (saved - common).clamp(min=0.0)
    magnitude = products.abs().sum(-1, keepdim=True)
    total_error = spread(own * cotangent, arithmetic) + total.abs() * known.sum_error / (1.0 - known.sum_error)
    total_error += arithmetic.growth(x.shape[-1]) * magnitude + flushed * (1.0 + cotangent.abs().amax(-1, keepdim=True))
    gradient = p * (cotangent - total)
    error = saved * (cotangent - total).abs() + (p + saved) * (total_error + flushed)
    error += 3.0 * unit * (p + saved) * (cotangent.abs() + total.abs()) + 3.0 * float32_underflow(arithmetic)
    return (error + arithmetic.output_unit * (gradient.abs() + error) + arithmetic.smallest,)


def log_probability_error(known: Row, arithmetic: Arithmetic) -> Tensor:
    """Absolute error of (x - m) - log s in float32: u (|z| + |y|), log s's own, and E_log |log s|.

    Adding m + log s first would bring u |m|, which an offset makes arbitrarily large: that order is not permitted.
    """
    unit = arithmetic.accumulator_unit
    own = unit * (known.distance + known.log_probability.abs() + known.log_sum.abs())
    inner = known.log_sum_error + arithmetic.function("log") * known.log_sum.abs()
    return own + inner + 2.0 * flushed_input(arithmetic)


def log_softmax_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """The error in float32 and the one rounding of the result."""
    (x,) = inputs
    known = row(x, arithmetic)
    error = log_probability_error(known, arithmetic)
    return (error + arithmetic.output_unit * (known.log_probability.abs() + error) + arithmetic.smallest,)


def log_softmax_gradient_bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
    """dx = g - p G, G = sum_j g_j, with p = exp(y) from the saved y, which is already rounded to the output dtype.

    y off by b (the forward bound) makes p relatively off by exp(b) - 1, which near y = -10 is ten roundings: a property
    of the definition, for y is what autograd saves. G is off by growth(n) sum |g|. Then exp's error, two roundings of
    the product, one of the difference, and that of the result.
    """
    (x,), (g,) = inputs, cotangents
    known = row(x, arithmetic)
    cotangent = g.double()
    unit = arithmetic.accumulator_unit
    (saved,) = log_softmax_bound(inputs, arithmetic)
    p = known.probability
    total = cotangent.sum(-1, keepdim=True)
    total_error = arithmetic.growth(x.shape[-1]) * cotangent.abs().sum(-1, keepdim=True)
    total_error += x.shape[-1] * flushed_input(arithmetic)
    p_error = p * (torch.expm1(saved) + arithmetic.function("exp") + 2.0 * unit) + 2.0 * float32_underflow(arithmetic)
    gradient = cotangent - p * total
    error = p_error * (total.abs() + total_error) + p * total_error
    error += unit * (cotangent.abs() + p * total.abs() + gradient.abs()) + flushed_input(arithmetic)
    return (error + arithmetic.output_unit * (gradient.abs() + error) + arithmetic.smallest,)


def logsumexp_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """y = m + log s: log s's errors, one float32 rounding, and that of the result.

    m and log s may cancel; the error stays that of log s, u |y| being the rounding of their sum.
    """
    (x,) = inputs
    known = row(x, arithmetic)
    exact = x.double().logsumexp(-1, keepdim=True)
    error = known.log_sum_error + arithmetic.function("log") * known.log_sum.abs() + flushed_input(arithmetic)
    error += arithmetic.accumulator_unit * (exact.abs() + known.log_sum.abs())
    return ((error + arithmetic.output_unit * (exact.abs() + error) + arithmetic.smallest).squeeze(-1),)


def logsumexp_gradient_bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
    """dx = g exp(x - y) with the saved y, off by b (the forward bound): p (exp(b) - 1), and that of x - y and exp."""
    (x,), (g,) = inputs, cotangents
    known = row(x, arithmetic)
    (saved,) = logsumexp_bound(inputs, arithmetic)
    unit = arithmetic.accumulator_unit
    exponent = saved.unsqueeze(-1) + 3.0 * unit * known.log_probability.abs() + 2.0 * flushed_input(arithmetic)
    cotangent = g.double().unsqueeze(-1).abs()
    relative = torch.expm1(exponent) + arithmetic.function("exp") + 2.0 * unit
    error = (known.probability * relative + 2.0 * float32_underflow(arithmetic)) * cotangent + flushed_input(arithmetic)
    gradient = known.probability * cotangent
    return (error + arithmetic.output_unit * (gradient + error) + arithmetic.smallest,)


def cross_entropy_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """L = lse - x_t, one a row, as -log_softmax at the target or as a difference of the two.

    The second is permitted too, for a fused loss keeps lse alone, so u (2 |lse| + 2 |m| + |x_t|) is added.
    """
    x, target = inputs
    known = row(x, arithmetic)
    logits = x.double()
    at = target.unsqueeze(-1)
    loss = known.log_probability.gather(-1, at).abs()
    largest = logits.amax(-1, keepdim=True)
    lse = logits.logsumexp(-1, keepdim=True)
    error = log_probability_error(known, arithmetic).gather(-1, at)
    error += arithmetic.accumulator_unit * (2.0 * lse.abs() + 2.0 * largest.abs() + logits.gather(-1, at).abs())
    return ((error + arithmetic.output_unit * (loss + error) + arithmetic.smallest).squeeze(-1),)


def cross_entropy_gradient_bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
    """dx = (p - onehot) g, an absolute bound in p: p_t - 1 cancels for a confident token, and its error does not.

    p comes from saved log-probabilities rounded to the output dtype, or from a saved lse: relatively off by exp(b) - 1
    with b = u_o |y| + the float32 errors of both ways. Near p = 1 y is small and so is b, therefore p - 1 is still
    accurate to u_o (1 - p) and the float32 error; a p rounded to the dtype itself would be off by u_o p.
    """
    x, target = inputs
    (g,) = cotangents
    known = row(x, arithmetic)
    logits = x.double()
    unit = arithmetic.accumulator_unit
    sizes = logits.logsumexp(-1, keepdim=True).abs() + logits.amax(-1, keepdim=True).abs() + logits.abs()
    exponent = log_probability_error(known, arithmetic) + 2.0 * unit * sizes
    exponent += arithmetic.output_unit * (known.log_probability.abs() + exponent) + arithmetic.smallest
    p = known.probability
    cotangent = g.double().unsqueeze(-1).abs()
    onehot = torch.zeros_like(p).scatter_(-1, target.unsqueeze(-1), 1.0)
    p_error = p * (torch.expm1(exponent) + arithmetic.function("exp") + 2.0 * unit) + 2.0 * float32_underflow(
        arithmetic
    )
    gradient = (p - onehot).abs() * cotangent
    error = (p_error + 2.0 * unit * (p + onehot)) * cotangent + 2.0 * unit * gradient + flushed_input(arithmetic)
    return (error + arithmetic.output_unit * (gradient + error) + arithmetic.smallest,)
