"""FLOP counts against the matmuls of the running model, and conventions against each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from trnbench.case import Case
from trnbench.status import UsageError
from trnbench.workloads.data import length_set, token_batch
from trnbench.workloads.flops import (
    CONVENTION,
    CONVENTIONS,
    attention_pairs,
    decode_flops,
    flops_per_round,
    tokenwise_flops,
)
from trnbench.workloads.initial import build_model
from trnbench.workloads.presets import Preset, preset
from trnbench.workloads.training import accumulate_gradients, forward_loss, to_device

Make = Callable[..., Case]


def counted(function: Callable[[], Any]) -> int:
    """FLOPs of every matrix multiplication that the function really runs, from the shapes it runs them on."""
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def counted_token_by_token(model_preset: Preset, lengths: list[int]) -> int:
    """The running model's matmuls when every token is decoded against exactly the keys that it may see."""
    model = build_model(model_preset, "fp32", "cpu", 0, attention="unfused", inference=True, positions=64)
    total = 0
    for length in lengths:
        for visible in range(1, length + 1):
            cache = model.new_cache(1, visible)
            arguments = torch.tensor([1]), torch.tensor([visible - 1]), cache
            total += counted(lambda arguments=arguments: model.decode(*arguments))
    return total


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("tied_head", [True, False])
def test_training_matches_the_running_model(tiny: Preset, make_case: Make, kv_heads: int, tied_head: bool) -> None:
    """B2: full attention, grouped heads, accumulation over two micro-batches."""
    model_preset = msgspec.structs.replace(tiny, kv_heads=kv_heads, tied_head=tied_head)
    case = make_case("train_step", batch=4, micro_batch=2, sequence=12)
    model = build_model(model_preset, "fp32", "cpu", 0, attention="unfused", positions=12)
    batch = to_device(token_batch(tiny.vocab_size, 4, 12, 0), 2, "cpu", torch.float32)

    def loss_function(*arguments: torch.Tensor) -> torch.Tensor:
        return forward_loss(model, *arguments)

    running = counted(lambda: accumulate_gradients(loss_function, batch))
    assert flops_per_round(case, model_preset, "matmul-padded-full") == running


def test_prefill_and_decode_match_the_running_model(tiny: Preset, make_case: Make) -> None:
    model = build_model(tiny, "fp32", "cpu", 0, attention="unfused", inference=True, positions=19)
    tokens, lengths = torch.ones(3, 16, dtype=torch.int64), torch.tensor([16, 9, 12])
    cache = model.new_cache(3, 19)
    prefill = make_case("prefill", batch=3, sequence=16)
    decode = make_case("decode", batch=3, sequence=16, new_tokens=3)
    running = counted(lambda: model.prefill(tokens, lengths, model.new_cache(3, 16)))
    assert flops_per_round(prefill, tiny, "matmul-padded-full") == running
    running = counted(lambda: model.decode(tokens[:, 0], lengths, cache))
    assert flops_per_round(decode, tiny, "matmul-padded-full") == running


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_causal_counts_match_the_running_model(tiny: Preset, make_case: Make, kv_heads: int) -> None:
    """B1, B2: the stored convention counts each real token against itself and its predecessors, once."""
    model_preset = msgspec.structs.replace(tiny, kv_heads=kv_heads)
    lengths = length_set(3, 9)
    running = counted_token_by_token(model_preset, lengths)
    train = make_case("train_step", batch=3, sequence=9)
    assert flops_per_round(train, model_preset) == 3 * running
    heads_left_out = (sum(lengths) - 3) * 2 * tiny.hidden * tiny.vocab_size
    assert flops_per_round(make_case("prefill", batch=3, sequence=9), model_preset) == running - heads_left_out


def test_decode_with_unequal_lengths_matches_the_running_model(tiny: Preset, make_case: Make) -> None:
    """B2: the mean over the cycle of tokens that fill the cache, each step with every sequence at its own length."""
    lengths = length_set(3, 9)
    assert len(set(lengths)) > 1
    long, short = (counted_token_by_token(tiny, [length + extra for length in lengths]) for extra in (4, 0))
    case = make_case("decode", batch=3, sequence=9, new_tokens=4)
    assert flops_per_round(case, tiny) == (long - short) // 4


