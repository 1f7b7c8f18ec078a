"""Which slice of a case is checked: never shorter than where short checks are blind, and said in words."""

from __future__ import annotations

import pytest
import torch

from trnbench.case import grid
from trnbench.conformance.model.errors import relative_error, worst_row_error
from trnbench.conformance.model.scope import LEAST_SEQUENCE, choose_scope
from trnbench.conformance.model.variants import round_significand, serial_product
from trnbench.workloads.presets import PRESETS, preset


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_large_models_are_checked_on_a_slice_of_the_same_widths(name: str) -> None:
    """C6: at least one length above 256 where the case has one, at least two layers, and every width kept."""
    case = grid(
        suite="test",
        workload=name,
        phase="train_step",
        precision="bf16",
        mode="eager",
        tier="single",
        batch=8,
        micro_batch=2,
        sequence=2048,
    )[0]
    scope = choose_scope(case, preset(name))
    assert scope.case.sequence >= LEAST_SEQUENCE > 256
    assert scope.preset.layers >= 2
    assert (scope.preset.hidden, scope.preset.heads, scope.preset.vocab_size) == (
        preset(name).hidden,
        preset(name).heads,
        preset(name).vocab_size,
    )
    assert f"{scope.preset.layers} of {preset(name).layers} layers" in scope.words


def test_an_all_zero_result_has_error_one() -> None:
    """C10: whatever the scale of the reference."""
    oracle = 1e-6 * torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert relative_error(torch.zeros_like(oracle), oracle) == pytest.approx(1.0)


def test_one_wrong_row_shows_in_the_worst_row() -> None:
    oracle = torch.ones(1000, 4, dtype=torch.float64)
    result = oracle.clone()
    result[7] = 0.0
    assert relative_error(result, oracle) == pytest.approx(1000**-0.5)
    assert worst_row_error(result, oracle) == pytest.approx(1.0)


def test_rounding_to_eight_bits_is_bfloat16() -> None:
    """To nearest even, bit for bit, also for subnormals, infinities and at the carry into the exponent."""
    generator = torch.Generator().manual_seed(1)
    bits = torch.randint(-(2**31), 2**31 - 1, (100_000,), generator=generator).to(torch.int32)
    x = bits.view(torch.float32)
    x = x[~torch.isnan(x) & (x.abs() < 3.38e38)]
    assert torch.equal(round_significand(x, 8), x.to(torch.bfloat16).to(torch.float32))


def test_serial_products_sum_in_order() -> None:
    """2^24 + 1 - 2^24 is 0 from the left in float32, and 1 in any order that adds the 1 last."""
    a = torch.tensor([[2.0**24, 1.0, -(2.0**24)]])
    assert serial_product(a, torch.ones(3, 1)).item() == 0.0
    assert serial_product(a[:, [0, 2, 1]], torch.ones(3, 1)).item() == 1.0
