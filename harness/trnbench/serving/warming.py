"""Warm-up of every shape that serving may run, and the refusal of any other once it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.status import CaseError, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.backends.base import Backend

PASSES = 2
"""A lazy device compiles a second graph for a step that starts from what an earlier step left on the device."""

MOST_PASSES = 4


class WarmShapes:
    """The shapes that have run before the clock started. `key` names a function and its bucket."""

    def __init__(self) -> None:
        self._known: set[tuple[str, int, int]] = set()
        self._over = False

    def meet(self, key: tuple[str, int, int]) -> None:
        """Called before a shape runs. Raises `CaseError(INVALID)` for one that was not warmed."""
        if key in self._known:
            return
        if self._over:
            name, count, length = key
            raise CaseError(Status.INVALID, f"{name} of {count} x {length} was never warmed; it would compile now")
        self._known.add(key)

    def require(self) -> None:
        """Raises `CaseError(INVALID)` where nothing has been warmed yet."""
        if not self._over:
            raise CaseError(Status.INVALID, "the system was not warmed: call warm() before its first step")

    def warm(self, backend: Backend, run_all: Callable[[], None]) -> None:
        """Run every shape at least twice, and again while a pass still compiles something.

        Raises `CaseError(INVALID)` where the fourth pass still does: what is served would then compile too.
        """
        self._over = False
        for number in range(1, MOST_PASSES + 1):
            before = backend.counters()
            run_all()
            if number >= PASSES and backend.counters().compiles == before.compiles:
                self._over = True
                return
        raise CaseError(Status.INVALID, f"pass {MOST_PASSES} of the warm-up still compiled; shapes are not static")
