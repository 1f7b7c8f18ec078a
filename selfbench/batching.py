"""What continuous batching brings: Offline tokens per second over decoding one request at a time.

    python selfbench/batching.py [--pairs 5] [--requests 64] [--batch 32] [--sequence 32] [--new-tokens 32]

Both sides answer the same requests with `nano` in fp32 on the CPU, in one process, in alternating order (batched,
alone; alone, batched; ...), so that what the machine does meanwhile falls on both; all requests are there at the
start. A ratio is the median over the pairs. Answers must be equal token by token; where two differ, the difference
counts as accepted if the margin at the first one is inside the measured batch variance. Exit code 1 where the ratio
misses the target or an answer differs for no such reason.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

TARGET = 3.0
"""Smallest ratio on two processor cores."""

SEED = 1


def serving_case(options: argparse.Namespace):
    """The case that both sides run; without batching one of its rows is used."""
    from trnbench.case import case_from

    return case_from(
        {
            "suite": "selfbench",
            "workload": "nano",
            "phase": "serving",
            "precision": "fp32",
            "mode": "eager",
            "tier": "smoke",
            "scenario": "offline",
            "profile": "quick",
            "batch": options.batch,
            "sequence": options.sequence,
            "new_tokens": options.new_tokens,
        }
    )


def answer_all(system, count: int) -> tuple[dict[int, list[int]], float]:
    """Every sample once, all asked at the start: the answers by index, and the seconds until the last one."""
    from trnbench.serving.system import Request

    answers: dict[int, list[int]] = {}
    start = time.perf_counter()
    system.submit([Request(index, index) for index in range(count)])
    while system.busy:
        for completion in system.step().complete:
            answers[completion.id] = completion.tokens
    return answers, time.perf_counter() - start


def main(arguments: list[str]) -> int:
    """Run the pairs and print the rates, the ratio and how the answers agree."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=5, help="pairs of runs (default 5)")
    parser.add_argument("--requests", type=int, default=64, help="requests a run (default 64)")
    parser.add_argument("--batch", type=int, default=32, help="sequences decoded at once (default 32)")
    parser.add_argument("--sequence", type=int, default=32, help="tokens of the longest prompt (default 32)")
    parser.add_argument("--new-tokens", type=int, default=32, help="most tokens an answer may have (default 32)")
    options = parser.parse_args(arguments)

    import torch

    from trnbench.backends.select import open_backend
    from trnbench.serving.build import build_system
    from trnbench.serving.divergence import compare_answers
    from trnbench.serving.samples import draw_samples
    from trnbench.workloads.presets import preset

    case, backend = serving_case(options), open_backend("cpu")
    samples = draw_samples(preset(case.workload), case.sequence, case.new_tokens, options.requests, SEED)
    rates: dict[bool, list[float]] = {True: [], False: []}
    with backend.numerics(case.precision):
        systems = {batched: build_system(case, backend, samples, continuous=batched) for batched in (True, False)}
        answers: dict[bool, dict[int, list[int]]] = {}
        for pair in range(options.pairs):
            for batched in (True, False) if pair % 2 == 0 else (False, True):
                answers[batched], seconds = answer_all(systems[batched], options.requests)
                rates[batched].append(sum(map(len, answers[batched].values())) / seconds)
        agreement = compare_answers(systems[True].rows, samples, answers[True], answers[False])

    ratio = statistics.median(together / alone for together, alone in zip(rates[True], rates[False], strict=True))
    tokens = sum(map(len, answers[True].values()))
    print(f"{options.requests} requests, {tokens} tokens, batch {case.batch}, {torch.get_num_threads()} threads")
    print(f"continuous batching: {statistics.median(rates[True]):.0f} tokens/s")
    print(f"one at a time: {statistics.median(rates[False]):.0f} tokens/s, {options.pairs} pairs")
    print(
        f"answers: {agreement.identical} identical, {len(agreement.accepted)} differ within the batch variance"
        f" ({agreement.batch_variance:.2g}), {len(agreement.faults)} differ beyond it"
    )
    print(f"ratio {ratio:.2f}")
    return 1 if ratio < TARGET or agreement.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
