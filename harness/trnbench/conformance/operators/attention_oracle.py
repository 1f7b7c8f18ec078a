"""Attention in float64 on the device's own rounded inputs, with the intermediate results that its bounds are made of.

    s_ij = scale * q_i . k_j + mask_ij,   p_ij = exp(s_ij - lse_i),   o_i = sum_j p_ij v_j,   scale = head_dim ** -0.5

(Vaswani et al., "Attention is all you need", 2017, equation 1.) Hidden keys have s = -inf. A row in which a boolean
mask hides every key has no softmax: its output and its gradients are zero, as in PyTorch since 2.5 on every kernel
(pytorch/pytorch#103749), never NaN.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor

if TYPE_CHECKING:
    from trnbench.conformance.implementation import Tensors


class Visibility(msgspec.Struct, frozen=True, kw_only=True):
    """Which keys a query sees by position: with `causal` none after its own, with `window` its last `window` ones."""

    causal: bool = False
    window: int | None = None

    def mask(self, queries: int, keys: int, device: torch.device | None = None) -> Tensor:
        """Boolean [queries, keys], true where the query in that row sees the key in that column."""
        behind = torch.arange(queries, device=device)[:, None] - torch.arange(keys, device=device)[None, :]
        visible = torch.ones_like(behind, dtype=torch.bool)
        if self.causal:
            visible = visible & (behind >= 0)
        if self.window is not None:
            visible = visible & (behind < self.window)
        return visible


class Attended(msgspec.Struct, frozen=True, kw_only=True):
    """Exact intermediates, float64; heads of key and value are repeated for their group of query heads.

    query, output [B, H, Q, D]; key, value [B, H, K, D]; all others [B, H, Q, K], or [B, H, Q, 1] for `peak` (largest
    score of a row, 0 where it sees nothing) and `log_sum` (lse - peak). `products` are the scaled products before the
    mask is added, `absorbed` says where the mask is so large that the sum is the mask itself.
    """

    scale: float
    group: int
    query: Tensor
    key: Tensor
    value: Tensor
    visible: Tensor
    products: Tensor
    scores: Tensor
    absorbed: Tensor
    peak: Tensor
    log_sum: Tensor
    log_probabilities: Tensor
    probabilities: Tensor
    output: Tensor


def repeated(heads: Tensor, group: int) -> Tensor:
    """[B, kv_heads, K, D] -> [B, kv_heads * group, K, D]: each head for `group` neighbouring query heads."""
    return heads.repeat_interleave(group, dim=1) if group > 1 else heads


@functools.lru_cache(maxsize=4)
def attended(inputs: Tensors, visibility: Visibility) -> Attended:
    """All of it from query, key, value and, where there is a fourth input, a boolean or additive mask.

    Kept for the latest inputs, by identity: the oracle and both tiers of both bounds start from the same numbers.
    """
    query, key, value = (tensor.double() for tensor in inputs[:3])
    group = query.shape[1] // key.shape[1]
    key, value = repeated(key, group), repeated(value, group)
    scale = query.shape[-1] ** -0.5
    products = scale * (query @ key.transpose(-1, -2))
    visible = visibility.mask(query.shape[-2], key.shape[-2]).expand_as(products)
    scores, absorbed = products, torch.zeros_like(visible)
    if len(inputs) > 3 and inputs[3].dtype == torch.bool:
        visible = visible & inputs[3]
    elif len(inputs) > 3:
        mask = inputs[3].double().expand_as(products)
        scores = products + mask
        absorbed = (scores == mask) & (mask != 0.0)
        visible = visible & ~mask.isneginf()
    scores = scores.masked_fill(~visible, -torch.inf)
    peak = scores.amax(-1, keepdim=True)
    peak = torch.where(peak.isneginf(), torch.zeros_like(peak), peak)
    # The peak is subtracted first: beside a mask of -3.4e38 the logarithm of the sum would be lost, even in float64.
    log_sum = (scores - peak).exp().sum(-1, keepdim=True).log()
    log_sum = torch.where(log_sum.isneginf(), torch.zeros_like(log_sum), log_sum)
    log_probabilities = scores - peak - log_sum
    probabilities = log_probabilities.exp()
    return Attended(
        scale=scale,
        group=group,
        query=query,
        key=key,
        value=value,
        visible=visible,
        products=products,
        scores=scores,
        absorbed=absorbed,
        peak=peak,
        log_sum=log_sum,
        log_probabilities=log_probabilities,
        probabilities=probabilities,
        output=probabilities @ value,
    )


class Differentiated(msgspec.Struct, frozen=True, kw_only=True):
    """Exact gradients before heads of a group are added up, with `inner` = dP and `mean` = delta; float64."""

    inner: Tensor
    mean: Tensor
    scores: Tensor
    query: Tensor
    key: Tensor
    value: Tensor


def differentiated(exact: Attended, cotangent: Tensor) -> Differentiated:
    """The backward pass (Dao et al., "FlashAttention", 2022, appendix B.2) for the cotangent g [B, H, Q, D] of o:

    dV = P^T g,  dP = g V^T,  delta_i = sum_j P_ij dP_ij,  dS = P * (dP - delta),  dQ = scale dS K,  dK = scale dS^T Q.
    """
    gradient = cotangent.double()
    inner = gradient @ exact.value.transpose(-1, -2)
    mean = (exact.probabilities * inner).sum(-1, keepdim=True)
    scores = exact.probabilities * (inner - mean)
    return Differentiated(
        inner=inner,
        mean=mean,
        scores=scores,
        query=exact.scale * (scores @ exact.key),
        key=exact.scale * (scores.transpose(-1, -2) @ exact.query),
        value=exact.probabilities.transpose(-1, -2) @ gradient,
    )


def over_groups(heads: Tensor, group: int) -> Tensor:
    """Sum over the query heads that share a key and value head: [B, H, K, D] -> [B, H / group, K, D]."""
    batch, count, *rest = heads.shape
    return heads.reshape(batch, count // group, group, *rest).sum(2) if group > 1 else heads
