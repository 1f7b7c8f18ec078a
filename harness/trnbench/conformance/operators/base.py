"""What an operator declares about itself, so that one judge can check all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec

from trnbench.conformance.arithmetic import Arithmetic
from trnbench.conformance.implementation import Implementation, Tensors

Direction = Literal["forward", "backward"]
Tier = Literal["T0", "T1", "T2", "T3"]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much is tried: `seeds` of every random input, and "one" shape an input, "several", or "all" of them.

    Compiled modes at smoke tier try one shape, since each is a compilation; nightly runs try all shapes and 200 seeds.
    """

    seeds: tuple[int, ...] = (0,)
    shapes: Literal["one", "several", "all"] = "several"
    inputs: tuple[str, ...] = ()
    """Only samples of these generators are needed; empty for all. Leaving the others out saves time, no more."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of one check, already rounded to the precision, on the host.

    `input` names the generator ("cancelling"), `shape` says the sizes in words ("64x512 by 512x48"); `cotangents` are
    those of the backward pass, one an output, absent where only the forward pass is checked.
    """

    input: str
    shape: str
    inputs: Tensors
    cotangents: Tensors | None = None
    seed: int | None = None


class ExactSample(Sample, frozen=True, kw_only=True):
    """Inputs whose answer is known exactly (tier T0): every bit of `expected`, and of `gradients`, must be there.

    NaN equals NaN of any payload; zeros must have the right sign. `signatures` maps what a known fault would return
    in place of `expected` to the fault's name: "bf16 accumulator" for a sum of ones that stops at 256.
    """

    expected: Tensors
    gradients: Tensors | None = None
    signatures: Mapping[str, Tensors] = {}
    special: bool = False
    """True for special values (infinities, NaN, signed zeros): a profile of their own, reported as such."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of one sample, or of one statistic: `value` is the largest error over its bound, at most 1 for a pass.

    None where the result is not finite though it should be, or where nothing numeric can be said; `where` says what.
    """

    operator: str
    direction: Direction
    input: str
    tier: Tier
    verdict: Literal["pass", "fail", "non-finite"]
    value: float | None
    where: str
    looks_like: str = ""


class Gradient(msgspec.Struct, frozen=True, kw_only=True):
    """The backward pass: which inputs have gradients, what they are in float64, and how far each may be off.

    `oracle(inputs, cotangents)` gives float64 tensors shaped as the inputs in `wrt`; `bound` the largest absolute error
    of each element.
    """

    wrt: tuple[int, ...]
    oracle: Callable[[Tensors, Tensors], Tensors]
    bound: Callable[[Tensors, Tensors, Arithmetic], Tensors]


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator. `function` is plain PyTorch and runs on the device; everything else runs on the host.

    `oracle(*inputs)` gives the outputs in float64 from the device's own rounded inputs. `bound(inputs, arithmetic)`
    gives the largest absolute error of each element, derived in its docstring. Fields that are None do not apply.
    """

    name: str
    family: str
    function: Callable[..., Any]
    precisions: tuple[str, ...] = ("fp32", "bf16", "fp16")
    samples: Callable[[str, Plan], Iterable[Sample]] | None = None
    oracle: Callable[..., Any] | None = None
    bound: Callable[[Tensors, Arithmetic], Tensors] | None = None
    gradient: Gradient | None = None
    exact: Callable[[str, Plan], Iterable[ExactSample]] | None = None
    permitted: Mapping[str, Callable[..., Any]] = {}
    """Correct implementations by name, as plain PyTorch for the host: other orders of summation, fused and unfused. The
    statistics of tier T3 take their limit from these. Each returns outputs in the precision's own dtype."""

    permitted_under: Callable[[Arithmetic], dict[str, Callable[..., Any]]] | None = None
    """Further correct implementations that an arithmetic allows: truncating sums, operands in TF32, two roundings."""

    statistics: Callable[[Implementation, str, Plan, Arithmetic], Iterable[Finding]] | None = None
    """Checks that are no comparison element by element (dropout rates, stochastic rounding): tier T3."""
