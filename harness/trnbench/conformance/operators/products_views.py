"""The matrix products as functions of the inputs in storage: plain, batched, transposed and strided views.

`View` brings every one of them to left @ right, so that oracle, bounds, gradients and emulations are written once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor

from trnbench.conformance.operators.base import Gradient
from trnbench.conformance.operators.products_bounds import product_bound

if TYPE_CHECKING:
    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Tensors


class View(msgspec.Struct, frozen=True, kw_only=True):
    """How a product reads its two inputs: `left` and `right` give views [..., M, K] and [..., K, N] of them.

    `store_left` and `store_right` make the input in storage from such a matrix: for views that leave entries out,
    these are zero. They also take a gradient of the view to the gradient of the input.
    """

    name: str
    function: Callable[[Tensor, Tensor], Tensor]
    """What the device runs."""

    left: Callable[[Tensor], Tensor]
    right: Callable[[Tensor], Tensor]
    store_left: Callable[[Tensor], Tensor]
    store_right: Callable[[Tensor], Tensor]

    def stored(self, left: Tensor, right: Tensor) -> Tensors:
        """Inputs in storage, contiguous, whose views are `left` and `right`."""
        return self.store_left(left).contiguous(), self.store_right(right).contiguous()

    def oracle(self, a: Tensor, b: Tensor) -> Tensor:
        """The product in float64."""
        return self.left(a).double() @ self.right(b).double()

    def bound(self, inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
        """Of the one output; see `products_bounds.product_error`."""
        return (product_bound(self.left(inputs[0]), self.right(inputs[1]), arithmetic),)

    def gradient_oracle(self, inputs: Tensors, cotangents: Tensors) -> Tensors:
        """G B^T over N and A^T G over M, put where the views took their entries from, zero elsewhere."""
        left, right, given = self.left(inputs[0]).double(), self.right(inputs[1]).double(), cotangents[0].double()
        return self.store_left(given @ right.mT), self.store_right(left.mT @ given)

    def gradient_bound(self, inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
        """The same bound over each gradient's own contraction; entries that the views leave out must be zero."""
        left, right, given = self.left(inputs[0]), self.right(inputs[1]), cotangents[0]
        return (
            self.store_left(product_bound(given, right.mT, arithmetic)),
            self.store_right(product_bound(left.mT, given, arithmetic)),
        )

    @property
    def gradient(self) -> Gradient:
        """With respect to both inputs."""
        return Gradient(wrt=(0, 1), oracle=self.gradient_oracle, bound=self.gradient_bound)


def _same(matrix: Tensor) -> Tensor:
    return matrix


def _transposed(matrix: Tensor) -> Tensor:
    return matrix.mT


def _even_columns(matrix: Tensor) -> Tensor:
    return matrix[..., ::2]


def _between_columns(matrix: Tensor) -> Tensor:
    return torch.stack([matrix, torch.zeros_like(matrix)], dim=-1).flatten(-2)


def _odd_rows(matrix: Tensor) -> Tensor:
    return matrix[..., 1::2, :]


def _between_rows(matrix: Tensor) -> Tensor:
    return torch.stack([torch.zeros_like(matrix), matrix], dim=-2).flatten(-3, -2)


def _product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def _transposed_product(a: Tensor, b: Tensor) -> Tensor:
    return a.mT @ b.mT


def _strided_product(a: Tensor, b: Tensor) -> Tensor:
    return a[..., ::2] @ b[..., 1::2, :]


PLAIN = View(name="matmul", function=_product, left=_same, right=_same, store_left=_same, store_right=_same)
BATCHED = View(name="batched matmul", function=_product, left=_same, right=_same, store_left=_same, store_right=_same)
TRANSPOSED = View(
    name="transposed matmul",
    function=_transposed_product,
    left=_transposed,
    right=_transposed,
    store_left=_transposed,
    store_right=_transposed,
)
STRIDED = View(
    name="strided matmul",
    function=_strided_product,
    left=_even_columns,
    right=_odd_rows,
    store_left=_between_columns,
    store_right=_between_rows,
)
"""Every second column of A, from the first, by every second row of B, from the second."""

VIEWS: dict[str, View] = {view.name: view for view in (PLAIN, BATCHED, TRANSPOSED, STRIDED)}
