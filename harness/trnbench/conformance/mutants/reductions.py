"""Reductions that are broken on purpose, and correct ones in other orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.arithmetic import Arithmetic
from trnbench.conformance.implementation import HostImplementation, gradients
from trnbench.conformance.mutants import reductions_kernels as kernels
from trnbench.conformance.mutants.base import Mutant
from trnbench.conformance.operators.reductions_exact import means, sums

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.conformance.implementation import Implementation, Tensors


def _three(
    kernel: Callable[[Tensor], Tensor], like: Callable[[Tensor], tuple[Tensor, ...]] = sums
) -> Callable[[], Implementation]:
    """A reduction of the last axis in place of a sum, or of `like`, whose gradients are right."""

    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return kernel(x), kernel(x.mT.contiguous()), kernel(x.reshape(-1))

    def backward(inputs: Tensors, cotangents: Tensors) -> Tensors:
        return gradients(like, inputs, cotangents, (0,))

    return lambda: HostImplementation(function, backward)


def _running(kernel: Callable[[Tensor], Tensor]) -> Callable[[], Implementation]:
    """A running sum of the last axis, and its gradient, the same from the other end."""

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return kernel(x), kernel(x.mT.contiguous()).mT

    def backward(inputs: tuple[Tensor, ...], cotangents: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        rows, columns = cotangents
        down = kernel(columns.flip(0).mT.contiguous()).mT.flip(0)
        return ((kernel(rows.flip(-1)).flip(-1).float() + down.float()).to(rows.dtype),)

    return lambda: HostImplementation(function, backward)


def _two(function: Callable[[Tensor, int], Tensor]) -> Callable[[], Implementation]:
    """A maximum along an axis, for rows and columns."""
    return lambda: HostImplementation(lambda x: (function(x, -1), function(x, 0)))


def _ranked(kernel: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Callable[[], Implementation]:
    """The k largest along the last axis, for rows and columns."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        return (*kernel(x), *(one.mT for one in kernel(x.mT.contiguous())))

    return lambda: HostImplementation(function)


def _toward_zero(precision: str) -> Arithmetic:
    return Arithmetic(precision=precision, accumulates_toward_zero=True)


def _wrong(name: str, operator: str, precision: str, make: Callable[[], Implementation], *names: str) -> Mutant:
    return Mutant(name=name, operator=operator, precision=precision, make=make, looks_like=names)


def _correct(name: str, operator: str, precision: str, make: Callable[[], Implementation]) -> Mutant:
    return Mutant(name=name, operator=operator, precision=precision, make=make)


BF16 = torch.bfloat16
FP16 = torch.float16

MUTANTS: list[Mutant] = [
    _wrong("sum in bf16", "sum", "bf16", _three(kernels.backwards_in(BF16)), "bf16 accumulator"),
    _wrong("fp32 sum in bf16", "sum", "fp32", _three(kernels.backwards_in(BF16)), "bf16 accumulator"),
    _wrong("sum in fp16", "sum", "fp16", _three(kernels.backwards_in(FP16)), "fp16 accumulator"),
    _wrong("sum without its last element", "sum", "fp32", _three(kernels.without_last), "last element dropped"),
    _wrong("mean divided by n - 1", "mean", "fp32", _three(kernels.unbiased_mean, means), "divided by n - 1"),
    _wrong(
        "mean of terms divided in bf16",
        "mean",
        "bf16",
        _three(kernels.mean_of_quotients, means),
        "terms divided before they are added",
    ),
    _wrong(
        "mean of a sum narrowed to fp16",
        "mean",
        "fp16",
        _three(kernels.mean_of_narrow_sum, means),
        "fp16 accumulator overflow",
        "sum rounded to the output format before division",
    ),
    _wrong(
        "running sum without its own element", "cumsum", "fp32", _running(kernels.exclusive), "exclusive running sum"
    ),
    _wrong("running sum in bf16", "cumsum", "bf16", _running(kernels.running_in(BF16)), "bf16 accumulator"),
    _wrong(
        "running sum that begins anew every 128 elements",
        "cumsum",
        "fp32",
        _running(kernels.begins_anew),
        "running sum begins anew every 128 elements",
    ),
    _wrong("maximum that ignores NaN", "amax", "bf16", _two(kernels.maximum_without_nan), "NaN ignored", "NaN lost"),
    _wrong("maximum of magnitudes", "amax", "fp32", _two(kernels.largest_magnitude), "maximum of absolute values"),
    _wrong(
        "maximum of all that reduces nothing",
        "amax of all",
        "fp32",
        lambda: HostImplementation(lambda x: x.clone()),
        "not reduced",
        "outputs of another shape",
    ),
    _wrong("argmax counted from one", "argmax", "fp32", _three(kernels.from_one), "argmax off by one"),
    _wrong("argmax that ignores NaN", "argmax", "fp16", _three(kernels.argmax_without_nan), "NaN ignored"),
    _wrong(
        "argmax of numbers rounded to bf16",
        "argmax",
        "fp32",
        _three(kernels.argmax_in_bf16),
        "computed on bf16-rounded values",
    ),
    _wrong(
        "top-k of numbers rounded to bf16",
        "top-k",
        "fp32",
        _ranked(kernels.ranked_in_bf16),
        "computed on bf16-rounded values",
    ),
    _wrong(
        "top-k with one candidate a shard",
        "top-k",
        "fp32",
        _ranked(kernels.best_of_each_shard),
        "one candidate a shard of 128",
    ),
    _wrong("top-k that loses the best", "top-k", "bf16", _ranked(kernels.second_best), "best element lost"),
    _wrong(
        "integer sum through fp32",
        "sum of integers",
        "fp32",
        _three(kernels.integers_in_float32),
        "integers through fp32",
    ),
    _wrong(
        "integer sum in 32 bits",
        "sum of integers",
        "fp32",
        _three(kernels.integers_in_32_bits),
        "integers wrap at 32 bits",
    ),
    _correct("sum by pairs of neighbours", "sum", "fp32", _three(kernels.neighbours)),
    _correct("sum from the last element on", "sum", "bf16", _three(kernels.backwards_in(torch.float32))),
    _correct("sum in tiles of 128", "sum", "fp16", _three(kernels.in_tiles)),
    _correct("compensated sum", "sum", "fp32", _three(kernels.in_two_levels(kernels.compensated))),
    Mutant(
        name="sum with truncating additions",
        operator="sum",
        precision="fp32",
        make=_three(kernels.in_two_levels(kernels.truncating)),
        arithmetic=_toward_zero,
    ),
    _correct("mean by pairs of neighbours", "mean", "fp16", _three(kernels.neighbours_mean, means)),
    _correct("running sum in tiles of 128", "cumsum", "fp32", _running(kernels.running_in_tiles)),
    _correct("argmax that takes the last of equals", "argmax", "bf16", _three(kernels.last_of_equals)),
    _correct("top-k by sorting", "top-k", "fp16", _ranked(kernels.by_sorting)),
]
