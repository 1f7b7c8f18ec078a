"""The version of a workload: a hash that changes whenever what is computed may have changed."""

from __future__ import annotations

import functools
import hashlib
from importlib import resources

import msgspec

from trnbench.workloads.presets import preset

SOURCES = (
    "data.py",
    "decoder.py",
    "inference.py",
    "initial.py",
    "layers.py",
    "presets.py",
    "program.py",
    "rope.py",
    "steps.py",
    "training.py",
)
"""The files of this package that decide what a step computes. Counting FLOPs or loading weights does not."""


def add_source(digest: hashlib._Hash, name: str, text: bytes) -> None:
    """Add a source file to a version's hash, with normal line ends: any checkout of it counts the same."""
    text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    # Lengths first, so that no text can move from one file to the next without changing the hash.
    digest.update(f"{name} {len(text)}\n".encode())
    digest.update(text)


@functools.cache
def workload_version(preset_name: str) -> str:
    """16 hex digits over the workload's source files and the preset's fields.

    Line ends are normalised before hashing, so a checkout on any system gives the same version; no import of torch
    is needed. Raises `UsageError` for an unknown preset.
    """
    fields = msgspec.structs.asdict(preset(preset_name))
    del fields["source"]
    digest = hashlib.sha256()
    for name in SOURCES:
        add_source(digest, name, resources.files("trnbench.workloads").joinpath(name).read_bytes())
    digest.update(msgspec.json.encode(fields, order="deterministic"))
    return digest.hexdigest()[:16]
