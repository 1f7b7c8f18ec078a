"""Permitted implementations of a whole training run: what the paired floor is taken over.

Each is computed by emulation on the host, so that a host that is slow at a precision, or has it not at all, has the
same floor. What is left open by a precision is the order of accumulation (all of them run under function-preserving
permutations, one in tiles of 128 as a systolic array does), whether attention rounds its scores and probabilities, and
whether activations between matrix products are narrow or stay in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import torch

from trnbench.conformance.learning.arms import Run, Trainer
from trnbench.conformance.model.permute import permutation, permute
from trnbench.conformance.model.variants import (
    TF32_SIGNIFICANT_BITS,
    MatrixProduct,
    MatrixProductMode,
    rounded_operands,
)
from trnbench.workloads.layers import Attention

if TYPE_CHECKING:
    import contextlib

    from torch import Tensor

    from trnbench.conformance.learning.recipe import Recipe
    from trnbench.conformance.model.runs import Weights

TILE = 128
"""Rows of a systolic array: products of one tile are summed before they meet those of the next."""


class Permitted(msgspec.Struct, frozen=True):
    """`product` replaces every matrix product; `precision` is that of the model's tensors on the host."""

    name: str
    precision: str
    attention: Attention
    product: MatrixProduct


def wide_product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b with the operands' values multiplied and summed in float32, rounded once to the operands' dtype."""
    with torch._C._DisableTorchDispatch():
        return torch.matmul(a.float(), b.float()).to(a.dtype)


def tiled_product(a: Tensor, b: Tensor) -> Tensor:
    """As `wide_product`, summed within tiles of `TILE` along the contracted dimension and then over the tiles."""
    with torch._C._DisableTorchDispatch():
        total = torch.zeros(*a.shape[:-1], b.shape[-1])
        for start in range(0, a.shape[-1], TILE):
            total += torch.matmul(a[..., start : start + TILE].float(), b[..., start : start + TILE, :].float())
        return total.to(a.dtype)


def cast_operands(dtype: torch.dtype) -> MatrixProduct:
    """A float32 matrix product whose operands are first cast to `dtype`, its range included."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        with torch._C._DisableTorchDispatch():
            return torch.matmul(a.to(dtype).float(), b.to(dtype).float())

    return product


def permitted_implementations(precision: str) -> list[Permitted]:
    """The implementations that the floor of `precision` is taken over, three each but for tf32."""
    if precision == "tf32":
        nearest = rounded_operands(TF32_SIGNIFICANT_BITS)
        truncated = rounded_operands(TF32_SIGNIFICANT_BITS, toward_zero=True)
        return [
            Permitted("operands to nearest", "fp32", "unfused", nearest),
            Permitted("operands toward zero", "fp32", "unfused", truncated),
        ]
    found = [
        Permitted("fused", precision, "fused", wide_product),
        Permitted("tiled", precision, "unfused", tiled_product),
    ]
    if precision == "fp32":
        return [*found, Permitted("unfused", precision, "unfused", wide_product)]
    narrow = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    return [*found, Permitted("wide activations", "fp32", "unfused", cast_operands(narrow))]


class PermittedTrainer(Trainer):
    """Trains one permitted implementation, its weights permuted anew by `order` before it starts."""

    def __init__(self, recipe: Recipe, permitted: Permitted, order: int) -> None:
        super().__init__(recipe, permitted.precision, attention=permitted.attention)
        self._permitted, self._order = permitted, order

    def initial(self, seed: int) -> Weights:
        """The same function as `Trainer.initial`, accumulated in another order."""
        return permute(super().initial(seed), permutation(self.recipe.preset, self._order))

    def step(self, optimizer: torch.optim.Optimizer, seed: int, index: int) -> Tensor:
        """One step with every matrix product replaced."""
        mode: contextlib.AbstractContextManager[Any] = MatrixProductMode(self._permitted.product)
        with mode:
            return super().step(optimizer, seed, index)


def floor_run(recipe: Recipe, precision: str, index: int) -> Run:
    """The `index`-th run of the floor: seeds, implementations and permutations all change from one to the next."""
    implementations = permitted_implementations(precision)
    seed = recipe.seeds[index % len(recipe.seeds)]
    # A seed meets another implementation each time it comes round.
    which = (index + index // len(recipe.seeds)) % len(implementations)
    return PermittedTrainer(recipe, implementations[which], index).train(seed)
