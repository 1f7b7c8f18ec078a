"""Rule sets for training logs, as data: `ruleset/<name>.toml`, one file a set.

    name = "1.0"
    modelled_on = "..."

    [metric]                      # what is evaluated, and which way is better
    key = "eval_accuracy"
    meaning = "mean cross-entropy in nats per token"
    direction = "min"
    target = "target_loss"        # the key that says what must be reached

    [init_minutes]                # by division: from the first init_start to init_stop
    open = 240

    [[key]]                       # one table a key
    name = "seed"
    count = "one"
    kind = "count"
    least = 0
    after = "init_start"
    before = "init_stop"
    in_a_set = "differs"

A key without a table is allowed and not looked at.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec

from trnbench.status import UsageError
from trnbench.wording import nearest

NEWEST = "1.0"
"""The rule set that logs are written under."""

RULE_SET_KEY = "ruleset"
"""The key under which a log says which rule set it follows."""

BENCHMARK_KEY, DIVISION_KEY = "submission_benchmark", "submission_division"

SAMPLES = "samples_count"
"""The metadata key that says how many samples were trained on."""

MILESTONES = ("init_start", "init_stop", "run_start", "run_stop")
"""In the order in which a log has them; `after` and `before` name one."""

SAME = 1e-4
"""Relative difference of numbers that are the same: a target may be measured, and then its last digits are noise."""

Milestone = Literal["", "init_start", "init_stop", "run_start", "run_stop"]


class Metric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What evaluations report under `key`: `min` means that it has to fall to the target, `max` that it has to rise."""

    key: str
    meaning: str
    direction: Literal["min", "max"]
    target: str

    def met(self, value: float, target: float) -> bool:
        """Whether `value` reaches `target`, which itself is enough."""
        return value <= target if self.direction == "min" else value >= target

    @property
    def relation(self) -> str:
        """`at most` or `at least`."""
        return "at most" if self.direction == "min" else "at least"


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a rule set asks of one key.

    `count`: exactly one, at least one ("some"), or whatever ("any"). `kind`: text is not empty, a count is a whole
    number of at least `least`, a number is finite and at least `least`. `values`, where given, are all that are
    allowed; `begins` is how a text must begin. `metadata` names counts that every event must carry. `benchmarks`
    restricts the table to benchmarks whose name begins so. In a set of runs the value of a key is the "same" in every
    log, up to `SAME` where it is a number, or "differs" from log to log.
    """

    name: str
    count: Literal["one", "some", "any"] = "one"
    kind: Literal["text", "count", "number", "flag", "nothing", "anything"] = "anything"
    values: list[str] = []
    begins: str = ""
    least: float | None = None
    metadata: list[str] = []
    after: Milestone = ""
    before: Milestone = ""
    benchmarks: str = ""
    in_a_set: Literal["", "same", "differs"] = ""


class RuleSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule set; `init_minutes` holds the limit of the untimed part by division."""

    name: str
    modelled_on: str
    metric: Metric
    init_minutes: dict[str, float]
    key: list[Key]

    def keys(self, benchmark: str) -> list[Key]:
        """The keys that a log of this benchmark is checked for."""
        return [key for key in self.key if benchmark.startswith(key.benchmarks)]


def rule_sets() -> list[str]:
    """Names of the rule sets that come with this package."""
    return sorted(entry.name.removesuffix(".toml") for entry in _folder().iterdir() if entry.name.endswith(".toml"))


def load_rules(which: str) -> RuleSet:
    """The rule set of that name, or in that TOML file where `which` ends in `.toml`.

    Raises `UsageError` for an unknown name, and with file and key for a file that is not as described above.
    """
    if which.endswith(".toml"):
        try:
            text = Path(which).read_text("utf-8")
        except OSError as error:
            raise UsageError(f"rule set {which} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise UsageError(f"rule set {which} is not UTF-8 at byte {error.start}") from None
        return _decode(text, which)
    known = rule_sets()
    if which not in known:
        raise UsageError(f"no rule set {which!r}; {nearest(which, known, 'there are ' + ', '.join(known))}")
    return _decode(_folder().joinpath(f"{which}.toml").read_text("utf-8"), f"{which}.toml")


def _folder() -> resources.abc.Traversable:
    return resources.files("trnbench.training").joinpath("ruleset")


def _decode(text: str, where: str) -> RuleSet:
    try:
        rules = msgspec.convert(tomllib.loads(text), RuleSet, strict=True)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"rule set {where}: {error}") from None
    names = [key.name for key in rules.key]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"rule set {where}: key {twice[0]} has two tables; one says all about it")
    for needed in (*MILESTONES, BENCHMARK_KEY, DIVISION_KEY, RULE_SET_KEY, rules.metric.key, rules.metric.target):
        if needed not in names:
            raise UsageError(f"rule set {where}: key {needed} has no table, and no log can be judged without it")
    divisions = next(key.values for key in rules.key if key.name == DIVISION_KEY)
    if sorted(divisions) != sorted(rules.init_minutes):
        raise UsageError(
            f"rule set {where}: init_minutes has {sorted(rules.init_minutes)}, but {DIVISION_KEY} allows "
            f"{sorted(divisions)}"
        )
    return rules
