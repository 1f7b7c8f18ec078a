"""Presets hold the published models, and names lead to them."""

from __future__ import annotations

import msgspec
import pytest
import torch

from trnbench.status import UsageError
from trnbench.workloads.decoder import Decoder
from trnbench.workloads.presets import PRESETS, Preset, parameter_count, parameter_shapes, preset

# Totals of the safetensors files that the publishers show on their model pages.
PUBLISHED = {
    "smollm2-135m": 134_515_008,
    "llama3.2-1b": 1_235_814_400,
    "llama3.1-8b": 8_030_261_248,
    "llama3.1-70b": 70_553_706_496,
}


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_parameter_count_is_the_published_one(name: str, parameters: int) -> None:
    assert parameter_count(preset(name)) == parameters


def test_nano_has_about_five_million_parameters() -> None:
    assert 4_500_000 < parameter_count(preset("nano")) < 5_500_000


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_names_its_source_and_fits_its_heads(name: str) -> None:
    assert preset(name).source
    assert preset(name).heads % preset(name).kv_heads == 0


@pytest.mark.parametrize("name", PRESETS)
def test_shapes_are_those_of_the_model(name: str) -> None:
    small = msgspec.structs.replace(preset(name), layers=1)
    model = Decoder(small, torch.bfloat16, device="meta", positions=8)
    assert {key: tuple(value.shape) for key, value in model.named_parameters()} == parameter_shapes(small)


def test_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no model preset 'llama3\.1-8B'; did you mean 'llama3\.1-8b'\?"):
        preset("llama3.1-8B")
    with pytest.raises(UsageError, match="the presets are nano, "):
        preset("zzzz")


@pytest.mark.parametrize(("field", "value"), [("kv_heads", 3), ("head_dim", 7)])
def test_impossible_heads_are_refused(tiny: Preset, field: str, value: int) -> None:
    with pytest.raises(UsageError, match=field):
        msgspec.structs.replace(tiny, **{field: value})
