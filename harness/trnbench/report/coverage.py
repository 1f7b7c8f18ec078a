"""Which devices have records, and which kind of chip has none yet: from the records and the catalog of chips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.catalog.chips import chips
from trnbench.compare.labels import device_label
from trnbench.report.format import joined
from trnbench.report.metric_names import capitalised

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trnbench.records.schema import Record
    from trnbench.report.material import Material

_HOST = "cpu"
TRAINIUM, GPU = "Trainium", "GPU"
_GPU_VENDORS = frozenset({"NVIDIA", "AMD"})


def devices_measured(material: Material) -> str:
    """`Devices with records: cpu. No Trainium and no GPU has been measured yet.`; empty without a record.

    A kind of chip counts as measured once one of its records holds a measurement, stand-ins aside. Where a record
    names a chip that the catalog does not hold, its kind is unknown, and no kind is said to be missing.
    """
    records = [entry.record for entry in material.entries]
    if not records:
        return ""
    told = f"Devices with records: {joined(sorted({_label(record) for record in records}))}."
    unknown = sorted({record.device.chip for record in records if record.device.chip not in (_HOST, *chips())})
    if unknown:
        return f"{told} The catalog of chips does not hold {joined(unknown)}."
    measured = _kinds(record for record in records if record.measurement and not record.simulated)
    missing = [f"no {kind}" for kind in (TRAINIUM, GPU) if kind not in measured]
    return f"{told} {capitalised(joined(missing))} has been measured yet." if missing else told


def _label(record: Record) -> str:
    return device_label(record) + (", simulated" if record.simulated else "")


def _kinds(records: Iterable[Record]) -> set[str]:
    found = set()
    for record in records:
        known = chips().get(record.device.chip)
        if known is None:
            continue
        if known.vendor in _GPU_VENDORS:
            found.add(GPU)
        elif known.label.startswith(TRAINIUM):
            found.add(TRAINIUM)
    return found
