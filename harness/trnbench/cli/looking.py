"""`trnbench doctor` and `schema`: what this machine and this version of the tool know."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.status import BackendUnavailable, ExitCode

if TYPE_CHECKING:
    from trnbench.runner.machine import Machine


def doctor(
    backend: Annotated[str | None, typer.Option("--backend", help="Open this backend and describe its device.")] = None,
    as_json: Annotated[bool, typer.Option("--json/--no-json", help="Machine-readable output.")] = False,
) -> None:
    """Say which backends work here, or describe one: device, versions, flags, and what it can run."""
    if backend is None:
        _list_backends(as_json)
    else:
        _describe_backend(backend, as_json)


def _list_backends(as_json: bool) -> None:
    from trnbench.backends.select import backend_names, preflight
    from trnbench.cli.output import print_json, print_table

    found: dict[str, str | None] = {}
    for name in backend_names():
        try:
            preflight(name)
            found[name] = None
        except BackendUnavailable as error:
            found[name] = str(error)
    if as_json:
        print_json([{"backend": name, "available": reason is None, "reason": reason} for name, reason in found.items()])
    else:
        rows = [[name, "not here" if reason else "installed", reason or ""] for name, reason in found.items()]
        print_table(["backend", "state", "what to do"], rows)
        print("`trnbench doctor --backend NAME` opens one and describes its device.")
    if all(reason is not None for reason in found.values()):
        raise typer.Exit(ExitCode.BACKEND_UNAVAILABLE)


def _describe_backend(backend: str, as_json: bool) -> None:
    from trnbench.backends.select import backend_class, preflight
    from trnbench.case import PRECISIONS
    from trnbench.cli.output import print_json
    from trnbench.runner.interrupt import Stop
    from trnbench.runner.machine import probe_machine

    preflight(backend)
    combinations = [(precision, mode) for precision in PRECISIONS for mode in backend_class(backend).modes]
    with Stop() as stop:
        machine = probe_machine(backend, stop=stop, combinations=combinations)
    if machine is None:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if as_json:
        print_json(machine)
    else:
        _print_machine(machine)


def _print_machine(machine: Machine) -> None:
    from trnbench.cli.output import print_table
    from trnbench.compare.units import binary_size
    from trnbench.wording import SIMULATED_NOTICE

    device = machine.device
    memory = "unknown" if device.memory_bytes is None else binary_size(device.memory_bytes)
    rows = [
        ["backend", device.backend],
        ["platform", device.platform],
        ["chip", device.chip],
        ["chips", str(device.chips)],
        ["cores", str(device.cores)],
        ["memory per chip", memory],
        ["waits by", machine.sync_method],
        ["fingerprint", machine.environment.fingerprint],
        *([f"read back: {name}", str(value)] for name, value in sorted(device.read_back.items())),
    ]
    print_table(["device", ""], rows)
    print_table(["package", "version"], [[name, text] for name, text in sorted(machine.environment.versions.items())])
    print_table(["setting", "value"], [[name, str(value)] for name, value in sorted(machine.environment.flags.items())])
    capabilities = [[item.precision, item.mode, item.reason or "runs"] for item in machine.supported]
    print_table(["precision", "mode", "found by trying"], capabilities)
    if machine.simulated:
        print(SIMULATED_NOTICE)


class Kind(enum.StrEnum):
    """What is stored, and has a schema."""

    RECORD = "record"
    PASSPORT = "passport"


def schema(
    kind: Annotated[
        Kind, typer.Argument(metavar="[record|passport]", help="What to print the schema of.")
    ] = Kind.RECORD,
) -> None:
    """Print the JSON Schema of a record, or of a passport."""
    from trnbench.cli.output import write_bytes
    from trnbench.records.json_schema import passport_schema_bytes, schema_bytes

    write_bytes(schema_bytes() if kind is Kind.RECORD else passport_schema_bytes())
