"""What an interrupted case leaves behind: the seeds it drew, its finished runs, and a checkpoint of the one under way.

Files lie in one folder per case. Each is a line with the SHA-256 of the rest, and JSON. The tensors of a checkpoint
are in a file of their own, written first; the checkpoint names it with its hash, and replaces the one before in one
rename. So whatever a signal or a power cut interrupts, the last complete state is the one that is found.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from trnbench.records.schema import Compile, Evaluation, Memory, Round, TrainingRun, WarmupStep
from trnbench.records.store import StoreError, replace_file
from trnbench.status import Status

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

KEPT_AFTER: frozenset[Status] = frozenset({Status.BUSY, Status.TIMEOUT, Status.CRASHED, Status.INTERRUPTED})
"""Outcomes that say something about the moment and not about the case: what was trained so far is worth keeping."""

_CHUNK = 1 << 20


class Identity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a state must share with the case that goes on from it, for the result to be the same bits."""

    case: str
    version: str
    backend: str
    chip: str
    software: str
    data: str

    def unlike(self, other: Identity) -> str:
        """The first difference in words, "version 1f, not 2e"; empty where there is none."""
        for name in self.__struct_fields__:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name} {mine}, not {theirs}"
        return ""


class State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every file of the folder says first."""

    identity: Identity


class Plan(State, frozen=True, kw_only=True):
    """The seeds of all runs, drawn before the first: a rerun must not draw luckier ones."""

    seeds: list[int]


class Preparation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run's untimed part was like."""

    seconds: float
    warmup: list[WarmupStep]
    compile: Compile


class Finished(State, frozen=True, kw_only=True):
    """A run that ended: `log` is the text of its event log, `fallbacks` the operators that left the device in it."""

    run: TrainingRun
    round: Round
    preparation: Preparation
    memory: Memory
    fallbacks: dict[str, int]
    log: str


