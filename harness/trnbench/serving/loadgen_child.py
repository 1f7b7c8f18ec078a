"""The child process with MLCommons' LoadGen: `python -m trnbench.serving.loadgen_child READ WRITE`.

LoadGen hangs for ever on a lost sample, ignores signals while it runs, crashes on answers it does not expect, and
aborts the process after a failed start. So it gets a process to itself for one test, and every answer is checked in
the parent before it comes here. Its issue callback only forwards; a second thread hands the answers in. Neither torch
nor pandas is imported: the interpreter is up in a moment, and LoadGen's clock shares it with nothing.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import traceback
from array import array
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from trnbench.serving.protocol import (
    ACCURACY,
    DETAIL,
    SUMMARY,
    Channel,
    Failed,
    Finished,
    Flushed,
    FromChild,
    FromParent,
    Issue,
    Responses,
    Start,
)
from trnbench.serving.settings import SAMPLES_PER_QUERY, Test
from trnbench.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ToParent = Channel[FromParent, FromChild]

NOT_INSTALLED = "LoadGen is not installed: pip install mlcommons-loadgen; it has no wheel for Python 3.14"
LOG_NAMES = (DETAIL, SUMMARY, ACCURACY)
_SCENARIOS = {
    "single_stream": "SingleStream",
    "multi_stream": "MultiStream",
    "offline": "Offline",
    "server": "Server",
    "interactive": "Server",
}
_MODES = {"performance": "PerformanceOnly", "accuracy": "AccuracyOnly"}


def main(read: int, write: int) -> NoReturn:
    """Serve one test to the parent at the other end of two pipes, then end without any clean-up by LoadGen."""
    channel: ToParent = Channel(Connection(read, writable=False), Connection(write, readable=False), FromParent)
    code = 1
    try:
        code = _serve(channel)
    except (EOFError, OSError):
        pass  # The parent is gone; nobody is left to tell.
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _serve(channel: ToParent) -> int:
    start = channel.receive()
    assert isinstance(start, Start)
    try:
        loadgen: Any = importlib.import_module("mlperf_loadgen")
    except ModuleNotFoundError:
        channel.send(Failed(Status.UNSUPPORTED, NOT_INSTALLED))
        return 1
    folder = Path(start.folder)
    trouble = folder_trouble(folder)
    if trouble:
        channel.send(Failed(Status.FAILED, trouble))
        return 1
    threading.Thread(target=_hand_in, args=(channel, loadgen), name="hand-in", daemon=True).start()
    _run(channel, loadgen, start.test, folder)
    missing = [name for name in LOG_NAMES if not (folder / name).is_file()]
    if missing:
        channel.send(Failed(Status.FAILED, f"LoadGen ended without writing {', '.join(missing)}"))
        return 1
    channel.send(Finished())
    return 0


def folder_trouble(folder: Path) -> str:
    """Why LoadGen's logs cannot go into `folder`, empty where they can: it would say nothing and abort at its end."""
    try:
        for name in LOG_NAMES:
            # Opened as LoadGen does, which would overwrite; logs of an earlier test must not pass for this one's.
            with (folder / name).open("x"):
                pass
            (folder / name).unlink()
    except FileExistsError as error:
        return f"the folder for LoadGen's logs already holds {Path(error.filename).name}; each test needs its own"
    except OSError as error:
        return f"LoadGen's logs cannot be written into their folder: {error.strerror} ({error.filename})"
    return ""


def _run(channel: ToParent, loadgen: Any, test: Test, folder: Path) -> None:
    def issue(samples: Sequence[Any]) -> None:
        _forward(channel, Issue([sample.id for sample in samples], [sample.index for sample in samples]))

    log_settings = loadgen.LogSettings()
    # Assigned whole: LogSettings hands out a copy of its log_output, and a change of that is lost.
    output = loadgen.LogOutputSettings()
    output.outdir = str(folder)
    log_settings.log_output = output
    log_settings.enable_trace = False
    sut = loadgen.ConstructSUT(issue, lambda: _forward(channel, Flushed()))
    library = loadgen.ConstructQSL(test.samples, test.loaded_samples or test.samples, _ignore, _ignore)
    # An audit file that is not named would be looked for in the current folder, and would override the settings.
    loadgen.StartTestWithLogSettings(sut, library, loadgen_settings(loadgen, test), log_settings, "")


