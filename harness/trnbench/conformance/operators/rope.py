"""Rotary position embedding (Su et al., "RoFormer", arXiv:2104.09864), with angles made on the device and from tables.

Positions are integers and inverse frequencies float32 inputs, so that angles are float32 products as models compute
them; a device that takes either in 16 bits is wrong from position 257 on, where bfloat16 has no odd numbers left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.inputs import generator, make
from trnbench.conformance.operators.base import ExactSample, Gradient, Operator, Sample
from trnbench.workloads.layers import rotate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Tensors
    from trnbench.conformance.operators.base import Plan

PRECISIONS = ("fp32", "bf16", "fp16")
BASE = 500_000.0
"""Of the frequencies, as in Llama 3: https://huggingface.co/meta-llama/Llama-3.1-8B, `rope_theta` in config.json."""

SHAPE = (1, 2, 128, 64)
LONGEST = 131_072

POSITIONS: dict[str, tuple[int, str]] = {
    "gaussian": (1024, "gaussian"),
    "first 128 positions": (128, "gaussian"),
    "positions to 131071": (LONGEST, "gaussian"),
    "wide range": (1024, "wide range"),
    "subnormal": (1024, "subnormal"),
    "outlier channels": (LONGEST, "outlier channels"),
}
"""Input -> the context that 128 positions are drawn from without repetition, and the generator of x."""

SIGN = "angle with the wrong sign"
INTERLEAVED = "pairs of neighbours rotated, not halves"


def inverse_frequencies(depth: int) -> Tensor:
    """Radians per position of each pair, float32 [depth / 2], computed in float64 and rounded once."""
    return (BASE ** (-torch.arange(0, depth, 2, dtype=torch.float64) / depth)).float()