def test_factors_of_the_field_report() -> None:
    """B1: at 16 k tokens the attention factor alone moves MFU from 53 % to 82 %."""
    shape = {"parameters": 124_000_000, "layers": 12, "width": 768}
    full = tokenwise_flops(**shape, sequence=16_384, attention_factor=12)
    causal = tokenwise_flops(**shape, sequence=16_384, attention_factor=6)
    assert (round(full / 1e9, 3), round(causal / 1e9, 3)) == (2.556, 1.650)
    assert (round(full * 1e5 / 312e12, 3), round(causal * 1e5 / 312e12, 3)) == (0.819, 0.529)
    short = [tokenwise_flops(**shape, sequence=1024, attention_factor=factor) / 1e9 for factor in (12, 6)]
    assert [round(each, 3) for each in short] == [0.857, 0.801]


def test_conventions_are_told_apart(make_case: Make) -> None:
    """B1: each convention has a definition, and no two give the same number for a padded, causal case."""
    case = make_case("train_step", sequence=4096)
    values = {name: flops_per_round(case, preset("nano"), name) for name in CONVENTIONS}
    assert len(set(values.values())) == len(CONVENTIONS)
    assert all(CONVENTIONS.values())
    assert values["6N+6LdT"] < values["6N+12LdT"]
    assert CONVENTION in CONVENTIONS


def test_fewer_kv_heads_cost_less(make_case: Make) -> None:
    """B2: kv_heads 32 against 8, all else equal: key and value projections shrink, scores do not."""
    grouped = preset("llama3.1-8b")
    full = msgspec.structs.replace(grouped, kv_heads=32)
    case = make_case("train_step", batch=1, sequence=64)
    saved = 3 * 2 * 64 * grouped.layers * 2 * grouped.hidden * (32 - 8) * grouped.head_dim
    assert flops_per_round(case, full) - flops_per_round(case, grouped) == saved


def test_pairs_of_the_field_report() -> None:
    """B2: a window of 512 at 4096 tokens; one query against 4096 keys."""
    assert attention_pairs(4096, 4096, window=512) == 512 * 513 // 2 + (4096 - 512) * 512
    assert attention_pairs(1, 4096) == attention_pairs(1, 4096, causal=False) == 4096
    assert attention_pairs(4096, 4096) == 4096 * 4097 // 2


@given(st.integers(1, 40), st.integers(0, 40), st.none() | st.integers(1, 50))
def test_pairs_match_a_counted_mask(queries: int, earlier: int, window: int | None) -> None:
    keys = queries + earlier
    distance = np.arange(earlier, keys)[:, None] - np.arange(keys)[None, :]
    seen = (distance >= 0) & (distance < (window or keys))
    assert attention_pairs(queries, keys, window=window) == int(seen.sum())


def test_impossible_pairs_are_refused() -> None:
    with pytest.raises(UsageError, match="5 causal queries"):
        attention_pairs(5, 4)
    with pytest.raises(UsageError, match="window"):
        attention_pairs(4, 4, causal=False, window=2)


@settings(max_examples=40)
@given(
    st.sampled_from(["train_step", "prefill", "decode"]),
    st.integers(1, 6),
    st.integers(1, 50),
    st.integers(1, 9),
)
def test_needed_work_never_exceeds_executed_work(
    make_case: Make, phase: str, batch: int, sequence: int, new_tokens: int
) -> None:
    case = make_case(phase, batch=batch, sequence=sequence, **({"new_tokens": new_tokens} if phase == "decode" else {}))
    needed = flops_per_round(case, preset("nano"))
    assert 0 < needed <= flops_per_round(case, preset("nano"), "matmul-padded-full")


@given(st.lists(st.integers(1, 500), min_size=1, max_size=8))
def test_decode_adds_up_over_sequences(visible: list[int]) -> None:
    assert decode_flops(preset("nano"), visible) == sum(decode_flops(preset("nano"), [keys]) for keys in visible)


@pytest.mark.parametrize("micro_batch", [1, 2, 4, 8])
def test_accumulation_does_not_change_the_work(make_case: Make, micro_batch: int) -> None:
    """B8: the optimizer step is what is counted, however the global batch is cut."""
    whole = make_case("train_step", batch=8, micro_batch=8)
    assert flops_per_round(make_case("train_step", batch=8, micro_batch=micro_batch), preset("nano")) == (
        flops_per_round(whole, preset("nano"))
    )


def test_wrong_conventions_are_refused(make_case: Make) -> None:
    with pytest.raises(UsageError, match="no FLOP convention '7N'"):
        flops_per_round(make_case("prefill"), preset("nano"), "7N")
    with pytest.raises(UsageError, match="covers train_step only, not decode"):
        flops_per_round(make_case("decode"), preset("nano"), "6N+6LdT")
