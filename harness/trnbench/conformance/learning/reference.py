"""The arms that a device is judged by: fp32 on the host from every seed, and the paired floor of a precision.

Both are kept in the user's cache folder under all they depend on. The fp32 arms do not depend on the case's precision,
so the cases of every precision, mode and backend share them; the floor depends on it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trnbench.backends.switches import numerics_switches
from trnbench.conformance import model
from trnbench.conformance.cache import cache_folder, host_arithmetic, keep, read_kept
from trnbench.conformance.learning.arms import Run, Trainer
from trnbench.conformance.learning.curves import first_bad_step
from trnbench.conformance.learning.permitted import floor_run
from trnbench.workloads.version import workload_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.conformance.learning.recipe import Recipe

ROUNDS = 2
"""Runs of the floor for each seed."""

_MODEL_SOURCES = ("permute.py", "runs.py", "variants.py")
_OWN_SOURCES = ("arms.py", "permitted.py", "recipe.py", "reference.py")


class Reference(msgspec.Struct, frozen=True):
    """`fp32`: one run a seed. `floor`: `ROUNDS` runs a seed, the seeds in order and over again. `digest` pins both."""

    fp32: list[Run]
    floor: list[Run]
    digest: str


def find_reference(recipe: Recipe, precision: str) -> Reference:
    """The fp32 arms and the floor of `precision`, from the cache or trained now and kept there.

    Under the switches of fp32, whatever the case's: a host that multiplies float32 coarsely is no reference. Raises
    `RuntimeError` where a loss of the host is not finite: then nothing can be judged by it.
    """
    key, floor_key = _key(recipe, "fp32 arms"), _key(recipe, f"floor of {precision}")
    return Reference(
        fp32=_find(key, lambda: Trainer(recipe, "fp32").train_all()),
        floor=_find(floor_key, lambda: _train_floor(recipe, precision)),
        digest=hashlib.sha256((key + floor_key).encode()).hexdigest()[:16],
    )


def _train_floor(recipe: Recipe, precision: str) -> list[Run]:
    return [floor_run(recipe, precision, index) for index in range(ROUNDS * len(recipe.seeds))]


def _find(key: str, train: Callable[[], list[Run]]) -> list[Run]:
    path = cache_folder("learning") / f"{key}.json"
    try:
        return msgspec.json.decode(read_kept(path), type=list[Run])
    except (OSError, ValueError):
        with numerics_switches("fp32"):
            runs = train()
    if any(first_bad_step(run.losses) is not None for run in runs):
        raise RuntimeError("a loss of the host's own training is not finite; nothing can be judged by it")
    keep(path, msgspec.json.encode(runs))
    return runs


def _key(recipe: Recipe, what: str) -> str:
    """SHA-256 over everything that the runs depend on."""
    digest = hashlib.sha256()
    own, shared = Path(__file__).parent, Path(str(model.__file__)).parent
    for source in [*(own / name for name in _OWN_SOURCES), *(shared / name for name in _MODEL_SOURCES)]:
        digest.update(source.read_bytes())
    identity = (
        what,
        workload_version(recipe.preset.name),
        msgspec.json.encode(recipe).decode(),
        *host_arithmetic(),
    )
    digest.update(repr(identity).encode())
    return digest.hexdigest()[:32]
