"""What every arm of a learning check trains: a slice of the preset, a task, and the paired seeds.

An arm is one implementation trained from several seeds. A seed fixes the initial weights and every batch, so two arms
are paired seed by seed, and what differs between them is arithmetic alone.
"""

from __future__ import annotations

import msgspec

from trnbench.workloads.presets import Preset, parameter_count

SYMBOLS = 48
"""Vocabulary of the task: few enough that a rule over it shows within some tens of steps of 48 real tokens."""

LAYERS = 2
"""Layers that are trained: one that feeds another. Depth is the business of the model-level checks."""

PARAMETER_BUDGET = 2_000_000
"""The host trains eighteen runs of this; wider presets are narrowed by a common factor until they fit, if they can."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """`steps` optimizer steps on `batch` sequences of `sequence` tokens each, from every one of `seeds`.

    The task is that of `workloads.data` over the slice's small vocabulary: three tokens in four follow from the one
    before. Batches are never repeated, so the loss before each step is one on unseen data. The learning rate is the
    workload's own, at which `steps` steps end while the loss still falls: a rate that is too high then shows as
    learning too fast. `window` is how many steps a loss is averaged over.
    """

    preset: Preset
    words: str
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    batch: int = 8
    sequence: int = 8
    steps: int = 40
    window: int = 8

    @property
    def samples(self) -> int:
        """Sequences that one run trains on."""
        return self.batch * self.steps


def choose_recipe(preset: Preset) -> Recipe:
    """The recipe of `preset`: its vocabulary cut to `SYMBOLS`, its layers to `LAYERS`, its widths to the budget."""
    sliced = msgspec.structs.replace(
        preset, layers=min(LAYERS, preset.layers), vocab_size=min(SYMBOLS, preset.vocab_size), max_positions=64
    )
    narrowed = sliced
    for factor in range(2, sliced.kv_heads + 1):
        if parameter_count(narrowed) <= PARAMETER_BUDGET:
            break
        extents = {name: getattr(sliced, name) for name in ("hidden", "heads", "kv_heads", "ffn_hidden")}
        if all(extent % factor == 0 for extent in extents.values()):
            smaller = {name: extent // factor for name, extent in extents.items()}
            narrowed = msgspec.structs.replace(sliced, **smaller)
    words = (
        f"{narrowed.layers} of {preset.layers} layers, width {narrowed.hidden} of {preset.hidden}, vocabulary "
        f"{narrowed.vocab_size} of {preset.vocab_size}"
    )
    return Recipe(preset=narrowed, words=words)
