"""Implementations broken on purpose, each as a context manager that patches the decoder while it is open."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional

from trnbench.conformance.model import runs
from trnbench.conformance.model.variants import MatrixProductMode, rounded_operands
from trnbench.workloads import decoder, layers, training
from trnbench.workloads.layers import RMSNorm, attention_mask, wide

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def norm_statistics_narrow() -> Iterator[None]:
    """RMSNorm computed in the compute dtype throughout."""

    def forward(self: RMSNorm, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight.to(x.dtype)

    with mock.patch.object(RMSNorm, "forward", forward):
        yield


@contextlib.contextmanager
def _attention(attend: object) -> Iterator[None]:
    with mock.patch.object(layers, "attend", attend):
        yield


def _attend_with(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, scale: float, shift: int) -> Tensor:
    if mask is None:
        positions = torch.arange(query.shape[-2])
        mask = attention_mask(positions[None, :] <= positions[:, None] + shift, query.dtype)
    scores = torch.matmul(query, key.transpose(-2, -1)).to(wide(query.dtype)) * query.shape[-1] ** -0.5 * scale
    return torch.matmul(torch.softmax(scores + mask, dim=-1).to(query.dtype), value)


def scale_off_by_two_percent() -> contextlib.AbstractContextManager[None]:
    """Attention scores 2 % too large."""
    return _attention(lambda q, k, v, mask, attention: _attend_with(q, k, v, mask, scale=1.02, shift=0))


def mask_off_by_one() -> contextlib.AbstractContextManager[None]:
    """Every query sees one token of its future."""
    return _attention(lambda q, k, v, mask, attention: _attend_with(q, k, v, mask, scale=1.0, shift=1))


@contextlib.contextmanager
def position_table_in_bfloat16() -> Iterator[None]:
    """Rotary angles taken at positions that were rounded to bfloat16 (field case C6)."""
    true_rotate = layers.rotate

    def rotate(x: Tensor, rotation: layers.Rotation) -> Tensor:
        length = rotation[0].shape[0]
        rounded = torch.arange(length).to(torch.bfloat16).long().clamp(max=length - 1)
        return true_rotate(x, (rotation[0][rounded], rotation[1][rounded]))

    with mock.patch.object(layers, "rotate", rotate):
        yield


@contextlib.contextmanager
def gate_without_sigmoid() -> Iterator[None]:
    """SwiGLU's SiLU replaced by GELU."""
    with mock.patch.object(functional, "silu", functional.gelu):
        yield


@contextlib.contextmanager
def operands_rounded_to_bfloat16() -> Iterator[None]:
    """Labelled fp32, computed from bfloat16 operands (field case C5)."""
    with MatrixProductMode(rounded_operands(8)):
        yield


@contextlib.contextmanager
def operands_rounded_to_tf32() -> Iterator[None]:
    """Labelled fp32, computed from TF32 operands (field case C1)."""
    with MatrixProductMode(rounded_operands(11)):
        yield


@contextlib.contextmanager
def _changed_gradients(change: object) -> Iterator[None]:
    original = runs.host_gradients

    def host_gradients(model: decoder.Decoder) -> dict[str, Tensor]:
        gradients = original(model)
        change(gradients)  # type: ignore[operator]
        return gradients

    with mock.patch.object(runs, "host_gradients", host_gradients):
        yield


def one_embedding_row_lost() -> contextlib.AbstractContextManager[None]:
    """The gradient of one token's embedding is dropped, as by a scatter that loses repeated indices."""

    def change(gradients: dict[str, Tensor]) -> None:
        rows = gradients["embedding.weight"]
        rows[int(rows.norm(dim=-1).argmax())] = 0.0

    return _changed_gradients(change)


def one_gradient_doubled() -> contextlib.AbstractContextManager[None]:
    """One small parameter's gradient is counted twice."""

    def change(gradients: dict[str, Tensor]) -> None:
        gradients["layers.1.attention_norm.weight"] *= 2.0

    return _changed_gradients(change)


@contextlib.contextmanager
def _optimizer(**settings: object) -> Iterator[None]:
    original = training.make_optimizer

    def make_optimizer(parameters: object) -> torch.optim.AdamW:
        optimizer = original(parameters)  # type: ignore[arg-type]
        for group in optimizer.param_groups:
            group.update(settings)
        return optimizer

    with mock.patch.object(runs, "make_optimizer", make_optimizer):
        yield


def learning_rate_off_by_a_thousandth() -> contextlib.AbstractContextManager[None]:
    """The update is 0.1 % too large."""
    return _optimizer(lr=training.LEARNING_RATE * 1.001)


def weight_decay_lost() -> contextlib.AbstractContextManager[None]:
    """AdamW without its decay."""
    return _optimizer(weight_decay=0.0)


def wrong_epsilon() -> contextlib.AbstractContextManager[None]:
    """An epsilon of 1e-8 instead of 1e-5."""
    return _optimizer(eps=1e-8)


@contextlib.contextmanager
def weights_not_updated() -> Iterator[None]:
    """A fused step that never ran."""
    with mock.patch.object(torch.optim.AdamW, "step", return_value=None):
        yield


@contextlib.contextmanager
def zero_logits() -> Iterator[None]:
    """A kernel that returns its zero-filled output buffer (field case C10)."""
    original = decoder.Decoder._logits
    with mock.patch.object(decoder.Decoder, "_logits", lambda self, hidden: original(self, hidden) * 0.0):
        yield


@contextlib.contextmanager
def nan_in_second_layer() -> Iterator[None]:
    """One NaN out of the second layer's feed-forward."""
    original = layers.FeedForward.forward
    calls = [0]

    def forward(self: layers.FeedForward, x: Tensor) -> Tensor:
        calls[0] += 1
        output = original(self, x)
        if calls[0] % 2 == 0:
            output = output.clone()
            output[0, 3, 5] = float("nan")
        return output

    with mock.patch.object(layers.FeedForward, "forward", forward):
        yield
