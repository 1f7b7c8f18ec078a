"""Ways in which RMSNorm and LayerNorm go wrong, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.diagnosis.base import Hypothesis
from trnbench.conformance.diagnosis.normalisation_narrow import FORMATS, rounder, running_sum, sum_over_rows
from trnbench.conformance.operators.normalisation_norm_bounds import LAYER_EPS, RMS_EPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trnbench.conformance.implementation import Tensors


def _mean(values: Tensor) -> Tensor:
    return values.mean(-1, keepdim=True)


def _input_gradient(normalised: Tensor, scale: Tensor, a: Tensor, centred: bool) -> Tensor:
    """r (a - h mean(a h)), less r mean(a) where the norm is centred."""
    gradient = a - normalised * _mean(a * normalised)
    return scale * (gradient - _mean(a) if centred else gradient)


def _over_rows(values: Tensor) -> Tensor:
    return values.reshape(-1, values.shape[-1]).sum(0)


def _of_statistics(
    name: str, statistics: Callable[[Tensor], tuple[Tensor, Tensor]], centred: bool, roundings: int = 1
) -> Hypothesis:
    """The norm with the (mean, scale) that `statistics` makes of x in float32, in the backward pass as well.

    With two `roundings` the normalised value is rounded to the precision before the weight, as Llama's order declares.
    """

    def emulate(inputs: Tensors, precision: str) -> Tensors:
        wide = [tensor.float() for tensor in inputs]
        mean, scale = statistics(wide[0])
        normalised = (wide[0] - mean) * scale
        if roundings == 2:
            normalised = normalised.to(STORAGE[precision]).float()
        result = normalised * wide[1]
        return (result + wide[2] if len(wide) > 2 else result,)

    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
        x, weight = inputs[0].float(), inputs[1].float()
        g = cotangents[0].float()
        mean, scale = statistics(x)
        normalised = (x - mean) * scale
        gradients = (_input_gradient(normalised, scale, g * weight, centred), _over_rows(g * normalised))
        return (*gradients, _over_rows(g)) if len(inputs) > 2 else gradients

    return Hypothesis(name=name, emulate=emulate, gradient=gradient)


def _rms(scale: Callable[[Tensor], Tensor]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Statistics without a mean, the scale computed from x."""
    return lambda x: (torch.zeros_like(x[..., :1]), scale(x))


