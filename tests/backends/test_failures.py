"""Messages of runtimes and compilers become one status each; sizes and versions in them are kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench.backends.failures import (
    NRT_STATUS,
    classify_error,
    classify_message,
    failure_reason,
    mismatched_versions,
    requested_bytes,
    retry_when_busy,
)
from trnbench.status import BackendUnavailable, CaseError, ExitCode, Status

BUSY = [
    "RuntimeError: Neuron runtime cannot be initialized; cannot determine the number of available NeuronCores",
    "Cannot determine number of cores",
    "insufficient cores: need 2",
    "ERROR   NRT:nrt_allocate_neuron_cores               NeuronCore(s) not available - Requested:4 Available:0",
    "Logical Neuron Core(s) not available - Requested:lnc1-lnc4 Available:0",
    "Neuron Core 3 in use",
    "nrt_init failed with status 9",
    "NRT_FAIL_NOT_ENOUGH_NC",
    "nrt_load status=1005",
    "CUDA error: all CUDA-capable devices are busy or unavailable",
    "open /dev/neuron0: Device or resource busy",
]

MISMATCH = [
    (
        (
            "This Neuron Runtime (compatibility id: 6) is not compatible with the installed aws-neuron-dkms package.\n"
            "Installed aws-neuron-dkms supports Runtime compatibility id range: 2 - 4."
        ),
        ("6", "2 - 4"),
    ),
    (
        "NEFF version: 2.0, features: 0x100 are not supported. Currently supporting: 0x80000000000000ff",
        ("2.0, features: 0x100", "0x80000000000000ff"),
    ),
    ("NEFF version 3.0 is not supported, this runtime supports 2.0.", ("3.0", "2.0")),
    ("compatibility id 6 does not fit: the driver supports 2 - 4", ("6", "2 - 4")),
    ("libneuronxla.so: undefined symbol: nrt_get_version_v2", None),
    ("nrt_load_collectives status=10", None),
    ("CUDA driver version is insufficient for CUDA runtime version", None),
    (
        "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver",
        None,
    ),
    ("/lib64/libc.so.6: version `GLIBC_2.35' not found (required by libtorch.so)", None),
    ("WRONG PACKAGE. Please install the package from Neuron Repository", None),
]

OOM = [
    ('RuntimeError: nrt_tensor_allocate status=4 message="Allocation Failure"', None),
    ("[TDRV:dmem_alloc] Failed to alloc DEVICE memory: 4194304", 4194304),
    ("Failed to alloc HOST memory: 1024", 1024),
    ("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.15 GiB", 2684354560),
    ("HIP out of memory. Tried to allocate 512.00 MiB", 512 * 2**20),
    ("XPU out of memory. Tried to allocate 20.00 KiB", 20 * 2**10),
    ("DefaultCPUAllocator: not enough memory: you tried to allocate 123456789 bytes.", 123456789),
    ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.", 8589934592),
    ("Failed to allocate aligned (0) buffer in MLA DRAM for W145-b of size 4194304 bytes, channel 0", 4194304),
    ("[NCC_EOOM001] the graph needs more HBM than there is", None),
    ("NCC_EVRF009: not enough memory", None),
    ("DMA rings exhausted", None),
    ("std::bad_alloc", None),
]

OTHER = [
    ("[NCC_EVRF001] Operator triangular_solve is not supported", Status.UNSUPPORTED),
    ("NCC_EVRF051: F8E4M3FN is not supported on TRN1/TRN2", Status.UNSUPPORTED),
    ("NCC_EMOD025 dynamic shape", Status.UNSUPPORTED),
    ("NCC_EVRF007: too many instructions", Status.COMPILE_FAILED),
    ("NCC_EBVF030 too many instructions", Status.COMPILE_FAILED),
    ("NCC_IXYZ999 internal error", Status.COMPILE_FAILED),
    ("torch._inductor.exc.InductorError: CppCompileError: C++ compile error", Status.COMPILE_FAILED),
    ("\"addmm_impl_cpu_\" not implemented for 'Half'", Status.UNSUPPORTED),
    ("nrt_execute status=5", Status.TIMEOUT),
    ("nrt_execute status=101", Status.CRASHED),
    ("nrt_execute status=1003", Status.NONCONFORMANT),
    ("nrt_execute status=1202", Status.CRASHED),
    ("CUDA error: an illegal memory access was encountered", Status.CRASHED),
    ("torch._dynamo hit config.recompile_limit (8)", Status.FALLBACK),
]


@pytest.mark.parametrize("message", BUSY)
def test_busy_spellings(message: str) -> None:
    """G3: another process, or the remains of one, owns the cores."""
    assert classify_message(message) is Status.BUSY


@pytest.mark.parametrize(("message", "versions"), MISMATCH)
def test_version_mismatch_spellings(message: str, versions: tuple[str, str] | None) -> None:
    """G4: parts of the stack from different releases; both versions are quoted where the message has them."""
    assert classify_message(message) is Status.VERSION_MISMATCH
    assert mismatched_versions(message) == versions
    if versions is not None:
        assert f"found {versions[0]}, accepted {versions[1]}" in failure_reason(message)


@pytest.mark.parametrize(("message", "size"), OOM)
def test_out_of_memory_spellings(message: str, size: int | None) -> None:
    """G8: allocation fails in many words; the size that was asked for is kept where they have it."""
    assert classify_message(message) is Status.OOM
    assert requested_bytes(message) == size
    assert ("requested" in failure_reason(message)) == (size is not None)


@pytest.mark.parametrize(("message", "status"), OTHER)
def test_other_spellings(message: str, status: Status) -> None:
    assert classify_message(message) is status


@pytest.mark.parametrize(
    "message",
    ["", "shapes (3,4) and (5,6) differ", "expected 4 arguments", "the room is large", "loss is 1005", "memory: fine"],
)
def test_unknown_messages_are_not_guessed(message: str) -> None:
    assert classify_message(message) is None
    assert classify_error(ValueError(message)) is None


@pytest.mark.parametrize(("number", "status"), NRT_STATUS.items())
def test_every_runtime_status_number(number: int, status: Status) -> None:
    assert classify_message(f"RuntimeError: nrt_execute failed with status {number}") is status


def test_memory_error_has_no_message() -> None:
    """G8: Python's own."""
    assert classify_error(MemoryError()) is Status.OOM


