"""The passport: what a backend's arithmetic is like on one machine, as it is stored, and how two of them differ.

Format history (newest first; a change adds a line here, a fixture of the old form and a migration):

* 1 (2026-11): first format.

Nothing in a passport is judged. As in a record, every `None` is explained: `Passport.unknown` maps the dotted path of
each null to the reason. JSON Schema: `trnbench schema passport`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trnbench.device import Device, Scalar
from trnbench.records.build import DEFAULT_REASONS
from trnbench.records.ids import compact, instant, new_id, utc_now
from trnbench.records.privacy import scrub, scrub_map
from trnbench.records.rules import RecordError, any_item, check_finite, check_unknown, null_paths
from trnbench.records.schema import MAX_RECORD_BYTES, Environment, Stored
from trnbench.records.serialise import decode_as, strict_bytes
from trnbench.records.store import Rejected, read_file, safe_name, write_file
from trnbench.status import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trnbench.records.migrations import Migration

PASSPORT_VERSION = 1
PASSPORTS = "passports"
"""Folder of a results folder that holds them: `passports/<chip>/<fingerprint>/<utc>-<backend>-<mode>.json`."""

MIGRATIONS: Mapping[int, Migration] = {}


class Probe(Stored, frozen=True, kw_only=True):
    """One property. `verdict` says in short words what was found, null where it could not be measured.

    `group` and `name` together with `precision` are unique within a passport. `details` are the numbers behind the
    verdict; infinities and NaN among them are words.
    """

    group: str
    name: str
    precision: str
    verdict: str | None
    details: dict[str, Scalar] = msgspec.field(default_factory=dict)


class Passport(Stored, frozen=True, kw_only=True):
    """All probes of one backend in one mode. `numerics` holds the switches in force, by precision."""

    schema_version: int
    passport_id: str
    started_at: str
    finished_at: str
    device: Device
    environment: Environment
    mode: str
    numerics: dict[str, dict[str, Scalar]]
    simulated: bool
    probes: list[Probe]
    unknown: dict[str, str] = msgspec.field(default_factory=dict)


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A property in which passports `a` and `b` differ, in words; a probe that one of them lacks reads "not probed"."""

    group: str
    name: str
    precision: str
    a: str
    b: str


class StoredPassport(msgspec.Struct, frozen=True, kw_only=True):
    """A passport and the file that holds it."""

    passport: Passport
    path: Path


class LoadedPassports(msgspec.Struct, frozen=True, kw_only=True):
    """All passports of a folder by the instant they were started, and the files that are none."""

    passports: list[StoredPassport]
    rejected: list[Rejected]


def assemble_passport(
    *,
    device: Device,
    environment: Environment,
    mode: str,
    numerics: Mapping[str, Mapping[str, Scalar]],
    simulated: bool,
    probes: Sequence[Probe],
    started_at: str,
    reasons: Mapping[str, str],
) -> Passport:
    """A finished passport, its nulls explained: `reasons` by path, `probes[3].verdict` for a probe without a verdict.

    Texts lose home folders, absolute paths and the host name. Raises `RecordError` for a null without a reason.
    """
    passport = Passport(
        schema_version=PASSPORT_VERSION,
        passport_id=new_id(),
        started_at=started_at,
        finished_at=utc_now(),
        device=msgspec.structs.replace(device, read_back=scrub_map(device.read_back)),
        environment=environment,
        mode=mode,
        numerics={precision: scrub_map(switches) for precision, switches in numerics.items()},
        simulated=simulated,
        probes=[msgspec.structs.replace(probe, details=scrub_map(probe.details)) for probe in probes],
    )
    nulls = set(null_paths(passport))
    cpu = {path for path in reasons if path.startswith("environment.cpu.")}
    unknown = {path: scrub(why) for path, why in reasons.items() if path in nulls | cpu}
    for path in sorted(nulls - set(unknown)):
        general = any_item(path)
        if general not in DEFAULT_REASONS:
            raise RecordError(f"{path} is null and nothing says why")
        unknown[path] = DEFAULT_REASONS[general]
    passport = msgspec.structs.replace(passport, unknown=dict(sorted(unknown.items())))
    check_passport(passport)
    return passport


def check_passport(passport: Passport) -> None:
    """Raise `RecordError` with one sentence for the first rule that the passport breaks."""
    if passport.schema_version != PASSPORT_VERSION:
        raise RecordError(f"schema_version is {passport.schema_version}; passports are written as {PASSPORT_VERSION}")
    for name in ("started_at", "finished_at"):
        try:
            instant(getattr(passport, name))
        except ValueError as error:
            raise RecordError(f"{name} must be ISO 8601 with a UTC offset: {error}") from None
    if passport.simulated and passport.device.chip != "cpu":
        raise RecordError(f"simulated is true and device.chip is {passport.device.chip!r}; a stand-in's chip is 'cpu'")
    keys = [key(probe) for probe in passport.probes]
    repeated = next((each for index, each in enumerate(keys) if each in keys[:index]), None)
    if repeated is not None:
        raise RecordError(f"the probe {' / '.join(repeated)} appears twice")
    check_finite(passport)
    check_unknown(passport)


