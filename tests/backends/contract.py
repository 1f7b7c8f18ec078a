"""What every backend must do, as rules that any backend can be held to: `check(rule, subject)` raises or returns.

A rule is told nothing about the device but how to launch work on it and how to copy a result to the host. The rules
themselves are tested by a correct asynchronous double and by doubles broken on purpose (test_contract_mutants.py).
"""

from __future__ import annotations

import contextlib
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from trnbench.status import CaseError, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.backends.base import Backend
    from trnbench.device import Counters

REPEATS = 5
WORK_SECONDS = 0.03
"""Least device time of one launch: some hundred times the cost of a launch, so that not waiting shows."""

ALLOCATED = 64 * 2**20


@dataclass(kw_only=True)
class Subject:
    """A backend under test. `launch` queues work of at least some 20 ms and returns its result without waiting."""

    backend: Backend
    launch: Callable[[], torch.Tensor]
    to_host: Callable[[torch.Tensor], torch.Tensor]
    falls_back: Callable[[], torch.Tensor] | None = None
    """An operation that this backend runs on the host, where it has one."""


def matmul_subject(backend: Backend, falls_back: Callable[[], torch.Tensor] | None = None) -> Subject:
    """A subject whose work is a chain of matmuls, as long as the device needs to be busy for `WORK_SECONDS`."""
    factor = torch.full((256, 256), 1 / 256).to(backend.device)
    backend.materialize([factor])

    def chain(length: int) -> torch.Tensor:
        product = factor
        for _ in range(length):
            product = product @ factor
        return product

    def seconds(length: int) -> float:
        chain(length).cpu()  # compiles, where the device does
        return min(_seconds(lambda: chain(length).cpu()) for _ in range(2))

    length = 32
    while seconds(length) < WORK_SECONDS and length < 2**16:
        length *= 2
    return Subject(
        backend=backend, launch=lambda: chain(length), to_host=lambda result: result.cpu(), falls_back=falls_back
    )


def rule_materialize_waits(subject: Subject) -> None:
    """A result that was waited for takes no less time than one forced out by a full copy, and leaves no work behind.

    The limit is half: a backend that only dispatches is a hundred times below it, noise of a shared machine is not.
    """
    backend = subject.backend
    waited, forced, residual = [], [], []
    for warm in range(2 + REPEATS):
        forced_seconds = _seconds(lambda: subject.to_host(subject.launch()))
        start = time.perf_counter()
        result = subject.launch()
        backend.materialize([result])
        middle = time.perf_counter()
        subject.to_host(result)
        if warm >= 2:
            forced.append(forced_seconds)
            waited.append(middle - start)
            residual.append(time.perf_counter() - middle)
    assert statistics.median(waited) >= 0.5 * min(forced), "materialize returned before the work was done"
    assert min(residual) <= 0.5 * min(forced), "materialize left work running"
    assert torch.isfinite(subject.to_host(result)).all(), "materialize returned and the output was never written"


def rule_materialize_wants_proof(subject: Subject) -> None:
    """No output, or one on another kind of device, is no proof that this device worked."""
    with pytest.raises(CaseError) as none:
        subject.backend.materialize([])
    assert none.value.status is Status.INVALID
    elsewhere = torch.empty(1, device="meta")
    with pytest.raises(CaseError) as other:
        subject.backend.materialize([elsewhere])
    assert other.value.status is Status.FALLBACK


def rule_compiles_counted(subject: Subject) -> None:
    """Compiled: a new shape is one compile and takes time; a shape seen before is none. Eager: nothing is compiled."""
    backend = subject.backend
    mode = "compiled" if "compiled" in backend.modes else "eager"
    run = backend.compile(lambda values: torch.relu(values) * 2 + 1, mode)
    for size in (17, 19):
        values = torch.ones(size).to(backend.device)
        backend.materialize([values])
        compiles, seconds = _compiled(backend, lambda values=values: run(values))
        assert compiles == (1 if mode == "compiled" else 0), f"a new shape counted as {compiles} compiles"
        assert (seconds > 0) == (mode == "compiled"), f"{compiles} compiles took {seconds} s"
        again, more = _compiled(backend, lambda values=values: run(values))
        assert (again, more) == (0, 0), f"a known shape counted as {again} compiles and {more} s"


def rule_unknown_mode_refused(subject: Subject) -> None:
    """A mode that the backend does not have is refused by `unsupported` and by `compile`, never run as another."""
    assert subject.backend.unsupported("fp32", "lazy")
    with pytest.raises(CaseError) as refused:
        subject.backend.compile(torch.relu, "lazy")
    assert refused.value.status is Status.UNSUPPORTED


def rule_fallbacks_counted(subject: Subject) -> None:
    """Ordinary operators fall back never; one that is known to run on the host is counted and named."""
    backend = subject.backend
    before = backend.counters()
    backend.materialize([subject.launch()])
    assert _fallbacks(before, backend.counters()) == {}, "ordinary work counted as fallback"
    if subject.falls_back is not None:
        backend.materialize([subject.falls_back()])
        found = _fallbacks(before, backend.counters())
        assert sum(found.values()) >= 1, "an operator ran on the host and was not counted"


