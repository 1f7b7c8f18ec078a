"""Softmaxes and losses that are broken on purpose, and correct ones in other orders and forms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from trnbench.conformance.implementation import HostImplementation, Implementation
from trnbench.conformance.mutants.base import Mutant

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trnbench.conformance.implementation import Tensors


def _bf16(values: Tensor) -> Tensor:
    return values.bfloat16().float()


def _softmax(function: Callable[[Tensor], Tensor]) -> Callable[[], Implementation]:
    """`function` forward; backward from its output, which is what autograd saves."""

    def backward(inputs: Tensors, cotangents: Tensors) -> Tensors:
        p, g = function(inputs[0]).float(), cotangents[0].float()
        return ((p * g - p * (p * g).sum(-1, keepdim=True)).to(inputs[0].dtype),)

    return lambda: HostImplementation(function, backward)


def _log_softmax(function: Callable[[Tensor], Tensor]) -> Callable[[], Implementation]:
    def backward(inputs: Tensors, cotangents: Tensors) -> Tensors:
        y, g = function(inputs[0]).float(), cotangents[0].float()
        return ((g - torch.exp(y) * g.flip(-1).sum(-1, keepdim=True)).to(inputs[0].dtype),)

    return lambda: HostImplementation(function, backward)


def _loss(log_probability: Callable[[Tensor], Tensor], step: int = 0) -> Callable[[], Implementation]:
    """Cross-entropy of the class `step` beyond the target, from log-probabilities."""

    def moved(inputs: Tensors) -> tuple[Tensor, Tensor]:
        return torch.arange(len(inputs[1])), (inputs[1] + step).remainder(inputs[0].shape[-1])

    def forward(*inputs: Tensor) -> Tensor:
        return -log_probability(inputs[0])[moved(inputs)].to(inputs[0].dtype)

    def backward(inputs: Tensors, cotangents: Tensors) -> Tensors:
        gradient = torch.exp(log_probability(inputs[0]).float())
        gradient[moved(inputs)] -= 1.0
        return ((gradient * cotangents[0].float()[:, None]).to(inputs[0].dtype),)

    return lambda: HostImplementation(forward, backward)


def _kept(values: Tensor) -> Tensor:
    return values


def _shifted(x: Tensor) -> Tensor:
    wide = x.float()
    return wide - wide.max(dim=-1, keepdim=True).values


def _stepwise_sum(terms: Tensor) -> Tensor:
    """One bfloat16 register that every term is added to in turn."""
    register = torch.zeros(terms.shape[:-1], dtype=torch.bfloat16)
    for column in terms.bfloat16().unbind(-1):
        register = register + column
    return register.float().unsqueeze(-1)


def _tiled_sum(terms: Tensor) -> Tensor:
    """128 bfloat16 lanes, a tile of 128 columns at a time, then one lane after the other."""
    tiles = torch.nn.functional.pad(terms, (0, -terms.shape[-1] % 128)).bfloat16()
    lanes = torch.zeros((*terms.shape[:-1], 128), dtype=torch.bfloat16)
    for start in range(0, tiles.shape[-1], 128):
        lanes = lanes + tiles[..., start : start + 128]
    return _stepwise_sum(lanes.float())


def _unshifted(x: Tensor) -> Tensor:
    powers = torch.exp2(x.float() * math.log2(math.e))
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)


def _rounded_exp(x: Tensor) -> Tensor:
    terms = _bf16(torch.exp(_shifted(x)))
    return (terms / terms.flip(-1).sum(-1, keepdim=True)).to(x.dtype)


def _bf16_register(x: Tensor) -> Tensor:
    terms = torch.exp(_shifted(x))
    return (terms / _stepwise_sum(terms)).to(x.dtype)


def _bf16_lanes(x: Tensor) -> Tensor:
    terms = torch.exp(_shifted(x))
    return (terms / _tiled_sum(terms)).to(x.dtype)


def _rounded_difference(x: Tensor) -> Tensor:
    largest = x.max(dim=-1, keepdim=True).values
    terms = torch.exp((x.bfloat16() - largest.bfloat16()).float())
    return (terms / terms.flip(-1).sum(-1, keepdim=True)).to(x.dtype)


def _rounded_reciprocal(x: Tensor) -> Tensor:
    terms = torch.exp(_shifted(x))
    return (terms * (1.0 / terms.flip(-1).sum(-1, keepdim=True)).bfloat16()).to(x.dtype)


def _log_probability(x: Tensor, logarithm: Callable[[Tensor], Tensor] = _kept) -> Tensor:
    shifted = _shifted(x)
    return (shifted - logarithm(torch.exp(shifted).flip(-1).sum(-1, keepdim=True).log())).to(x.dtype)


def _rounded_log_sum(x: Tensor) -> Tensor:
    return _log_probability(x, _bf16)


def _maximum_added_first(x: Tensor) -> Tensor:
    return (x.float() - torch.logsumexp(x.float(), dim=-1, keepdim=True)).to(x.dtype)


def _log_of_softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1).log()


def _log_of_bf16_register(x: Tensor) -> Tensor:
    shifted = _shifted(x)
    return (shifted - _stepwise_sum(torch.exp(shifted)).log()).to(x.dtype)


def _unshifted_log(x: Tensor) -> Tensor:
    wide = x.float()
    return (wide - torch.exp(wide).sum(-1, keepdim=True).log()).to(x.dtype)


def _rounded_log_probability(x: Tensor) -> Tensor:
    return _log_probability(x).bfloat16().to(x.dtype)


def _rounded_lse(x: Tensor) -> Tensor:
    return (x.float() - _bf16(torch.logsumexp(x.float(), dim=-1, keepdim=True))).to(x.dtype)


def _rounded_probability() -> Implementation:
    """A correct loss whose gradient rounds p to bfloat16 before one is taken off."""

    def backward(inputs: Tensors, cotangents: Tensors) -> Tensors:
        x, target = inputs
        gradient = torch.softmax(x.float(), dim=-1).bfloat16()
        gradient[torch.arange(len(target)), target] -= 1.0
        return ((gradient.float() * cotangents[0].float()[:, None]).to(x.dtype),)

    return HostImplementation(_fused_loss, backward)


def _blocked(x: Tensor) -> Tensor:
    """Online softmax (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018) in tiles of 128."""
    wide = x.float()
    largest = torch.full_like(wide[..., :1], -math.inf)
    total = torch.zeros_like(largest)
    for tile in torch.split(wide, 128, dim=-1):
        raised = torch.maximum(largest, tile.amax(-1, keepdim=True))
        kept = torch.where(largest == raised, 1.0, torch.exp(largest - raised))
        total = total * kept + torch.exp(tile - raised).sum(-1, keepdim=True)
        largest = raised
    return (torch.exp(wide - largest) / total).to(x.dtype)


def _powers_of_two(x: Tensor) -> Tensor:
    powers = torch.exp2(_shifted(x) * math.log2(math.e))
    return (powers * powers.sum(-1, keepdim=True).reciprocal()).to(x.dtype)


def _pairwise(x: Tensor) -> Tensor:
    terms = torch.exp(_shifted(x))
    sums = torch.nn.functional.pad(terms, (0, 2 ** (x.shape[-1] - 1).bit_length() - x.shape[-1]))
    while sums.shape[-1] > 1:
        sums = sums[..., ::2] + sums[..., 1::2]
    return (terms / sums).to(x.dtype)


def _fused_loss(x: Tensor, target: Tensor) -> Tensor:
    return (torch.logsumexp(x.float(), dim=-1) - x.float()[torch.arange(len(target)), target]).to(x.dtype)


def _fused_loss_backward(inputs: Tensors, cotangents: Tensors) -> Tensors:
    x, target = inputs
    wide = x.float()
    gradient = torch.exp(wide - torch.logsumexp(wide, dim=-1, keepdim=True))
    gradient[torch.arange(len(target)), target] -= 1.0
    return ((gradient * cotangents[0].float()[:, None]).to(x.dtype),)


def _logsumexp_without_maximum(x: Tensor) -> Tensor:
    return torch.exp(x.float()).sum(-1).log().to(x.dtype)


NO_MAXIMUM = "softmax without maximum subtraction"

MUTANTS: list[Mutant] = [
    Mutant(
        name="exponentials of the logits themselves",
        operator="softmax",
        precision="bf16",
        make=_softmax(_unshifted),
        looks_like=(NO_MAXIMUM,),
    ),
    Mutant(
        name="exponentials in bfloat16",
        operator="softmax",
        precision="bf16",
        make=_softmax(_rounded_exp),
        looks_like=("exp rounded to bf16",),
    ),
    Mutant(
        name="one bfloat16 register",
        operator="softmax",
        precision="bf16",
        make=_softmax(_bf16_register),
        looks_like=("bf16 accumulator",),
    ),
    Mutant(
        name="128 bfloat16 lanes",
        operator="softmax",
        precision="fp32",
        make=_softmax(_bf16_lanes),
        looks_like=("bf16 accumulator",),
    ),
    Mutant(
        name="maximum subtracted in bfloat16",
        operator="softmax",
        precision="bf16",
        make=_softmax(_rounded_difference),
        looks_like=("difference to the maximum rounded to bf16",),
    ),
    Mutant(
        name="bfloat16 reciprocal",
        operator="softmax",
        precision="fp32",
        make=_softmax(_rounded_reciprocal),
        looks_like=("reciprocal rounded to bf16",),
    ),
    Mutant(
        name="bfloat16 logarithm of the sum",
        operator="log-softmax",
        precision="bf16",
        make=_log_softmax(_rounded_log_sum),
        looks_like=("log-sum rounded to bf16",),
    ),
    Mutant(
        name="log-sum-exp subtracted from the logits",
        operator="log-softmax",
        precision="fp32",
        make=_log_softmax(_maximum_added_first),
        looks_like=("maximum and log-sum added first",),
    ),
    Mutant(
        name="logarithm of softmax",
        operator="log-softmax",
        precision="bf16",
        make=_log_softmax(_log_of_softmax),
        looks_like=("logarithm of the rounded softmax",),
    ),
    Mutant(
        name="one bfloat16 register under the logarithm",
        operator="log-softmax",
        precision="fp32",
        make=_log_softmax(_log_of_bf16_register),
        looks_like=("bf16 accumulator",),
    ),
    Mutant(
        name="log-sum-exp of the logits themselves",
        operator="logsumexp",
        precision="fp32",
        make=lambda: HostImplementation(_logsumexp_without_maximum),
        looks_like=(NO_MAXIMUM,),
    ),
    Mutant(
        name="loss of the logits themselves",
        operator="cross-entropy",
        precision="fp16",
        make=_loss(_unshifted_log),
        looks_like=(NO_MAXIMUM,),
    ),
    Mutant(
        name="loss of the next class",
        operator="cross-entropy",
        precision="fp32",
        make=_loss(_log_probability, step=1),
        looks_like=("label off by one",),
    ),
    Mutant(
        name="loss from bfloat16 log-probabilities",
        operator="cross-entropy",
        precision="fp32",
        make=_loss(_rounded_log_probability),
        looks_like=("log-probabilities rounded to bf16",),
    ),
    Mutant(
        name="loss from a bfloat16 log-sum-exp",
        operator="cross-entropy",
        precision="bf16",
        make=_loss(_rounded_lse),
        looks_like=("log-sum-exp rounded to bf16",),
    ),
    Mutant(
        name="loss gradient from bfloat16 probabilities",
        operator="cross-entropy",
        precision="bf16",
        make=_rounded_probability,
        looks_like=("probabilities rounded to bf16 before the target is subtracted",),
    ),
    Mutant(name="online softmax in tiles of 128", operator="softmax", precision="fp32", make=_softmax(_blocked)),
    Mutant(name="powers of two", operator="softmax", precision="fp32", make=_softmax(_powers_of_two)),
    Mutant(name="pairwise sums", operator="softmax", precision="bf16", make=_softmax(_pairwise)),
    Mutant(
        name="log-softmax in float32", operator="log-softmax", precision="bf16", make=_log_softmax(_log_probability)
    ),
    Mutant(
        name="fused loss from a saved log-sum-exp",
        operator="cross-entropy",
        precision="bf16",
        make=lambda: HostImplementation(_fused_loss, _fused_loss_backward),
    ),
]
