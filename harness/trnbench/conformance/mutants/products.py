"""Matrix products that are broken on purpose, and correct ones in unusual orders.

Each is made of one kernel for [..., M, K] by [..., K, N] in the dtype of the operands, used forward and backward, as a
device's would be. The kernels work in the arithmetic of PyTorch's own types and in other orders than the emulations
that have to recognise them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.arithmetic import Arithmetic
from trnbench.conformance.implementation import HostImplementation
from trnbench.conformance.mutants.base import Mutant
from trnbench.conformance.mutants.products_faults import (
    Kernel,
    as_stored,
    clamped,
    cut_off_to_bfloat16,
    three_bfloat16_products,
    through,
    through_e4m3,
    whole_vectors_of_16,
    wide,
    with_operands,
    without_strides,
    without_subnormals,
)
from trnbench.conformance.mutants.products_kernels import (
    accumulated_in,
    as_tf32,
    even_and_odd_chains,
    fourteen_bits,
    fused_toward_zero,
    in_blocks_of,
    neighbours_first,
    one_by_one,
    rounded_partials,
    with_rounded_products,
)
from trnbench.conformance.operators.products_views import BATCHED, PLAIN, STRIDED, TRANSPOSED, VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.conformance.implementation import Implementation, Tensors


def _product(view_name: str, kernel: Kernel) -> Callable[[], Implementation]:
    """The kernel in place of a product without bias."""
    view = VIEWS[view_name]

    def forward(a: Tensor, b: Tensor) -> Tensor:
        return kernel(view.left(a), view.right(b))

    def backward(inputs: Tensors, cotangents: Tensors) -> Tensors:
        left, right, given = view.left(inputs[0]), view.right(inputs[1]), cotangents[0]
        return view.store_left(kernel(given, right.mT)), view.store_right(kernel(left.mT, given))

    return lambda: HostImplementation(forward, backward)


def _linear(
    function: Callable[[Tensor, Tensor, Tensor], Tensor],
    backward: Callable[[Tensors, Tensors], Tensors] | None = None,
) -> Callable[[], Implementation]:
    return lambda: HostImplementation(function, backward)


def _bias_after(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return wide(x, weight.mT).to(x.dtype) + bias


def _no_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (wide(x, weight.mT) + 0.0 * bias.float()).to(x.dtype)


def _fused_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (wide(x, weight.mT) + bias.float()).to(x.dtype)


def _linear_backward(inputs: Tensors, cotangents: Tensors) -> Tensors:
    x, weight, _ = inputs
    rows = cotangents[0].flatten(0, -2)
    found = (
        wide(cotangents[0], weight),
        wide(rows.mT, x.flatten(0, -2)),
        wide(torch.ones((1, len(rows))), rows)[0],
    )
    return tuple(gradient.to(x.dtype) for gradient in found)


def _narrow_row_sum(inputs: Tensors, cotangents: Tensors) -> Tensors:
    of_x, of_weight, _ = _linear_backward(inputs, cotangents)
    total = torch.zeros_like(inputs[2])
    for row in cotangents[0].flatten(0, -2):
        total += row
    return of_x, of_weight, total


def _with_bias(kernel: Kernel) -> Callable[[], Implementation]:
    """A fused epilogue: the bias is added to the float32 sum."""

    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return (kernel(x.float(), weight.float().mT) + bias.float()).to(x.dtype)

    def backward(inputs: Tensors, cotangents: Tensors) -> Tensors:
        x, weight = inputs[0].float(), inputs[1].float()
        rows = cotangents[0].float().flatten(0, -2)
        found = (
            kernel(cotangents[0].float(), weight),
            kernel(rows.mT, x.flatten(0, -2)),
            kernel(torch.ones((1, rows.shape[0])), rows)[0],
        )
        return tuple(gradient.to(inputs[0].dtype) for gradient in found)

    return lambda: HostImplementation(forward, backward)


_WRONG: tuple[tuple[str, str, str, Callable[[], Implementation], tuple[str, ...]], ...] = (
    (
        "fp32 that is bf16",
        "matmul",
        "fp32",
        _product("matmul", with_operands(through(torch.bfloat16))),
        ("bf16 operands",),
    ),
    ("TF32", "matmul", "fp32", _product("matmul", with_operands(as_tf32)), ("TF32 operands",)),
    (
        "TF32 by truncation",
        "batched matmul",
        "fp32",
        _product(
            BATCHED.name,
            with_operands(lambda operand: (operand.contiguous().view(torch.int32) & -8192).view(torch.float32)),
        ),
        ("TF32 operands, truncated",),
    ),
    ("fp32 that is fp16", "linear", "fp32", _with_bias(with_operands(through(torch.float16))), ("fp16 operands",)),
    (
        "one operand in bf16",
        "matmul",
        "fp32",
        _product("matmul", lambda left, right: left.bfloat16().float() @ right),
        ("first operand in bf16",),
    ),
    ("three bf16 products", "matmul", "fp32", _product("matmul", three_bfloat16_products), ("bf16x3 split",)),
    (
        "tf32 that is bf16",
        "matmul",
        "tf32",
        _product("matmul", with_operands(through(torch.bfloat16))),
        ("bf16 operands",),
    ),
    (
        "bf16 sums, last term first",
        "matmul",
        "bf16",
        _product("matmul", accumulated_in(torch.bfloat16)),
        ("bf16 accumulator",),
    ),
    (
        "fp16 sums, last term first",
        "matmul",
        "fp16",
        _product("matmul", accumulated_in(torch.float16)),
        ("fp16 accumulator",),
    ),
    ("14-bit sums", "matmul", "bf16", _product("matmul", fourteen_bits), ("14-bit accumulator",)),
    (
        "bf16 products",
        "matmul",
        "fp32",
        _product("matmul", with_rounded_products),
        ("products rounded to bf16",),
    ),
    (
        "bf16 sums of tiles of 128",
        "matmul",
        "bf16",
        _product("matmul", rounded_partials(128, torch.bfloat16)),
        ("bf16 partial sums every 128",),
    ),
    (
        "bf16 partial sums of four parts",
        "batched matmul",
        "bf16",
        _product(BATCHED.name, rounded_partials(None, torch.float32)),
        ("split-K partials in bf16",),
    ),
    ("no tail of K", "matmul", "fp16", _product("matmul", whole_vectors_of_16), ("last K-tail dropped",)),
    (
        "bf16 output cut off",
        "strided matmul",
        "bf16",
        _product(STRIDED.name, cut_off_to_bfloat16),
        ("truncated output",),
    ),
    ("fp8 operands", "linear", "bf16", _with_bias(with_operands(through_e4m3)), ("fp8 e4m3 operands",)),
    (
        "output clamped",
        "matmul",
        "fp16",
        _product("matmul", clamped),
        ("saturated where infinity is right",),
    ),
    ("subnormals as zero", "matmul", "fp32", _product("matmul", without_subnormals), ("subnormals flushed",)),
    (
        "NaN as zero",
        "matmul",
        "bf16",
        _product("matmul", lambda left, right: wide(left, right).nan_to_num(0.0, torch.inf, -torch.inf).bfloat16()),
        ("NaN lost",),
    ),
    (
        "nothing computed",
        "matmul",
        "fp32",
        _product("matmul", lambda left, right: 0.0 * wide(left, right)),
        ("output all zero",),
    ),
    (
        "storage taken for its transpose",
        "transposed matmul",
        "fp32",
        lambda: HostImplementation(as_stored),
        ("transposed operand not transposed",),
    ),
    ("strides ignored", "strided matmul", "bf16", lambda: HostImplementation(without_strides), ("strides ignored",)),
    ("no bias", "linear", "bf16", _linear(_no_bias), ("bias dropped",)),
    (
        "bias after rounding",
        "linear",
        "bf16",
        _linear(_bias_after, _linear_backward),
        ("product rounded before the bias",),
    ),
    (
        "bias gradient in bf16",
        "linear",
        "bf16",
        _linear(_fused_bias, _narrow_row_sum),
        ("bias gradient accumulated in bf16",),
    ),
)


def _truncating(precision: str) -> Arithmetic:
    return Arithmetic(precision=precision, accumulates_toward_zero=True)


def _two_roundings(precision: str) -> Arithmetic:
    return Arithmetic(precision=precision, epilogue_roundings=2)


def _correct(name: str, operator: str, precision: str, make: Callable[[], Implementation]) -> Mutant:
    return Mutant(name=name, operator=operator, precision=precision, make=make)


MUTANTS: list[Mutant] = [
    *(
        Mutant(name=name, operator=operator, precision=precision, make=make, looks_like=looks_like)
        for name, operator, precision, make, looks_like in _WRONG
    ),
    _correct("fp32, one by one", PLAIN.name, "fp32", _product(PLAIN.name, one_by_one)),
    _correct("fp32, neighbours first", TRANSPOSED.name, "fp32", _product(TRANSPOSED.name, neighbours_first)),
    _correct("bf16, neighbours first", BATCHED.name, "bf16", _product(BATCHED.name, neighbours_first)),
    _correct("bf16, tiles of 128 in PSUM", PLAIN.name, "bf16", _product(PLAIN.name, in_blocks_of(128))),
    _correct("fp16, tiles of 128 in PSUM", "linear", "fp16", _with_bias(in_blocks_of(128))),
    _correct("bf16, even and odd chains", PLAIN.name, "bf16", _product(PLAIN.name, even_and_odd_chains)),
    _correct("TF32 that is fp32", PLAIN.name, "tf32", _product(PLAIN.name, wide)),
    _correct("TF32 that is TF32", PLAIN.name, "tf32", _product(PLAIN.name, with_operands(as_tf32))),
    Mutant(
        name="fp16, 16 terms at once, toward zero",
        operator=PLAIN.name,
        precision="fp16",
        make=_product(PLAIN.name, fused_toward_zero),
        arithmetic=_truncating,
    ),
    Mutant(
        name="TF32, 16 terms at once, toward zero",
        operator=PLAIN.name,
        precision="tf32",
        make=_product(PLAIN.name, lambda left, right: fused_toward_zero(as_tf32(left), as_tf32(right))),
        arithmetic=_truncating,
    ),
    Mutant(
        name="bf16, product rounded before the bias, as found",
        operator="linear",
        precision="bf16",
        make=_linear(_bias_after, _linear_backward),
        arithmetic=_two_roundings,
    ),
]
