"""Reference convergence points: how many samples the same training needs on the CPU in fp32, run by run.

One JSON file a workload, phase and shape, `<workload>-<phase>-b<batch>-s<sequence>.json`, in the folder `reference/`
beside the suite. It holds what it takes to judge whether the points are valid: what was trained, the version of the
code that decides it, seeds, target and floor, software, CPU, date, and every evaluation of every run. There are two
points for every run of a result, as in the rules of the MLPerf(R) Training benchmarks (training_rules.adoc, "Reference
Convergence Points"). Format history, newest first:

* 1 (2026-11): first format.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from trnbench.device import Scalar
from trnbench.records.schema import Evaluation, Stored
from trnbench.records.serialise import strict_bytes
from trnbench.records.store import replace_file
from trnbench.status import UsageError
from trnbench.training.points import samples_to_target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trnbench.case import Case
    from trnbench.records.schema import Environment

REFERENCE_VERSION = 1
POINTS_PER_RUN = 2
"""So many points for every run of a result: the rules' own."""

REPRODUCED = 1e-6
"""Relative difference up to which a stored point is the one that its evaluations give: it is rounded for reading."""


class ReferencePoint(Stored, frozen=True, kw_only=True):
    """One run: `samples_to_target` is interpolated between its evaluations (see `points`)."""

    seed: int
    samples_to_target: float
    evaluations: list[Evaluation]


class Reference(Stored, frozen=True, kw_only=True):
    """All points of one training. `runs` is how many runs a result has; there are twice as many points.

    `version` is the case's. `target` and `floor` are mean cross-entropies in nats per token; where `floor` is null,
    `floor_reason` says why. `cpu` and `versions` are those of a record's environment.
    """

    reference_version: int
    workload: str
    phase: str
    batch: int
    micro_batch: int
    sequence: int
    version: str
    runs: int
    target: float
    floor: float | None
    floor_reason: str
    precision: Literal["fp32"]
    backend: Literal["cpu"]
    mode: str
    threads: int
    made_at: str
    command: str
    versions: dict[str, str]
    cpu: dict[str, Scalar]
    learning: dict[str, Scalar]
    points: list[ReferencePoint]

    @property
    def logarithms(self) -> list[float]:
        """Natural logarithms of the samples to target, in the order of the points."""
        return [math.log(point.samples_to_target) for point in self.points]

    @property
    def typical(self) -> float:
        """Geometric mean of the samples to target."""
        return math.exp(statistics.fmean(self.logarithms))

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithms."""
        return statistics.stdev(self.logarithms)


def file_name(workload: str, phase: str, batch: int, sequence: int) -> str:
    """`nano-pretrain-b8-s128.json`: precision, mode and micro-batch do not matter to what is learnt."""
    return f"{workload}-{phase}-b{batch}-s{sequence}.json"


class Facts(NamedTuple):
    """What is known of all runs together; meanings as in `Reference`."""

    target: float
    floor: float | None
    floor_reason: str
    threads: int
    made_at: str
    command: str
    learning: dict[str, Scalar]


def make_reference(
    case: Case, runs: Mapping[int, Sequence[Evaluation]], facts: Facts, environment: Environment
) -> Reference:
    """Reference points from the evaluations of finished CPU fp32 runs of `case`, by seed.

    Raises `UsageError` for runs that make none.
    """
    if case.precision != "fp32":
        raise UsageError(f"reference points are made in fp32, not in {case.precision}")
    reference = Reference(
        reference_version=REFERENCE_VERSION,
        workload=case.workload,
        phase=case.phase,
        batch=case.batch,
        micro_batch=case.micro_batch,
        sequence=case.sequence,
        version=case.version,
        runs=len(runs) // POINTS_PER_RUN,
        target=facts.target,
        floor=facts.floor,
        floor_reason=facts.floor_reason,
        precision="fp32",
        backend="cpu",
        mode=case.mode,
        threads=facts.threads,
        made_at=facts.made_at,
        command=facts.command,
        versions=environment.versions,
        cpu=environment.cpu,
        learning=facts.learning,
        points=[
            ReferencePoint(
                seed=seed,
                samples_to_target=round(samples_to_target(evaluations, facts.target).samples, 3),
                evaluations=list(evaluations),
            )
            for seed, evaluations in runs.items()
        ],
    )
    check_reference(reference, "these runs")
    return reference


def write_reference(folder: Path, reference: Reference) -> Path:
    """Put the file in place of an earlier one for the same training; returns its path."""
    path = folder / file_name(reference.workload, reference.phase, reference.batch, reference.sequence)
    replace_file(path, strict_bytes(reference, "reference convergence points"), what="reference convergence points")
    return path


def find_reference(folder: Path, case: Case) -> Reference | str:
    """The points for `case` in `folder`, or the reason why there are none.

    Raises `UsageError` for a file that is there and is no valid set of points.
    """
    path = folder / file_name(case.workload, case.phase, case.batch, case.sequence)
    if not path.exists():
        return f"there are no reference convergence points {path.name}; `trnbench reference --make` makes them"
    reference = load_reference(path)
    if reference.version != case.version:
        return (
            f"the reference convergence points {path.name} are of version {reference.version}, the case is of version "
            f"{case.version}; `trnbench reference --make` makes new ones"
        )
    return reference


def load_reference(path: Path) -> Reference:
    """Read and check one file. Raises `UsageError` with its path and what is wrong."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"reference points {path} cannot be read: {error.strerror}") from None
    try:
        reference = msgspec.json.decode(data, type=Reference, strict=True)
    except msgspec.DecodeError as error:
        raise UsageError(f"reference points {path}: {error}") from None
    if reference.reference_version != REFERENCE_VERSION:
        raise UsageError(
            f"reference points {path}: format {reference.reference_version}; this is format {REFERENCE_VERSION}"
        )
    expected = file_name(reference.workload, reference.phase, reference.batch, reference.sequence)
    if path.name != expected:
        raise UsageError(f"reference points {path}: they are those of {expected}; rename the file or make it anew")
    check_reference(reference, str(path))
    return reference


