"""`:::MLLOG` lines: what the writer writes the parser reads, as mlperf_logging's does, and broken lines are named."""

from __future__ import annotations

import json
import logging
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlperf_logging.compliance_checker.mlp_parser import ruleset_610
from mlperf_logging.mllog import mllog

from trnbench.mllog import PREFIX, Event, Writer, parse, values
from trnbench.status import UsageError

words = st.text(st.characters(codec="utf-8"), max_size=20)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
keys = st.text(string.ascii_lowercase + "_", min_size=1, max_size=12)
metadata = st.dictionaries(
    st.sampled_from(["samples_count", "epoch_num", "status", "note"]), scalars | words, max_size=3
)
entries = st.lists(
    st.tuples(st.sampled_from(["event", "start", "end"]), keys, scalars | words, metadata), min_size=1, max_size=8
)
TYPES = {"event": "POINT_IN_TIME", "start": "INTERVAL_START", "end": "INTERVAL_END"}


def written(events: list[tuple[str, str, object, dict[str, object]]], times: list[int] | None = None) -> str:
    clock = iter(times or range(1000, 1000 + len(events)))
    writer = Writer(lambda: next(clock))
    for kind, key, value, details in events:
        getattr(writer, kind)(key, value, **details)
    return writer.text()


@given(entries)
def test_what_is_written_is_read(events: list[tuple[str, str, object, dict[str, object]]]) -> None:
    text = written(events)
    found = parse(text, "log")
    assert [(event.event_type, event.key, event.value, event.metadata) for event in found] == [
        (TYPES[kind], key, value, details) for kind, key, value, details in events
    ]
    # Numbers keep their type: a count that comes back as a float is no count.
    assert [type(event.value) for event in found] == [type(value) for _, _, value, _ in events]
    assert [event.line for event in found] == list(range(1, len(events) + 1))
    assert [event.time_ms for event in found] == list(range(1000, 1000 + len(events)))


@given(entries, st.lists(words.filter(lambda text: not text.startswith(PREFIX)), max_size=5))
def test_other_lines_are_passed_over(
    events: list[tuple[str, str, object, dict[str, object]]], noise: list[str]
) -> None:
    noisy = "".join(f"{' '.join(text.split())}\n" for text in noise)
    clean = parse(written(events), "log")
    found = parse(noisy + written(events), "log")
    assert [event.key for event in found] == [event.key for event in clean]
    assert [event.line for event in found] == [event.line + len(noise) for event in clean]


@given(st.lists(st.integers(0, 2**41), min_size=1, max_size=8))
def test_times_never_go_back(times: list[int]) -> None:
    found = parse(written([("event", "a", 1, {})] * len(times), times), "log")
    assert [event.time_ms for event in found] == [max(times[: index + 1]) for index in range(len(times))]


@given(entries)
def test_mlperf_logging_reads_the_same(events: list[tuple[str, str, object, dict[str, object]]]) -> None:
    text = written(events)
    found, errors = ruleset_610.parse_generator(text.splitlines(keepends=True))
    assert errors == []
    assert [(line.key, line.value, line.timestamp) for line in found] == [
        (event.key, {"value": event.value, "metadata": event.metadata}, event.time_ms) for event in parse(text, "log")
    ]


def test_a_line_of_mlperf_logging_itself_is_read() -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.Logger("a logger of this test")
    logger.addHandler(handler)
    mllog.MLLogger(logger=logger).event("eval_accuracy", 2.5, metadata={"samples_count": 640})
    (event,) = parse("\n".join(lines), "log")
    assert (event.key, event.value, event.metadata["samples_count"]) == ("eval_accuracy", 2.5, 640)


def test_a_line_of_loadgen_is_read() -> None:
    # As LoadGen 6.0.17 writes it into mlperf_log_detail.txt: times since its start, and fields of its own.
    text = (
        ':::MLLOG {"key": "num_errors", "value": 0, "time_ms": 5012.104571, "namespace": "mlperf::logging", '
        '"event_type": "POINT_IN_TIME", "metadata": {"is_error": false, "is_warning": false, "file": "logging.cc", '
        '"line_no": 527, "pid": 1, "tid": 1}}\n'
    )
    (event,) = parse(text, "detail")
    assert (event.key, event.value, event.time_ms) == ("num_errors", 0, 5012.104571)
    assert event.metadata["is_error"] is False


def test_the_last_value_of_a_key_counts() -> None:
    events = [
        Event(key=key, value=value, time_ms=0, event_type="POINT_IN_TIME", metadata={}, line=1)
        for key, value in (("a", 1), ("b", 2), ("a", 3))
    ]
    assert values(events) == {"a": 3, "b": 2}


@pytest.mark.parametrize(
    "broken",
    [
        "{",
        "[]",
        "",
        '{"key": "a", "value": 1}',
        '{"value": 1, "time_ms": 1}',
        '{"key": 1, "value": 1, "time_ms": 1}',
        '{"key": "a", "value": NaN, "time_ms": 1}',
        '{"key": "a", "value": 1, "time_ms": "1"}',
        '{"key": "a", "value": 1, "time_ms": 1, "metadata": []}',
        '{"key": "a", "value": 1, "time_ms": 1} {"key": "b"}',
    ],
)
def test_a_broken_line_is_named(broken: str) -> None:
    with pytest.raises(UsageError, match=r"^result_3\.txt, line 2: not an :::MLLOG event"):
        parse(f"launched\n{PREFIX}{broken}\n", "result_3.txt")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_json_has_no_word_for_is_refused(bad: float) -> None:
    writer = Writer(lambda: 1)
    for arguments in ({"value": bad}, {"value": 1, "loss": bad}):
        with pytest.raises(ValueError, match="is no finite number, and JSON has no word for it"):
            writer.event("eval_accuracy", **arguments)
    assert writer.text() == ""


def test_an_interrupted_log_goes_on_where_it_was() -> None:
    first = Writer(lambda: 5000)
    first.start("run_start")
    first.event("eval_accuracy", 2.5, samples_count=160)
    # The machine came back with a clock that is behind.
    second = Writer(lambda: 4000)
    second.restore("a launcher's line\n" + first.text())
    second.event("resumed", 160)
    assert second.text().startswith(first.text())
    assert [event.time_ms for event in parse(second.text(), "log")] == [5000, 5000, 5000]


def test_every_line_is_strict_json() -> None:
    writer = Writer(lambda: 1)
    writer.event("note", "a line\nbreak and \u2028 another", text="\r\n")
    lines = writer.text().splitlines()
    # One event, one line, whatever is in the text.
    assert len(lines) == 1
    assert json.loads(lines[0].removeprefix(PREFIX))["value"] == "a line\nbreak and \u2028 another"
