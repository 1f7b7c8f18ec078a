"""LoRA adapters: nothing changes at the start, only they learn, and merged they are the same model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trnbench.status import UsageError
from trnbench.workloads.initial import build_model
from trnbench.workloads.lora import AdaptedLinear, adapt, merge
from trnbench.workloads.training import forward_loss

if TYPE_CHECKING:
    from trnbench.workloads.decoder import Decoder
    from trnbench.workloads.presets import Preset

TOKENS = torch.arange(40).view(4, 10)
TARGETS = (TOKENS * 7 + 3) % 61
CPU = torch.device("cpu")


def built(tiny: Preset, precision: str = "fp32", positions: int = 12) -> Decoder:
    return build_model(tiny, precision, CPU, 0, inference=True, positions=positions)


def gradients(model: Decoder) -> Tensor:
    loss = forward_loss(model, TOKENS, TARGETS, torch.tensor(40.0))
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def trained(parameters: list[nn.Parameter], steps: int, model: Decoder) -> None:
    optimizer = torch.optim.AdamW(parameters, lr=0.02, foreach=False)
    for _ in range(steps):
        optimizer.zero_grad()
        gradients(model)
        optimizer.step()


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_an_adapted_model_starts_as_the_model_it_was(tiny: Preset, precision: str) -> None:
    model = built(tiny, precision)
    before = model(TOKENS)
    adapt(model, 4, 8.0, 1)
    assert torch.equal(model(TOKENS), before)
    cache = model.new_cache(4, 12)
    plain = built(tiny, precision)
    lengths = torch.full((4,), 10)
    assert torch.equal(model.prefill(TOKENS, lengths, cache), plain.prefill(TOKENS, lengths, plain.new_cache(4, 12)))


def test_only_adapters_have_gradients_and_they_are_wide(tiny: Preset) -> None:
    model = build_model(tiny, "bf16", CPU, 0, positions=12)
    frozen = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    parameters = adapt(model, 4, 8.0, 1)
    assert [p for p in model.parameters() if p.requires_grad] == parameters
    assert {parameter.dtype for parameter in parameters} == {torch.float32}
    trained(parameters, 2, model)
    for parameter in model.parameters():
        assert (parameter.grad is not None) == parameter.requires_grad
    for parameter in parameters:
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0
    after = {name.replace(".base.", "."): parameter for name, parameter in model.named_parameters()}
    assert all(torch.equal(after[name], value) for name, value in frozen.items())


def test_trained_adapters_learn_and_merge_into_the_same_model(tiny: Preset) -> None:
    model = built(tiny)
    before = model(TOKENS)
    parameters = adapt(model, 4, 8.0, 1)
    first = gradients(model)
    trained(parameters, 10, model)
    assert gradients(model) < first - 0.1
    adapted = model(TOKENS).detach()
    assert (adapted - before).abs().max() > 1e-2
    names = [name for name, _ in built(tiny).named_parameters()]
    merge(model)
    assert [name for name, _ in model.named_parameters()] == names
    assert not any(isinstance(module, AdaptedLinear) for module in model.modules())
    torch.testing.assert_close(model(TOKENS), adapted, rtol=1e-5, atol=1e-5)


def test_the_pair_is_scaled_by_alpha_over_rank(tiny: Preset) -> None:
    """Against W x + (alpha / r) B A x of the paper, in float64."""
    model = build_model(tiny, "fp64", CPU, 0, inference=True, positions=12)
    base = model.get_submodule("layers.1.feed_forward.down")
    weight = torch.as_tensor(base.weight).clone()
    parameters = adapt(model, 3, 12.0, 5)
    assert {parameter.dtype for parameter in parameters} == {torch.float64}
    pair = model.get_submodule("layers.1.feed_forward.down")
    assert isinstance(pair, AdaptedLinear)
    with torch.no_grad():
        pair.b.copy_(torch.arange(pair.b.numel(), dtype=torch.float64).view(pair.b.shape))
    x = torch.linspace(-1, 1, 2 * 48, dtype=torch.float64).view(2, 48)
    expected = x @ (weight + 12.0 / 3 * pair.b @ pair.a).T
    torch.testing.assert_close(pair(x), expected)
    torch.testing.assert_close(x @ pair.merged().T, expected)


def test_parameters_are_counted_from_the_shapes(tiny: Preset) -> None:
    """r x (in + out) for each of seven matrices in each layer; widths 32, keys and values 16, feed-forward 48."""
    parameters = adapt(built(tiny), 4, 8.0, 0)
    widths = (32 + 32) * 2 + (32 + 16) * 2 + (32 + 48) * 3
    assert sum(parameter.numel() for parameter in parameters) == 2 * 4 * widths
    assert len(parameters) == 2 * 7 * 2


def test_the_start_depends_on_seed_and_place_alone(tiny: Preset) -> None:
    first, again, other = (adapt(built(tiny), 4, 8.0, seed) for seed in (1, 1, 2))
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    starts = [parameter.detach().numpy() for parameter in first[::2]]
    assert not any(np.array_equal(one, two.detach().numpy()) for one, two in zip(starts, other[::2], strict=True))
    assert len({start.tobytes() for start in starts}) == len(starts)
    assert all(not parameter.any() for parameter in first[1::2])
    for start in starts:
        bound = start.shape[1] ** -0.5
        assert 0.9 * bound < np.abs(start).max() <= bound


def test_ranks_and_models_that_do_not_fit_are_refused(tiny: Preset) -> None:
    for rank in (0, 17):
        with pytest.raises(UsageError, match=rf"LoRA rank is {rank}; .* allows 1 to"):
            adapt(built(tiny), rank, 8.0, 0)
    model = built(msgspec.structs.replace(tiny, layers=1))
    adapt(model, 2, 8.0, 0)
    with pytest.raises(UsageError, match=r"layers\.0\.attention\.query of tiny is adapted already"):
        adapt(model, 2, 8.0, 0)
