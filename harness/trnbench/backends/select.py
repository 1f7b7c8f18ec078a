"""Find a backend by name and open it; refuse one that is unknown, absent or cannot wait for its device.

Nothing here imports torch: refusing an absent accelerator takes milliseconds.
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from trnbench.status import UsageError
from trnbench.wording import nearest

if TYPE_CHECKING:
    from trnbench.backends.base import Backend

BACKENDS: dict[str, str] = {
    "cpu": "trnbench.backends.cpu:CpuBackend",
    "cuda": "trnbench.backends.cuda:CudaBackend",
    "neuron": "trnbench.backends.neuron:NeuronBackend",
    "xla": "trnbench.backends.xla:XlaBackend",
}
"""Built-in backends: name to "module:Class"; imported only when asked for."""

ENTRY_POINTS = "trnbench.backends"
"""Entry point group under which another distribution offers a backend: name to "module:Class", as above."""

_WAITS = ("wait_for_device", "materialize")
"""Methods by which a backend waits: its own `materialize`, or what the shared one calls."""

_registered: dict[str, type[Backend]] = {}


def register(cls: type[Backend]) -> type[Backend]:
    """Make a backend known under its `name`; usable as a class decorator.

    Raises `UsageError` where the class does not itself say how it waits for its device: without that, a launch
    would be timed instead of the work.
    """
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not name:
        raise UsageError(f"backend class {cls.__name__} has no name; set the class attribute `name`")
    if not getattr(cls, "sync_method", ""):
        raise UsageError(f"backend {name} has no device sync: set `sync_method` and say how `materialize` waits")
    missing = sorted(getattr(cls, "__abstractmethods__", frozenset()))
    if waits := [method for method in missing if method in _WAITS]:
        raise UsageError(f"backend {name} has no device sync: define {waits[0]} to wait for the device's results")
    if missing:
        raise UsageError(f"backend {name} is incomplete: define {', '.join(missing)}")
    _registered[name] = cls
    return cls


def backend_names() -> list[str]:
    """All names that `backend_class` knows, sorted."""
    return sorted({*BACKENDS, *_registered, *entry_points(group=ENTRY_POINTS).names})


def backend_class(name: str) -> type[Backend]:
    """The class of the backend called `name`. Raises `UsageError` naming the nearest one where there is none."""
    if name in _registered:
        return _registered[name]
    target = BACKENDS.get(name) or _offered(name)
    if target is None:
        hint = nearest(name, backend_names(), f"choose one of {', '.join(backend_names())}")
        raise UsageError(f"there is no backend {name!r}; {hint}")
    module_name, _, class_name = target.partition(":")
    cls: type[Backend] = getattr(importlib.import_module(module_name), class_name)
    return register(cls)


def _offered(name: str) -> str | None:
    """Where another distribution keeps a backend of this name; a built-in name cannot be taken over."""
    return next((point.value for point in entry_points(group=ENTRY_POINTS, name=name)), None)


def preflight(name: str) -> None:
    """Say at once, without importing torch, whether the backend can be opened here.

    Raises `UsageError` for an unknown name and `BackendUnavailable`, exit code 4, with one sentence otherwise.
    """
    backend_class(name).preflight()


def open_backend(name: str) -> Backend:
    """Preflight, create and open a backend; call it only in a fresh process. Raises as `preflight` and `open` do."""
    cls = backend_class(name)
    cls.preflight()
    backend = cls()
    backend.open()
    return backend
