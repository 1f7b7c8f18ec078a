"""Matrix products: plain, batched, on transposed and strided views, and `linear` with its bias."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from trnbench.conformance.operators.base import Gradient, Operator
from trnbench.conformance.operators.products_bounds import (
    linear_bound,
    linear_gradient_bound,
    linear_gradient_oracle,
    linear_oracle,
)
from trnbench.conformance.operators.products_exact import linear_exact, view_exact
from trnbench.conformance.operators.products_orders import ORDERS, further_orders
from trnbench.conformance.operators.products_samples import linear_samples, view_samples
from trnbench.conformance.operators.products_statistics import repeated
from trnbench.conformance.operators.products_views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.operators.products_views import View

    Order = Callable[[Tensor, Tensor], Tensor]

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


def _permitted(view: View, orders: dict[str, Order]) -> dict[str, Callable[..., Any]]:
    def of(order: Order) -> Callable[..., Any]:
        return lambda a, b: order(view.left(a), view.right(b)).to(a.dtype)

    return {name: of(order) for name, order in orders.items()}


def _permitted_linear(orders: dict[str, Order], roundings: int) -> dict[str, Callable[..., Any]]:
    """The bias is added in the accumulator; with two `roundings`, after the product has been rounded."""

    def fused(order: Order) -> Callable[..., Any]:
        return lambda x, weight, bias: (order(x, weight.mT) + bias.float()).to(x.dtype)

    def separate(order: Order) -> Callable[..., Any]:
        return lambda x, weight, bias: order(x, weight.mT).to(x.dtype) + bias

    found = {name: fused(order) for name, order in orders.items()}
    if roundings > 1:
        found |= {f"{name}, product rounded": separate(order) for name, order in orders.items()}
    return found


def _operator(view: View) -> Operator:
    return Operator(
        name=view.name,
        family="products",
        function=view.function,
        precisions=PRECISIONS,
        samples=partial(view_samples, view),
        oracle=view.oracle,
        bound=view.bound,
        gradient=view.gradient,
        exact=partial(view_exact, view),
        permitted=_permitted(view, ORDERS),
        permitted_under=lambda arithmetic: _permitted(view, further_orders(arithmetic)),
        statistics=partial(repeated, view.name),
    )


def _linear_under(arithmetic: Arithmetic) -> dict[str, Callable[..., Any]]:
    orders = {**ORDERS, **further_orders(arithmetic)}
    return _permitted_linear(orders, arithmetic.epilogue_roundings)


LINEAR = Operator(
    name="linear",
    family="products",
    function=torch.nn.functional.linear,
    precisions=PRECISIONS,
    samples=linear_samples,
    oracle=linear_oracle,
    bound=linear_bound,
    gradient=Gradient(wrt=(0, 1, 2), oracle=linear_gradient_oracle, bound=linear_gradient_bound),
    exact=linear_exact,
    permitted=_permitted_linear(ORDERS, 1),
    permitted_under=_linear_under,
    statistics=partial(repeated, "linear"),
)

OPERATORS: list[Operator] = [*(_operator(view) for view in VIEWS.values()), LINEAR]
