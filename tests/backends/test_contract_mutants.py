"""The backend contract passes a correct asynchronous double and catches, by name, each one broken on purpose."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import async_fake
import contract
import msgspec
import pytest
import torch
from async_fake import AsyncFakeBackend, Step, subject_of

from trnbench.backends import select
from trnbench.backends.base import Backend
from trnbench.backends.switches import numerics_switches
from trnbench.device import Counters, Device, MemoryUse
from trnbench.status import Status, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class DoesNotWait(AsyncFakeBackend):
    def wait_for_device(self) -> None:
        """Returns at once, as a step marker does."""


class WaitsForTheOldest(AsyncFakeBackend):
    def wait_for_device(self) -> None:
        time.sleep(async_fake.WORK_SECONDS / 10)


class TakesNoProof(AsyncFakeBackend):
    def materialize(self, outputs: Sequence[torch.Tensor]) -> None:
        self.wait_for_device()
        self._outputs_on.add("cpu")
        self._peak = contract.ALLOCATED


class NeverCompiles(AsyncFakeBackend):
    def counters(self) -> Counters:
        return Counters(compiles=0, compile_seconds=0.0, fallbacks=super().counters().fallbacks)


class HasNoCounters(AsyncFakeBackend):
    def counters(self) -> Counters:
        return Counters(compiles=None, compile_seconds=None, fallbacks=super().counters().fallbacks)


class CountsEveryCall(AsyncFakeBackend):
    def compile(self, function: Any, mode: str) -> Any:
        self._check_mode(mode)

        def compiled(*tensors: torch.Tensor) -> Any:
            self._compiles += 1
            return function(*tensors)

        return compiled


class HidesFallbacks(AsyncFakeBackend):
    def counters(self) -> Counters:
        counted = super().counters()
        return Counters(compiles=counted.compiles, compile_seconds=counted.compile_seconds)


class CallsAllWorkFallback(AsyncFakeBackend):
    def launch(self) -> torch.Tensor:
        self._fallbacks += 1
        return super().launch()


class RunsUnknownModes(AsyncFakeBackend):
    def _check_mode(self, mode: str) -> None:
        """Takes any mode."""


class RepeatsTheRequest(AsyncFakeBackend):
    def describe(self) -> Device:
        return msgspec.structs.replace(super().describe(), chip="trainium2")


class DoesNotReadBack(AsyncFakeBackend):
    def describe(self) -> Device:
        return Device(backend=self.name, platform="cpu", chip="cpu", chips=1, cores=1)


class LeavesSwitches(AsyncFakeBackend):
    @contextmanager
    def numerics(self, precision: str) -> Iterator[dict[str, Any]]:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        torch.use_deterministic_algorithms(False)
        yield {"float32_matmul_precision": "highest"}


class LeavesSwitchesAfterAnError(AsyncFakeBackend):
    @contextmanager
    def numerics(self, precision: str) -> Iterator[dict[str, Any]]:
        before = torch.get_float32_matmul_precision()
        with numerics_switches(precision) as in_force:
            held = dict(in_force)
        torch.set_float32_matmul_precision("highest")
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.allow_tf32 = False
        yield held
        torch.set_float32_matmul_precision(before)


class LeavesThreads(AsyncFakeBackend):
    @contextmanager
    def numerics(self, precision: str) -> Iterator[dict[str, Any]]:
        threads = 0
        try:
            with numerics_switches(precision) as in_force:
                try:
                    yield in_force
                finally:
                    threads = torch.get_num_threads()
        finally:
            torch.set_num_threads(threads)


class SetsNothing(AsyncFakeBackend):
    @contextmanager
    def numerics(self, precision: str) -> Iterator[dict[str, Any]]:
        with numerics_switches(precision) as in_force:
            torch.set_float32_matmul_precision("medium")
            yield in_force


class ForgetsMemory(AsyncFakeBackend):
    def memory_peak(self) -> MemoryUse:
        return MemoryUse(peak_bytes=0, source="a default")


class CallsEverythingFailed(AsyncFakeBackend):
    def classify(self, error: BaseException) -> Status:
        return Status.FAILED


class CallsEverythingOom(AsyncFakeBackend):
    def classify(self, error: BaseException) -> Status:
        return Status.OOM


class PublishesPaths(AsyncFakeBackend):
    def flags(self) -> dict[str, Any]:
        return {"XLA_FLAGS": f"--xla_dump_to={Path.home()}/dump"}


CAUGHT_BY = {
    DoesNotWait: "rule_materialize_waits",
    WaitsForTheOldest: "rule_materialize_waits",
    TakesNoProof: "rule_materialize_wants_proof",
    NeverCompiles: "rule_compiles_counted",
    HasNoCounters: "rule_compiles_counted",
    CountsEveryCall: "rule_compiles_counted",
    HidesFallbacks: "rule_fallbacks_counted",
    CallsAllWorkFallback: "rule_fallbacks_counted",
    RunsUnknownModes: "rule_unknown_mode_refused",
    RepeatsTheRequest: "rule_device_read_back",
    DoesNotReadBack: "rule_device_read_back",
    LeavesSwitches: "rule_switches_restored",
    LeavesSwitchesAfterAnError: "rule_switches_restored",
    LeavesThreads: "rule_switches_restored",
    SetsNothing: "rule_switches_set",
    ForgetsMemory: "rule_memory_peak",
    CallsEverythingFailed: "rule_failures_classified",
    CallsEverythingOom: "rule_failures_classified",
    PublishesPaths: "rule_publishable",
}


@contextmanager
def opened(cls: type[AsyncFakeBackend]) -> Iterator[AsyncFakeBackend]:
    backend = cls()
    backend.open()
    try:
        yield backend
    finally:
        backend.close()


@pytest.mark.parametrize("rule", contract.RULES, ids=lambda rule: rule.__name__)
def test_a_correct_asynchronous_backend_passes(rule: Any) -> None:
    with opened(AsyncFakeBackend) as backend:
        rule(subject_of(backend))


@pytest.mark.parametrize("mutant", CAUGHT_BY, ids=lambda cls: cls.__name__)
def test_each_mutant_is_caught_by_its_rule_and_by_no_other(mutant: type[AsyncFakeBackend]) -> None:
    with opened(mutant) as backend:
        failed = []
        for rule in contract.RULES:
            try:
                rule(subject_of(backend))
            except (AssertionError, pytest.fail.Exception):
                failed.append(rule.__name__)
    assert failed == [CAUGHT_BY[mutant]]


def test_every_rule_has_a_mutant() -> None:
    assert {rule.__name__ for rule in contract.RULES} == set(CAUGHT_BY.values())


@pytest.mark.parametrize("steps", [1, 10])
def test_time_of_queued_work_is_the_time_of_the_work(steps: int) -> None:
    """A1: ten launches of 20 ms each take 200 ms, not the time of launching them; one takes 20 ms."""
    floor = steps * async_fake.WORK_SECONDS
    dispatched = []
    with opened(AsyncFakeBackend) as backend:
        for _ in range(3):
            start = time.perf_counter()
            outputs = [backend.launch() for _ in range(steps)]
            dispatched.append(time.perf_counter() - start)
            backend.materialize(outputs)
            assert time.perf_counter() - start >= floor
    assert min(dispatched) < floor / 2


@pytest.mark.parametrize("steps", [1, 10])
def test_backward_includes_the_devices_time(steps: int) -> None:
    """A4: a step with 20 ms forward and 20 ms backward takes 40 ms per step, for every number of steps."""
    with opened(AsyncFakeBackend) as backend:
        per_step = []
        for _ in range(3):
            start = time.perf_counter()
            for _ in range(steps):
                values = torch.ones(4, requires_grad=True)
                loss = Step.apply(values, backend).sum()
                backend.materialize([loss])
                forward_done = time.perf_counter()
                loss.backward()
                backend.materialize([values.grad])
                backward_seconds = time.perf_counter() - forward_done
                assert backward_seconds >= async_fake.WORK_SECONDS
            per_step.append((time.perf_counter() - start) / steps)
    assert min(per_step) >= 2 * async_fake.WORK_SECONDS
    assert min(per_step) < 4 * async_fake.WORK_SECONDS


def test_materialize_reads_one_element_of_each_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting alone is not believed: an element of every output crosses to the host, and no more than one."""
    read: list[int] = []
    to_host = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: read.append(tensor.numel()) or to_host(tensor))
    with opened(AsyncFakeBackend) as backend:
        backend.materialize([torch.ones(()), torch.ones(3), torch.ones(4, 5).T, torch.ones(0, 2)])
    assert read == [1, 1, 1, 0]


