"""What the parent, which has the device, and the child, which has LoadGen, say to each other.

Messages are msgpack on two pipes, one each way. Nothing here may import torch or pandas: the
child must start in a moment.
"""

from __future__ import annotations

import contextlib
import fcntl
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from trnbench.serving.settings import Test
from trnbench.serving.system import FirstToken
from trnbench.status import Status

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

DETAIL, SUMMARY, ACCURACY = "mlperf_log_detail.txt", "mlperf_log_summary.txt", "mlperf_log_accuracy.json"
"""What LoadGen writes into the folder of a test."""

PIPE_BYTES = 1 << 20

In = TypeVar("In")
Out = TypeVar("Out")


class Start(msgspec.Struct, frozen=True, tag=True):
    """Parent: run this test and write LoadGen's logs into `folder`, which must exist and hold none yet."""

    test: Test
    folder: str


class Answer(NamedTuple):
    """One complete answer: native-endian int32 tokens, which LoadGen logs as they are; `length` is 0 for scoring."""

    id: int
    tokens: bytes
    length: int


class Responses(msgspec.Struct, frozen=True, tag=True):
    """Parent: what one step of the system brought, first tokens first."""

    first: list[FirstToken]
    complete: list[Answer]


class Issue(msgspec.Struct, frozen=True, tag=True):
    """Child: one query; its samples' response ids and their positions in the library."""

    ids: list[int]
    indices: list[int]


class Flushed(msgspec.Struct, frozen=True, tag=True):
    """Child: no more queries will come. The test goes on until the last answer."""


class Finished(msgspec.Struct, frozen=True, tag=True):
    """Child: the test is over and its logs are written."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Child: the test could not run. `status` is what the case ends with."""

    status: Status
    reason: str


FromParent = Start | Responses
FromChild = Issue | Flushed | Finished | Failed


class Channel(Generic[In, Out]):
    """One end of two pipes; `incoming` is the union of messages that arrive, `In` for the type checker.

    Pipes and not a socket: a queue of small messages fills a socket after some 280, and LoadGen would have to wait
    with the next query until the system's current step is over; a pipe takes a hundred times as many.
    Every call may raise `EOFError` or `OSError` once the other process is gone.
    """

    def __init__(self, reader: Connection, writer: Connection, incoming: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(incoming).decode

    def send(self, message: Out) -> None:
        """Blocks while the pipe is full."""
        self._writer.send_bytes(self._encode(message))

    def receive(self) -> In:
        """The next message; waits for it."""
        message: In = self._decode(self._reader.recv_bytes())
        return message

    def waiting(self, timeout: float = 0.0) -> bool:
        """Whether a message, or the end of the pipe, has come or comes within `timeout` seconds."""
        return self._reader.poll(timeout)

    def close(self) -> None:
        """Close this end; the other one then reads the end of its pipe."""
        self._reader.close()
        self._writer.close()


def widen(writer: Connection) -> None:
    """Let a pipe hold a mebibyte where the system can do so, instead of 64 KiB."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):  # The administrator may allow less.
            fcntl.fcntl(writer.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
