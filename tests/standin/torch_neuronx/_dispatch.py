"""Every operator of the simulated device: shapes now, by PyTorch's own meta kernels; values later, on the worker.

The first time an operator is seen with given shapes and dtypes counts as one compilation, as each new shape does on
the real device. Python floats are inputs of a compiled kernel and do not make a new one; integers, which mostly are
dimensions, do.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from torch_neuronx import _knobs
from torch_neuronx._runtime import Buffer, cores, out_of_memory, worker
from torch_neuronx._tensor import Layout, NeuronTensor, Slot, meta_like
from torch_neuronx._tracking import tracking

aten = torch.ops.aten
CPU = torch.device("cpu")
META = torch.device("meta")

_LINEAR_ALGEBRA = (
    *("cholesky", "cholesky_ex", "cholesky_solve", "cholesky_inverse", "det", "slogdet", "eig", "eigh", "eigvals"),
    *("eigvalsh", "householder_product", "inv", "inv_ex", "ldl_factor", "lstsq", "lu", "lu_factor", "lu_factor_ex"),
    *(
        "lu_solve",
        "qr",
        "solve",
        "solve_ex",
        "solve_triangular",
        "svd",
        "svdvals",
        "triangular_solve",
        "geqrf",
        "ormqr",
    ),
)
HOST_OPERATORS = frozenset(f"{prefix}{name}" for prefix in ("", "linalg_", "_linalg_") for name in _LINEAR_ALGEBRA)
"""Operators without an implementation on the device: they run on the host, and are listed."""

_known_layouts: dict[Any, Any] = {}

_RELEASING = {
    aten.mm.default: torch.mm,
    aten.addmm.default: torch.addmm,
    aten.bmm.default: torch.bmm,
    aten.baddbmm.default: torch.baddbmm,
}
"""Heavy operators by the function that lets go of the interpreter lock; a call through torch.ops keeps it."""


def _map(value: Any, change: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)([_map(item, change) for item in value])
    if isinstance(value, dict):
        return {name: _map(item, change) for name, item in value.items()}
    return change(value)


def _key(value: Any, floats: bool) -> Any:
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.stride(), value.storage_offset(), value.dtype, value.device.type)
    if isinstance(value, list | tuple):
        return tuple([_key(item, floats) for item in value])
    if isinstance(value, dict):
        return tuple([(name, _key(item, floats)) for name, item in value.items()])
    if isinstance(value, float) and not floats:
        return float
    return (type(value), value)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def run(operator: Any, args: Any, kwargs: Any) -> Any:
    """Execute one operator: trace it, read it on the host, fall back to the host, or queue it for the device."""
    inputs = _tensors((args, kwargs))
    if any(_is_traced(tensor) for tensor in inputs):
        return _trace(operator, args, kwargs)
    if any(tensor.device.type == "meta" for tensor in inputs):
        # Inside of a fake tensor: a meta tensor that carries this device's dispatch key.
        return operator.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.Meta), *args, **kwargs)
    cores.take()
    if operator in _TRANSFERS:
        return _TRANSFERS[operator](args, kwargs)
    if operator in _READS:
        return _on_host(operator, args, kwargs)
    name = operator._schema.name.removeprefix("aten::")
    if name == _knobs.oom_operator():
        raise out_of_memory(sum(tensor.nbytes for tensor in inputs))
    _refuse_mixed_devices(name, inputs)
    layouts = None if name in HOST_OPERATORS else _layouts(operator, args, kwargs, has_inputs=bool(inputs))
    if layouts is None:
        return _fall_back(operator, name, args, kwargs)
    tracking.ran_on_device(f"aten::{name}")
    return _submit(operator, args, kwargs, layouts)


def copy(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Copy between host and device, or on the device. A copy to the host waits."""
    if isinstance(target, NeuronTensor):
        slot = target.slot
        if isinstance(source, NeuronTensor):
            other = source.slot
            worker.submit(lambda: slot.host.copy_(other.host))
        else:
            taken = source.detach().clone()
            worker.submit(lambda: slot.host.copy_(taken))
    else:
        worker.drain()
        target.copy_(source.slot.host)
    return target


def _to_copy(args: Any, kwargs: Any) -> Any:
    """Tensor.to: between host and device in both directions, or a change of type on the device."""
    operator = aten._to_copy.default
    target = kwargs.get("device")
    if target is not None and target.type == "cpu":
        return _on_host(operator, args, kwargs)
    if not isinstance(args[0], NeuronTensor):
        with torch.no_grad():
            return _to_device(operator(args[0].detach(), **{**kwargs, "device": CPU}))
    return _submit(operator, args, kwargs, _layouts(operator, args, kwargs, has_inputs=True))


_TRANSFERS = {
    aten.copy_.default: lambda args, _: copy(args[1], args[0]),
    aten._copy_from.default: lambda args, _: copy(args[0], args[1]),
    aten._to_copy.default: _to_copy,
}
_READS = frozenset({aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default})


def _is_traced(tensor: torch.Tensor) -> bool:
    if isinstance(tensor, NeuronTensor):
        return tensor.slot is None
    return isinstance(tensor, FakeTensor)


def _refuse_mixed_devices(name: str, inputs: list[torch.Tensor]) -> None:
    for tensor in inputs:
        if not isinstance(tensor, NeuronTensor) and tensor.dim() and "index" not in name:
            raise RuntimeError(f"aten::{name}: expected all tensors on neuron:0, but found one on {tensor.device}")