def _ignore(indices: object) -> None:
    """The prompts are the parent's."""


def _forward(channel: ToParent, message: FromChild) -> None:
    # An exception would unwind through LoadGen, which aborts; without a parent there is nothing to go on for.
    try:
        channel.send(message)
    except BaseException:
        os._exit(1)


def _hand_in(channel: ToParent, loadgen: Any) -> None:
    """Pass the parent's answers to LoadGen until the parent closes the connection or dies."""
    try:
        while True:
            message = channel.receive()
            assert isinstance(message, Responses)
            _respond(loadgen, loadgen.FirstTokenComplete, [(one.id, [one.token], None) for one in message.first])
            _respond(
                loadgen,
                loadgen.QuerySamplesComplete,
                [(one.id, one.tokens, one.length or None) for one in message.complete],
            )
    except (EOFError, OSError):
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _respond(
    loadgen: Any, report: Callable[[list[Any]], None], answers: list[tuple[int, bytes | list[int], int | None]]
) -> None:
    if not answers:
        return
    buffers = []
    responses = []
    for identifier, tokens, count in answers:
        buffer = array("i", tokens)
        address, items = buffer.buffer_info()
        sizes = (items * buffer.itemsize,) if count is None else (items * buffer.itemsize, count)
        responses.append(loadgen.QuerySampleResponse(identifier, address, *sizes))
        buffers.append(buffer)
    report(responses)
    # LoadGen has copied what it logs by now; until here the addresses had to hold.
    del buffers


def loadgen_settings(loadgen: Any, test: Test) -> Any:
    """`test` as LoadGen's TestSettings. No configuration file: LoadGen reads its built-in one once per process."""
    settings = loadgen.TestSettings()
    settings.scenario = getattr(loadgen.TestScenario, _SCENARIOS[test.scenario])
    settings.mode = getattr(loadgen.TestMode, _MODES[test.mode])
    settings.min_duration_ms = round(test.least_seconds * 1e3)
    settings.max_duration_ms = round(test.most_seconds * 1e3)
    settings.min_query_count = test.least_queries
    settings.max_query_count = test.most_queries
    settings.use_token_latencies = test.token_latencies
    settings.multi_stream_samples_per_query = SAMPLES_PER_QUERY
    settings.qsl_rng_seed = test.seeds.library
    settings.sample_index_rng_seed = test.seeds.order
    settings.schedule_rng_seed = test.seeds.schedule
    settings.sample_concatenate_permutation = test.even
    settings.performance_issue_unique = test.draw == "unique"
    settings.performance_issue_same = test.draw == "same"
    settings.performance_issue_same_index = test.same_index
    settings.accuracy_log_rng_seed = test.seeds.order
    settings.accuracy_log_sampling_target = test.logged_samples
    settings.server_max_async_queries = test.most_waiting
    if test.rate is not None:
        settings.server_target_qps = test.rate
    if test.expected_latency is not None:
        settings.single_stream_expected_latency_ns = round(test.expected_latency * 1e9)
        settings.multi_stream_expected_latency_ns = round(test.expected_latency * 1e9)
    if test.expected_rate is not None:
        settings.offline_expected_qps = test.expected_rate
    if test.latency_limits is not None:
        settings.ttft_latency = round(test.latency_limits.ttft * 1e9)
        settings.tpot_latency = round(test.latency_limits.tpot * 1e9)
        settings.server_target_latency_ns = round(test.latency_limits.answer * 1e9)
    return settings


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
