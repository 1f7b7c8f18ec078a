"""What a runtime's error message means: one table for all backends, and the bounded retry for a busy device.

The spellings come from public issue threads and from the Neuron SDK's own tables of compiler error codes and runtime
statuses (release 2.32). The first matching row decides, so rows run from the most specific to the most general.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from trnbench.status import BackendUnavailable, CaseError, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Opened = TypeVar("Opened")


class Symptom(NamedTuple):
    """A spelling of a failure: any text that `pattern` finds has `status`."""

    status: Status
    pattern: re.Pattern[str]


def _symptom(status: Status, pattern: str) -> Symptom:
    return Symptom(status, re.compile(pattern, re.IGNORECASE))


SYMPTOMS: tuple[Symptom, ...] = (
    # Parts of the stack from different releases. Before `busy` and `oom`: these messages may also name a resource.
    _symptom(Status.VERSION_MISMATCH, r"compatibility id"),
    _symptom(Status.VERSION_MISMATCH, r"NEFF version\b.*\bnot supported"),
    _symptom(Status.VERSION_MISMATCH, r"unsupported NEFF version|NRT_UNSUPPORTED_NEFF_VERSION"),
    _symptom(Status.VERSION_MISMATCH, r"undefined symbol|symbol not found|GLIBC(?:XX)?_[\d.]+'? not found"),
    _symptom(Status.VERSION_MISMATCH, r"driver version is insufficient|driver on your system is too old"),
    _symptom(Status.VERSION_MISMATCH, r"driver/library version mismatch|forward compatibility was attempted"),
    _symptom(Status.VERSION_MISMATCH, r"driver version .* (?:not compatible|incompatible|mismatch)"),
    _symptom(Status.VERSION_MISMATCH, r"no kernel image is available|PTX was compiled with an unsupported"),
    _symptom(Status.VERSION_MISMATCH, r"WRONG PACKAGE"),
    # Another process, or the remains of one, owns the device.
    _symptom(Status.BUSY, r"cannot determine the number of available NeuronCores"),
    _symptom(Status.BUSY, r"cannot determine (?:the )?number of (?:available )?cores"),
    _symptom(Status.BUSY, r"insufficient (?:number of )?(?:neuron ?)?cores|not enough (?:neuron ?)?cores"),
    _symptom(Status.BUSY, r"(?:neuron ?core|\bcore)\(?s?\)? (?:is |are )?not available"),
    _symptom(Status.BUSY, r"neuron ?core(?:s)?(?: \S+)? in use|nrt_allocate_neuron_cores|\bNC_BUSY\b"),
    _symptom(Status.BUSY, r"FAIL_NOT_ENOUGH_NC|device or resource busy|\bEBUSY\b"),
    _symptom(Status.BUSY, r"CUDA-capable device\(?s?\)? (?:is|are) (?:all )?busy|devices are busy or unavailable"),
    _symptom(Status.BUSY, r"TPU is already in use|already in use by (?:another )?process"),
    # Memory of the device or of the host is full, or a queue of its runtime is exhausted.
    _symptom(Status.OOM, r"NCC_EOOM\d*|NCC_EVRF009"),
    _symptom(Status.OOM, r"out of memory|out-of-memory|OutOfMemoryError|\bOOM\b"),
    _symptom(Status.OOM, r"nrt_tensor_allocate status=4|fail(?:ed)? to alloc(?:ate)? (?:DEVICE|HOST) memory"),
    _symptom(Status.OOM, r"failed to allocate aligned .* buffer|allocation failure|can't allocate memory"),
    _symptom(Status.OOM, r"\bNRT_RESOURCE\b|NERR_RESOURCE|RESOURCE_EXHAUSTED"),
    _symptom(Status.OOM, r"(?:io|dma) ?rings?\b.*(?:exhausted|full|insufficient)|\bMemoryError\b"),
    _symptom(Status.OOM, r"DefaultCPUAllocator: not enough memory|cannot allocate memory|std::bad_alloc"),
    # The compiler says which operator or type this chip does not have.
    _symptom(Status.UNSUPPORTED, r"NCC_EUOC\d+|NCC_EVRF0(?:01|04|05|06|13|16|22|51|52)\b"),
    _symptom(Status.UNSUPPORTED, r"NCC_ESFH002|NCC_ESPP0(?:04|47)\b"),
    _symptom(Status.UNSUPPORTED, r"NCC_EMOD025|NCC_EARG001|NCC_EVRF0(?:3[5-9]|4\d|50|6[0-3])\b"),
    _symptom(Status.COMPILE_FAILED, r"NCC_[A-Z]+\d+|neuronx-cc .*(?:failed|error|terminated)|CompilationError"),
    _symptom(Status.COMPILE_FAILED, r"InductorError|BackendCompilerFailed|CppCompileError|C\+\+ compile error"),
    _symptom(Status.COMPILE_FAILED, r"torch\._dynamo\.exc\.\w+|XLA compilation failed|failed to compile"),
    _symptom(Status.FALLBACK, r"recompile_limit|cache_size_limit|RecompileLimit"),
    _symptom(Status.UNSUPPORTED, r"not implemented for '\w+'|type not supported|is not supported on (?:TRN|CPU|CUDA)"),
    # The device is gone or hung.
    _symptom(Status.TIMEOUT, r"NRT_TIMEOUT|DEADLINE_EXCEEDED|execution timed? ?out"),
    _symptom(Status.CRASHED, r"EXEC_UNIT_UNRECOVERABLE|illegal memory access|device-side assert|uncorrectable ECC"),
    _symptom(Status.CRASHED, r"unspecified launch failure|GPU has fallen off the bus|NRT_EXEC_HW_ERR"),
)

NRT_STATUS: dict[int, Status] = {
    1: Status.FAILED,
    4: Status.OOM,
    5: Status.TIMEOUT,
    9: Status.BUSY,
    10: Status.VERSION_MISMATCH,
    101: Status.CRASHED,
    1002: Status.FAILED,
    1003: Status.NONCONFORMANT,
    1005: Status.BUSY,
    1006: Status.FAILED,
    **dict.fromkeys(range(1200, 1207), Status.CRASHED),
}
"""Neuron runtime status numbers: `nrt_<call> status=<n>`. 1003 is "completed with numerical errors"."""

_NRT_CALL = re.compile(
    r"\bnrt_\w+\b\W{0,3}(?:failed\W*)?(?:with )?(?:status|error code)(?: code)?\s*[=:]?\s*(\d+)", re.IGNORECASE
)

_UNITS = {"": 1, "b": 1, "byte": 1, "bytes": 1}
_UNITS |= {f"{letter}{suffix}": 1024**power for power, letter in enumerate("kmgt", 1) for suffix in ("ib", "b", "")}

_SIZES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"tried to allocate\s+([\d.]+)\s*([kmgt]?i?b(?:ytes)?)\b",
        r"fail(?:ed)? to alloc(?:ate)? (?:DEVICE|HOST) memory:?\s*(\d+)()",
        r"you tried to allocate\s+(\d+)\s*(bytes)",
        r"(?:trying|attempting|failed|unable) to allocate\s+([\d.]+)\s*([kmgt]?i?b(?:ytes)?)\b",
        r"\bof size\s+(\d+)\s*(bytes)?",
        r"\bsize[=:]\s*(\d+)()",
    )
)


def classify_message(text: str) -> Status | None:
    """The status that an error message of any backend's runtime or compiler means, None where the table has no row."""
    numbered = _NRT_CALL.search(text)
    if numbered and (status := NRT_STATUS.get(int(numbered[1]))) is not None:
        return status
    for symptom in SYMPTOMS:
        if symptom.pattern.search(text):
            return symptom.status
    return None