def rotated(x: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    """x [B, H, T, D], int64 positions [T], float32 frequencies [D / 2] -> [B, H, T, D], angles in float32."""
    angles = positions[:, None].to(frequencies.dtype) * frequencies[None, :]
    return rotate(x, (angles.cos(), angles.sin()))


def rotated_by_tables(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, H, T, D] turned by float32 tables [T, D / 2], the way this repository's models do it."""
    return rotate(x, (cos, sin))


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs (i, i + D/2) of x turned: (x1 cos - x2 sin, x2 cos + x1 sin), in x's dtype."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def angles_of(inputs: Tensors) -> Tensor:
    """Exact angles in radians, float64 [T, D / 2], of (x, positions, frequencies)."""
    return inputs[1].double()[:, None] * inputs[2].double()[None, :]


def rotation_bound(x: Tensor, cos: Tensor, sin: Tensor, trigonometric: Tensor, arithmetic: Arithmetic) -> Tensor:
    """Largest absolute error of x turned by cos and sin that are each off by at most `trigonometric`.

    y = x1 cos - x2 sin: (|x1| + |x2|) times that error, two roundings of each product and one of the sum, at most
    3 u (|x1 cos| + |x2 sin|), then one rounding to the output's dtype and underflow of the result or, where the device
    flushes them, of subnormal x.
    """
    size = x.double().abs()
    first, second = size.chunk(2, dim=-1)
    products = torch.cat((first * cos.abs() + second * sin.abs(), second * cos.abs() + first * sin.abs()), dim=-1)
    both = torch.cat((first + second, first + second), dim=-1)
    inner = both * torch.cat((trigonometric, trigonometric), dim=-1) + 3.0 * arithmetic.accumulator_unit * products
    if arithmetic.flushes_subnormals:
        inner = inner + 2.0 * torch.finfo(arithmetic.dtype).tiny
    exact = turned(x.double(), cos, sin).abs()
    return inner + arithmetic.output_unit * (exact + inner) + arithmetic.smallest + 2.0**-149


def angle_error(angles: Tensor, arithmetic: Arithmetic) -> Tensor:
    """Largest error of sin and cos of float32 angles, [T, D / 2].

    The product of position and frequency rounds once, u |angle|, and reduction by a multiple of pi/2 whose constant
    is a float32 number another u |angle|; sine and cosine change by no more than their angle does. Their own error is
    relative to a result of at most 1. So the error grows with the position: 0.016 rad at position 131072, whatever
    the format of x. No result is off by more than 2.
    """
    function = max(arithmetic.function("sin"), arithmetic.function("cos"))
    return torch.clamp(2.0 * arithmetic.accumulator_unit * angles.abs() + function, max=2.0)


def _tables(inputs: Tensors) -> tuple[Tensor, Tensor, Tensor]:
    """Exact cos and sin, with the error that angles made on the device may have still at unit 1."""
    angles = angles_of(inputs)
    return angles.cos(), angles.sin(), angles


def _oracle(*inputs: Tensor) -> Tensor:
    cos, sin, _ = _tables(inputs)
    return turned(inputs[0].double(), cos, sin)


def _bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """`rotation_bound` with `angle_error`."""
    cos, sin, angles = _tables(inputs)
    return (rotation_bound(inputs[0], cos, sin, angle_error(angles, arithmetic), arithmetic),)


def _gradient_oracle(inputs: Tensors, cotangents: Tensors) -> Tensors:
    """A rotation's transpose turns back by the same angle."""
    cos, sin, _ = _tables(inputs)
    return (turned(cotangents[0].double(), cos, -sin),)


def _gradient_bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
    """As the forward bound, of the cotangent turned back; each of the two terms of the sum may be rounded first."""
    cos, sin, angles = _tables(inputs)
    error = angle_error(angles, arithmetic)
    return (rotation_bound(cotangents[0], cos, -sin, error, arithmetic),)


def _table_oracle(*inputs: Tensor) -> Tensor:
    return turned(*(tensor.double() for tensor in inputs))


def _table_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """`rotation_bound` without an error of sin and cos: they are inputs."""
    cos, sin = inputs[1].double(), inputs[2].double()
    return (rotation_bound(inputs[0], cos, sin, torch.zeros_like(cos), arithmetic),)


def _table_gradient_oracle(inputs: Tensors, cotangents: Tensors) -> Tensors:
    return (turned(cotangents[0].double(), inputs[1].double(), -inputs[2].double()),)


def _table_gradient_bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
    """As the forward bound, of the cotangent turned back."""
    return _table_bound((cotangents[0], inputs[1], -inputs[2]), arithmetic)


def position_sample(name: str, context: int, kind: str, precision: str, seed: int) -> Sample:
    """x from the generator `kind` at 128 positions below `context`, the last one among them."""
    dtype = STORAGE[precision]
    rng = generator(f"positions of {name}", seed)
    drawn = sorted({*rng.choice(context - 1, SHAPE[2] - 1, replace=False).tolist(), context - 1})
    return Sample(
        input=name,
        shape=f"{' x '.join(map(str, SHAPE))}, positions below {context}",
        inputs=(make(kind, SHAPE, dtype, seed, name), torch.tensor(drawn), inverse_frequencies(SHAPE[3])),
        cotangents=(make("gaussian", SHAPE, dtype, seed, f"cotangent of {name}"),),
        seed=seed,
    )


def _samples(precision: str, plan: Plan) -> Iterator[Sample]:
    for name, (context, kind) in POSITIONS.items():
        if plan.inputs and name not in plan.inputs:
            continue
        for seed in plan.seeds:
            yield position_sample(name, context, kind, precision, seed)


def _table_samples(precision: str, plan: Plan) -> Iterator[Sample]:
    for sample in _samples(precision, plan):
        angles = angles_of(sample.inputs)
        yield Sample(
            input=sample.input,
            shape=sample.shape,
            inputs=(sample.inputs[0], angles.cos().float(), angles.sin().float()),
            cotangents=sample.cotangents,
            seed=sample.seed,
        )


def _exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    """Position 0 changes nothing."""
    x = make("gaussian", SHAPE, STORAGE[precision], 0, "x at position 0")
    positions = torch.zeros(SHAPE[2], dtype=torch.int64)
    inputs = (x, positions, inverse_frequencies(SHAPE[3]))
    yield ExactSample(input="position 0", shape=f"{list(SHAPE)}", inputs=inputs, expected=(x,))


def _table_exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    """A quarter turn swaps the halves and negates one."""
    x = make("gaussian", SHAPE, STORAGE[precision], 0, "x of a quarter turn")
    first, second = x.chunk(2, dim=-1)
    zeros = torch.zeros(SHAPE[2], SHAPE[3] // 2)
    neighbours = torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)
    yield ExactSample(
        input="quarter turn",
        shape=f"{list(SHAPE)}",
        inputs=(x, zeros, torch.ones_like(zeros)),
        expected=(torch.cat((-second, first), dim=-1),),
        signatures={SIGN: (torch.cat((second, -first), dim=-1),), INTERLEAVED: (neighbours,)},
    )


def _wide_angles(x: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    """Angles in float64, their sine and cosine rounded once, as for the tables of this repository's models."""
    angles = angles_of((x, positions, frequencies))
    return turned(x.float(), angles.cos().float(), angles.sin().float()).to(x.dtype)


def _complex(x: Tensor, first_table: Tensor, second_table: Tensor) -> Tensor:
    """Pairs as complex numbers, multiplied by cos + i sin in float32."""
    first, second = x.float().chunk(2, dim=-1)
    product = torch.complex(first, second) * torch.complex(first_table, second_table)
    return torch.cat((product.real, product.imag), dim=-1).to(x.dtype)


def _complex_angles(x: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    """As `_complex`, with float32 angles."""
    angles = positions[:, None].float() * frequencies[None, :]
    return _complex(x, angles.cos(), angles.sin())


def _tables_float32(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """One product at a time in float32."""
    return turned(x.float(), cos, sin).to(x.dtype)


OPERATORS: list[Operator] = [
    Operator(
        name="RoPE",
        family="attention",
        function=rotated,
        precisions=PRECISIONS,
        samples=_samples,
        oracle=_oracle,
        bound=_bound,
        gradient=Gradient(wrt=(0,), oracle=_gradient_oracle, bound=_gradient_bound),
        exact=_exact,
        permitted={"float32 angles": _complex_angles, "float64 angles": _wide_angles},
    ),
    Operator(
        name="RoPE from tables",
        family="attention",
        function=rotated_by_tables,
        precisions=PRECISIONS,
        samples=_table_samples,
        oracle=_table_oracle,
        bound=_table_bound,
        gradient=Gradient(wrt=(0,), oracle=_table_gradient_oracle, bound=_table_gradient_bound),
        exact=_table_exact,
        permitted={"complex numbers": _complex, "real products": _tables_float32},
    ),
]
