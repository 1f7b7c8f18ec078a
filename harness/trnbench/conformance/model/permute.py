"""Function-preserving permutations of a decoder's weights.

Reordering the residual channels, the feed-forward channels, and the attention heads within and across key-value groups
leaves the function that the decoder computes unchanged in exact arithmetic, and changes the order in which every
matrix product, norm and attention row is accumulated. The spread of the error over such permutations is what
accumulation order alone can do: the noise floor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from trnbench.workloads.data import raw_bits

if TYPE_CHECKING:
    from trnbench.workloads.presets import Preset

Order = npt.NDArray[np.int64]

Weights = dict[str, torch.Tensor]


class AxisOrder(msgspec.Struct, frozen=True):
    """For one parameter, the order of each of its axes in the permuted model; None leaves the axis alone."""

    axes: tuple[Order | None, ...]


def permutation(preset: Preset, seed: int) -> dict[str, AxisOrder]:
    """Axis orders for every parameter of a decoder of `preset`, drawn from `seed`."""
    residual = _random_order(preset.hidden, (seed,))
    orders = {"embedding.weight": AxisOrder((None, residual)), "norm.weight": AxisOrder((residual,))}
    if not preset.tied_head:
        orders["head.weight"] = AxisOrder((None, residual))
    for layer in range(preset.layers):
        query_rows, key_value_rows = _head_order(preset, (seed, layer + 1))
        channels = _random_order(preset.ffn_hidden, (seed, layer + 1))
        prefix = f"layers.{layer}."
        orders |= {
            prefix + "attention_norm.weight": AxisOrder((residual,)),
            prefix + "attention.query.weight": AxisOrder((query_rows, residual)),
            prefix + "attention.key.weight": AxisOrder((key_value_rows, residual)),
            prefix + "attention.value.weight": AxisOrder((key_value_rows, residual)),
            prefix + "attention.output.weight": AxisOrder((residual, query_rows)),
            prefix + "feed_forward_norm.weight": AxisOrder((residual,)),
            prefix + "feed_forward.gate.weight": AxisOrder((channels, residual)),
            prefix + "feed_forward.up.weight": AxisOrder((channels, residual)),
            prefix + "feed_forward.down.weight": AxisOrder((residual, channels)),
        }
    return orders


def permute(weights: Weights, orders: dict[str, AxisOrder]) -> Weights:
    """The same function with every axis reordered; raises `KeyError` where a parameter has no order."""
    return {name: _reorder(weight, orders[name], inverse=False) for name, weight in weights.items()}


def restore(gradients: Weights, orders: dict[str, AxisOrder]) -> Weights:
    """Bring gradients of the permuted model back to the order of the original parameters."""
    return {name: _reorder(gradient, orders[name], inverse=True) for name, gradient in gradients.items()}


def _reorder(tensor: torch.Tensor, order: AxisOrder, *, inverse: bool) -> torch.Tensor:
    for axis, indices in enumerate(order.axes):
        if indices is not None:
            wanted = np.argsort(indices) if inverse else indices
            tensor = tensor.index_select(axis, torch.from_numpy(np.ascontiguousarray(wanted)))
    return tensor


def _head_order(preset: Preset, key: tuple[int, ...]) -> tuple[Order, Order]:
    """Row orders for the query and the key/value projections that keep each query head with its key-value head."""
    groups = preset.heads // preset.kv_heads
    key_value_heads = _random_order(preset.kv_heads, (*key, 0))
    query_heads = np.concatenate(
        [head * groups + _random_order(groups, (*key, 1 + int(head))) for head in key_value_heads]
    )
    return _rows(query_heads, preset.head_dim), _rows(key_value_heads, preset.head_dim)


def _rows(heads: Order, head_dim: int) -> Order:
    """Expand an order of heads to an order of their rows, channels of a head staying in place (RoPE pairs them)."""
    return (heads[:, None] * head_dim + np.arange(head_dim)[None, :]).reshape(-1)


def _random_order(length: int, key: tuple[int, ...]) -> Order:
    """A random order that is the same on every machine: ranks of random words (see `workloads.data`)."""
    return np.argsort(raw_bits(length, key), kind="stable")
