"""Logs for the tests of their rules: written by the product's own logger, then damaged one thing at a time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trnbench.case import Case, case_from
from trnbench.device import Device
from trnbench.mllog import PREFIX, Event, parse
from trnbench.training.log import RunLog
from trnbench.workloads.recipes import recipe_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Line = dict[str, Any]
TARGET = 2.0
TRAIN_SAMPLES = 4800
EVALUATIONS = ((160, 2.9), (320, 2.4), (480, 1.9))


def case(phase: str = "pretrain") -> Case:
    return case_from(
        {
            "suite": "training",
            "workload": "nano",
            "phase": phase,
            "precision": "bf16",
            "mode": "eager",
            "tier": "smoke",
            "batch": 16,
            "sequence": 32,
            "version": "0123456789abcdef",
        }
    )


def log_text(
    seed: int = 7,
    *,
    phase: str = "pretrain",
    evaluations: Sequence[tuple[int, float]] = EVALUATIONS,
    target: float = TARGET,
    converged: bool = True,
    endless: bool = True,
) -> str:
    """The log of a run that was evaluated so; a fine-tuning knows its target after the evaluation at 0 samples."""
    log = RunLog(TRAIN_SAMPLES, endless=endless)
    log.header(case(phase), Device(backend="cpu", platform="linux", chip="cpu", chips=1, cores=2, memory_bytes=1))
    log.initialise(case(phase), seed, recipe_of("nano", phase).learning(), 64)
    if phase == "pretrain":
        log.target(target)
    log.initialised()
    log.run_start()
    if phase != "pretrain":
        log.eval_start(0)
        log.eval_stop(0, 3.1)
        log.target(target)
    seen = 0
    for samples, loss in evaluations:
        log.block_start(seen)
        log.block_stop(samples)
        log.eval_start(samples)
        log.eval_stop(samples, loss)
        seen = samples
    log.run_stop(seen, converged=converged)
    return log.text()


def lines(text: str) -> list[Line]:
    return [json.loads(line.removeprefix(PREFIX)) for line in text.splitlines()]


def text_of(entries: Sequence[Line]) -> str:
    return "".join(f"{PREFIX}{json.dumps(entry)}\n" for entry in entries)


def without(text: str, key: str) -> str:
    return text_of([entry for entry in lines(text) if entry["key"] != key])


def changed(text: str, key: str, change: Callable[[Line], object]) -> str:
    """`change` edits every line of that key in place."""
    entries = lines(text)
    for entry in entries:
        if entry["key"] == key:
            change(entry)
    return text_of(entries)


def moved(text: str, key: str, *, before: str) -> str:
    """The first line of `key` goes before the first one of the other, with times as if it had always been there."""
    entries = lines(text)
    found = next(entry for entry in entries if entry["key"] == key)
    entries.remove(found)
    entries.insert(next(index for index, entry in enumerate(entries) if entry["key"] == before), found)
    for index, entry in enumerate(entries):
        entry["time_ms"] = 1_000_000 + index
    return text_of(entries)


def keys(text: str) -> list[str]:
    return list(dict.fromkeys(entry["key"] for entry in lines(text)))


def events(text: str) -> list[Event]:
    return parse(text, "result_1.txt")


def line_of(text: str, key: str, which: int = 0) -> int:
    """Number, from 1, of the `which`-th line of that key."""
    return [number for number, entry in enumerate(lines(text), 1) if entry["key"] == key][which]