def _layouts(operator: Any, args: Any, kwargs: Any, has_inputs: bool) -> Any:
    """Layout of the outputs, by running the meta kernel once per signature; None where shapes depend on values."""
    key = (operator, _key(args, not has_inputs), _key(kwargs, not has_inputs))
    started = time.perf_counter()
    if key not in _known_layouts:
        try:
            with torch.no_grad():
                metas = operator(*_map(args, _to_meta), **_map(kwargs, _to_meta))
        except NotImplementedError:
            return None
        except RuntimeError as error:
            if "meta" not in str(error).lower():
                raise
            return None
        _known_layouts[key] = _map(metas, lambda meta: Layout(meta) if isinstance(meta, torch.Tensor) else meta)
    tracking.kernel(key, time.perf_counter() - started)
    return _known_layouts[key]


def _to_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return meta_like(value)
    return META if isinstance(value, torch.device) else value


def _submit(operator: Any, args: Any, kwargs: Any, layouts: Any) -> Any:
    schema = operator._schema
    made: list[tuple[Slot, Layout, bool]] = []
    single = len(schema.returns) == 1

    def output(index: int, value: Any) -> Any:
        info = schema.returns[index].alias_info
        base = _aliased(schema, args, kwargs, info) if info is not None else None
        if info is not None and info.is_write:
            if isinstance(value, Layout) and value.size != tuple(base.shape):
                raise NotImplementedError(f"{operator}: a tensor of the simulated device cannot change its shape")
            return base

        def tensor(layout: Any) -> Any:
            if not isinstance(layout, Layout):
                return layout
            slot = Slot()
            view = isinstance(base, NeuronTensor)
            buffer = base.buffer if view else Buffer(layout.nbytes)
            made.append((slot, layout, view))
            return NeuronTensor(layout, slot, buffer)

        return _map(value, tensor)

    outputs: Any = None
    if schema.returns:
        values = (layouts,) if single else layouts
        outputs = tuple(output(index, value) for index, value in enumerate(values))
    host_args, host_kwargs = _map(args, _held), _map(kwargs, _held)
    execute = _RELEASING.get(operator, operator)

    def work() -> None:
        results = execute(*_map(host_args, _read), **_map(host_kwargs, _read))
        results = (results,) if single else results
        fresh = [
            tensor
            for index, result in enumerate(results or ())
            if not (schema.returns[index].alias_info and schema.returns[index].alias_info.is_write)
            for tensor in _tensors(result)
        ]
        for (slot, layout, view), tensor in zip(made, fresh, strict=True):
            slot.host = tensor if view else _laid_out(tensor, layout)

    if torch.Tag.nondeterministic_seeded in operator.tags:
        worker.drain()
        worker.submit(work)
        worker.drain()  # the generator is shared with the host, so its order must be the program's
    else:
        worker.submit(work)
    return outputs[0] if single else outputs


def _aliased(schema: Any, args: Any, kwargs: Any, info: Any) -> Any:
    """The argument that an output with this alias information is, or is a view of."""
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.before_set & info.before_set:
            if argument.name in kwargs:
                return kwargs[argument.name]
            if position < len(args):
                return args[position]
    return None


def _held(value: Any) -> Any:
    """What the worker needs to keep of an argument: the slot of a device tensor, a copy of a host scalar tensor."""
    if isinstance(value, NeuronTensor):
        return value.slot
    if isinstance(value, torch.Tensor):
        return Slot(value.detach().clone())
    return CPU if isinstance(value, torch.device) else value


def _read(value: Any) -> Any:
    return value.host if isinstance(value, Slot) else value


def _laid_out(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """`tensor` with the strides that the meta kernel promised; CPU kernels sometimes choose others."""
    if tensor.stride() == layout.stride and tensor.dtype == layout.dtype:
        return tensor
    moved = torch.empty_strided(layout.size, layout.stride, dtype=layout.dtype)
    return moved.copy_(tensor)


def _on_host(operator: Any, args: Any, kwargs: Any) -> Any:
    """Run at once on the host values and return host results."""
    worker.drain()
    with torch.no_grad():
        return operator(*_map(_map(args, _held), _read), **_map(_map(kwargs, _held), _read))


def _fall_back(operator: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Run on the host because the device cannot, note it, and bring the results back to the device."""
    tracking.ran_on_host(f"aten::{name}")
    results = _on_host(operator, args, kwargs)

    if operator._schema.is_mutable:
        return args[0]
    return _map(results, lambda value: _to_device(value) if isinstance(value, torch.Tensor) else value)


def _to_device(host: torch.Tensor) -> NeuronTensor:
    """A device tensor with the values of `host`, which the caller gives away."""
    layout = Layout(host)
    return NeuronTensor(layout, Slot(host), Buffer(layout.nbytes))


def _trace(operator: Any, args: Any, kwargs: Any) -> Any:
    """Run on fake tensors for `torch.compile`: layouts only."""

    def inner(value: Any) -> Any:
        if isinstance(value, NeuronTensor):
            return value.meta
        if isinstance(value, FakeTensor) and value.device.type == "neuron":
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        return META if isinstance(value, torch.device) and value.type == "neuron" else value

    results = operator(*_map(args, inner), **_map(kwargs, inner))
    schema = operator._schema
    if schema.is_mutable:
        single = len(schema.returns) == 1
        values = (results,) if single else results or ()
        mutated = tuple(
            _aliased(schema, args, kwargs, returned.alias_info)
            if returned.alias_info is not None and returned.alias_info.is_write
            else _map(value, _wrap)
            for returned, value in zip(schema.returns, values, strict=True)
        )
        return (mutated[0] if single else mutated) if schema.returns else None
    return _map(results, _wrap)


def _wrap(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.device.type == "meta":
        return NeuronTensor.traced(value)
    return value
