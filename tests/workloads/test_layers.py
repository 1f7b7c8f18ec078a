"""The precision policy of the layers: masks, rotary tables, norms and what stays in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trnbench.workloads.initial import build_model, reference_model
from trnbench.workloads.layers import RMSNorm, attend, attention_mask, causal_visibility, rotate
from trnbench.workloads.presets import Preset, RopeScaling, preset
from trnbench.workloads.rope import inverse_frequencies, rotary_angles

if TYPE_CHECKING:
    from collections.abc import Iterator

LOW = [torch.float32, torch.bfloat16, torch.float16]


def relative(got: torch.Tensor, true: torch.Tensor) -> float:
    return ((got.double() - true.double()).norm() / true.double().norm()).item()


def padded_row_inputs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Random [1, 2, 4, 8] operands, and a visibility in which query 2 sees no key at all."""
    generator = torch.Generator().manual_seed(0)
    visible = causal_visibility(4, torch.device("cpu")).clone()
    visible[2] = False
    return torch.randn(1, 2, 4, 8, generator=generator).to(dtype), visible


@pytest.mark.parametrize("attention", ["fused", "unfused"])
@pytest.mark.parametrize("dtype", [*LOW, torch.float64])
def test_a_fully_padded_row_stays_finite(dtype: torch.dtype, attention: Any) -> None:
    """C3: masks hold the compute dtype's own minimum."""
    x, visible = padded_row_inputs(dtype)
    mask = attention_mask(visible, dtype)
    assert mask.dtype == dtype
    assert mask.isfinite().all()
    assert attend(x, x, x, mask, attention).isfinite().all()


def test_the_float32_minimum_in_bfloat16_gives_nan_at_the_padded_row() -> None:
    """C3: the fault of the field report is one that this test's inputs can show."""
    x, visible = padded_row_inputs(torch.bfloat16)
    mask = attention_mask(visible, torch.float32).to(torch.bfloat16)
    broken = attend(x, x, x, mask, "unfused")
    bad_rows = (~broken.isfinite()).any(-1).any(1).nonzero()[:, 1].tolist()
    assert bad_rows == [2]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("attention", ["fused", "unfused"])
def test_decoding_beside_an_empty_sequence_stays_finite(tiny: Preset, precision: str, attention: Any) -> None:
    """C3: a sequence with nothing visible in its cache row gives finite logits and leaves its neighbour alone."""
    model = build_model(tiny, precision, "cpu", 0, attention=attention, inference=True, positions=8)
    tokens, positions = torch.tensor([3, 4]), torch.tensor([5, 0])
    both = model.decode(tokens, positions, model.new_cache(2, 8))
    alone = model.decode(tokens[:1], positions[:1], model.new_cache(1, 8))
    assert both.isfinite().all()
    assert relative(both[:1], alone) < 4 * torch.finfo(model.compute_dtype).eps


@pytest.mark.parametrize("dtype", [*LOW, torch.float64])
def test_fused_and_unfused_attention_agree(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(2, 3, 9, 8, generator=generator, dtype=torch.float64).to(dtype) for _ in range(3))
    mask = attention_mask(causal_visibility(9, query.device), dtype)
    exact = attend(query.double(), key.double(), value.double(), None, "unfused")
    for got in (attend(query, key, value, None, "fused"), attend(query, key, value, mask, "fused")):
        assert relative(got, exact) < 4 * torch.finfo(dtype).eps
    assert relative(attend(query, key, value, None, "unfused"), exact) < 4 * torch.finfo(dtype).eps


def with_position_dtype(tiny: Preset, length: int, dtype: torch.dtype) -> float:
    """Error of float32 logits to float64 when the rotary table's positions have passed through `dtype`."""
    model = build_model(tiny, "fp32", "cpu", 0, positions=length)
    true = reference_model(model)
    positions = torch.arange(length).to(dtype).double()
    angles = positions[:, None] * torch.from_numpy(inverse_frequencies(tiny))
    model.rotary.cos, model.rotary.sin = angles.cos().float(), angles.sin().float()
    tokens = (torch.arange(length)[None] * 7) % tiny.vocab_size
    with torch.no_grad():
        return relative(model(tokens), true(tokens))


