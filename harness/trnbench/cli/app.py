"""The command line's frame: one app, one place where errors become a sentence and an exit code."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from trnbench.cli.booleans import StrictCommand
from trnbench.cli.comparing import compare
from trnbench.cli.exporting import export
from trnbench.cli.looking import doctor, schema
from trnbench.cli.mutants import mutants
from trnbench.cli.passports import passport
from trnbench.cli.pricing import prices
from trnbench.cli.reference import reference
from trnbench.cli.reporting import report
from trnbench.cli.running import list_cases, run
from trnbench.cli.training_log import training_log
from trnbench.status import ExitCode, TrnBenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

app = typer.Typer(
    name="trnbench",
    help="Measure transformer workloads on Trainium, GPUs and CPUs, check their numerics, and compare their cost.",
    epilog="Exit codes: 0 clean, 1 failed or regressed, 2 usage, 3 nothing measured, 4 backend not here or busy, "
    "5 no comparable baseline, 130 interrupted.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
COMMANDS: dict[str, Callable[..., None]] = {
    "run": run,
    "list": list_cases,
    "doctor": doctor,
    "compare": compare,
    "report": report,
    "schema": schema,
    "passport": passport,
    "mutants": mutants,
    "reference": reference,
    "training-log": training_log,
    "export": export,
    "prices": prices,
}
for name, command in COMMANDS.items():
    app.command(name=name, cls=StrictCommand)(command)


@app.callback()
def options(
    debug: bool = typer.Option(False, "--debug/--no-debug", help="Show the traceback of an unexpected error."),
) -> None:
    """Only declares `--debug`, which `main` looks for itself, since it must work before parsing has succeeded."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its documented exit code; every error is one sentence on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _make_output_robust()
    try:
        app(args=given, prog_name="trnbench")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ExitCode.CLEAN
    except TrnBenchError as error:
        print(f"trnbench: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("trnbench: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except Exception as error:
        if "--debug" in given:
            raise
        message = " ".join(str(error).split()) or "no message"
        print(
            f"trnbench: unexpected {type(error).__name__}: {message}; this is a bug, please report it with the output "
            "of the same command after `trnbench --debug`",
            file=sys.stderr,
        )
        return ExitCode.FAILED
    return ExitCode.CLEAN


def _make_output_robust() -> None:
    """Under a locale that cannot show a character, show its escape instead of ending in an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
