"""One short key for "the same machine and software stack": results are filed and runs are grouped by it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trnbench.device import Device, Scalar

FINGERPRINT_VERSION = 1
"""Goes up whenever the same machine would get another fingerprint; stored beside it, so histories do not mix."""

LEFT_OUT_VERSIONS = frozenset({"trnbench", "pytest-benchmark", "kernel", "os"})
"""Recorded, but not a reason to start a new history: security updates, and the harness, which `code` tells apart."""


def fingerprint(
    device: Device, versions: Mapping[str, str], flags: Mapping[str, Scalar], cpu: Mapping[str, Scalar]
) -> str:
    """16 hexadecimal digits over everything that should be equal between two runs of one history.

    Covers backend, platform, chip and their counts, CPU facts with instruction sets and threads, software versions and
    every flag. Leaves out what changes on one machine (clock readings, free memory, everything the backend read back)
    and what it is called (host, instance type, region).
    """
    parts = {
        "version": FINGERPRINT_VERSION,
        "device": [device.backend, device.platform, device.chip, device.chips, device.cores],
        "versions": {name: version for name, version in versions.items() if name not in LEFT_OUT_VERSIONS},
        "flags": dict(flags),
        "cpu": dict(cpu),
    }
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]