@pytest.mark.parametrize(
    ("length", "dtype", "passes"),
    [
        (128, torch.bfloat16, True),
        (1024, torch.bfloat16, False),
        (1024, torch.float32, True),
    ],
)
def test_positions_in_bfloat16_show_only_beyond_256(
    tiny: Preset, length: int, dtype: torch.dtype, passes: bool
) -> None:
    """C6: a bf16 position table is exact up to 256 and wrong after; a default check needs a length above that."""
    assert (with_position_dtype(tiny, length, dtype) < 2e-6) is passes


def test_narrowing_the_model_leaves_the_rotary_table_alone(tiny: Preset) -> None:
    """C6: `model.bfloat16()` reaches parameters only; 1024 positions stay distinct."""
    model = build_model(tiny, "bf16", "cpu", 0, positions=1024).bfloat16().to("cpu", torch.float16)
    assert model.embedding.weight.dtype == torch.float16
    assert model.rotary.cos.dtype == model.rotary.sin.dtype == torch.float32
    angles = torch.from_numpy(rotary_angles(tiny, 1024))
    assert torch.equal(model.rotary.cos, angles.cos().float())
    assert len(torch.unique(model.rotary.sin[:, 1])) > 1000


def test_rotation_keeps_lengths_and_depends_on_distance_only(tiny: Preset) -> None:
    angles = torch.from_numpy(rotary_angles(tiny, 40))
    generator = torch.Generator().manual_seed(2)
    query, key = (torch.randn(1, 1, 1, 8, generator=generator, dtype=torch.float64) for _ in range(2))

    def score(at: int, to: int) -> float:
        turned = [rotate(x, (angles[p].cos(), angles[p].sin())) for x, p in ((query, at), (key, to))]
        assert torch.allclose(turned[0].norm(), query.norm(), rtol=1e-14)
        return float((turned[0] * turned[1]).sum())

    assert score(17, 3) == pytest.approx(score(37, 23), rel=1e-12)
    assert score(17, 3) != pytest.approx(score(17, 4), rel=1e-3)


def test_llama3_scaling_keeps_fast_pairs_and_stretches_slow_ones(tiny: Preset, scaling: RopeScaling) -> None:
    plain = inverse_frequencies(preset("llama3.1-8b"))
    unscaled = inverse_frequencies(msgspec.structs.replace(preset("llama3.1-8b"), rope_scaling=None))
    wavelength = 2 * torch.pi / unscaled
    assert (plain[wavelength < 8192 / 4] == unscaled[wavelength < 8192 / 4]).all()
    assert plain[wavelength > 8192] == pytest.approx(unscaled[wavelength > 8192] / 8, rel=1e-15)
    between = (wavelength > 8192 / 4) & (wavelength < 8192)
    assert between.any()
    assert ((plain < unscaled) & (plain > unscaled / 8))[between].all()


def test_norm_statistics_are_wide() -> None:
    """65 504 squared overflows float16 and 257 values of 1 sum wrongly in bfloat16; neither may matter."""
    norm = RMSNorm(512, 1e-5, torch.float32, torch.device("cpu"))
    torch.nn.init.ones_(norm.weight)
    large = torch.full((512,), 60_000.0, dtype=torch.float16)
    assert torch.equal(norm(large), torch.ones(512, dtype=torch.float16))
    assert torch.equal(norm(torch.ones(512, dtype=torch.bfloat16)), torch.ones(512, dtype=torch.bfloat16))


class Dtypes(TorchDispatchMode):
    """Every floating dtype that an operator returned."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for each in flatten(result):
            if each.is_floating_point():
                self.seen.add(each.dtype)
        return result


def flatten(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from flatten(each)


@pytest.mark.parametrize("attention", ["fused", "unfused"])
def test_float64_stays_float64_throughout(tiny: Preset, attention: Any) -> None:
    model = build_model(tiny, "fp64", "cpu", 0, attention=attention, positions=8)
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    cache = model.new_cache(2, 8)
    with Dtypes() as dtypes:
        model(tokens).logsumexp(-1).sum().backward()
        with torch.no_grad():
            model.prefill(tokens, torch.tensor([3, 2]), cache)
            model.decode(tokens[:, 0], torch.tensor([3, 2]), cache)
    assert dtypes.seen == {torch.float64}
