"""Ways in which softmax, log-softmax, log-sum-exp and cross-entropy go wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.diagnosis.base import Hypothesis
from trnbench.conformance.diagnosis.normalisation_narrow import FORMATS, rounder, running_sum

if TYPE_CHECKING:
    from trnbench.conformance.implementation import Tensors

LANES = (1, 8, 128)
"""How many sums may run side by side in an accumulator that is too narrow: their order shows in the result."""


def _kept(values: Tensor) -> Tensor:
    return values


def _plain_sum(terms: Tensor) -> Tensor:
    return terms.sum(-1, keepdim=True)


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to each intermediate of a softmax in float32; nothing, unless a fault says otherwise."""

    subtract_maximum: bool = True
    difference: Callable[[Tensor], Tensor] = _kept
    exponential: Callable[[Tensor], Tensor] = _kept
    add: Callable[[Tensor], Tensor] = _plain_sum
    total: Callable[[Tensor], Tensor] = _kept
    reciprocal: Callable[[Tensor], Tensor] | None = None
    """Where given, the sum's reciprocal is taken, passed through this, and multiplied with."""

    logarithm: Callable[[Tensor], Tensor] = _kept
    log_sum_exp: Callable[[Tensor], Tensor] | None = None
    """Where given, m + log s is computed first, passed through this, and subtracted from x."""

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Maximum, difference, exponential and sum."""
        wide = x.float()
        largest = wide.amax(-1, keepdim=True) if self.subtract_maximum else torch.zeros_like(wide[..., :1])
        difference = self.difference(wide - largest)
        exponential = self.exponential(torch.exp(difference))
        return largest, difference, exponential, self.total(self.add(exponential))

    def softmax(self, x: Tensor) -> Tensor:
        _, _, exponential, total = self.parts(x)
        if self.reciprocal is not None:
            return exponential * self.reciprocal(total.reciprocal())
        return exponential / total

    def log_softmax(self, x: Tensor) -> Tensor:
        largest, difference, _, total = self.parts(x)
        logarithm = self.logarithm(torch.log(total))
        if self.log_sum_exp is not None:
            return x.float() - self.log_sum_exp(largest + logarithm)
        return difference - logarithm

    def logsumexp(self, x: Tensor) -> Tensor:
        largest, _, _, total = self.parts(x)
        return (largest + self.logarithm(torch.log(total))).squeeze(-1)


def _softmax_gradient(p: Tensor, g: Tensor) -> Tensor:
    return p * (g - (p * g).sum(-1, keepdim=True))


def _log_softmax_gradient(y: Tensor, g: Tensor) -> Tensor:
    return g - torch.exp(y) * g.sum(-1, keepdim=True)


def _softmax(name: str, steps: Steps) -> Hypothesis:
    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
        saved = steps.softmax(inputs[0]).to(STORAGE[precision]).float()
        return (_softmax_gradient(saved, cotangents[0].float()),)

    return Hypothesis(name=name, emulate=lambda inputs, precision: (steps.softmax(inputs[0]),), gradient=gradient)


def _log_softmax(name: str, steps: Steps) -> Hypothesis:
    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
        saved = steps.log_softmax(inputs[0]).to(STORAGE[precision]).float()
        return (_log_softmax_gradient(saved, cotangents[0].float()),)

    return Hypothesis(name=name, emulate=lambda inputs, precision: (steps.log_softmax(inputs[0]),), gradient=gradient)


def _logsumexp(name: str, steps: Steps) -> Hypothesis:
    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
        saved = steps.logsumexp(inputs[0]).to(STORAGE[precision]).float().unsqueeze(-1)
        return (torch.exp(inputs[0].float() - saved) * cotangents[0].float().unsqueeze(-1),)

    return Hypothesis(name=name, emulate=lambda inputs, precision: (steps.logsumexp(inputs[0]),), gradient=gradient)


def _cross_entropy(name: str, steps: Steps) -> Hypothesis:
    def emulate(inputs: Tensors, precision: str) -> Tensors:
        return (-_at(steps.log_softmax(inputs[0]), inputs[1]),)

    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
        saved = steps.log_softmax(inputs[0]).to(STORAGE[precision]).float()
        return (_loss_gradient(torch.exp(saved), inputs[1], cotangents[0]),)

    return Hypothesis(name=name, emulate=emulate, gradient=gradient)


def _at(values: Tensor, target: Tensor) -> Tensor:
    return values.gather(-1, target.unsqueeze(-1)).squeeze(-1)


def _loss_gradient(p: Tensor, target: Tensor, g: Tensor) -> Tensor:
    onehot = torch.zeros_like(p).scatter_(-1, target.unsqueeze(-1), 1.0)
    return (p - onehot) * g.float().unsqueeze(-1)


def _common() -> list[tuple[str, Steps]]:
    """Faults of the exponentials and their sum, which all four operators share."""
    faults = [("softmax without maximum subtraction", Steps(subtract_maximum=False))]
    for name, dtype in FORMATS.items():
        narrow = rounder(dtype)
        faults += [
            (f"difference to the maximum rounded to {name}", Steps(difference=narrow)),
            (f"exp rounded to {name}", Steps(exponential=narrow)),
            (f"difference to the maximum and exp rounded to {name}", Steps(difference=narrow, exponential=narrow)),
            (f"sum of exponentials rounded to {name}", Steps(total=narrow)),
        ]
        for lanes in LANES:
            add = _narrow_sum(dtype, lanes)
            faults += [
                (f"{name} accumulator", Steps(add=add)),
                (f"{name} accumulator", Steps(add=add, exponential=narrow)),
            ]
    return faults


def _narrow_sum(dtype: torch.dtype, lanes: int) -> Callable[[Tensor], Tensor]:
    return lambda terms: running_sum(terms, dtype, lanes)


def _of_softmax() -> list[Hypothesis]:
    found = [_softmax(*fault) for fault in _common()]
    for name, dtype in FORMATS.items():
        narrow = rounder(dtype)
        every = Steps(difference=narrow, exponential=narrow, total=narrow)
        found += [
            _softmax(f"reciprocal rounded to {name}", Steps(reciprocal=narrow)),
            _softmax(f"every step rounded to {name}", every),
            Hypothesis(name=f"gradient computed in {name}", gradient=_narrow_softmax_gradient(narrow)),
        ]
    return found


def _narrow_softmax_gradient(narrow: Callable[[Tensor], Tensor]) -> Callable[[Tensors, Tensors, str], Tensors]:
    """p (g - t) with every product, difference and sum rounded."""

    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
        p = torch.softmax(inputs[0].float(), dim=-1).to(STORAGE[precision]).float()
        g = cotangents[0].float()
        total = narrow(narrow(p * g).sum(-1, keepdim=True))
        return (narrow(p * narrow(g - total)),)

    return gradient


def _of_logarithms(make: Callable[[str, Steps], Hypothesis]) -> list[Hypothesis]:
    """Of log-softmax and what is made of it: the common faults, and those of the logarithm."""
    found = [make(*fault) for fault in _common()]
    for name, dtype in FORMATS.items():
        narrow = rounder(dtype)
        found += [
            make(f"log-sum rounded to {name}", Steps(total=narrow, logarithm=narrow)),
            make(f"log-sum rounded to {name}", Steps(logarithm=narrow)),
            make(f"log-sum-exp rounded to {name}", Steps(log_sum_exp=narrow)),
            make(
                f"every step rounded to {name}",
                Steps(difference=narrow, exponential=narrow, total=narrow, logarithm=narrow),
            ),
        ]
    return found


def _of_log_softmax() -> list[Hypothesis]:
    def logarithm(inputs: Tensors, precision: str) -> Tensors:
        return (torch.softmax(inputs[0].float(), dim=-1).to(STORAGE[precision]).float().log(),)

    found = _of_logarithms(_log_softmax)
    found += [
        _log_softmax("maximum and log-sum added first", Steps(log_sum_exp=_kept)),
        Hypothesis(name="logarithm of the rounded softmax", emulate=logarithm),
    ]
    for name, dtype in FORMATS.items():
        narrow = rounder(dtype)
        found.append(Hypothesis(name=f"gradient computed in {name}", gradient=_narrow_log_gradient(narrow)))
    return found


def _narrow_log_gradient(narrow: Callable[[Tensor], Tensor]) -> Callable[[Tensors, Tensors, str], Tensors]:
    """g - p G with p, G and their product rounded, p from correct log-probabilities."""

    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
        y = torch.log_softmax(inputs[0].float(), dim=-1).to(STORAGE[precision]).float()
        g = cotangents[0].float()
        total = narrow(g.sum(-1, keepdim=True))
        return (g - narrow(narrow(torch.exp(y)) * total),)

    return gradient


def _of_logsumexp() -> list[Hypothesis]:
    # First, for every other fault repeats this one where the maximum is infinite.
    found = [_logsumexp("infinite maximum subtracted from itself", Steps()), *_of_logarithms(_logsumexp)]
    for name, dtype in FORMATS.items():
        found += [_every_step_of_logsumexp(name, rounder(dtype))]
    return found


def _every_step_of_logsumexp(name: str, narrow: Callable[[Tensor], Tensor]) -> Hypothesis:
    """As a composition of operators that each round their result, with their gradients."""
    steps = Steps(difference=narrow, exponential=narrow, total=narrow, logarithm=narrow)

    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
        y = narrow(steps.logsumexp(inputs[0])).unsqueeze(-1)
        p = narrow(torch.exp(narrow(inputs[0].float() - y)))
        return (p * cotangents[0].float().unsqueeze(-1),)

    return Hypothesis(name=f"every step rounded to {name}", gradient=gradient)


def _of_cross_entropy() -> list[Hypothesis]:
    found = _of_logarithms(_cross_entropy)
    for step in (1, -1):
        found.append(_other_label(step))
    for name, dtype in FORMATS.items():
        narrow = rounder(dtype)
        found += [
            Hypothesis(
                name=f"log-probabilities rounded to {name}",
                emulate=_rounded_log_probability(narrow),
                gradient=_loss_gradient_from(narrow, _kept),
            ),
            Hypothesis(
                name=f"probabilities rounded to {name} before the target is subtracted",
                gradient=_loss_gradient_from(_kept, narrow),
            ),
        ]
    return found


def _rounded_log_probability(narrow: Callable[[Tensor], Tensor]) -> Callable[[Tensors, str], Tensors]:
    return lambda inputs, precision: (-_at(narrow(torch.log_softmax(inputs[0].float(), dim=-1)), inputs[1]),)


def _loss_gradient_from(
    log_probability: Callable[[Tensor], Tensor], probability: Callable[[Tensor], Tensor]
) -> Callable[[Tensors, Tensors, str], Tensors]:
    """p - onehot where log p goes through one function, and p through the other."""

    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
        p = probability(torch.exp(log_probability(torch.log_softmax(inputs[0].float(), dim=-1))))
        return (_loss_gradient(p, inputs[1], cotangents[0]),)

    return gradient


def _other_label(step: int) -> Hypothesis:
    def moved(inputs: Tensors) -> Tensor:
        return (inputs[1] + step) % inputs[0].shape[-1]

    return Hypothesis(
        name="label off by one",
        emulate=lambda inputs, precision: (-_at(torch.log_softmax(inputs[0].double(), dim=-1), moved(inputs)),),
        gradient=lambda inputs, cotangents, precision: (
            _loss_gradient(torch.softmax(inputs[0].float(), dim=-1), moved(inputs), cotangents[0]),
        ),
    )


HYPOTHESES: dict[str, list[Hypothesis]] = {
    "softmax": _of_softmax(),
    "log-softmax": _of_log_softmax(),
    "logsumexp": _of_logsumexp(),
    "cross-entropy": _of_cross_entropy(),
}