def test_the_cause_is_read_as_well() -> None:
    def wrapped() -> None:
        try:
            raise RuntimeError("CUDA out of memory. Tried to allocate 1.00 GiB")
        except RuntimeError as error:
            raise ValueError("step 3 failed") from error

    with pytest.raises(ValueError, match="step 3") as caught:
        wrapped()
    assert classify_error(caught.value) is Status.OOM


def test_errors_that_carry_a_status_keep_it() -> None:
    assert classify_error(CaseError(Status.FALLBACK, "out of memory")) is Status.FALLBACK
    assert classify_error(BackendUnavailable("busy", Status.BUSY)) is Status.BUSY
    assert classify_error(KeyboardInterrupt()) is Status.INTERRUPTED
    assert classify_error(TimeoutError()) is Status.TIMEOUT


def test_a_circle_of_causes_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert classify_error(one) is None


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    assert classify_message(text) is None or isinstance(classify_message(text), Status)
    assert requested_bytes(text) is None or requested_bytes(text) >= 0
    assert failure_reason(text)


@given(
    st.integers(1, 2**20), st.sampled_from([("B", 1), ("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30), ("GB", 2**30)])
)
def test_sizes_in_every_unit(count: int, unit: tuple[str, int]) -> None:
    assert requested_bytes(f"out of memory. Tried to allocate {count} {unit[0]}. Free: 3 MiB") == count * unit[1]


class FakeRuntime:
    """Refuses the first `refusals` attempts with `message`."""

    def __init__(self, refusals: int, message: str) -> None:
        self.refusals = refusals
        self.message = message
        self.attempts = 0

    def open(self) -> str:
        self.attempts += 1
        if self.attempts <= self.refusals:
            raise RuntimeError(self.message)
        return "open"


@pytest.mark.parametrize("message", BUSY)
def test_busy_twice_then_free(message: str) -> None:
    """G3: refused on tries 1 and 2, fine on try 3; the waits grow and nothing else happens."""
    runtime, waits = FakeRuntime(2, message), []
    assert retry_when_busy(runtime.open, wait=0.5, list_owners="neuron-ls", sleep=waits.append) == "open"
    assert runtime.attempts == 3
    assert waits == [0.5, 1.0]


@pytest.mark.parametrize("message", BUSY)
def test_always_busy(message: str) -> None:
    """G3: bounded tries, class busy with its own exit code, a hint to list the owners, and no advice to kill."""
    runtime = FakeRuntime(99, message)
    with pytest.raises(BackendUnavailable) as refused:
        retry_when_busy(runtime.open, list_owners="neuron-ls", sleep=lambda _: None)
    assert runtime.attempts == 3
    assert refused.value.status is Status.BUSY
    assert refused.value.exit_code is ExitCode.BACKEND_UNAVAILABLE
    assert "list its owners with `neuron-ls`" in str(refused.value)
    assert "kill" not in str(refused.value)


def test_a_mismatch_is_not_tried_again() -> None:
    """G4: waiting does not mend versions."""
    runtime = FakeRuntime(99, MISMATCH[0][0])
    with pytest.raises(BackendUnavailable, match="found 6, accepted 2 - 4") as refused:
        retry_when_busy(runtime.open, list_owners="neuron-ls", sleep=lambda _: None)
    assert runtime.attempts == 1
    assert refused.value.status is Status.VERSION_MISMATCH


def test_other_failures_pass_unchanged() -> None:
    runtime = FakeRuntime(99, "shapes differ")
    with pytest.raises(RuntimeError, match="shapes differ"):
        retry_when_busy(runtime.open, list_owners="neuron-ls", sleep=lambda _: None)
    assert runtime.attempts == 1


def test_no_attempts_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        retry_when_busy(lambda: None, attempts=0, list_owners="neuron-ls")
