"""Count what TorchDynamo compiles, forward and backward graphs alike, and see when it gives up compiling.

TorchDynamo announces each compilation to callbacks (torch 2.9 to 2.13): once per captured graph and once per
backward graph, which is compiled at the first backward. `torch._dynamo.reset()` drops the callbacks, so they are
checked again before every call of a compiled function.
"""

from __future__ import annotations

import functools
import os
import re
import tempfile
import time
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnbench.status import CaseError, Status

if TYPE_CHECKING:
    from collections.abc import Callable

_GAVE_UP = frozenset({"FailOnRecompileLimitHit", "RecompileLimitExceeded"})


class CompileWatch:
    """Totals over the process since the first `compiled`; zero before it, since nothing can have been compiled."""

    def __init__(self) -> None:
        self.compiles = 0
        self.seconds = 0.0
        self._started: float | None = None

    def compiled(self, function: Callable[..., Any], compiler: str) -> Callable[..., Any]:
        """`function` through `torch.compile` with static shapes, as one graph, its compilations counted here.

        The returned function raises `CaseError(FALLBACK)` when TorchDynamo reaches its limit of shapes: left to
        itself it would go on uncompiled with no more than a line in a log.
        """
        import torch
        import torch._dynamo
        import torch._dynamo.config

        # A second shape must be a second graph, never a switch to dynamic shapes.
        torch._dynamo.config.automatic_dynamic_shapes = False
        torch._dynamo.config.fail_on_recompile_limit_hit = True
        compiled = torch.compile(function, backend=compiler, fullgraph=True, dynamic=False)

        @functools.wraps(function, updated=())
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._listen()
            try:
                return compiled(*args, **kwargs)
            except Exception as error:
                if type(error).__name__ not in _GAVE_UP:
                    raise
                limit = torch._dynamo.config.recompile_limit
                raise CaseError(
                    Status.FALLBACK,
                    f"compile fell back: one function met more than {limit} variants of its inputs; pad them to fewer",
                ) from error

        return counted

    def _listen(self) -> None:
        from torch._dynamo.callback import callback_handler

        if self._on_start not in callback_handler.start_callbacks:
            callback_handler.register_start_callback(self._on_start)
            callback_handler.register_end_callback(self._on_end)

    def _on_start(self, _: Any) -> None:
        self._started = time.perf_counter()
        self.compiles += 1

    def _on_end(self, _: Any) -> None:
        if self._started is not None:
            self.seconds += time.perf_counter() - self._started
            self._started = None


def inductor_cache_state() -> str:
    """Inductor's cache on disk: "none" where it is switched off, "warm" where it holds graphs, else "cold"."""
    off = os.environ.get("TORCHINDUCTOR_FORCE_DISABLE_CACHES") == "1"
    if off or os.environ.get("TORCHINDUCTOR_FX_GRAPH_CACHE") == "0":
        return "none"
    chosen = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    user = re.sub(r'[\\/:*?"<>|]', "_", getuser())
    graphs = Path(chosen or Path(tempfile.gettempdir()) / f"torchinductor_{user}") / "fxgraph"
    return "warm" if graphs.is_dir() and any(graphs.iterdir()) else "cold"
