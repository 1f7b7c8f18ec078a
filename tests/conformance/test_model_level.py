"""Model-level checks: each wrong implementation is caught, by the check that should see it, and no permitted one is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import faults
import pytest
import small
import torch

from trnbench.conformance.model.baseline import find_baseline, run_model
from trnbench.conformance.model.check import checked_model, judge_results, take_subject
from trnbench.conformance.model.finite import first_nonfinite_layer
from trnbench.conformance.model.variants import permitted_variants

if TYPE_CHECKING:
    from pathlib import Path

FAULTS = [
    # fault, phase, precision, sequence, check that must fail
    (faults.norm_statistics_narrow, "train_step", "bf16", 48, "logits"),
    (faults.scale_off_by_two_percent, "train_step", "bf16", 48, "logits"),
    (faults.scale_off_by_two_percent, "prefill", "fp32", 48, "logits"),
    (faults.mask_off_by_one, "train_step", "bf16", 48, "logits"),
    (faults.mask_off_by_one, "prefill", "fp32", 48, "logits"),
    (faults.gate_without_sigmoid, "train_step", "bf16", 48, "logits"),
    (faults.operands_rounded_to_bfloat16, "train_step", "fp32", 48, "gradients"),
    (faults.operands_rounded_to_tf32, "train_step", "fp32", 48, "logits"),
    (faults.operands_rounded_to_tf32, "decode", "fp32", 48, "teacher-forced logits"),
    (faults.one_embedding_row_lost, "train_step", "bf16", 48, "gradients"),
    (faults.one_gradient_doubled, "train_step", "bf16", 48, "gradients"),
    (faults.learning_rate_off_by_a_thousandth, "train_step", "fp32", 48, "optimizer step"),
    (faults.weight_decay_lost, "train_step", "fp32", 48, "optimizer step"),
    (faults.wrong_epsilon, "train_step", "fp32", 48, "optimizer step"),
    (faults.weights_not_updated, "train_step", "fp32", 48, "optimizer step"),
    (faults.zero_logits, "train_step", "fp32", 48, "logits"),
    (faults.zero_logits, "decode", "bf16", 48, "teacher-forced logits"),
]


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    """A cache of its own, so that baselines are computed once here and never taken from an earlier run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize(
    ("fault", "phase", "precision", "sequence", "check"),
    FAULTS,
    ids=[f"{fault.__name__}-{phase}-{precision}" for fault, phase, precision, _, _ in FAULTS],
)
def test_every_fault_is_caught(fault: small.Fault, phase: str, precision: str, sequence: int, check: str) -> None:
    """C1, C5, C10, C14: fast and wrong fails, by the check that looks at what is wrong."""
    verdicts = small.judge_with(fault, small.make_scope(phase, precision, sequence=sequence))
    assert verdicts[check].verdict == "fail", verdicts[check].where
    assert verdicts[check].value is not None
    assert verdicts[check].value > 1.0


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("phase", ["train_step", "prefill", "decode"])
def test_the_plain_implementation_passes(phase: str, precision: str) -> None:
    verdicts = small.judge_with(small.no_fault, small.make_scope(phase, precision))
    assert {check.verdict for check in verdicts.values()} == {"pass"}, verdicts
    expected = {"logits", "loss", "gradients", "optimizer step"} if phase == "train_step" else None
    assert expected is None or set(verdicts) == expected


@pytest.mark.parametrize("precision", ["fp32", "bf16", "tf32"])
def test_no_permitted_implementation_raises_an_alarm(precision: str) -> None:
    """Every member of the implementation-freedom set, unpermuted: none of these runs is part of the floor."""
    for variant in permitted_variants(precision):
        if variant.compute_dtype is None:
            verdicts = small.judge_with(variant.mode, small.make_scope("train_step", precision))
            assert {check.verdict for check in verdicts.values()} == {"pass"}, (variant.name, verdicts)


def test_bfloat16_positions_pass_at_128_and_fail_at_1024() -> None:
    """C6: bfloat16 holds every position below 257, so a short check cannot see a position table that is too narrow."""
    short = small.judge_with(
        faults.position_table_in_bfloat16, small.make_scope("prefill", "fp32", sequence=128, batch=1)
    )
    long = small.judge_with(
        faults.position_table_in_bfloat16, small.make_scope("prefill", "fp32", sequence=1024, batch=1)
    )
    assert short["logits"].verdict == "pass"
    assert long["logits"].verdict == "fail"


def test_a_nan_is_named_with_its_place_and_layer() -> None:
    """C3, C9, C12: not finite is a class of its own: no error value, first row and first bad layer named."""
    verdicts = small.judge_with(faults.nan_in_second_layer, small.make_scope("train_step", "bf16"))
    assert set(verdicts) == {"logits", "loss", "gradients", "optimizer step"}
    for check in verdicts.values():
        assert check.verdict == "non-finite"
        assert check.value is None
    assert "first NaN at row 3, position [3, 0]" in verdicts["logits"].where


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_nothing_but_nan_on_both_sides_is_no_match(phase: str) -> None:
    """C9: weights that make reference and candidate NaN throughout: non-finite with count and first index, no value."""
    scope = small.make_scope(phase, "fp32", sequence=16, batch=1)
    model = checked_model(scope, "cpu")
    with torch.no_grad():
        model.norm.weight.fill_(float("nan"))
    subject = take_subject(scope, model)
    results = run_model(subject, model)
    (name,) = results
    count = results[name][name].numel()
    (check,) = judge_results(subject, model, results, None)
    assert (check.verdict, check.value) == ("non-finite", None)
    assert f"{count} of {count} values are not finite, first NaN at row 0, position [0, 0, 0]" in check.where
    assert "first bad layer norm" in check.where


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_one_bad_value_in_the_candidate_is_no_match(bad: float) -> None:
    """C9: a single NaN or infinity among good logits has its place named, and no error is computed around it."""
    scope = small.make_scope("prefill", "fp32", sequence=16, batch=2)
    model = checked_model(scope, "cpu")
    subject = take_subject(scope, model)
    results = run_model(subject, model)
    results["logits"]["logits"][0, 1, 7] = bad
    (check,) = judge_results(subject, model, results, None)
    assert (check.verdict, check.value) == ("non-finite", None)
    assert ": 1 of " in check.where
    assert "position [0, 1, 7]" in check.where


def test_the_first_bad_layer_is_found_by_running_forward() -> None:
    """C3: the name is that of the first module in order of execution, not of the last."""
    model = checked_model(small.make_scope("prefill", "bf16"), "cpu")
    tokens = torch.zeros(1, 8, dtype=torch.long)
    assert first_nonfinite_layer(model, tokens) is None
    with faults.nan_in_second_layer():
        assert first_nonfinite_layer(model, tokens) == "layers.1.feed_forward"


def test_a_broken_cache_file_is_computed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut file, or one that something else wrote, costs time and never a verdict."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    scope = small.make_scope("prefill", "fp32", sequence=16, batch=1)
    subject = take_subject(scope, checked_model(scope, "cpu"))
    first = find_baseline(subject)
    (path,) = (tmp_path / "trnbench" / "baselines").iterdir()
    whole = path.read_bytes()
    for broken in (b"", whole[: len(whole) // 2], b"\0" * len(whole)):
        path.write_bytes(broken)
        again = find_baseline(subject)
        assert again.errors == first.errors
        assert path.read_bytes() == whole
    path.parent.chmod(0o500)
    path.write_bytes(b"")
    assert find_baseline(subject).digest == first.digest