def _layer(scale: Callable[[Tensor], Tensor]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Statistics with the mean, the scale computed from x - mean."""

    def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
        mean = _mean(x)
        return mean, scale(x - mean)

    return statistics


def _eps_faults(eps: float, other: float) -> dict[str, Callable[[Tensor], Tensor]]:
    """Scales from centred values with the epsilon in a wrong place or of a wrong size."""
    return {
        f"epsilon {other:g} instead of {eps:g}": lambda d: torch.rsqrt(_mean(d.square()) + other),
        "epsilon outside the root": lambda d: 1.0 / (_mean(d.square()).sqrt() + eps),
        "epsilon left out": lambda d: torch.rsqrt(_mean(d.square())),
    }


def _narrow_faults(eps: float) -> list[tuple[str, Callable[[Tensor], Tensor]]]:
    """Scales from centred values with 16 bits somewhere on the way."""
    faults: list[tuple[str, Callable[[Tensor], Tensor]]] = []
    for name, dtype in FORMATS.items():
        narrow = rounder(dtype)
        faults += [
            (f"rsqrt rounded to {name}", _scale(eps, after=narrow)),
            (f"mean square rounded to {name}", _scale(eps, mean=narrow)),
            (f"mean square and rsqrt rounded to {name}", _scale(eps, mean=narrow, after=narrow)),
            (f"squares rounded to {name}", _scale(eps, square=narrow)),
        ]
        for lanes in (1, 8, 128):
            faults.append((f"{name} accumulator", _narrow_scale(eps, dtype, lanes)))
    # Last, for float16 accumulators overflow as well, and say more.
    faults.append(("sum of squares overflowed in fp16", _overflowing(eps)))
    return faults


def _kept(values: Tensor) -> Tensor:
    return values


def _scale(
    eps: float,
    square: Callable[[Tensor], Tensor] = _kept,
    mean: Callable[[Tensor], Tensor] = _kept,
    after: Callable[[Tensor], Tensor] = _kept,
) -> Callable[[Tensor], Tensor]:
    return lambda d: after(torch.rsqrt(mean(_mean(square(d.square()))) + eps))


def _narrow_scale(eps: float, dtype: torch.dtype, lanes: int) -> Callable[[Tensor], Tensor]:
    return lambda d: torch.rsqrt(running_sum(d.square(), dtype, lanes) / d.shape[-1] + eps)


def _overflowing(eps: float) -> Callable[[Tensor], Tensor]:
    largest = torch.finfo(torch.float16).max

    def scale(d: Tensor) -> Tensor:
        total = d.square().sum(-1, keepdim=True)
        return torch.rsqrt(torch.where(total > largest, torch.inf, total) / d.shape[-1] + eps)

    return scale


def _of_gradients(eps: float, centred: bool) -> list[Hypothesis]:
    """Faults of the backward pass alone: statistics saved in 16 bits, sums over rows that run in 16 bits, or both."""
    found = []
    for name, dtype in FORMATS.items():
        saved = f"saved mean and rsqrt rounded to {name}" if centred else f"saved rsqrt rounded to {name}"
        narrow = rounder(dtype)
        found.append(Hypothesis(name=saved, gradient=_gradient(eps, centred, saved=narrow)))
        for sums in _sums_over_rows(dtype):
            accumulated = f"weight gradient accumulated in {name}"
            found += [
                Hypothesis(name=accumulated, gradient=_gradient(eps, centred, over_rows=sums)),
                Hypothesis(
                    name=f"{saved}, {accumulated}", gradient=_gradient(eps, centred, saved=narrow, over_rows=sums)
                ),
            ]
    return found


def _sums_over_rows(dtype: torch.dtype) -> list[Callable[[Tensor], Tensor]]:
    """Running sums rounded to `dtype`, of one part of the rows or several, of terms that are rounded first or not."""

    def summing(parts: int, first: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda values: sum_over_rows(first(values), dtype, parts)

    parts = dict.fromkeys((1, 2, torch.get_num_threads()))
    return [summing(part, first) for part in parts for first in (_kept, rounder(dtype))]


def _gradient(
    eps: float,
    centred: bool,
    saved: Callable[[Tensor], Tensor] = _kept,
    over_rows: Callable[[Tensor], Tensor] = _over_rows,
) -> Callable[[Tensors, Tensors, str], Tensors]:
    """The backward pass from statistics that went through `saved`, with sums over rows by `over_rows`."""

    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
        x, weight, g = inputs[0].float(), inputs[1].float(), cotangents[0].float()
        mean = _mean(x) if centred else torch.zeros_like(x[..., :1])
        scale = saved(torch.rsqrt(_mean((x - mean).square()) + eps))
        normalised = (x - saved(mean)) * scale
        gradients = (_input_gradient(normalised, scale, g * weight, centred), over_rows(g * normalised))
        return (*gradients, over_rows(g)) if len(inputs) > 2 else gradients

    return gradient


def _rounded_before_weight(eps: float, centred: bool) -> list[Hypothesis]:
    """The normalised value rounded to 16 bits, and for LayerNorm the product with the weight too."""

    def emulation(narrow: Callable[[Tensor], Tensor]) -> Callable[[Tensors, str], Tensors]:
        def emulate(inputs: Tensors, precision: str) -> Tensors:
            wide = [tensor.float() for tensor in inputs]
            centred_x = wide[0] - _mean(wide[0]) if centred else wide[0]
            normalised = narrow(centred_x * torch.rsqrt(_mean(centred_x.square()) + eps))
            product = normalised * wide[1]
            return (narrow(product) + wide[2] if centred else product,)

        return emulate

    return [
        Hypothesis(name=f"normalised value rounded to {name} before the weight", emulate=emulation(rounder(dtype)))
        for name, dtype in FORMATS.items()
    ]


def _one_pass() -> list[Hypothesis]:
    """mean(x^2) - mean(x)^2 in float32; which digits are left of it depends on the order of the sums."""

    def statistics(add: Callable[[Tensor], Tensor], clamped: bool) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        def compute(x: Tensor) -> tuple[Tensor, Tensor]:
            mean = add(x) / x.shape[-1]
            variance = add(x.square()) / x.shape[-1] - mean.square()
            return mean, torch.rsqrt((variance.clamp(min=0.0) if clamped else variance) + LAYER_EPS)

        return compute

    orders: list[Callable[[Tensor], Tensor]] = [
        lambda terms: terms.sum(-1, keepdim=True),
        *(_float32_lanes(lanes) for lanes in (1, 8, 128)),
    ]
    return [
        _of_statistics("one-pass variance", statistics(add, clamped), centred=True)
        for clamped in (True, False)
        for add in orders
    ]


def _float32_lanes(lanes: int) -> Callable[[Tensor], Tensor]:
    return lambda terms: running_sum(terms, torch.float32, lanes)


def _of_rms_norm(roundings: int) -> list[Hypothesis]:
    scales = [*_eps_faults(RMS_EPS, 1e-5).items(), *_narrow_faults(RMS_EPS)]
    return [
        *(_of_statistics(name, _rms(scale), False, roundings) for name, scale in scales),
        _of_statistics(
            "mean subtracted, as LayerNorm does", _layer(lambda d: torch.rsqrt(_mean(d.square()) + RMS_EPS)), True
        ),
        *_of_gradients(RMS_EPS, centred=False),
    ]


def _of_layer_norm() -> list[Hypothesis]:
    scales = [*_eps_faults(LAYER_EPS, 1e-6).items(), *_narrow_faults(LAYER_EPS)]
    scales.append(
        (
            "variance divided by n - 1",
            lambda d: torch.rsqrt(d.square().sum(-1, keepdim=True) / (d.shape[-1] - 1) + LAYER_EPS),
        )
    )
    found = [_of_statistics(name, _layer(scale), centred=True) for name, scale in scales]
    for name, dtype in FORMATS.items():
        found.append(_of_statistics(f"mean rounded to {name}", _rounded_mean(rounder(dtype)), centred=True))
    return [
        *found,
        *_rounded_before_weight(LAYER_EPS, centred=True),
        *_one_pass(),
        *_of_gradients(LAYER_EPS, centred=True),
    ]


def _rounded_mean(narrow: Callable[[Tensor], Tensor]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
        mean = narrow(_mean(x))
        return mean, torch.rsqrt(_mean((x - mean).square()) + LAYER_EPS)

    return statistics


HYPOTHESES: dict[str, list[Hypothesis]] = {
    "RMSNorm": [*_of_rms_norm(roundings=1), *_rounded_before_weight(RMS_EPS, centred=False)],
    "RMSNorm in Llama's order": _of_rms_norm(roundings=2),
    "LayerNorm": _of_layer_norm(),
}
