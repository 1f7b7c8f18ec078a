"""Python's cyclic garbage collector, kept out of what is timed."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the collector, and restore it as it was.

    Everything alive is frozen first, so that a collection that is asked for meanwhile, between two rounds or where a
    device rests, looks only at what came up since.
    """
    enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
