"""What a log says about precision, parallelism and configuration: the keys that ruleset 6.1 of the MLPerf(R) Training
benchmarks made mandatory (mlperf_logging 4.1.68, compliance_checker/training_6.1.0/common.yaml).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from trnbench.case import Case
    from trnbench.device import Device, Scalar

CONFIGURATION = "trnbench/workloads/recipes.py"
"""The file with every hyperparameter, relative to the source folder."""

ORGANISATION = "TrnBench (unofficial, not submitted to MLCommons)"
DIVISION = "open"

FORMATS: MappingProxyType[str, str] = MappingProxyType(
    {"fp32": "fp32", "tf32": "tf32", "bf16": "bfloat16", "fp16": "fp16"}
)
"""By a case's precision, the rules' word for the narrowest format of matrix operands."""

ONE_DEVICE = "one device: nothing is communicated; this is the format of the gradients that would be"


class Entry(NamedTuple):
    """Value of one key, and a note that goes into the event's metadata; empty without one."""

    value: Scalar
    note: str = ""


def disclosure(case: Case) -> dict[str, Entry]:
    """The mandatory keys for a case on one device, in the order of the rules.

    Attention has no format of its own: its products take operands of the case's precision like all others. The rules
    have no word for "nothing is communicated": gradients are float32 whatever the precision (`initial.build_model`
    keeps float32 masters), so that is what a second device would be sent.
    """
    narrowest = FORMATS[case.precision]
    return {
        "lowest_numerical_precision_in_linear": Entry(narrowest),
        "lowest_numerical_precision_in_attn": Entry(narrowest),
        "lowest_numerical_precision_in_comm": Entry("fp32", ONE_DEVICE),
        "tensor_parallelism": Entry(case.parallel.get("tp", 1)),
        "pipeline_parallelism": Entry(case.parallel.get("pp", 1)),
        "context_parallelism": Entry(case.parallel.get("cp", 1)),
        "expert_parallelism": Entry(case.parallel.get("ep", 1)),
        "micro_batch_size": Entry(case.micro_batch),
        "config_filename": Entry(CONFIGURATION),
    }


def benchmark_name(case: Case) -> str:
    """What the log calls the benchmark, `trnbench_pretrain_nano`: no name of an official one."""
    return f"trnbench_{case.phase}_{case.workload}"


def platform_name(device: Device) -> str:
    """The one device that trains, in words: never a host's name."""
    return f"1x {device.chip} (backend {device.backend}, platform {device.platform})"
