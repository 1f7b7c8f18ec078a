"""The child that takes a passport: `python -m trnbench.cli.passport_child --backend NAME --mode MODE --out FILE`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from trnbench.backends.select import open_backend
from trnbench.runner.machine import failure_of
from trnbench.runner.passport import PassportAnswer
from trnbench.runner.watchdog import follow_parent
from trnbench.status import ExitCode, UsageError


def main(arguments: list[str] | None = None) -> int:
    """Write the answer to `--out`, whole or not at all."""
    parser = argparse.ArgumentParser(prog="python -m trnbench.cli.passport_child", allow_abbrev=False)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--mode", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--results-dir", type=Path, action="append", default=[], help="folder that git leaves out")
    options = parser.parse_args(arguments)
    follow_parent()
    answer = taken(options.backend, options.mode, options.results_dir)
    unfinished = options.out.with_suffix(".part")
    unfinished.write_bytes(msgspec.json.encode(answer))
    unfinished.replace(options.out)
    return ExitCode.CLEAN if answer.failure is None else answer.failure.exit_code


def taken(name: str, mode: str, outputs: list[Path]) -> PassportAnswer:
    """The passport, or why there is none: the backend does not open, or has no such mode."""
    try:
        backend = open_backend(name)
        absent = backend.no_such_mode(mode)
        if absent is not None:
            raise UsageError(absent)
        # Imports torch, which a backend that is not here must not have to wait for.
        from trnbench.conformance.passport.take import take_passport

        return PassportAnswer(passport=take_passport(backend, mode, outputs=outputs))
    except Exception as error:
        return PassportAnswer(failure=failure_of(error, f"the passport of backend {name} cannot be taken"))


if __name__ == "__main__":
    sys.exit(main())
