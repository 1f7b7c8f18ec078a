"""How far the gradients of attention may be off, element by element, derived from the bounds of its forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.operators.attention_bounds import (
    forward_bound,
    operand_error,
    raised,
    rounding,
    score_error,
    underflow,
    vanishing,
    weight_unit,
)
from trnbench.conformance.operators.attention_oracle import differentiated, over_groups

if TYPE_CHECKING:
    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Tensors
    from trnbench.conformance.operators.attention_oracle import Attended


def probability_error(exact: Attended, arithmetic: Arithmetic) -> Tensor:
    """Largest error of P [B, H, Q, K] as the backward pass recomputes it, exp(s - lse) from a stored lse.

    The exponent is off by ds (see `score_error`), by log sum_j p_j exp(ds_j) and c(K) u for the sum that lse is the
    logarithm of, by the logarithm's own error, and by 2 u |lse| for storing lse in float32, to base e or 2. Where the
    mask absorbs the scores of a whole row, lse absorbs the sum as well and P would be 1 instead of 1/K: maximum and
    sum must be kept apart there, so storing them costs nothing.
    """
    error = score_error(exact, arithmetic)
    unit, keys = arithmetic.accumulator_unit, exact.key.shape[-2]
    sum_error = torch.log1p(raised(exact, error).sum(-1, keepdim=True))
    stored = 2.0 * unit * (exact.peak + exact.log_sum).abs() + arithmetic.function("log") * exact.log_sum.abs()
    lost = (exact.absorbed & (exact.scores == exact.peak)).any(-1, keepdim=True)
    stored = torch.where(lost, torch.zeros_like(stored), stored)
    whole = error + sum_error + arithmetic.growth(keys) + stored + 2.0 * unit
    return torch.clamp(torch.nan_to_num(raised(exact, whole), nan=1.0), max=1.0) * exact.visible


def gradient_bound(exact: Attended, cotangent: Tensor, arithmetic: Arithmetic) -> Tensors:
    """Largest absolute errors of dQ [B, H, Q, D], dK and dV [B, kv_heads, K, D].

    With a_ij the error of P (`probability_error`), u_p the rounding of P and dS to the operands' format, g the
    cotangent, c(n) the growth of a sum of n products (rounded factors included), and u the accumulator's unit:

    - dV_j = sum_i P_ij g_i: sum_i a_ij |g_i| + u_p-rounding of P + c(Q) sum_i P_ij |g_i|.
    - dP_ij = g_i . v_j: c(D) |g_i| . |v_j| = e_ij.
    - delta_i, as g_i . o_i with the stored output (error of o from `forward_bound`, then c(D) |g_i| . |o_i|) or as
      sum_j P_ij dP_ij (a_ij and u_p P_ij times |dP_ij - delta_i|, P_ij e_ij, and c(K) sum_j P_ij |dP_ij|): the larger
      one, f_i.
    - dS_ij = P_ij (dP_ij - delta_i): h_ij = a_ij |dP_ij - delta_i| + P_ij (e_ij + f_i + 4 u |dP_ij| + 4 u |delta_i|),
      and two roundings to the operands' format, of a stored P and of dS: 2 u_p |dS_ij|, or their underflow.
    - dQ_i = scale sum_j dS_ij k_j: scale (sum_j h_ij |k_j| + rounding of dS + c(K) sum_j |dS_ij||k_j|) + 4 u |dQ_i|;
      dK_j alike over queries.

    Each ends with one rounding to the output's dtype; where query heads share a key and value head, each head's share
    may be rounded before they are added. dP itself must not be rounded: its errors of u |dP| do not shrink with
    dP - delta, which vanishes where values are alike.
    """
    gradient, unit = cotangent.double(), arithmetic.accumulator_unit
    exactly = differentiated(exact, cotangent)
    keys, depth = exact.key.shape[-2], exact.query.shape[-1]
    least, coarse = underflow(arithmetic), weight_unit(arithmetic)
    error = probability_error(exact, arithmetic)
    likely = torch.clamp(exact.probabilities + error, max=1.0)

    inner_error = operand_error(arithmetic, depth) * (gradient.abs() @ exact.value.abs().transpose(-1, -2))
    inner_error = inner_error + depth * least
    if arithmetic.flushes_subnormals:
        tiny = float(torch.finfo(arithmetic.dtype).tiny)
        inner_error = inner_error + tiny * gradient.abs().sum(-1, keepdim=True)
    difference = (exactly.inner - exactly.mean).abs()
    by_output = (gradient.abs() * forward_bound(exact, arithmetic)).sum(-1, keepdim=True)
    by_output = by_output + arithmetic.growth(depth) * (gradient * exact.output).abs().sum(-1, keepdim=True)
    by_weights = (error + coarse * likely) * difference + likely * inner_error
    by_weights = by_weights + arithmetic.growth(keys) * likely * exactly.inner.abs()
    mean_error = torch.maximum(by_output, by_weights.sum(-1, keepdim=True))
    score_error_ = (error + vanishing(likely, arithmetic)) * difference + likely * (inner_error + mean_error)
    score_error_ = score_error_ + 4.0 * unit * likely * (exactly.inner.abs() + exactly.mean.abs())
    score_size = exactly.scores.abs() + score_error_

    def product(sizes: Tensor, errors: Tensor, roundings: float, factors: Tensor, scale: float) -> Tensor:
        """Error of sizes @ factors, before the output is rounded."""
        terms = sizes.shape[-1]
        total = errors @ factors.abs() + rounding(roundings * coarse * sizes, factors, arithmetic)
        total = total + (vanishing(sizes, arithmetic, 1.0 / scale) + least) @ factors.abs()
        total = total + operand_error(arithmetic, terms) * (sizes @ factors.abs()) + terms * least
        return scale * total

    def finished(value: Tensor, inner: Tensor, group: int) -> Tensor:
        """Every head's rounding, the sum over a group, and the rounding of that sum."""
        inner = inner + 4.0 * unit * value.abs()
        total = over_groups(value, group)
        if group > 1:
            inner = over_groups(inner + (arithmetic.output_unit + unit * group) * (value.abs() + inner), group)
        return inner + arithmetic.output_unit * (total.abs() + inner) + group * arithmetic.smallest

    over_keys = (score_size.transpose(-1, -2), score_error_.transpose(-1, -2))
    query = product(score_size, score_error_, 2.0, exact.key, exact.scale)
    key = product(*over_keys, 2.0, exact.query, exact.scale)
    value = product(likely.transpose(-1, -2), error.transpose(-1, -2), 1.0, gradient, 1.0)
    return (
        finished(exactly.query, query, 1),
        finished(exactly.key, key, exact.group),
        finished(exactly.value, value, exact.group),
    )
