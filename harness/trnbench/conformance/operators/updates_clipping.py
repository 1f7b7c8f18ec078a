"""Clipping the gradient norm: one norm over all tensors, one factor, at most 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.inputs import make
from trnbench.conformance.operators.base import ExactSample, Operator, Plan, Sample
from trnbench.workloads.training import CLIP_NORM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Tensors

CLIP_EPSILON = 1e-6
"""Added to the norm by torch.nn.utils.clip_grad_norm_ before dividing."""

SHAPES: dict[str, tuple[int, ...]] = {"a": (1024,), "b": (32, 16), "c": (7,)}

JUST_ABOVE = 1.0625
"""A norm of one element so near the limit that the epsilon moves the result by 16 units of float32."""


def clip(*gradients: Tensor) -> Tensors:
    """The gradients times min(1, max / (norm + 1e-6)), the norm over all of them in float32, each rounded once."""
    norms = torch.stack([torch.linalg.vector_norm(gradient.float()) for gradient in gradients])
    factor = torch.clamp(CLIP_NORM / (torch.linalg.vector_norm(norms) + CLIP_EPSILON), max=1.0)
    return tuple((gradient.float() * factor).to(gradient.dtype) for gradient in gradients)


def clip_grad_norm(*gradients: Tensor) -> Tensors:
    """torch.nn.utils.clip_grad_norm_ on parameters with these gradients, as the training step does.

    A compiler that insists on one graph cannot trace parameters made inside it: it gets `clip`, the same arithmetic.
    """
    if torch.compiler.is_compiling():
        return clip(*gradients)
    parameters = [nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.detach().clone()
    nn.utils.clip_grad_norm_(parameters, CLIP_NORM, error_if_nonfinite=False, foreach=False)
    return tuple(parameter.grad for parameter in parameters if parameter.grad is not None)


def clip_flattened(*gradients: Tensor) -> Tensors:
    """The same with the norm taken in one sum over all elements, and a division in place of the product."""
    flat = torch.cat([gradient.float().reshape(-1) for gradient in gradients])
    divisor = torch.clamp((flat @ flat).sqrt() + CLIP_EPSILON, min=CLIP_NORM) / CLIP_NORM
    return tuple((gradient.float() / divisor).to(gradient.dtype) for gradient in gradients)


def clip_in_order(*gradients: Tensor) -> Tensors:
    """The same with the squares summed one after another."""
    flat = torch.cat([gradient.float().reshape(-1) for gradient in gradients])
    norm = flat.square().cumsum(0)[-1].sqrt()
    factor = torch.clamp(CLIP_NORM / (norm + CLIP_EPSILON), max=1.0)
    return tuple((gradient.float() * factor).to(gradient.dtype) for gradient in gradients)


def _tensors(name: str, precision: str, seed: int, scale: float = 1.0) -> Tensors:
    dtype = STORAGE[precision]
    return tuple(make(name, shape, dtype, seed, part) * scale for part, shape in SHAPES.items())


def _samples(precision: str, plan: Plan) -> Iterator[Sample]:
    shape = "three tensors, 1543 elements"
    for seed in plan.seeds:
        tried = {name: _tensors(name, precision, seed) for name in ("gaussian", "positive", "wide range", "subnormal")}
        tried["outlier channels"] = _tensors("outlier channels", precision, seed)
        tried["huge"] = _tensors("huge", precision, seed, 4.0)
        tried["below the limit"] = _tensors("gaussian", precision, seed, 2.0**-8)
        for name, tensors in tried.items():
            if not plan.inputs or name in plan.inputs:
                yield Sample(input=name, shape=shape, inputs=tensors, seed=seed)
    if plan.inputs:
        return
    single = _zeros(precision)
    single[0][5] = JUST_ABOVE
    yield Sample(input="one element just above the limit", shape=shape, inputs=single)
    several = _zeros(precision)
    for tensor, value in zip(several, (0.75, -0.75, 0.5), strict=True):
        tensor.reshape(-1)[3] = value
    yield Sample(input="above the limit only together", shape=shape, inputs=several)


def _zeros(precision: str) -> Tensors:
    return tuple(torch.zeros(shape, dtype=STORAGE[precision]) for shape in SHAPES.values())


def _exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    shape = "three tensors, 1543 elements"
    zeros = _zeros(precision)
    yield ExactSample(input="no gradient", shape=shape, inputs=zeros, expected=zeros)
    below = _zeros(precision)
    below[1][3, 2], below[2][0] = 0.5, -0.25
    yield ExactSample(input="below the limit", shape=shape, inputs=below, expected=below)
    for name, value in (("one infinity", torch.inf), ("one NaN", torch.nan)):
        tensors, expected = _zeros(precision), _zeros(precision)
        tensors[0][4], expected[0][4] = value, torch.nan
        tensors[1][0, 0] = 2.0
        if name == "one NaN":
            # The norm is NaN, so the factor is, and so is every product.
            expected = tuple(torch.full_like(tensor, torch.nan) for tensor in expected)
        yield ExactSample(input=name, shape=shape, inputs=tensors, expected=expected, special=True)


def _norm(gradients: Tensors) -> float:
    return float(torch.stack([gradient.double().square().sum() for gradient in gradients]).sum().sqrt())


def _oracle(*gradients: Tensor) -> Tensors:
    factor = min(1.0, CLIP_NORM / (_norm(gradients) + CLIP_EPSILON))
    return tuple(gradient.double() * factor for gradient in gradients)


def _bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """Error of each clipped element, in float32 until the last rounding.

    With u = 2^-24, n non-zero elements and k tensors with any (zeros add exactly): the norm of norms carries half the
    relative error of each sum of squares, a square root correct to 2 u at each level, and the rounding of the sum of
    squares of norms,

        r = c(n) / 2 + c(k) / 2 + 5 u

    the factor that, the rounding of the addition of epsilon (u), of epsilon itself (nothing beside the norm) and of
    the division (2 u); the product rounds once in float32 and once to the output:

        |error| <= |y| (u_o + (r + 4 u) (1 + u_o)) + tau

    Where the norm is below the limit by more than r, the factor is exactly 1 and nothing may change.
    """
    unit = 2.0**-24
    count = sum(int((gradient != 0).sum()) for gradient in inputs)
    tensors = sum(bool((gradient != 0).any()) for gradient in inputs)
    relative = (arithmetic.growth(max(count, 1)) + arithmetic.growth(max(tensors, 1))) / 2.0 + 5.0 * unit
    if _norm(inputs) * (1.0 + relative) + 2.0 * CLIP_EPSILON < CLIP_NORM:
        flushed = arithmetic.smallest if arithmetic.flushes_subnormals else 0.0
        return tuple(torch.full(gradient.shape, flushed, dtype=torch.float64) for gradient in inputs)
    total = arithmetic.output_unit + (relative + 4.0 * unit) * (1.0 + arithmetic.output_unit)
    return tuple(exact.abs() * total + arithmetic.smallest for exact in _oracle(*inputs))


def _operator(name: str, function: Callable[..., Tensors], precisions: tuple[str, ...]) -> Operator:
    return Operator(
        name=name,
        family="updates",
        function=function,
        precisions=precisions,
        samples=_samples,
        oracle=_oracle,
        bound=_bound,
        exact=_exact,
        permitted={"flattened": clip_flattened, "in order": clip_in_order},
    )


CLIPPING: list[Operator] = [
    _operator("gradient norm clipping", clip, ("fp32", "bf16", "fp16")),
    _operator("torch.nn.utils.clip_grad_norm_", clip_grad_norm, ("fp32",)),
]
"""PyTorch's own is checked in fp32 only: on 16-bit gradients it rounds norms and factor to 16 bits by definition."""
