"""What differs between two sides and may matter: told in notes, since it neither is the axis nor forbids comparing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench import wording
from trnbench.compare.admission import unlike_numerics
from trnbench.compare.keys import versions_key
from trnbench.compare.metrics import chips_used
from trnbench.compare.units import binary_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trnbench.compare.model import Side
    from trnbench.device import Scalar
    from trnbench.records.schema import Record

CPU_IDENTITY = ("architecture", "model", "isa")


def side_notes(side: Side, letter: str) -> list[str]:
    """What a reader must know about one side's own runs."""
    notes = []
    for run in side.runs:
        name = f"run {run.record.run_id} of {letter}"
        if run.attempts > 1:
            notes.append(f"{name} made {run.attempts} attempts; the newest counts")
        if run.drift is not None:
            notes.append(
                f"drift in {name}: the second half of its rounds is {abs(run.drift.change):.0%} "
                f"{'slower' if run.drift.change > 0 else 'faster'} ({run.drift.first_half_seconds:.4g} s, then "
                f"{run.drift.second_half_seconds:.4g} s), so its single figure is not clean"
            )
        if run.record.environment.git.dirty:
            notes.append(f"{name} was measured with uncommitted changes in the checkout")
        if run.record.simulated:
            notes.append(f"{name}: {wording.SIMULATED_NOTICE}")
    notes += [f"run {record.run_id} of {letter} carries no speed: {reason}" for record, reason in side.left_out]
    return notes


def pair_notes(a: Record, b: Record) -> list[str]:
    """What differs between the newest records of two sides, `a` first in every sentence."""
    notes = [*_cpu_notes(a, b), *_device_notes(a, b), *_stack_notes(a, b), *_measurement_notes(a, b)]
    numerics = unlike_numerics(a, b)
    if numerics:
        notes.append(f"unlike numerics: {numerics}")
    checks_a, checks_b = ({check.check for check in record.conformance} for record in (a, b))
    if checks_a != checks_b:
        notes.append(
            f"unlike conformance checks: only a ran {_listed(checks_a - checks_b)}; "
            f"only b ran {_listed(checks_b - checks_a)}"
        )
    return notes


def _cpu_notes(a: Record, b: Record) -> list[str]:
    cpu_a, cpu_b = a.environment.cpu, b.environment.cpu
    notes = []
    unlike = [name for name in CPU_IDENTITY if cpu_a.get(name) != cpu_b.get(name)]
    if unlike:
        on_cpu = a.device.chip == b.device.chip == "cpu"
        told = [_isa(cpu_a, cpu_b) if name == "isa" else _versus(name, cpu_a, cpu_b) for name in unlike]
        notes.append(f"{'unlike CPUs' if on_cpu else 'unlike host CPUs'}: {'; '.join(told)}")
    others = sorted({*cpu_a, *cpu_b} - set(CPU_IDENTITY))
    for name in others:
        if cpu_a.get(name) != cpu_b.get(name):
            words = name.replace("_", " ")
            notes.append(f"{words} differ {cpu_a.get(name, 'unknown')} vs {cpu_b.get(name, 'unknown')}")
    return notes


def _isa(a: Mapping[str, Scalar], b: Mapping[str, Scalar]) -> str:
    first, second = (set(str(cpu.get("isa", "")).split()) for cpu in (a, b))
    return f"instruction sets only of a: {_listed(first - second)}, only of b: {_listed(second - first)}"


def _device_notes(a: Record, b: Record) -> list[str]:
    notes = []
    if chips_used(a) != chips_used(b):
        notes.append(f"chips used differ {chips_used(a):g} vs {chips_used(b):g}; the ratio is of whole systems")
    memory_a, memory_b = a.device.memory_bytes, b.device.memory_bytes
    if memory_a is not None and memory_b is not None and binary_size(memory_a) != binary_size(memory_b):
        notes.append(f"memory per chip differs {binary_size(memory_a)} vs {binary_size(memory_b)}")
    return notes


def _stack_notes(a: Record, b: Record) -> list[str]:
    notes = []
    for words, first, second in (
        ("versions", dict(versions_key(a)), dict(versions_key(b))),
        ("settings", a.environment.flags, b.environment.flags),
    ):
        shared = [name for name in sorted({*first} & {*second}) if first[name] != second[name]]
        if shared:
            notes.append(f"{words} differ: {', '.join(_versus(name, first, second) for name in shared)}")
    return notes


def _measurement_notes(a: Record, b: Record) -> list[str]:
    notes: list[str] = []
    if a.measurement is None or b.measurement is None:
        return notes
    if a.measurement.sync != b.measurement.sync:
        notes.append(f"each side waits for its device in its own way: a {a.measurement.sync}; b {b.measurement.sync}")
    flops_a, flops_b = a.measurement.flops, b.measurement.flops
    if flops_a is not None and flops_b is not None and flops_a.convention != flops_b.convention:
        notes.append(
            f"unlike FLOP conventions {flops_a.convention} vs {flops_b.convention}: their MFU must not be compared"
        )
    return notes


def _versus(name: str, a: Mapping[str, Scalar], b: Mapping[str, Scalar]) -> str:
    return f"{name} {a.get(name, 'unknown')} vs {b.get(name, 'unknown')}"


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
