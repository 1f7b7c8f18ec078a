"""Permutations preserve the function, and restoring undoes them."""

from __future__ import annotations

import small
import torch

from trnbench.conformance.model.check import checked_model, take_subject
from trnbench.conformance.model.permute import permutation, permute, restore
from trnbench.conformance.model.runs import decoder_with, infer_once, train_once


def test_a_permuted_model_computes_the_same_function() -> None:
    """In float64 the logits, the loss and every restored gradient agree to a few hundred units of rounding."""
    scope = small.make_scope("train_step", "fp32")
    subject = take_subject(scope, checked_model(scope, "cpu"))
    weights = {name: weight.to(torch.float64) for name, weight in subject.weights.items()}
    plain = train_once(decoder_with(scope.preset, weights, torch.float64, "unfused", 64), subject.batch, 2)
    for seed in range(2):
        orders = permutation(scope.preset, seed)
        permuted = permute(weights, orders)
        moved = [name for name in weights if not torch.equal(weights[name], permuted[name])]
        assert moved == list(weights)
        again = train_once(decoder_with(scope.preset, permuted, torch.float64, "unfused", 64), subject.batch, 2)
        assert abs(again.loss - plain.loss) < 1e-12
        assert torch.allclose(again.logits, plain.logits, rtol=1e-11, atol=1e-12)
        for name, gradient in restore(again.gradients, orders).items():
            torch.testing.assert_close(gradient, plain.gradients[name], rtol=1e-9, atol=1e-13)


def test_a_permuted_model_decodes_the_same() -> None:
    """Also through the key-value cache, where heads are grouped."""
    scope = small.make_scope("decode", "fp32")
    subject = take_subject(scope, checked_model(scope, "cpu"))
    weights = {name: weight.to(torch.float64) for name, weight in subject.weights.items()}
    permuted = permute(weights, permutation(scope.preset, 3))
    plain, again = (
        infer_once(decoder_with(scope.preset, own, torch.float64, "unfused", 64), subject.batch, 4).logits
        for own in (weights, permuted)
    )
    assert torch.allclose(again, plain, rtol=1e-11, atol=1e-12)


def test_restore_undoes_permute() -> None:
    scope = small.make_scope("prefill", "fp32")
    weights = take_subject(scope, checked_model(scope, "cpu")).weights
    orders = permutation(scope.preset, 7)
    for name, weight in restore(permute(weights, orders), orders).items():
        assert torch.equal(weight, weights[name])


def test_seeds_give_different_orders() -> None:
    first, second = permutation(small.PRESET, 0), permutation(small.PRESET, 1)
    assert any((first[name].axes[-1] != second[name].axes[-1]).any() for name in first)