class TestRegister:
    """A3: a backend that cannot wait for its device cannot be registered, so nothing can be measured with it."""

    @pytest.fixture(autouse=True)
    def _own_registry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(select, "_registered", {})

    def test_without_a_wait(self) -> None:
        class NoSync(Backend):
            name = "no-sync"
            modes = ("eager",)
            sync_method = "none"

        with pytest.raises(UsageError, match="backend no-sync has no device sync"):
            select.register(NoSync)
        with pytest.raises(UsageError, match="there is no backend 'no-sync'"):
            select.open_backend("no-sync")

    def test_without_saying_how(self) -> None:
        class Silent(AsyncFakeBackend):
            name = "silent"
            sync_method = ""

        with pytest.raises(UsageError, match="backend silent has no device sync"):
            select.register(Silent)

    def test_shared_materialize_without_own_wait(self) -> None:
        from trnbench.backends.torch_device import TorchBackend

        class Half(TorchBackend):
            name = "half"
            modes = ("eager",)
            sync_method = "promised"

        with pytest.raises(UsageError, match="backend half has no device sync"):
            select.register(Half)

    def test_otherwise_incomplete(self) -> None:
        class NoMemory(AsyncFakeBackend):
            name = "no-memory"
            memory_peak = Backend.memory_peak

        with pytest.raises(UsageError, match="backend no-memory is incomplete: define memory_peak"):
            select.register(NoMemory)

    def test_complete(self) -> None:
        select.register(AsyncFakeBackend)
        backend = select.open_backend("async-fake")
        assert isinstance(backend, AsyncFakeBackend)
        assert "async-fake" in select.backend_names()
        backend.close()
