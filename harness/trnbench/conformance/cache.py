"""Host computations that several cases share, kept in the user's cache folder under a key of all they depend on."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping


def cache_folder(kind: str) -> Path:
    """`$XDG_CACHE_HOME/trnbench/<kind>`, by default under `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trnbench" / kind


def host_arithmetic() -> tuple[object, ...]:
    """What decides in which order this host rounds: another library or instruction set has another noise floor."""
    return (
        torch.__version__,
        torch.backends.cpu.get_cpu_capability(),
        platform.machine(),
        torch.get_num_threads(),
    )


def add_weights(digest: hashlib._Hash, weights: Mapping[str, torch.Tensor]) -> None:
    """Add every bit of the weights to a digest, in the order of their names."""
    for name, weight in sorted(weights.items()):
        digest.update(name.encode() + weight.contiguous().view(torch.uint8).numpy().tobytes())


def read_kept(path: Path) -> bytes:
    """What `keep` wrote there.

    Raises `OSError` where there is nothing, `ValueError` where the content does not match its own checksum: a cut or
    foreign file.
    """
    data = path.read_bytes()
    if hashlib.sha256(data[32:]).digest() != data[:32]:
        raise ValueError("a cached computation does not match its checksum")
    return data[32:]


def keep(path: Path, payload: bytes) -> None:
    """Write atomically, checksum first; a full disk or a read-only home costs the cache, never the check."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(hashlib.sha256(payload).digest() + payload)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError:
        return