class Progress(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How far a run is: what it saw, what it measured, and its clock in seconds since `run_start`, its pauses left out.

    `losses` are the training losses of every step so far. `in_block` says that training samples were seen since the
    last evaluation, so that the log has a block that is not closed. `checkpoint_seconds` is the time that went into
    checkpoints, part of `seconds`. `start_state` is the fingerprint of the parameters before the first step.
    """

    samples: int = 0
    tokens: int = 0
    steps: int = 0
    seconds: float = 0.0
    in_block: bool = False
    evaluations: list[Evaluation] = []
    losses: list[float] = []
    resumed_at: list[int] = []
    checkpoints: int = 0
    checkpoint_seconds: float = 0.0
    start_state: str = ""


class Checkpoint(State, frozen=True, kw_only=True):
    """A run under way: `tensors` is the name of the file with parameters and optimizer, `sha256` its hash."""

    seed: int
    preparation: Preparation
    progress: Progress
    log: str
    tensors: str
    sha256: str


Kind = TypeVar("Kind", bound=State)


class StateFolder:
    """The folder of one case. Runs are numbered from 1. What cannot be used goes to `notes`, one sentence each."""

    def __init__(self, folder: Path, identity: Identity) -> None:
        self._folder = folder
        self._identity = identity
        self.notes: list[str] = []

    def plan(self) -> Plan | None:
        """The seeds that were drawn; None where there is no usable plan."""
        return self._read("plan", Plan)

    def write_plan(self, seeds: list[int]) -> None:
        """Fix the seeds. Raises `StoreError`."""
        self._write("plan", Plan(identity=self._identity, seeds=seeds))

    def finished(self, number: int, seed: int) -> Finished | None:
        """Run `number` as it ended, where it did and had this seed."""
        name = f"run_{number}.finished"
        found = self._read(name, Finished)
        return found if found is not None and self._is_of(name, found.run.seed, seed) else None

    def write_finished(self, number: int, finished: Finished) -> None:
        """Keep a run that ended, and drop its checkpoint. Raises `StoreError`."""
        self._write(f"run_{number}.finished", finished)
        self._remove(f"run_{number}.checkpoint")
        self._remove_tensors(number, keep="")

    def checkpoint(self, number: int, seed: int) -> tuple[Checkpoint, dict[str, Any]] | None:
        """The last checkpoint of run `number` and its tensors on the host, where they are whole and of this seed."""
        import torch

        name = f"run_{number}.checkpoint"
        found = self._read(name, Checkpoint)
        if found is None or not self._is_of(name, found.seed, seed):
            return None
        path = self._folder / found.tensors
        try:
            with path.open("rb") as file:
                if _sha256(file) != found.sha256:
                    self._note(found.tensors, "its content is not what was written")
                    return None
                file.seek(0)
                # Plain containers of numbers and tensors only: a state file is never a program.
                tensors: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        except OSError as error:
            self._note(found.tensors, f"it cannot be read ({error.strerror})")
            return None
        return found, tensors

    def write_checkpoint(
        self,
        number: int,
        *,
        seed: int,
        preparation: Preparation,
        progress: Progress,
        log: str,
        tensors: dict[str, Any],
    ) -> None:
        """Put a checkpoint of run `number` in place of the one before, durably. Raises `StoreError`."""
        name = f"run_{number}.tensors-{progress.steps}"
        checkpoint = Checkpoint(
            identity=self._identity,
            seed=seed,
            preparation=preparation,
            progress=progress,
            log=log,
            tensors=name,
            sha256=self._write_tensors(name, tensors),
        )
        self._write(f"run_{number}.checkpoint", checkpoint)
        self._remove_tensors(number, keep=name)

    def discard(self) -> None:
        """The case ended: remove the folder, and the one around it once it is empty."""
        shutil.rmtree(self._folder, ignore_errors=True)
        with suppress(OSError):
            self._folder.parent.rmdir()

    def _read(self, name: str, kind: type[Kind]) -> Kind | None:
        try:
            data = (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._note(name, f"it cannot be read ({error.strerror})")
            return None
        sha256, _, text = data.partition(b"\n")
        if hashlib.sha256(text).hexdigest().encode() != sha256:
            self._note(name, "its content is not what was written")
            return None
        try:
            found = msgspec.json.decode(text, type=kind)
        except msgspec.DecodeError as error:
            self._note(name, f"it has another form ({error})")
            return None
        unlike = found.identity.unlike(self._identity)
        if unlike:
            self._note(name, f"it is of {unlike}")
            return None
        return found

    def _is_of(self, name: str, found: int, wanted: int) -> bool:
        if found != wanted:
            self._note(name, f"it is of seed {found}, not {wanted}")
        return found == wanted

    def _write(self, name: str, state: State) -> None:
        text = msgspec.json.encode(state)
        data = hashlib.sha256(text).hexdigest().encode() + b"\n" + text
        replace_file(self._folder / name, data, what=f"{name} of an interrupted training")

    def _write_tensors(self, name: str, tensors: dict[str, Any]) -> str:
        """Stream the tensors to disk, so that no second copy of a model is held; returns their SHA-256."""
        import torch

        path = self._folder / name
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                torch.save(tensors, file)
                file.flush()
                os.fsync(file.fileno())
            with path.open("rb") as written:
                return _sha256(written)
        except (OSError, RuntimeError) as error:
            # PyTorch reports a full disk as a RuntimeError of its archive writer.
            path.unlink(missing_ok=True)
            why = (getattr(error, "strerror", None) or str(error)).strip().splitlines()[0]
            raise StoreError(f"a checkpoint was not written to {self._folder}: {why}") from None

    def _remove_tensors(self, number: int, keep: str) -> None:
        for path in self._folder.glob(f"run_{number}.tensors-*"):
            if path.name != keep:
                self._remove(path.name)

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            (self._folder / name).unlink()

    def _note(self, name: str, why: str) -> None:
        self.notes.append(f"the state {name} of an interrupted run was not used: {why}")


def _sha256(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()
