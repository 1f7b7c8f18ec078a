"""The same weights in Hugging Face's LlamaForCausalLM give the same logits and gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
import torch
from hugging_face import LOGITS_LIMIT, hugging_face_name, relative, twin
from torch.nn import functional

from trnbench.workloads.initial import build_model
from trnbench.workloads.presets import RopeScaling

if TYPE_CHECKING:
    from trnbench.workloads.layers import Attention
    from trnbench.workloads.presets import Preset

pytest.importorskip("transformers", reason="needs the extra real-model")

pytestmark = pytest.mark.real_model

GRADIENTS_LIMIT = 1e-4
SCALING = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_positions=32)


@pytest.mark.parametrize("attention", ["fused", "unfused"])
@pytest.mark.parametrize("tied_head", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("rope_scaling", [SCALING, None], ids=["llama3-rope", "plain-rope"])
def test_logits_and_gradients_agree(
    tiny: Preset, rope_scaling: RopeScaling | None, kv_heads: int, tied_head: bool, attention: Attention
) -> None:
    preset = msgspec.structs.replace(tiny, kv_heads=kv_heads, tied_head=tied_head, rope_scaling=rope_scaling)
    model = build_model(preset, "fp32", "cpu", 11, attention=attention, positions=48)
    other = twin(model)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(preset.vocab_size, (2, 49), generator=generator)
    logits = []
    for forward in (model, lambda inputs: other(inputs).logits):
        logits.append(forward(tokens[:, :-1]))
        functional.cross_entropy(logits[-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    assert relative(logits[0], logits[1]) < LOGITS_LIMIT
    theirs = dict(other.named_parameters())
    for name, parameter in model.named_parameters():
        assert relative(parameter.grad, theirs[hugging_face_name(name)].grad) < GRADIENTS_LIMIT, name


def test_the_comparison_sees_a_missing_rope_scaling(tiny: Preset) -> None:
    """The limits are tight enough that leaving the scaling out fails them at this length."""
    model = build_model(tiny, "fp32", "cpu", 11, positions=48)
    other = twin(build_model(msgspec.structs.replace(tiny, rope_scaling=SCALING), "fp32", "cpu", 11, positions=48))
    tokens = torch.arange(48)[None] % tiny.vocab_size
    with torch.no_grad():
        assert relative(model(tokens), other(tokens).logits) > 10 * LOGITS_LIMIT
