"""What may change without changing a bit: the number of rows, the layout of the operands, and the repetition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.inputs import generator, rounded
from trnbench.conformance.passport.instrument import Instrument, Reading, listed, number, single
from trnbench.conformance.passport.order import total
from trnbench.conformance.passport.products import EVERY
from trnbench.conformance.passport.subject import Question, answer
from trnbench.conformance.passport.vectors import matmul

if TYPE_CHECKING:
    from torch import Tensor

    from trnbench.conformance.passport.subject import Subject

ROWS = (1, 2, 4, 7, 16, 17, 64, 256)
REPETITIONS = 20
SLICE = 16


def product_of_view(left: Tensor, transposed: Tensor) -> Tensor:
    """The right operand as a transposed view."""
    return left @ transposed.t()


def linear(inputs: Tensor, weight: Tensor) -> Tensor:
    """A linear layer without bias."""
    return functional.linear(inputs, weight)


def batched(left: Tensor, right: Tensor) -> Tensor:
    """The same product as a batch of one."""
    return torch.bmm(left[None], right[None])[0]


def einsum(left: Tensor, right: Tensor) -> Tensor:
    """The same product in index notation."""
    return torch.einsum("mk,kn->mn", left, right)


def _operands(name: str, precision: str, rows: int, terms: int, columns: int) -> tuple[Tensor, Tensor]:
    rng, dtype = generator(name, 0), STORAGE[precision]
    left, right = rng.standard_normal((rows, terms)), rng.standard_normal((terms, columns))
    return rounded(left, dtype), rounded(right, dtype)


def batch(subject: Subject, precision: str) -> Reading:
    """Which numbers of rows give the same bits for the first row: libraries switch their kernel with the batch size."""
    terms = 2048
    left, right = _operands("batch invariance", precision, max(ROWS), terms, 128)
    firsts = {rows: subject.run(matmul, left[:rows].contiguous(), right)[0][0] for rows in ROWS}
    classes: list[list[int]] = []
    for rows, first in firsts.items():
        for known in classes:
            if torch.equal(first, firsts[known[0]]):
                known.append(rows)
                break
        else:
            classes.append([rows])
    exact = (left[:1].double() @ right.double())[0]
    verdict = "batch-invariant" if len(classes) == 1 else f"{len(classes)} results for one row"
    errors = {f"largest error, {rows} rows": _error(firsts[rows], exact) for rows in (ROWS[0], ROWS[-1])}
    names = " | ".join(listed(known) for known in classes)
    return Reading(verdict=verdict, details={"rows with equal bits": names, "terms": terms, **errors})


def _error(found: Tensor, exact: Tensor) -> str | int | float | bool:
    return number(float((found.double() - exact).abs().max()))


def layout(subject: Subject, precision: str) -> Reading:
    """Whether views, batches, index notation, a linear layer and a slice of the columns give the plain product's bits.

    Each is a graph of its own: in one, a compiler would compute the product once for all of them.
    """
    left, right = _operands("layout invariance", precision, 64, 1024, 64)
    transposed = right.t().contiguous()
    questions = [
        Question(name="transposed view", function=product_of_view, inputs=(left, transposed)),
        Question(name="linear", function=linear, inputs=(left, transposed)),
        Question(name="batched", function=batched, inputs=(left, right)),
        Question(name="einsum", function=einsum, inputs=(left, right)),
    ]
    plain = subject.run(matmul, left, right)[0]
    same: dict[str, bool] = {}
    for question in questions:
        same[question.name] = torch.equal(plain, answer(subject.ask([question]), question.name)[0])
    narrow = subject.run(matmul, left, right[:, :SLICE].contiguous())[0]
    same["slice of columns"] = torch.equal(plain[:, :SLICE], narrow)
    different = [name for name, equal in same.items() if not equal]
    verdict = f"differs for: {listed(different)}" if different else "layout-invariant"
    return Reading(verdict=verdict, details={f"{name} equal": equal for name, equal in same.items()})


def determinism(subject: Subject, precision: str) -> Reading:
    """Whether the same product and the same sum repeated give the same bits."""
    left, right = _operands("determinism", precision, 64, 1024, 64)
    first = [subject.run(matmul, left, right)[0], subject.run(total, left)[0]]
    differing = 0
    for _ in range(REPETITIONS):
        again = [subject.run(matmul, left, right)[0], subject.run(total, left)[0]]
        differing += not all(map(torch.equal, first, again))
    verdict = f"{differing} of {REPETITIONS} repetitions differ" if differing else "same bits every time"
    return Reading(verdict=verdict, details={"repetitions": REPETITIONS, "differing": differing})


INSTRUMENTS: list[Instrument] = [
    single("invariance", "batch size", EVERY, batch),
    single("invariance", "layout", EVERY, layout),
    single("invariance", "repetition", EVERY, determinism),
]
