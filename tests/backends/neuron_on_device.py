"""Tests of the neuron backend that need a device; `test_neuron_device.py` runs them in the stand-in's environment.

Not collected by name, since an ordinary environment has no `neuron` device. What the stand-in claims, and what its
events time, is asserted here; on a real Trainium these two would tell whether the package has changed.
"""

from __future__ import annotations

import time
from typing import Any

import contract
import pytest
import torch
import torch_neuronx

from trnbench.backends.select import open_backend
from trnbench.case import Case
from trnbench.workloads.steps import build


@pytest.fixture(scope="module")
def subject() -> contract.Subject:
    backend = open_backend("neuron")
    return contract.matmul_subject(backend, lambda: torch.linalg.qr(torch.eye(4).to(backend.device)).Q)


@pytest.fixture
def backend(subject: contract.Subject) -> Any:
    return subject.backend


@pytest.mark.parametrize("rule", contract.RULES, ids=lambda rule: rule.__name__)
def test_contract(rule: Any, subject: contract.Subject) -> None:
    """A3: the neuron backend waits, counts and describes as every backend must."""
    rule(subject)


def test_work_is_inside_the_timed_window(subject: contract.Subject) -> None:
    """A1: without a wait the clock shows the launch; with `materialize` it shows the work."""
    backend = subject.backend
    subject.launch().cpu()
    start = time.perf_counter()
    result = subject.launch()
    launched = time.perf_counter() - start
    backend.materialize([result])
    done = time.perf_counter() - start
    assert launched < 0.5 * done


def test_events_are_not_timers(backend: Any) -> None:
    """A2: events recorded around queued work; the larger figure, that of the wait, is the one to store."""
    factor = torch.full((512, 512), 1 / 512).to(backend.device)
    backend.materialize([factor @ factor])
    first, last = torch.neuron.Event(enable_timing=True), torch.neuron.Event(enable_timing=True)
    start = time.perf_counter()
    first.record()
    product = factor
    for _ in range(20):
        product = product @ factor
    last.record()
    backend.materialize([product])
    waited = time.perf_counter() - start
    assert first.elapsed_time(last) / 1000 < 0.5 * waited
    assert backend.describe().read_back["event_timer"] == "times the queueing of work, not the work"


def test_honest_events_are_called_honest(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard tells apart: events that wait for the work before they read the clock agree with it."""

    class WaitingEvent:
        def __init__(self, enable_timing: bool) -> None:
            self.enable_timing = enable_timing

        def record(self) -> None:
            torch.neuron.synchronize()
            self.at = time.perf_counter()

        def elapsed_time(self, end: WaitingEvent) -> float:
            return (end.at - self.at) * 1000

    monkeypatch.setattr(torch.neuron, "Event", WaitingEvent)
    assert backend.describe().read_back["event_timer"] == "agrees with the clock"
    monkeypatch.delattr(torch.neuron, "Event")
    assert backend.describe().read_back["event_timer"] == "absent"


def test_evidence_decides_what_ran(backend: Any) -> None:
    """G2: without a Neuron device in sysfs the record says cpu and simulated, whatever the package claims."""
    assert torch_neuronx._C._get_platform_target() == "trn2"
    assert backend.simulated
    device = backend.describe()
    assert (device.backend, device.chip, device.platform) == ("neuron", "cpu", "simulated")
    assert device.memory_bytes is None
    assert backend.versions()["torch-neuronx"].startswith("2.13.")
    assert "aws-neuronx-dkms" not in backend.versions()


def test_flags_are_set_and_stored(backend: Any) -> None:
    flags = backend.flags()
    assert flags["TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION"] == "1"
    assert flags["NEURON_RT_STOCHASTIC_ROUNDING_EN"] == "0"
    assert flags["NEURON_CC_FLAGS"] == "--auto-cast=none"
    # This file imports torch before the backend opens, and the record must not hide it.
    assert flags["neuron.flags_set_before_import"] is False


def test_a_new_shape_is_a_compile(backend: Any) -> None:
    """Eager kernels compile per shape too; Python floats are inputs of a kernel, not a new one."""
    values = torch.ones(23).to(backend.device)
    backend.materialize([values * 2.0])
    before = backend.counters()
    backend.materialize([values * 3.0])
    assert backend.counters().compiles == before.compiles
    wider = torch.ones(29).to(backend.device)
    backend.materialize([wider * 2.0])
    after = backend.counters()
    assert after.compiles > before.compiles
    assert after.compile_seconds > before.compile_seconds


def test_every_reading_of_a_fallback_counts(backend: Any) -> None:
    """The package lists names only; a fallback in a later round must show again, not only the first time."""
    matrix = torch.eye(5).to(backend.device)
    for _ in range(2):
        before = backend.counters().fallback_total()
        backend.materialize([torch.linalg.inv(matrix)])
        assert backend.counters().fallback_total() > before


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_precisions_and_modes_were_tried(backend: Any, precision: str, mode: str) -> None:
    assert backend.unsupported(precision, mode) is None


def test_tf32_is_refused_for_what_it_computes(backend: Any) -> None:
    assert "tf32" in backend.unsupported("tf32", "eager")


def losses(backend: Any, precision: str, mode: str, phase: str) -> list[float]:
    case = Case(
        suite="decoder",
        workload="nano",
        phase=phase,
        precision=precision,
        batch=4,
        micro_batch=2 if phase == "train_step" else 4,
        sequence=32,
        new_tokens=4 if phase == "decode" else 0,
        tier="smoke",
        mode=mode,
    )
    values, compiles = [], []
    fallbacks = backend.counters().fallbacks
    with backend.numerics(precision):
        program = build(case, backend.device, backend.compile)
        for _ in range(4):
            program.reset()
            outputs = program.step()
            backend.materialize(outputs)
            values.append(float(program.loss_like(outputs)))
            compiles.append(backend.counters().compiles)
    assert compiles[-1] == compiles[-2], "a step after the warm-up compiled"
    assert backend.counters().fallbacks == fallbacks, "the decoder fell back to the host"
    return values


@pytest.mark.parametrize(
    ("phase", "precision", "mode", "tolerance"),
    [
        ("train_step", "fp32", "eager", 1e-6),
        ("train_step", "bf16", "compiled", 2e-3),
        ("decode", "fp32", "compiled", 1e-6),
        ("decode", "bf16", "eager", 2e-3),
    ],
)
def test_the_decoder_computes_what_the_cpu_computes(
    backend: Any, phase: str, precision: str, mode: str, tolerance: float
) -> None:
    """Four steps of the project's decoder. Attention takes another order of sums here, hence not to the last bit."""
    expected = losses(open_backend("cpu"), precision, "eager", phase)
    assert losses(backend, precision, mode, phase) == pytest.approx(expected, rel=tolerance)
    assert len(set(expected)) > 1
