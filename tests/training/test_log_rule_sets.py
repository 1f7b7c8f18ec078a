"""Rule sets as data: one that is not the log's is named, metric and direction come from it, runs of a set compare."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from log_samples import changed, events, line_of, log_text

from trnbench.status import UsageError
from trnbench.training.rule_data import NEWEST, load_rules, rule_sets
from trnbench.training.rules import check_log, check_set

if TYPE_CHECKING:
    from collections.abc import Callable

RULES = load_rules(NEWEST)
FILE = "result_1.txt"

# Field case H5: the complaint is about the checker's choice, not about the log.


def rules_file(folder: Path, change: Callable[[str], str]) -> Path:
    source = Path(str(sys.modules["trnbench.training.rule_data"].__file__)).parent / "ruleset" / f"{NEWEST}.toml"
    target = folder / "other.toml"
    target.write_text(change(source.read_text("utf-8")), "utf-8")
    return target


def test_another_rule_set_is_named_and_nothing_else(tmp_path: Path) -> None:
    def older(text: str) -> str:
        # A rule set that the log breaks in many places.
        return text.replace(f'name = "{NEWEST}"', 'name = "0.9"', 1).replace('"trnbench_"', '"older_"')

    rules = load_rules(str(rules_file(tmp_path, older)))
    text = log_text()
    (found,) = check_log(events(text), FILE, rules)
    assert str(found) == (
        f"result_1.txt, line {line_of(text, 'ruleset')}: ruleset does not fit: the log says rule set {NEWEST}, it was "
        f"checked against 0.9; check it with --rules {NEWEST}"
    )
    newer = changed(text, "ruleset", lambda entry: entry.update(value="2.0"))
    (found,) = check_log(events(newer), FILE, RULES)
    assert found.wrong.endswith(f"the log says rule set 2.0, it was checked against {NEWEST}")
    assert found.right == f"there are rule sets {', '.join(rule_sets())} here"


@pytest.mark.parametrize(
    ("key", "direction", "value", "passes"),
    [
        ("eval_error", "min", 1.9, True),
        ("eval_error", "min", 2.1, False),
        ("eval_score", "max", 2.1, True),
        ("eval_score", "max", 1.9, False),
    ],
)
def test_name_and_direction_of_the_metric_come_from_its_definition(
    tmp_path: Path, key: str, direction: str, value: float, passes: bool
) -> None:
    def other(text: str) -> str:
        return text.replace("eval_accuracy", key).replace('direction = "min"', f'direction = "{direction}"')

    rules = load_rules(str(rules_file(tmp_path, other)))
    text = changed(log_text(evaluations=[(160, value)]), "eval_accuracy", lambda entry: entry.update(key=key))
    found = check_log(events(text), FILE, rules)
    assert (found == []) == passes
    if not passes:
        relation = {"min": "at most", "max": "at least"}[direction]
        assert found[0].right == f"the last {key} must be {relation} target_loss 2.0"


# A set of runs


def test_seeds_of_a_set_differ() -> None:
    logs = {f"result_{number}.txt": events(log_text(seed)) for number, seed in ((1, 7), (2, 8), (3, 7))}
    (found,) = check_set(logs, RULES)
    assert str(found).startswith("result_3.txt, line ")
    assert str(found).endswith(": seed is 7 as in result_1.txt; each run of a set needs its own")


@pytest.mark.parametrize(
    ("key", "value"), [("global_batch_size", 32), ("target_loss", 2.1), ("submission_platform", "1x other")]
)
def test_what_must_be_the_same_in_a_set_is(key: str, value: object) -> None:
    other = changed(log_text(8), key, lambda entry: entry.update(value=value))
    (found,) = check_set({"a.txt": events(log_text(7)), "b.txt": events(other)}, RULES)
    assert (found.file, found.key, found.line) == ("b.txt", key, line_of(other, key))


def test_a_measured_target_may_differ_in_its_last_digits() -> None:
    other = log_text(8, target=2.0 + 1e-7)
    assert check_set({"a.txt": events(log_text(7)), "b.txt": events(other)}, RULES) == []


# Rule sets


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("[metric]", "[metrics]"), "metrics"),
        (lambda text: text.replace('direction = "min"', 'direction = "down"'), "down"),
        (lambda text: text.replace('name = "seed"', 'name = "submission_org"'), "key submission_org has two tables"),
        (lambda text: text.replace('name = "run_stop"', 'name = "run_end"'), "key run_stop has no table"),
        (lambda text: text.replace("closed = 30", ""), "init_minutes has"),
        (lambda text: text + "[[", "Invalid"),
    ],
)
def test_a_rule_set_that_is_none_is_refused(tmp_path: Path, change: Callable[[str], str], message: str) -> None:
    path = rules_file(tmp_path, change)
    with pytest.raises(UsageError) as refused:
        load_rules(str(path))
    assert str(path) in str(refused.value)
    assert message in str(refused.value)


def test_an_unknown_rule_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"no rule set '1.1'; did you mean '{NEWEST}'"):
        load_rules("1.1")
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        load_rules(str(tmp_path / "none.toml"))
