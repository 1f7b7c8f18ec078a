"""What the harness adds to a step: the suite's median round over that of the same loop written by hand.

    python selfbench/overhead.py [--pairs 10] [--rounds 10]

Both sides run in one process, on one program, in alternating blocks (hand, suite; suite, hand; ...), so that what the
machine does meanwhile falls on both. Prints one line `ratio 1.003` per step: a busy loop of exactly 50 ms, whose
ratio shows the harness without the noise of real work, and a training step of the smallest workload, sized to take
50 ms and more. A ratio is the median over the pairs of blocks. Exit code 1 where one exceeds the target.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

TARGET = 1.01
"""Largest ratio for steps of 50 ms and more."""

BUSY_SECONDS = 0.050
WARMUP = 3


class Comparison:
    """Blocks of both sides for one program, given to the pytest session below as a plugin."""

    def __init__(self, pairs: int, rounds: int) -> None:
        self.pairs = pairs
        self.rounds = rounds
        self.medians: dict[str, list[tuple[float, float]]] = {}
        self.programs: dict[str, object] = {}

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test per pair of blocks: pytest-benchmark gives each test one use of its fixture."""
        if "pair" in metafunc.fixturenames:
            metafunc.parametrize("step", ["busy", "train"])
            metafunc.parametrize("pair", range(self.pairs))

    @pytest.fixture
    def comparison(self) -> Comparison:
        """This object."""
        return self

    def ratio(self, step: str) -> float:
        """Median over the pairs of suite over hand."""
        return statistics.median(suite / hand for hand, suite in self.medians[step])


def busy_program():
    """A program whose step spins on the host for exactly `BUSY_SECONDS` and returns its count."""
    import torch

    class Busy:
        def __init__(self) -> None:
            self.steps = 0

        def reset(self) -> None:
            return None

        def step(self) -> list[torch.Tensor]:
            end = time.perf_counter() + BUSY_SECONDS
            self.steps += 1
            output = torch.tensor(float(self.steps))
            while time.perf_counter() < end:
                pass
            return [output]

        def items(self) -> dict[str, int]:
            return {"tokens": 1, "padded_tokens": 1, "sequences": 1}

        def loss_like(self, outputs: list[torch.Tensor]) -> torch.Tensor:
            return outputs[0]

        def state_fingerprint(self) -> str:
            return hashlib.sha256(str(self.steps).encode()).hexdigest()

        def flops(self) -> tuple[int, str]:
            return 1, "none"

        def time_to_first_token(self, materialize: object) -> None:
            return None

    return Busy()


def training_case():
    """A step of 50 ms and more on a current processor core."""
    from trnbench.case import case_from

    return case_from(
        {
            "suite": "selfbench",
            "workload": "nano",
            "phase": "train_step",
            "precision": "fp32",
            "mode": "eager",
            "tier": "smoke",
            "batch": 1,
            "sequence": 128,
        }
    )


def hand_written(program, rounds: int, clock: Callable[[], float]) -> float:
    """The loop as anyone would write it: warm up, then time each step until its outputs can be read."""
    for _ in range(WARMUP):
        program.step()
    seconds = []
    for _ in range(rounds):
        start = clock()
        outputs = program.step()
        for output in outputs:
            output.view(-1)[0].item()
        seconds.append(clock() - start)
    return statistics.median(seconds)


@pytest.fixture(scope="session")
def backend():
    from trnbench.backends.select import open_backend

    return open_backend("cpu")


def test_pair(step: str, pair: int, comparison: Comparison, backend, benchmark) -> None:
    """One block of each side, in alternating order."""
    from trnbench.measure.rounds import measure_program
    from trnbench.workloads.steps import build

    case = training_case()
    if step not in comparison.programs:
        program = busy_program() if step == "busy" else build(case, backend.device, backend.compile)
        comparison.programs[step] = program
    program = comparison.programs[step]

    def by_hand() -> float:
        return hand_written(program, comparison.rounds, time.perf_counter)

    def in_suite() -> float:
        measured = measure_program(backend, program, benchmark, case=case, rounds=comparison.rounds)
        return statistics.median(item.seconds for item in measured.measurement.rounds)

    if pair % 2:
        suite = in_suite()
        hand = by_hand()
    else:
        hand = by_hand()
        suite = in_suite()
    comparison.medians.setdefault(step, []).append((hand, suite))


def main(arguments: list[str]) -> int:
    """Run the pairs in a pytest session of this process and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=10, help="pairs of blocks a step (default 10)")
    parser.add_argument("--rounds", type=int, default=10, help="timed rounds a block (default 10)")
    options = parser.parse_args(arguments)
    comparison = Comparison(options.pairs, options.rounds)
    with contextlib.redirect_stdout(io.StringIO()) as transcript:
        status = pytest.main([str(Path(__file__)), "-q", "-p", "no:cacheprovider"], plugins=[comparison])
    if status != pytest.ExitCode.OK:
        print(transcript.getvalue(), file=sys.stderr)
        return int(status)
    too_slow = False
    for step, medians in comparison.medians.items():
        hand, suite = (statistics.median(side) for side in zip(*medians, strict=True))
        ratio = comparison.ratio(step)
        too_slow |= ratio > TARGET
        print(f"{step} step: by hand {hand:.6f} s, in the suite {suite:.6f} s, {len(medians)} pairs")
        print(f"ratio {ratio:.3f}")
    return 1 if too_slow else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
