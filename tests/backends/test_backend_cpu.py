"""The CPU backend: the contract, inductor's compile counts, lost compilation, precisions, threads, memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import contract
import pytest
import torch

from trnbench.backends import cpu
from trnbench.backends.compile_watch import inductor_cache_state
from trnbench.backends.cpu import CpuBackend
from trnbench.backends.select import open_backend
from trnbench.status import BackendUnavailable, CaseError, Status

if TYPE_CHECKING:
    from pathlib import Path

    from trnbench.backends.base import Backend


@pytest.fixture(scope="module")
def subject() -> contract.Subject:
    return contract.matmul_subject(open_backend("cpu"))


@pytest.fixture
def backend(subject: contract.Subject) -> Backend:
    return subject.backend


@pytest.mark.parametrize("rule", contract.RULES, ids=lambda rule: rule.__name__)
def test_contract(rule: Any, subject: contract.Subject) -> None:
    rule(subject)


class TracingBackend(CpuBackend):
    """TorchDynamo and autograd graphs without inductor's C++: the same captures, quickly."""

    compiler = "aot_eager"


@pytest.fixture
def tracing() -> TracingBackend:
    torch._dynamo.reset()
    backend = TracingBackend()
    backend.open()
    return backend


def test_backward_graph_counts(tracing: TracingBackend) -> None:
    """A training step compiles its forward and its backward graph once; a second step compiles nothing."""
    step = tracing.compile(lambda values: (values * values).sum(), "compiled")
    for compiles in (2, 2):
        values = torch.ones(5, requires_grad=True)
        loss = step(values)
        loss.backward()
        tracing.materialize([loss, values.grad])
        assert tracing.counters().compiles == compiles
    assert tracing.counters().compile_seconds > 0


def test_compiles_are_seen_after_dynamo_was_reset(tracing: TracingBackend) -> None:
    """`torch._dynamo.reset()` drops all listeners; the compile after it counts all the same."""
    step = tracing.compile(lambda values: values + 1, "compiled")
    step(torch.ones(3))
    torch._dynamo.reset()
    step(torch.ones(3))
    assert tracing.counters().compiles == 2


def test_two_backends_count_apart(tracing: TracingBackend) -> None:
    other = TracingBackend()
    other.open()
    assert other.counters().compiles == 0
    tracing.compile(lambda values: values - 1, "compiled")(torch.ones(3))
    assert tracing.counters().compiles == 1


def test_twelve_shapes_are_refused_not_run_uncompiled(tracing: TracingBackend) -> None:
    """A11: TorchDynamo gives up after 8 shapes and runs on uncompiled; here that ends the case as a fallback."""
    step = tracing.compile(lambda values: values * 2, "compiled")
    ran = []

    def twelve_shapes() -> None:
        for size in range(10, 22):
            step(torch.ones(size))
            ran.append(size)

    with pytest.raises(CaseError, match="compile fell back") as lost:
        twelve_shapes()
    assert lost.value.status is Status.FALLBACK
    assert tracing.classify(lost.value) is Status.FALLBACK
    assert len(ran) == tracing.counters().compiles == torch._dynamo.config.recompile_limit


def test_graph_break_is_an_error(tracing: TracingBackend) -> None:
    """A function that is not one graph is a failed compilation, never half a compiled step."""

    def breaks(values: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return values * 2

    with pytest.raises(Exception, match="graph_break") as broken:
        tracing.compile(breaks, "compiled")(torch.ones(2))
    assert tracing.classify(broken.value) is Status.COMPILE_FAILED


def test_eager_is_the_function_itself(backend: Backend) -> None:
    assert backend.compile(torch.relu, "eager") is torch.relu


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_precisions_that_every_cpu_has(backend: Backend, precision: str, mode: str) -> None:
    assert backend.unsupported(precision, mode) is None


def test_tf32_is_only_supported_where_it_changes_a_result(backend: Backend) -> None:
    """Support is found by trying: the switch must move a matmul's error, on this very machine."""
    torch.manual_seed(0)
    left, right = torch.randn(96, 96), torch.randn(96, 96)
    errors = {}
    for precision in ("fp32", "tf32"):
        with backend.numerics(precision):
            errors[precision] = (left @ right - left.double() @ right.double()).abs().max().item()
    refused = backend.unsupported("tf32", "eager")
    assert (refused is None) == (errors["tf32"] > 2 * errors["fp32"])


def test_tf32_refused_where_the_switch_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from trnbench.backends import precision_probe

    for errors, word in (((1e-7, 1e-7), "not computed"), ((1e-7, 1e-2), "more coarsely"), ((1e-7, 4e-4), None)):
        found = dict(zip(("fp32", "tf32"), errors, strict=True))
        monkeypatch.setattr(precision_probe, "_matmul_error", lambda _, precision, found=found: found[precision])
        backend = CpuBackend()
        backend.open()
        refused = backend.unsupported("tf32", "eager")
        assert (refused is None) if word is None else (word in refused)


def test_compiled_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    backend = CpuBackend()
    backend.open()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "needs a C++ compiler" in backend.unsupported("fp32", "compiled")
    assert backend.unsupported("fp32", "eager") is None
    monkeypatch.undo()
    other = CpuBackend()
    other.open()
    monkeypatch.setattr(cpu.sysconfig, "get_path", lambda name: str(tmp_path))
    assert "Python.h" in other.unsupported("fp32", "compiled")


def test_a_precision_that_fails_is_refused_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from trnbench.backends import precision_probe

    def fails(*_: object) -> None:
        raise RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'")

    monkeypatch.setattr(precision_probe, "_try_operators", fails)
    backend = CpuBackend()
    backend.open()
    assert "not implemented for 'Half'" in backend.unsupported("fp16", "eager")


def test_without_torch_the_backend_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "installed_version", lambda name: None)
    with pytest.raises(BackendUnavailable, match="PyTorch, which is not installed") as absent:
        CpuBackend.preflight()
    assert absent.value.exit_code == 4


PRINT_THREADS = """
import torch
from trnbench.backends.select import open_backend
backend = open_backend("cpu")
with backend.numerics("fp32") as in_force:
    torch.set_num_threads(7)
print("threads", backend.flags()["torch.num_threads"], torch.get_num_threads(), in_force["num_threads"])
"""


def _threads(*command: str, **variables: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"} | variables
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, check=True)
    return next(line for line in done.stdout.splitlines() if line.startswith("threads")).split()[1:]


def test_threads_are_stored_and_restored(tmp_path: Path) -> None:
    """A9: the count in force is stored, plain or under torchrun, and a case that changes it leaves nothing behind."""
    script = tmp_path / "threads.py"
    script.write_text(PRINT_THREADS, "utf-8")
    assert _threads(str(script), OMP_NUM_THREADS="1") == ["1", "1", "1"]
    launched = _threads("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", str(script))
    assert len(set(launched)) == 1


def test_memory_peak_starts_anew(backend: Backend) -> None:
    backend.reset_memory_peak()
    big = torch.ones(2**26)
    high = backend.memory_peak().peak_bytes
    del big
    backend.reset_memory_peak()
    low = backend.memory_peak().peak_bytes
    if high is None or low is None:
        pytest.skip(backend.memory_peak().source)
    assert high - low >= 2**26


def test_compile_cache_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    assert inductor_cache_state() == "cold"
    (tmp_path / "fxgraph" / "ab").mkdir(parents=True)
    assert inductor_cache_state() == "warm"
    backend = CpuBackend()
    backend.open()
    assert backend.compile_cache_state() == "warm"
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    assert inductor_cache_state() == "none"
    assert backend.compile_cache_state() == "warm", "as found when opened"
