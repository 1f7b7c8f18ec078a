"""What a passport is taken of: anything that runs a function of tensors and hands its results back to the host.

Probes know only this interface, so that a test can put a device of known character in the place of a real one.
"""

from __future__ import annotations

import abc
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor

from trnbench.conformance.implementation import DeviceImplementation, Tensors, as_tuple

if TYPE_CHECKING:
    from trnbench.backends.base import Backend

Function = Callable[..., Any]
Outcomes = dict[str, "Tensors | Unknown"]

REASON_LENGTH = 200


class Unknown(msgspec.Struct, frozen=True):
    """Why something could not be measured."""

    reason: str


class ProbeError(Exception):
    """A probe cannot answer on this device; the message is the reason that the record keeps."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One small computation of a probe that asks several at once."""

    name: str
    function: Function
    inputs: Tensors


class Subject(abc.ABC):
    """Runs functions on a device. Inputs and outputs are host tensors; nothing that left the device is passed off."""

    @abc.abstractmethod
    def run(self, function: Function, *inputs: Tensor) -> Tensors:
        """The function's outputs. Raises `ProbeError` where an operator ran on the host, else what the runtime does."""

    @abc.abstractmethod
    def gradient(self, function: Function, inputs: Tensors, cotangents: Tensors, wrt: Sequence[int]) -> Tensors:
        """Gradients of <outputs, cotangents> for the inputs numbered in `wrt`; raises as `run`."""

    def ask(self, questions: Sequence[Question]) -> Outcomes:
        """Every question's outputs by name, or why it has none; one question without an answer leaves the others."""
        return {question.name: self._one(question) for question in questions}

    def ask_all(self, functions: Mapping[str, Function], *inputs: Tensor) -> Outcomes:
        """`ask` with the same inputs for every function."""
        return self.ask([Question(name=name, function=each, inputs=inputs) for name, each in functions.items()])

    def seed(self, value: int) -> None:
        """Start the device's random numbers anew."""
        torch.manual_seed(value)

    def _one(self, question: Question) -> Tensors | Unknown:
        try:
            return self.run(question.function, *question.inputs)
        except Exception as error:
            # A runtime may raise anything for an operator it lacks; the reason is the result.
            return Unknown(why(error))


class DeviceSubject(Subject):
    """A backend's device in one of its modes."""

    def __init__(self, backend: Backend, mode: str) -> None:
        self._backend = backend
        self._mode = mode
        self._implementations: dict[Function, DeviceImplementation] = {}

    def run(self, function: Function, *inputs: Tensor) -> Tensors:
        before = self._backend.counters().fallbacks
        outputs = self._implementation(function).forward(inputs)
        self._check_fallbacks(before)
        return outputs

    def gradient(self, function: Function, inputs: Tensors, cotangents: Tensors, wrt: Sequence[int]) -> Tensors:
        before = self._backend.counters().fallbacks
        outputs = self._implementation(function).backward(inputs, cotangents, wrt)
        self._check_fallbacks(before)
        return outputs

    def ask(self, questions: Sequence[Question]) -> Outcomes:
        """Compiled, all questions together are one graph; only where that fails is each one a graph of its own."""
        if self._mode == "compiled":
            try:
                return self._together(questions)
            except Exception:
                # One of them does not run here. Which one, and why, shows when they are asked one by one.
                return super().ask(questions)
        return super().ask(questions)

    def seed(self, value: int) -> None:
        torch.manual_seed(value)
        if torch.device(self._backend.device).type == "xla":
            importlib.import_module("torch_xla.core.xla_model").set_rng_state(value)

    def _together(self, questions: Sequence[Question]) -> Outcomes:
        inputs: list[Tensor] = []
        places: dict[int, int] = {}
        for question in questions:
            for tensor in question.inputs:
                if id(tensor) not in places:
                    places[id(tensor)] = len(inputs)
                    inputs.append(tensor)
        steps = [(question.function, [places[id(tensor)] for tensor in question.inputs]) for question in questions]
        sizes: list[int] = []

        def all_answers(*tensors: Tensor) -> Tensors:
            sizes.clear()
            results: list[Tensor] = []
            for function, indices in steps:
                outputs = as_tuple(function(*[tensors[index] for index in indices]))
                sizes.append(len(outputs))
                results += outputs
            return tuple(results)

        if self._mode == "compiled":
            # Every call defines this function anew, but TorchDynamo counts variants by code and stops at eight.
            torch._dynamo.reset()
        outputs = self.run(all_answers, *inputs)
        self._implementations.pop(all_answers)
        answers: Outcomes = {}
        position = 0
        for question, size in zip(questions, sizes, strict=True):
            answers[question.name] = outputs[position : position + size]
            position += size
        return answers

    def _implementation(self, function: Function) -> DeviceImplementation:
        if function not in self._implementations:
            self._implementations[function] = DeviceImplementation(self._backend, self._mode, function)
        return self._implementations[function]

    def _check_fallbacks(self, before: Mapping[str, int]) -> None:
        after = self._backend.counters().fallbacks
        left = sorted(name for name, count in after.items() if count > before.get(name, 0))
        if left:
            raise ProbeError(f"{', '.join(left)} ran on the host instead of the device")


def why(error: BaseException) -> str:
    """One line for a record: the message's first line, or the exception's name where it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = lines[0] if lines else "no message"
    text = message if isinstance(error, ProbeError) else f"{type(error).__name__}: {message}"
    return text if len(text) <= REASON_LENGTH else f"{text[: REASON_LENGTH - 3]}..."


def answer(outcomes: Outcomes, name: str) -> Tensors:
    """The outputs of one question. Raises `ProbeError` with its reason where it has none."""
    outcome = outcomes[name]
    if isinstance(outcome, Unknown):
        raise ProbeError(outcome.reason)
    return outcome