def check_reference(reference: Reference, where: str) -> None:
    """Raise `UsageError` where the points are no reference: too few, not independent, not reached, or no spread."""
    points = reference.points
    if len(points) < POINTS_PER_RUN * reference.runs or reference.runs < 2:
        raise UsageError(
            f"reference points, {where}: {len(points)} points for results of {reference.runs} runs; there must be "
            f"{POINTS_PER_RUN} a run, and at least 2 runs"
        )
    seeds = [point.seed for point in points]
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"reference points, {where}: seeds {sorted(seeds)} repeat; each run needs its own")
    if (reference.floor is None) != bool(reference.floor_reason):
        raise UsageError(f"reference points, {where}: give either the floor or the reason why it is not known")
    if reference.floor is not None and not reference.floor < reference.target:
        raise UsageError(
            f"reference points, {where}: target {reference.target} must lie above the floor {reference.floor}"
        )
    for point in points:
        _check_point(point, reference.target, f"reference points, {where}: the run with seed {point.seed}")
    if reference.spread == 0.0:
        raise UsageError(f"reference points, {where}: all runs need the same number of samples; nothing can be judged")


def _check_point(point: ReferencePoint, target: float, what: str) -> None:
    if not point.evaluations:
        raise UsageError(f"{what} has no evaluations")
    counts = [evaluation.samples for evaluation in point.evaluations]
    if counts != sorted(set(counts)):
        raise UsageError(f"{what} has evaluations after {counts} samples; the counts must grow")
    if not all(math.isfinite(evaluation.loss) for evaluation in point.evaluations):
        raise UsageError(f"{what} has an evaluation loss that is not finite")
    found = samples_to_target(point.evaluations, target)
    if found.bound == "lower":
        raise UsageError(f"{what} did not reach the target {target} in {counts[-1]} samples; give it a longer budget")
    if found.bound == "upper":
        raise UsageError(
            f"{what} is past the target {target} at its first evaluation, after {counts[0]} samples; evaluate earlier"
        )
    if not math.isclose(found.samples, point.samples_to_target, rel_tol=REPRODUCED, abs_tol=0.001):
        raise UsageError(
            f"{what} is said to need {point.samples_to_target} samples; its evaluations give {found.samples:.3f}"
        )