def classify_error(error: BaseException) -> Status | None:
    """Like `classify_message` for an exception: its own status, its type, its text, then those of its causes."""
    for link in _chain(error):
        if isinstance(link, CaseError | BackendUnavailable):
            return link.status
        if isinstance(link, MemoryError):
            return Status.OOM
        if isinstance(link, KeyboardInterrupt):
            return Status.INTERRUPTED
        if isinstance(link, TimeoutError):
            return Status.TIMEOUT
        name = f"{type(link).__module__}.{type(link).__qualname__}"
        if (status := classify_message(f"{name}: {link}")) is not None:
            return status
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, then what it was raised from, each once."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def requested_bytes(text: str) -> int | None:
    """The size of the allocation that failed, in bytes, where the message gives it.

    Messages write 2**30 bytes both as "GiB" and "GB"; both are read as powers of 1024, as PyTorch prints them.
    """
    for pattern in _SIZES:
        if found := pattern.search(text):
            unit = (found[2] or "").lower().removesuffix("ytes").strip()
            try:
                return round(float(found[1]) * _UNITS[unit])
            except (KeyError, ValueError):
                continue
    return None


def mismatched_versions(text: str) -> tuple[str, str] | None:
    """What was found and what would have been accepted, quoted from a version mismatch message; None if not said."""
    for pattern in (
        r"compatibility id:?\s*(?P<found>\d+).*?(?:supports|range:)\D*?(?P<wanted>\d+(?:\s*-\s*\d+)?)",
        r"NEFF version:?\s*(?P<found>[\d.]+(?:, features: \w+)?).*?supporting:\s*(?P<wanted>[\w.]+)",
        r"NEFF version:?\s*(?P<found>[\d.]+).*?supports?\W+(?P<wanted>[\w.]+)",
        r"found version (?P<found>[\d.]+).*?(?:requires|at least)\D*(?P<wanted>[\d.]+)",
    ):
        if match := re.search(pattern, text, re.IGNORECASE | re.DOTALL):
            return match["found"], match["wanted"].strip().rstrip(".")
    return None


