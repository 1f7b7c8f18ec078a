"""A mutant: an implementation that takes the device's place, with what the checks must say about it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from trnbench.conformance.arithmetic import Arithmetic
from trnbench.conformance.implementation import Implementation


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """A wrong one must be caught by some tier and named `looks_like`; a correct one (`looks_like` empty) must pass.

    `looks_like` lists every name that is right: a fault may be the same as another on all inputs. Written without the
    code of the hypothesis that should recognise it, in another order or another tile where there is a choice.
    """

    name: str
    operator: str
    precision: str
    make: Callable[[], Implementation]
    looks_like: tuple[str, ...] = ()
    arithmetic: Callable[[str], Arithmetic] | None = None
    """What the passport would have found, by precision; None for the defaults."""

    @property
    def correct(self) -> bool:
        """Whether no check may object."""
        return not self.looks_like
