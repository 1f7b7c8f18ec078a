"""`trnbench training-log`: check the logs of training runs against a rule set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from trnbench.status import ExitCode, UsageError
from trnbench.training.rule_keys import Complaint

if TYPE_CHECKING:
    from trnbench.mllog import Event
    from trnbench.training.rule_data import RuleSet

FilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Logs; those of one folder are one set.")]
RulesOption = Annotated[str | None, typer.Option("--rules", help="A rule set's name, or a .toml file.")]


class CheckedLog(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of one file; `complaints` is empty for a run that reached its target by the rules."""

    file: str
    ruleset: str
    outcome: str
    complaints: list[Complaint]


def training_log(
    *,
    files: FilesArgument,
    rules: RulesOption = None,
    as_json: Annotated[bool, typer.Option("--json/--no-json", help="Machine-readable output.")] = False,
) -> None:
    """Check logs of training runs: keys, order, times, outcome, and seeds across a set; 1 where a rule is broken."""
    from trnbench.cli.output import print_json
    from trnbench.training.rule_data import NEWEST, load_rules

    rule_set = load_rules(rules or NEWEST)
    logs = {path: _read(path) for path in dict.fromkeys(files)}
    checked = _check(logs, rule_set)
    if as_json:
        print_json(checked)
    else:
        for log in checked:
            _print(log)
    raise typer.Exit(ExitCode.FAILED if any(log.complaints for log in checked) else ExitCode.CLEAN)


def _read(path: Path) -> list[Event]:
    from trnbench.mllog import PREFIX, parse

    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 at byte {error.start}") from None
    events = parse(text, str(path))
    if not events:
        raise UsageError(f"{path} is no training log: no line begins with {PREFIX.strip()!r}")
    return events


def _check(logs: dict[Path, list[Event]], rules: RuleSet) -> list[CheckedLog]:
    from trnbench.training.rules import check_log, check_set

    complaints = {str(path): check_log(events, str(path), rules) for path, events in logs.items()}
    for folder in dict.fromkeys(path.parent for path in logs):
        runs = {str(path): events for path, events in logs.items() if path.parent == folder}
        for complaint in check_set(runs, rules):
            complaints[complaint.file].append(complaint)
    return [
        CheckedLog(
            file=str(path), ruleset=rules.name, outcome=_outcome(events, rules), complaints=complaints[str(path)]
        )
        for path, events in logs.items()
    ]


def _outcome(events: list[Event], rules: RuleSet) -> str:
    """`seed 7: success after 1280 samples and 21.5 s, target_loss 2.1`; what the log lacks is unknown."""
    from trnbench.training.rule_data import SAMPLES

    first = {event.key: event for event in reversed(events)}
    start, stop = first.get("run_start"), first.get("run_stop")
    seed, target = (first[key].value if key in first else "unknown" for key in ("seed", rules.metric.target))
    status = samples = seconds = "unknown"
    if stop is not None:
        status, samples = (str(stop.metadata.get(name, "unknown")) for name in ("status", SAMPLES))
        if start is not None:
            seconds = f"{(stop.time_ms - start.time_ms) / 1000:.1f}"
    return f"seed {seed}: {status} after {samples} samples and {seconds} s, {rules.metric.target} {target}"


def _print(log: CheckedLog) -> None:
    count = len(log.complaints)
    verdict = "follows" if not count else f"{count} {'complaint' if count == 1 else 'complaints'} by"
    print(f"{log.file}: {verdict} rule set {log.ruleset}; {log.outcome}")
    for complaint in log.complaints:
        print(f"  {complaint}")
