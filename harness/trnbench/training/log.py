"""The event log of one run: which events, in which order.

Modelled on the logs of the MLPerf(R) Training benchmarks (ruleset 6.1.0 of mlperf_logging). `submission_division` comes
before `init_stop`, because their checker takes the limit of the untimed part from it. Places are given both ways that
rule sets ask for, `samples_count` and `epoch_num`. Their convergence checker (rcp_checker) reads the second one as the
unit of convergence of every benchmark that it does not know by name, so it must grow from evaluation to evaluation:
passes over the training samples as a fraction, and where no pass ends the count of samples, as logs of language models
have it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.mllog import Writer
from trnbench.training.disclosure import (
    DIVISION,
    ORGANISATION,
    benchmark_name,
    disclosure,
    platform_name,
)
from trnbench.training.rule_data import NEWEST, RULE_SET_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trnbench.case import Case
    from trnbench.device import Device, Scalar

RESUMED = "trnbench_resumed"
"""A process died after `samples_count` samples and another went on: the time of the run is then no score."""

TARGET = "target_loss"


class RunLog:
    """Writes the log of one run; `train_samples` is how many training samples there are.

    `endless` says that they are drawn from a source that never repeats, which has no epochs.
    """

    def __init__(self, train_samples: int, *, endless: bool) -> None:
        self._writer = Writer()
        self._train_samples = train_samples
        self._endless = endless

    def header(self, case: Case, device: Device) -> None:
        """Whose log this is, before anything happens."""
        log = self._writer
        log.event("submission_benchmark", benchmark_name(case))
        log.event("submission_division", DIVISION)
        log.event("submission_org", ORGANISATION)
        log.event("submission_platform", platform_name(device))
        log.event(RULE_SET_KEY, NEWEST)

    def initialise(self, case: Case, seed: int, learning: Mapping[str, Scalar], evaluation_samples: int) -> None:
        """The untimed part begins: seed, every hyperparameter, what the rules want disclosed."""
        log = self._writer
        # Nothing of an earlier run is reused: every run builds its model anew and makes or reads its data itself.
        log.event("cache_clear", True)
        log.start("init_start")
        log.event("seed", seed)
        disclosed = disclosure(case)
        for key, value in learning.items():
            if key not in disclosed:
                log.event(key, value)
        for key, entry in disclosed.items():
            log.event(key, entry.value, **({"note": entry.note} if entry.note else {}))
        log.event("train_samples", self._train_samples)
        log.event("eval_samples", evaluation_samples)

    def initialised(self) -> None:
        """The untimed part is over."""
        self._writer.end("init_stop")

    def run_start(self) -> None:
        """The clock starts; no data were touched."""
        self._writer.start("run_start")

    def target(self, loss: float) -> None:
        """The evaluation loss to reach, in nats per token, once it is known."""
        self._writer.event(TARGET, loss)

    def block_start(self, samples: int) -> None:
        """Training goes on from so many samples."""
        self._writer.start("block_start", **self._place(samples))

    def block_stop(self, samples: int) -> None:
        """Training has seen so many samples and stops for an evaluation."""
        self._writer.end("block_stop", **self._place(samples))

    def eval_start(self, samples: int) -> None:
        """An evaluation begins."""
        self._writer.start("eval_start", **self._place(samples))

    def eval_stop(self, samples: int, loss: float | None) -> None:
        """It ends with this loss; None where the loss is no finite number, which a log cannot hold."""
        if loss is not None:
            self._writer.event("eval_accuracy", loss, **self._place(samples))
        self._writer.end("eval_stop", **self._place(samples))

    def resumed(self, samples: int) -> None:
        """Another process goes on from a checkpoint."""
        self._writer.event(RESUMED, samples, **self._place(samples))

    def run_stop(self, samples: int, *, converged: bool) -> None:
        """The clock stops."""
        self._writer.end("run_stop", status="success" if converged else "aborted", **self._place(samples))

    def text(self) -> str:
        """The log so far."""
        return self._writer.text()

    def restore(self, text: str) -> None:
        """Go on after the events of an interrupted process."""
        self._writer.restore(text)

    def _place(self, samples: int) -> dict[str, int | float]:
        return {"samples_count": samples, "epoch_num": samples if self._endless else samples / self._train_samples}