def failure_reason(text: str) -> str:
    """One line for a record: the message's first informative line, with sizes and versions where it gives them."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reason = next((line for line in lines if classify_message(line) is not None), lines[0] if lines else "no message")
    extra = []
    if classify_message(text) is Status.OOM and (size := requested_bytes(text)) is not None:
        extra.append(f"requested {size} bytes")
    if versions := mismatched_versions(text):
        extra.append(f"found {versions[0]}, accepted {versions[1]}")
    return f"{reason} ({'; '.join(extra)})" if extra else reason


def retry_when_busy(
    open_device: Callable[[], Opened],
    *,
    attempts: int = 3,
    wait: float = 5.0,
    list_owners: str,
    sleep: Callable[[float], None] = time.sleep,
) -> Opened:
    """Call `open_device` up to `attempts` times while its failure says that the device is busy.

    Waits `wait` seconds after the first refusal and twice as long after each further one. `list_owners` is the
    command that shows who holds the device; nothing here ends a process. A device that stays busy and a mismatch of
    versions are raised as `BackendUnavailable` with that status; any other failure is raised unchanged.
    """
    for attempt in range(1, attempts + 1):
        try:
            return open_device()
        except Exception as error:
            status = classify_error(error)
            reason = failure_reason(str(error))
            if status is Status.VERSION_MISMATCH:
                raise BackendUnavailable(f"the device's software does not match: {reason}", status) from error
            if status is not Status.BUSY:
                raise
            if attempt == attempts:
                message = f"the device is busy after {attempts} attempts: {reason}"
                raise BackendUnavailable(f"{message}; list its owners with `{list_owners}`", Status.BUSY) from error
            sleep(wait * 2 ** (attempt - 1))
    raise ValueError(f"attempts is {attempts}; it must be at least 1")
