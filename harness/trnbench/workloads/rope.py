"""Rotary position embedding tables, computed in float64 on the host and rounded once.

Neither positions nor inverse frequencies ever pass through a model's dtype: bfloat16 cannot tell position 257 from
258 (EleutherAI/gpt-neox#1003, huggingface/transformers#25681).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from trnbench.workloads.presets import Preset, RopeScaling

Float64Array = npt.NDArray[np.float64]


def inverse_frequencies(preset: Preset) -> Float64Array:
    """Radians per position of each pair of dimensions, float64 [head_dim / 2], scaled where the preset says so."""
    exponents = np.arange(0, preset.head_dim, 2, dtype=np.float64) / preset.head_dim
    frequencies: Float64Array = preset.rope_theta**-exponents
    return frequencies if preset.rope_scaling is None else _stretched(frequencies, preset.rope_scaling)


def _stretched(frequencies: Float64Array, scaling: RopeScaling) -> Float64Array:
    """Llama 3's rule, as published with the Llama 3.1 models (`apply_scaling` in meta-llama/llama-models)."""
    wavelengths = 2 * math.pi / frequencies
    # 1 keeps a frequency, 0 divides it by the factor, linear in between on the scale of turns per original context.
    turns = scaling.original_max_positions / wavelengths
    kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept = np.clip(kept, 0.0, 1.0)
    stretched: Float64Array = kept * frequencies + (1.0 - kept) * frequencies / scaling.factor
    return stretched


def rotary_angles(preset: Preset, positions: int) -> Float64Array:
    """Angle in radians of every position and pair of dimensions, float64 [positions, head_dim / 2]."""
    return np.arange(positions, dtype=np.float64)[:, None] * inverse_frequencies(preset)
