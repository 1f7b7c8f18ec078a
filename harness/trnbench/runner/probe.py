"""The child that opens a backend and describes the machine: `python -m trnbench.runner.probe --backend NAME`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trnbench.backends.select import open_backend
from trnbench.records.environment import collect_with_reasons
from trnbench.runner.machine import Capability, Machine, ProbeAnswer, failure_of
from trnbench.runner.watchdog import follow_parent
from trnbench.status import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: list[str] | None = None) -> int:
    """Print the answer as one line of JSON, or write it to `--out`, which no chatty runtime can spoil."""
    parser = argparse.ArgumentParser(prog="python -m trnbench.runner.probe", allow_abbrev=False)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--try", dest="combinations", action="append", default=[], metavar="PRECISION:MODE")
    parser.add_argument("--instance-type")
    parser.add_argument("--region")
    parser.add_argument("--results-dir", type=Path, action="append", default=[], help="folder that git leaves out")
    options = parser.parse_args(arguments)
    follow_parent()
    combinations = [tuple(pair.split(":", 1)) for pair in options.combinations]
    answer = probe(options.backend, combinations, options.instance_type, options.region, options.results_dir)
    data = msgspec.json.encode(answer)
    if options.out is not None:
        options.out.write_bytes(data)
    else:
        sys.stdout.write(data.decode() + "\n")
    return ExitCode.CLEAN if answer.failure is None else answer.failure.exit_code


def probe(
    name: str,
    combinations: Sequence[tuple[str, ...]],
    instance_type: str | None = None,
    region: str | None = None,
    outputs: Sequence[Path] = (),
) -> ProbeAnswer:
    """Open the backend called `name` and describe it; a failure to open becomes part of the answer."""
    try:
        backend = open_backend(name)
        device = backend.describe().placed(instance_type, region)
        environment, unknown = collect_with_reasons(
            device, backend.versions(), backend.flags(), Path.cwd(), outputs=outputs
        )
        supported = [
            Capability(precision=precision, mode=mode, reason=backend.unsupported(precision, mode) or "")
            for precision, mode in combinations
        ]
        machine = Machine(
            device=device,
            environment=environment,
            simulated=backend.simulated,
            sync_method=backend.sync_method,
            unknown=unknown,
            supported=supported,
        )
        return ProbeAnswer(machine=machine)
    except Exception as error:
        return ProbeAnswer(failure=failure_of(error, f"backend {name} does not open"))


if __name__ == "__main__":
    sys.exit(main())
