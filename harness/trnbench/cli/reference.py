"""`trnbench reference`: show the reference convergence points of training to quality, or make them anew."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.status import UsageError

if TYPE_CHECKING:
    from trnbench.training.reference import Reference

FolderOption = Annotated[Path, typer.Option("--folder", help="Folder of the points, one file a training.")]
RunsOption = Annotated[
    int | None, typer.Option("--runs", help="Runs of a result; there are two points for each. Default: the recipe's.")
]


def reference(
    *,
    make: Annotated[bool, typer.Option("--make/--no-make", help="Train on this CPU in fp32 and store.")] = False,
    workload: Annotated[str | None, typer.Option("--workload", help="With --make: the preset to train.")] = None,
    phase: Annotated[str | None, typer.Option("--phase", help="With --make: pretrain or finetune_lora.")] = None,
    batch: Annotated[int | None, typer.Option("--batch", help="With --make: not the recipe's own batch.")] = None,
    sequence: Annotated[int | None, typer.Option("--sequence", help="With --make: not the recipe's own.")] = None,
    runs: RunsOption = None,
    threads: Annotated[int, typer.Option("--threads", help="With --make: CPU threads of an operator.")] = 1,
    folder: FolderOption = Path("suites/training/reference"),
) -> None:
    """Show how many samples runs may need to count as the same training, and from which points that follows."""
    if make:
        if workload is None or phase is None:
            raise UsageError("--make needs --workload and --phase, such as --workload nano --phase pretrain")
        _make(workload, phase, batch=batch, sequence=sequence, runs=runs, threads=threads, folder=folder)
        return
    given = {"--workload": workload, "--phase": phase, "--batch": batch, "--sequence": sequence, "--runs": runs}
    extra = [name for name, value in given.items() if value is not None]
    if extra:
        raise UsageError(f"{extra[0]} is for --make; without it all points in --folder are shown")
    _show_all(folder)


def _make(
    workload: str,
    phase: str,
    *,
    batch: int | None,
    sequence: int | None,
    runs: int | None,
    threads: int,
    folder: Path,
) -> None:
    for name, number, least in (("--runs", runs, 2), ("--threads", threads, 1)):
        if number is not None and number < least:
            raise UsageError(f"{name} is {number}; it must be at least {least}")
    from trnbench.cli.output import warn
    from trnbench.training.reference import write_reference
    from trnbench.training.reference_runs import reference_case, take_reference

    case = reference_case(workload, phase, batch=batch, sequence=sequence)
    options = {"batch": batch, "sequence": sequence, "runs": runs, "threads": None if threads == 1 else threads}
    command = f"trnbench reference --make --workload {workload} --phase {phase}" + "".join(
        f" --{name} {value}" for name, value in options.items() if value is not None
    )
    taken = take_reference(case, runs, threads=threads, command=command, tell=warn)
    path = write_reference(folder, taken)
    _show(taken)
    print(f"stored in {path}")


def _show_all(folder: Path) -> None:
    from trnbench.training.reference import load_reference

    files = sorted(folder.glob("*.json"))
    if not files:
        raise UsageError(f"{folder} holds no reference convergence points; `trnbench reference --make` makes them")
    for loaded in [load_reference(path) for path in files]:
        _show(loaded)


def _show(shown: Reference) -> None:
    from trnbench.cli.output import print_table
    from trnbench.training.convergence import LEVEL, limits
    from trnbench.workloads.recipes import recipe_of

    cpu, torch = shown.cpu.get("model", "an unknown CPU"), shown.versions.get("torch", "unknown")
    print(
        f"{shown.workload} {shown.phase}, batch {shown.batch}, sequence {shown.sequence}, version {shown.version}: "
        f"{shown.precision} on {cpu}, torch {torch}, {shown.made_at[:10]}"
    )
    rows = [
        [str(point.seed), f"{point.samples_to_target:.1f}", str(point.evaluations[-1].samples)]
        for point in shown.points
    ]
    print_table(["seed", "samples to target", "reached at the evaluation after"], rows)
    # What a case is held to: its own number of runs, not that for which points were made.
    judged = recipe_of(shown.workload, shown.phase).seeds
    allowed = limits(shown, judged)
    floor = f"unknown ({shown.floor_reason})" if shown.floor is None else f"{shown.floor:.4f}"
    print(f"target {shown.target:.4f}, floor {floor} nats per token")
    print(
        f"geometric mean {shown.typical:.1f} samples, standard deviation {100 * shown.spread:.1f} % of it (of the "
        f"logarithms); {judged} runs may need {allowed.fewest:.1f} to {allowed.most:.1f} on average: a factor of "
        f"{allowed.most / shown.typical:.3f}, p = {LEVEL} on each side"
    )
