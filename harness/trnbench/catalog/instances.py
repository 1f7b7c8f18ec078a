"""EC2 instance types and UltraServers: how many chips each holds, as published, with source and date."""

from __future__ import annotations

import functools
from datetime import date
from typing import Literal

import msgspec

from trnbench.catalog.chips import Confidence, DateBasis
from trnbench.catalog.tables import read_package_table
from trnbench.status import UsageError
from trnbench.wording import nearest


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance type, or an UltraServer built of several (`members` times `member_type`).

    `chip` is the catalog key of its accelerator, empty where the catalog has none (`accelerator_name` still says
    what it is). `accelerators` counts packages, 0 for a CPU instance. `accelerator_memory_bytes` is per package and
    corrected; `accelerator_memory_bytes_api` is what DescribeInstanceTypes says, which is wrong for Trainium2.
    """

    instance_type: str
    kind: Literal["instance", "ultraserver"]
    members: int | None
    accelerators: int
    accelerator_memory_bytes: int | None
    accelerator_memory_bytes_api: int | None
    vcpus: int
    host_memory_bytes: int
    confidence: Confidence
    source: str
    as_of: date
    as_of_basis: DateBasis
    bare_metal: bool | None
    member_type: str = ""
    chip: str = ""
    accelerator_name: str = ""
    network_as_published: str = ""
    usage_classes: str = ""
    note: str = ""

    @property
    def total_accelerator_memory_bytes(self) -> int | None:
        """Memory of all accelerators together, in bytes; None where it is not published or there are none."""
        if self.accelerator_memory_bytes is None:
            return None
        return self.accelerators * self.accelerator_memory_bytes


@functools.cache
def instances() -> dict[str, Instance]:
    """Every instance type of the catalog by its name."""
    return {row.instance_type: row for row in read_package_table("instances.csv", Instance, ["instance_type"])}


def instance(name: str) -> Instance:
    """The instance type of this name. Raises `UsageError` with the nearest name."""
    known = instances()
    if name not in known:
        hint = nearest(name, known, "see trnbench/catalog/data/instances.csv")
        raise UsageError(f"the catalog has no instance type {name!r}; {hint}")
    return known[name]
