"""What a backend reports about the device it used: shared by backends, which fill it in, and records, which keep it."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from trnbench.status import UsageError

Number = TypeVar("Number", int, float)

Scalar = str | int | float | bool
"""A value that survives a round trip through JSON unchanged."""


class Device(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The device that really ran, read back from the runtime after the run, never taken from the request.

    `chip` is a key of the chip catalog, "cpu" for host execution (also under torch-xla or a simulated device), or
    the runtime's own name where the catalog has none. `chips` counts packages, `cores` the units a process can
    address (logical NeuronCores, GPUs, CPU threads). `memory_bytes` is per chip. No host name, path, account or
    instance id may enter `read_back`.
    """

    backend: str
    platform: str
    chip: str
    chips: int
    cores: int
    memory_bytes: int | None = None
    instance_type: str | None = None
    region: str | None = None
    read_back: dict[str, Scalar] = {}

    @property
    def parallel_devices(self) -> int:
        """Devices that a parallel plan can spread over: the host counts once, however many threads it has."""
        return self.chips if self.chip == "cpu" else self.cores

    def placed(self, instance_type: str | None, region: str | None) -> Device:
        """The device with the instance type and region that the user names; what is not named stays as read back.

        Raises `UsageError` where the machine itself names another instance type: its price would be of another.
        """
        if instance_type is not None and self.instance_type not in (None, instance_type):
            raise UsageError(f"--instance-type is {instance_type}, but this machine is a {self.instance_type}")
        return msgspec.structs.replace(
            self, instance_type=instance_type or self.instance_type, region=region or self.region
        )


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Running totals since the backend opened, or what was counted between two readings (`since`).

    `compiles` and `compile_seconds` are None where the backend cannot count them. `fallbacks` maps each operator
    that left the device for the host to how often it did.
    """

    compiles: int | None
    compile_seconds: float | None
    fallbacks: dict[str, int] = {}

    def since(self, before: Counters) -> Counters:
        """What was counted between an earlier reading and this one; operators that left no more are left out."""
        left = {name: total - before.fallbacks.get(name, 0) for name, total in self.fallbacks.items()}
        return Counters(
            compiles=difference(self.compiles, before.compiles),
            compile_seconds=difference(self.compile_seconds, before.compile_seconds),
            fallbacks={name: count for name, count in left.items() if count > 0},
        )

    def fallback_total(self) -> int:
        """Number of operator executions that ran on the host instead of the device."""
        return sum(self.fallbacks.values())


def difference(after: Number | None, before: Number | None) -> Number | None:
    """`after - before`, None where either is not known."""
    return None if after is None or before is None else after - before


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory of the measured rounds, in bytes; `source` names the counter it came from."""

    peak_bytes: int | None
    source: str
