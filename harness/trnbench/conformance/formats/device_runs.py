"""Functions run on a backend's device: compiled once, several to a graph, refused where the host would run them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trnbench.conformance.formats.caster import NotHere
from trnbench.conformance.formats.powers import BY_BITS, BY_SEARCH, Powers
from trnbench.conformance.implementation import Tensors, as_tuple
from trnbench.status import CaseError, Status

if TYPE_CHECKING:
    from trnbench.backends.base import Backend

Function = Callable[..., Any]

_ABSENCES = frozenset({Status.FAILED, Status.UNSUPPORTED, Status.COMPILE_FAILED, Status.FALLBACK})
"""What an error may mean for the device to lack a function; running out of memory, say, is no absence."""


class DeviceRuns:
    """Host tensors in, host tensors out. Raises `NotHere` where the device lacks an operator or leaves it to the host.

    Errors of other kinds (out of memory, busy) are the caller's.
    """

    def __init__(self, backend: Backend, mode: str) -> None:
        self._backend = backend
        self._mode = mode
        self._compiled: dict[str, Function] = {}
        self._shared: dict[str, dict[str, Function]] = {}
        self._refusals: dict[tuple[str, str], str] = {}

    @cached_property
    def powers(self) -> Powers:
        """By bits where the device itself reinterprets fp32 as integers, else by search; found by trying."""
        try:
            self._run("reinterpreting bits", BY_BITS.power, torch.zeros(1, dtype=torch.int32))
        except NotHere:
            return BY_SEARCH
        return BY_BITS

    def alone(self, name: str, function: Function, *inputs: Tensor) -> Tensors:
        """Outputs of one function, compiled the first time that `name` is seen in a compiling mode."""
        if self._mode == "eager":
            return self._run(name, function, *inputs)
        if name not in self._compiled:
            self._compiled[name] = self._compile(function)
        return self._run(name, self._compiled[name], *inputs)

    def shared(self, kind: str, name: str, functions: dict[str, Function], *inputs: Tensor) -> Tensors:
        """Outputs of `functions[name]`; in compiling modes one graph computes all functions of the kind that run here.

        Which of them run is found by trying each uncompiled; a graph that does not compile is taken apart again.
        """
        if self._mode == "eager":
            return self._run(name, functions[name], *inputs)
        if kind not in self._shared:
            self._shared[kind] = self._that_run(kind, functions, *inputs)
        members = self._shared[kind]
        if name not in members:
            raise NotHere(self._refusals[kind, name])
        together = f"all of {kind}"
        if together not in self._compiled:
            several = tuple(members.values())
            self._compiled[together] = self._compile(_together(several))
        try:
            outputs = self._run(kind, self._compiled[together], *inputs)
        except NotHere:
            return self.alone(f"{kind} {name}", members[name], *inputs)
        sizes = {member: self._widths[kind, member] for member in members}
        start = sum(size for member, size in list(sizes.items())[: list(sizes).index(name)])
        return outputs[start : start + sizes[name]]

    def _compile(self, function: Function) -> Function:
        """Through the backend's compiler, with a code object of its own: TorchDynamo allows few graphs of one."""
        code = getattr(function, "__code__", None)
        if isinstance(function, FunctionType) and isinstance(code, CodeType):
            function = FunctionType(code.replace(), function.__globals__, closure=function.__closure__)
        return self._backend.compile(function, self._mode)

    @cached_property
    def _widths(self) -> dict[tuple[str, str], int]:
        """Number of outputs of each function by kind and name."""
        return {}

    def _that_run(self, kind: str, functions: dict[str, Function], *inputs: Tensor) -> dict[str, Function]:
        found = {}
        for name, function in functions.items():
            try:
                self._widths[kind, name] = len(self._run(name, function, *inputs))
            except NotHere as reason:
                self._refusals[kind, name] = str(reason)
            else:
                found[name] = function
        return found

    def _run(self, what: str, function: Function, *inputs: Tensor) -> Tensors:
        before = self._backend.counters().fallbacks
        try:
            with torch.no_grad():
                outputs = _flat(function(*(one.to(self._backend.device) for one in inputs)))
                self._backend.materialize(outputs)
        except (RuntimeError, TypeError, ValueError, CaseError) as error:
            if self._backend.classify(error) not in _ABSENCES:
                raise
            raise NotHere(f"{what} does not run on {self._backend.name}: {_first_line(error)}") from error
        left = sorted(name for name, count in self._backend.counters().fallbacks.items() if count > before.get(name, 0))
        if left:
            raise NotHere(f"{what} runs on the host, not on {self._backend.name}: {', '.join(left)}")
        return tuple(output.detach().cpu() for output in outputs)


def _together(functions: tuple[Function, ...]) -> Function:
    """One function that calls all of them with the same inputs."""

    def all_of_them(*inputs: Tensor) -> tuple[Tensors, ...]:
        return tuple(as_tuple(function(*inputs)) for function in functions)

    return all_of_them


def _flat(outputs: Any) -> Tensors:
    """All tensors of nested tuples, in order."""
    if isinstance(outputs, Tensor):
        return (outputs,)
    return tuple(tensor for part in outputs for tensor in _flat(part))


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
