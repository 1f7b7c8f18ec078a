"""Keys of records: what makes two the same machine or stack, and the order of cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.case import MODES, PHASES, PRECISIONS, PROFILES, SCENARIOS, TIERS
from trnbench.records.fingerprint import LEFT_OUT_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Hashable

    from trnbench.case import Case
    from trnbench.records.schema import Record


def device_key(record: Record) -> tuple[Hashable, ...]:
    """What makes two records the same machine: device, counts, instance type and every fact about the host's CPU."""
    device = record.device
    facts = tuple(sorted((name, str(value)) for name, value in record.environment.cpu.items()))
    return (device.backend, device.platform, device.chip, device.chips, device.cores, device.instance_type or "", facts)


def versions_key(record: Record) -> tuple[tuple[str, str], ...]:
    """The software versions that tell stacks apart (not the harness itself, nor the kernel)."""
    versions = record.environment.versions
    return tuple(sorted((name, version) for name, version in versions.items() if name not in LEFT_OUT_VERSIONS))


def stack_key(record: Record) -> tuple[Hashable, ...]:
    """Software versions and settings together."""
    flags = tuple(sorted((name, str(value)) for name, value in record.environment.flags.items()))
    return (versions_key(record), flags)


def work_order(case: Case) -> tuple[int, ...]:
    """Phase, precision, mode, sizes as numbers, scenario, profile: each in the order of its use; for any order."""
    return (
        PHASES.index(case.phase),
        PRECISIONS.index(case.precision),
        MODES.index(case.mode),
        case.batch,
        case.sequence,
        case.micro_batch,
        case.new_tokens,
        SCENARIOS.index(case.scenario),
        PROFILES.index(case.profile),
    )


def case_order(case: Case) -> tuple[Hashable, ...]:
    """A sort key that puts batches and sequences in the order of numbers, and phases and precisions in that of use."""
    return (
        case.suite,
        TIERS.index(case.tier),
        case.workload,
        *work_order(case),
        tuple(sorted(case.parallel.items())),
        (case.cache, case.tuning, case.version),
    )
