"""A decoder small enough to run hundreds of times, and cases over it."""

from __future__ import annotations

from typing import Any

import pytest

from trnbench.case import Case, case_from
from trnbench.workloads.presets import Preset, RopeScaling

TINY = Preset(
    name="tiny",
    vocab_size=61,
    layers=2,
    hidden=32,
    heads=4,
    kv_heads=2,
    head_dim=8,
    ffn_hidden=48,
    rope_theta=10_000.0,
    rope_scaling=None,
    norm_eps=1e-5,
    tied_head=False,
    max_positions=4096,
    source="this test",
)
SCALING = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_positions=32)


@pytest.fixture(scope="session")
def tiny() -> Preset:
    return TINY


@pytest.fixture(scope="session")
def scaling() -> RopeScaling:
    return SCALING


class Cases:
    """Makes a case from the few fields that a test is about."""

    def __call__(self, phase: str, **fields: Any) -> Case:
        defaults: dict[str, Any] = {
            "suite": "test",
            "workload": "nano",
            "phase": phase,
            "precision": "fp32",
            "mode": "eager",
            "tier": "smoke",
            "batch": 4,
            "sequence": 16,
        }
        if phase == "decode":
            defaults["new_tokens"] = 3
        return case_from(defaults | fields)


@pytest.fixture(scope="session")
def make_case() -> Cases:
    return Cases()
