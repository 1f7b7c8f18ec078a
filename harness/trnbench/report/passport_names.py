"""What passports are called, and which two of them are worth setting side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.case import MODES
from trnbench.catalog.chips import chips
from trnbench.records.fingerprint import LEFT_OUT_VERSIONS
from trnbench.records.ids import instant
from trnbench.report.format import utc
from trnbench.report.material import PassportEntry

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from trnbench.records.passport import Passport

Pair = tuple[PassportEntry, PassportEntry]


def passport_label(passport: Passport) -> str:
    """`xla on cpu, compiled`; the chip is left out where it is the backend's own name."""
    device = passport.device
    known = chips().get(device.chip)
    chip = known.label if known else device.chip
    place = device.backend if device.backend == chip else f"{device.backend} on {chip}"
    return f"{place}, {passport.mode}"


def newest_passports(entries: Iterable[PassportEntry]) -> list[PassportEntry]:
    """The newest passport of each backend, chip, mode, machine and software stack, oldest first."""
    newest: dict[Hashable, PassportEntry] = {}
    for entry in sorted(entries, key=_age):
        key = (*_device(entry), entry.passport.mode, entry.passport.environment.fingerprint)
        newest.pop(key, None)
        newest[key] = entry
    return list(newest.values())


def pairs_worth_comparing(entries: Iterable[PassportEntry]) -> list[tuple[str, Pair]]:
    """Each pair with what differs in a word: the mode on one device, a former stack or machine, the backend or chip.

    Only the newest passports of each kind meet. Where two backends share no mode, the first mode of each is compared.
    """
    stacks: dict[tuple[str, str, str], list[PassportEntry]] = {}
    for entry in newest_passports(entries):
        stacks.setdefault((*_device(entry), entry.passport.mode), []).append(entry)
    by_device: dict[tuple[str, str], dict[str, PassportEntry]] = {}
    for (backend, chip, mode), group in stacks.items():
        by_device.setdefault((backend, chip), {})[mode] = group[-1]
    devices = [
        dict(sorted(modes.items(), key=lambda item: MODES.index(item[0]) if item[0] in MODES else len(MODES)))
        for _, modes in sorted(by_device.items(), key=lambda item: _rank(*item[0]))
    ]
    found: list[tuple[str, Pair]] = []
    for place, modes in enumerate(devices):
        for other in devices[place + 1 :]:
            shared = [mode for mode in modes if mode in other]
            found += [("backend", (modes[mode], other[mode])) for mode in shared]
            if not shared:
                found.append(("backend", (next(iter(modes.values())), next(iter(other.values())))))
    for modes in devices:
        ordered = list(modes.values())
        found += [("mode", (one, other)) for at, one in enumerate(ordered) for other in ordered[at + 1 :]]
    for _, group in sorted(stacks.items(), key=lambda item: _rank(*item[0][:2])):
        found += [("stack", (group[at], group[at - 1])) for at in range(len(group) - 1, 0, -1)]
    return found


def sides(pair: Pair) -> tuple[str, str]:
    """Two names that differ: with the versions that do, or the time where nothing else tells them apart."""
    labels = [passport_label(entry.passport) for entry in pair]
    if labels[0] != labels[1]:
        return labels[0], labels[1]
    versions = [_versions(entry.passport) for entry in pair]
    names = [name for name in sorted({*versions[0], *versions[1]}) if versions[0].get(name) != versions[1].get(name)]
    a, b = (
        f"{label}, "
        + (", ".join(f"{name} {known.get(name, 'absent')}" for name in names) or utc(entry.passport.started_at))
        for label, known, entry in zip(labels, versions, pair, strict=True)
    )
    return a, b


def _versions(passport: Passport) -> dict[str, str]:
    return {name: each for name, each in passport.environment.versions.items() if name not in LEFT_OUT_VERSIONS}


def _device(entry: PassportEntry) -> tuple[str, str]:
    return entry.passport.device.backend, entry.passport.device.chip


def _age(entry: PassportEntry) -> tuple[float, str]:
    return instant(entry.passport.started_at).timestamp(), entry.passport.passport_id


def _rank(backend: str, chip: str) -> tuple[int, str, str]:
    """Trainium first, then other accelerators, then CPUs, as in every comparison."""
    return (0 if chip.startswith("trainium") else 2 if chip == "cpu" else 1, chip, backend)