def key(probe: Probe) -> tuple[str, str, str]:
    """What identifies a probe across passports."""
    return probe.group, probe.name, probe.precision


def encode_passport(passport: Passport) -> bytes:
    """Strict JSON in the layout of a record. Raises `RecordError` where the passport breaks the format."""
    check_passport(passport)
    return strict_bytes(passport, f"the passport of backend {passport.device.backend}")


def decode_passport(data: bytes, where: str) -> Passport:
    """Read one passport; `where` names the file in every error. Raises `RecordError` as `records.decode` does."""
    passport = decode_as(data, where, Passport, PASSPORT_VERSION, MIGRATIONS)
    try:
        check_passport(passport)
    except RecordError as error:
        raise RecordError(f"{where}: {error}") from None
    return passport


class PassportStore:
    """The passports of a results folder, with the guarantees of `Store`: whole or not at all, never overwritten."""

    def __init__(self, results: Path) -> None:
        self.root = results / PASSPORTS

    def write(self, passport: Passport) -> Path:
        """Store the passport durably and return its path. Raises `RecordError` and `StoreError` as `Store.write`."""
        data = encode_passport(passport)
        what = f"the passport of backend {passport.device.backend}"
        if len(data) > MAX_RECORD_BYTES:
            raise RecordError(f"{what} has {len(data)} bytes; at most {MAX_RECORD_BYTES} fit")
        folder = self.root / safe_name(passport.device.chip) / safe_name(passport.environment.fingerprint)
        stem = "-".join([compact(passport.started_at), safe_name(passport.device.backend), safe_name(passport.mode)])
        return write_file(folder, stem, data, what=what, unique=passport.passport_id)

    def load(self) -> LoadedPassports:
        """Read every passport; see `load_passports`."""
        return load_passports(self.root)


def load_passports(folder: Path) -> LoadedPassports:
    """Every `.json` file below `folder`, in time order; one that is no passport is reported and the rest loads.

    Symbolic links are reported, never followed. A folder that does not exist holds nothing.
    """
    found: list[StoredPassport] = []
    rejected: list[Rejected] = []
    for path in sorted(_json_files(folder)):
        try:
            found.append(StoredPassport(passport=decode_passport(read_file(path), str(path)), path=path))
        except RecordError as error:
            rejected.append(Rejected(path=path, reason=str(error)))
    ordered = sorted(found, key=lambda item: (instant(item.passport.started_at), item.passport.passport_id))
    return LoadedPassports(passports=ordered, rejected=rejected)


def _json_files(folder: Path) -> Iterable[Path]:
    for here, folders, files in os.walk(folder):
        yield from (Path(here) / name for name in folders if (Path(here) / name).is_symlink())
        yield from (Path(here) / name for name in files if name.endswith(".json"))


def find_passport(place: Path) -> tuple[StoredPassport, list[Rejected]]:
    """The passport in a file, or the newest below a folder, which may be a results folder; and what was passed over.

    Raises `UsageError` where the place does not exist or holds no passport, `RecordError` where a file is none.
    """
    if not place.exists():
        raise UsageError(f"{place} does not exist; give a passport file or a folder of passports")
    if not place.is_dir():
        return StoredPassport(passport=decode_passport(read_file(place), str(place)), path=place), []
    below = place / PASSPORTS
    loaded = load_passports(below if below.is_dir() else place)
    if not loaded.passports:
        hint = "take one with `trnbench passport --backend NAME`"
        raise UsageError(f"there is no passport in {place}; {loaded.rejected[0].reason if loaded.rejected else hint}")
    return loaded.passports[-1], loaded.rejected


def compare_passports(a: Passport, b: Passport) -> list[Difference]:
    """Properties whose verdicts differ, in the order of `a`, then those that only `b` has."""
    first, second = ({key(probe): spoken(each, index) for index, probe in enumerate(each.probes)} for each in (a, b))
    return [
        Difference(group=each[0], name=each[1], precision=each[2], a=left, b=right)
        for each in dict.fromkeys([*first, *second])
        if (left := first.get(each, "not probed")) != (right := second.get(each, "not probed"))
    ]


def spoken(passport: Passport, index: int) -> str:
    """The verdict of one probe, or `unknown: ` and the reason."""
    verdict = passport.probes[index].verdict
    return f"unknown: {passport.unknown[f'probes[{index}].verdict']}" if verdict is None else verdict
