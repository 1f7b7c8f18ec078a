"""Faults of matrix products, from the simplest: what is done to operands, to products, to sums, to views and biases."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.diagnosis import products_emulation as emulation
from trnbench.conformance.diagnosis.base import Hypothesis
from trnbench.conformance.diagnosis.generic import significant, toward_zero
from trnbench.conformance.inputs import rounded
from trnbench.conformance.operators.products_bounds import linear_gradient_oracle
from trnbench.conformance.operators.products_views import STRIDED, TRANSPOSED, VIEWS

if TYPE_CHECKING:
    from trnbench.conformance.implementation import Tensors
    from trnbench.conformance.operators.products_views import View

Product = Callable[[Tensor, Tensor], Tensor | None]
"""[..., M, K] by [..., K, N] in float64, without the last rounding."""

TAILS = (1, 8, 16, 32, 64, 128)
"""Multiples of which kernels handle K in whole vectors or tiles."""


def _operands(first: Callable[[Tensor], Tensor] | None, second: Callable[[Tensor], Tensor] | None) -> Product:
    def product(left: Tensor, right: Tensor) -> Tensor:
        return (first(left) if first else left) @ (second(right) if second else right)

    return product


def _cut_bfloat16(values: Tensor) -> Tensor:
    return toward_zero(values, torch.bfloat16).double()


_tf32 = partial(significant, bits=11)
_cut_tf32 = partial(emulation.cut, bits=11)
_bfloat16, _float16, _e4m3 = emulation.as_bfloat16, emulation.as_float16, emulation.as_e4m3

PRODUCTS: list[tuple[str, Product]] = [
    ("bf16 operands", _operands(_bfloat16, _bfloat16)),
    ("bf16 operands, truncated", _operands(_cut_bfloat16, _cut_bfloat16)),
    ("TF32 operands", _operands(_tf32, _tf32)),
    ("TF32 operands, truncated", _operands(_cut_tf32, _cut_tf32)),
    ("fp16 operands", _operands(_float16, _float16)),
    ("fp8 e4m3 operands", _operands(_e4m3, _e4m3)),
    ("first operand in bf16", _operands(_bfloat16, None)),
    ("second operand in bf16", _operands(None, _bfloat16)),
    ("first operand in TF32", _operands(_tf32, None)),
    ("second operand in TF32", _operands(None, _tf32)),
    ("bf16 operands and output", lambda left, right: _bfloat16(_bfloat16(left) @ _bfloat16(right))),
    ("fp16 operands and output", lambda left, right: _float16(_float16(left) @ _float16(right))),
    ("bf16x3 split", emulation.in_three),
    *(("last K-tail dropped", emulation.without_tail(many, always)) for many in TAILS for always in (False, True)),
    ("products rounded to bf16", emulation.narrow_products),
    ("bf16 partial sums every 128", emulation.narrow_sums(emulation.to_8_bits, emulation.TILE)),
    *(("split-K partials in bf16", emulation.split(parts)) for parts in (2, 4, 8, 16)),
    *(
        ("14-bit accumulator", emulation.narrow_sums(partial(emulation.cut, bits=14), at_once))
        for at_once in (128, 64, 32, 16)
    ),
    ("accumulation toward zero", emulation.narrow_sums(partial(emulation.cut, bits=24), 16)),
    ("bf16 accumulator", emulation.serial_sums(torch.bfloat16)),
    ("fp16 accumulator", emulation.serial_sums(torch.float16)),
]
"""The serial sums come last, since they are emulated term by term."""


def _of_view(view: View, name: str, product: Product) -> Hypothesis:
    def emulate(inputs: Tensors, precision: str) -> Tensors | None:
        found = product(view.left(inputs[0]).double(), view.right(inputs[1]).double())
        return None if found is None else (found,)

    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors | None:
        left, right, given = view.left(inputs[0]).double(), view.right(inputs[1]).double(), cotangents[0].double()
        of_left, of_right = product(given, right.mT), product(left.mT, given)
        if of_left is None or of_right is None:
            return None
        return view.store_left(of_left), view.store_right(of_right)

    return Hypothesis(name=name, emulate=emulate, gradient=gradient)


def _of_linear(name: str, product: Product) -> Hypothesis:
    def emulate(inputs: Tensors, precision: str) -> Tensors | None:
        x, weight, bias = inputs
        found = product(x.double(), weight.double().mT)
        return None if found is None else (found + bias.double(),)

    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors | None:
        x, weight, _ = inputs
        rows, of_rows = cotangents[0].double().flatten(0, -2), x.double().flatten(0, -2)
        found = (product(cotangents[0].double(), weight.double()), product(rows.mT, of_rows))
        if found[0] is None or found[1] is None:
            return None
        return found[0], found[1], rows.sum(0)

    return Hypothesis(name=name, emulate=emulate, gradient=gradient)


def _storage_as_is(inputs: Tensors, precision: str) -> Tensors:
    """Both matrices read in the order in which they lie, in the shapes that their transposes have."""
    left, right = (tensor.double().reshape(tensor.mT.shape) for tensor in inputs)
    return (left @ right,)


def _without_strides(inputs: Tensors, precision: str) -> Tensors:
    """As many columns and rows as there should be, but neighbouring ones from the first on."""
    left, right = STRIDED.left(inputs[0]), STRIDED.right(inputs[1])
    first = inputs[0].double()[..., : left.shape[-1]]
    return (first @ inputs[1].double()[..., : right.shape[-2], :],)


def _bias_times(factor: float) -> Callable[[Tensors, str], Tensors]:
    def emulate(inputs: Tensors, precision: str) -> Tensors:
        x, weight, bias = inputs
        return (x.double() @ weight.double().mT + factor * bias.double(),)

    return emulate


def _bias_gradient_times(factor: float) -> Callable[[Tensors, Tensors, str], Tensors]:
    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
        of_x, of_weight, of_bias = linear_gradient_oracle(inputs, cotangents)
        return of_x, of_weight, factor * of_bias

    return gradient


def _product_rounded(inputs: Tensors, precision: str) -> Tensors:
    x, weight, bias = inputs
    product = x.double() @ weight.double().mT
    return (rounded(product.numpy(), STORAGE[precision]).double().reshape(product.shape) + bias.double(),)


def _narrow_bias_gradient(dtype: torch.dtype) -> Callable[[Tensors, Tensors, str], Tensors | None]:
    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors | None:
        rows = cotangents[0].double().flatten(0, -2)
        total = emulation.serial_sums(dtype)(torch.ones((1, rows.shape[0]), dtype=torch.float64), rows)
        if total is None:
            return None
        of_x, of_weight, _ = linear_gradient_oracle(inputs, cotangents)
        return of_x, of_weight, total[0]

    return gradient


HYPOTHESES: dict[str, list[Hypothesis]] = {
    name: [_of_view(view, fault, product) for fault, product in PRODUCTS] for name, view in VIEWS.items()
}
HYPOTHESES[TRANSPOSED.name].insert(0, Hypothesis(name="transposed operand not transposed", emulate=_storage_as_is))
HYPOTHESES[STRIDED.name].insert(0, Hypothesis(name="strides ignored", emulate=_without_strides))
HYPOTHESES["linear"] = [
    Hypothesis(name="bias dropped", emulate=_bias_times(0.0), gradient=_bias_gradient_times(0.0)),
    Hypothesis(name="bias added twice", emulate=_bias_times(2.0), gradient=_bias_gradient_times(2.0)),
    Hypothesis(name="product rounded before the bias", emulate=_product_rounded),
    Hypothesis(name="bias gradient accumulated in bf16", gradient=_narrow_bias_gradient(torch.bfloat16)),
    Hypothesis(name="bias gradient accumulated in fp16", gradient=_narrow_bias_gradient(torch.float16)),
    *(_of_linear(fault, product) for fault, product in PRODUCTS),
]