def rule_device_read_back(subject: Subject) -> None:
    """After work, the description names this backend and says where the outputs really were."""
    backend = subject.backend
    backend.materialize([subject.launch()])
    device = backend.describe()
    assert device.backend == backend.name
    assert device.chips >= 1
    assert device.cores >= 1
    assert device.platform
    assert backend.device.type in str(device.read_back.get("outputs_on")), "where outputs lived is not read back"
    if device.platform == "cpu":
        assert device.chip == "cpu", f"work on the host was described as {device.chip}"


def rule_switches_restored(subject: Subject) -> None:
    """Every precision leaves all numerics switches and the number of threads as they were, also after an error."""
    backend = subject.backend
    with _unusual_switches():
        before = observed_switches()
        for precision in ("fp32", "tf32", "bf16", "fp16"):
            with contextlib.suppress(ZeroDivisionError), backend.numerics(precision) as in_force:
                torch.set_num_threads(before["threads"] + 1)
                torch.set_float32_matmul_precision("high")
                raise ZeroDivisionError
            assert observed_switches() == before, f"{precision} left a switch changed"
            assert in_force, f"{precision} does not say what was in force"


def rule_switches_set(subject: Subject) -> None:
    """What the precision needs is in force inside, whatever was set before."""
    with _unusual_switches(), subject.backend.numerics("fp32") as in_force:
        assert torch.get_float32_matmul_precision() == "highest"
        assert not torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.allow_tf32
        assert "highest" in in_force.values(), f"the fp32 matmul precision is not reported in {in_force}"


def rule_memory_peak(subject: Subject) -> None:
    """The peak covers a tensor that lived since the reset; where there is no counter, the source says why."""
    backend = subject.backend
    backend.reset_memory_peak()
    tensor = torch.ones(ALLOCATED // 4).to(backend.device)
    backend.materialize([tensor])
    use = backend.memory_peak()
    assert use.source
    if use.peak_bytes is not None:
        assert use.peak_bytes >= ALLOCATED, f"peak of {use.peak_bytes} bytes with {ALLOCATED} bytes in use"


def rule_failures_classified(subject: Subject) -> None:
    """Errors become one status each; one that nobody knows is a failure, not a guess."""
    classify = subject.backend.classify
    assert classify(MemoryError()) is Status.OOM
    assert classify(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")) is Status.OOM
    assert classify(RuntimeError("NeuronCore(s) not available - Requested:4 Available:0")) is Status.BUSY
    assert classify(CaseError(Status.UNSUPPORTED, "no")) is Status.UNSUPPORTED
    assert classify(ValueError("shapes differ")) is Status.FAILED


def rule_publishable(subject: Subject) -> None:
    """Versions, flags and description hold no path, and versions name torch."""
    backend = subject.backend
    versions, flags, device = backend.versions(), backend.flags(), backend.describe()
    assert versions["torch"].startswith(torch.__version__.split("+")[0])
    for value in (*versions.values(), *flags.values(), *device.read_back.values()):
        assert str(Path.home()) not in str(value)
        assert not str(value).startswith("/")


RULES = [value for name, value in sorted(globals().items()) if name.startswith("rule_")]
"""All rules; parametrise a test over them with `ids=lambda rule: rule.__name__`."""


def observed_switches() -> dict[str, object]:
    """The switches read straight from PyTorch, not through the code under test."""
    matmul = torch.backends.cuda.matmul
    return {
        "threads": torch.get_num_threads(),
        "float32_matmul": torch.get_float32_matmul_precision(),
        "cudnn_tf32": torch.backends.cudnn.allow_tf32,
        "mkldnn_matmul": torch.backends.mkldnn.matmul.fp32_precision,
        "cuda_matmul": matmul.fp32_precision,
        "fp16_reduction": matmul.allow_fp16_reduced_precision_reduction,
        "bf16_reduction": matmul.allow_bf16_reduced_precision_reduction,
        "math_sdp": torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "flushes": bool((torch.tensor([1e-40]) * 1).item() == 0),
    }


@contextlib.contextmanager
def _unusual_switches():
    """States that no precision asks for, so that leaving one's own setting behind shows."""
    before = observed_switches()
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_flush_denormal(True)
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    torch.set_num_threads(3)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before["float32_matmul"])
        torch.backends.cudnn.allow_tf32 = before["cudnn_tf32"]
        torch.backends.cudnn.benchmark = before["cudnn_benchmark"]
        torch.use_deterministic_algorithms(before["deterministic"], warn_only=before["warn_only"])
        torch.set_flush_denormal(before["flushes"])
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before["math_sdp"])
        torch.set_num_threads(before["threads"])


def _compiled(backend: Backend, run: Callable[[], torch.Tensor]) -> tuple[int, float]:
    before = backend.counters()
    backend.materialize([run()])
    after = backend.counters()
    assert before.compiles is not None, "the backend does not count compiles"
    assert after.compiles is not None, "the backend does not count compiles"
    return after.compiles - before.compiles, (after.compile_seconds or 0.0) - (before.compile_seconds or 0.0)


def _fallbacks(before: Counters, after: Counters) -> dict[str, int]:
    grown = {name: count - before.fallbacks.get(name, 0) for name, count in after.fallbacks.items()}
    return {name: count for name, count in grown.items() if count}


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
