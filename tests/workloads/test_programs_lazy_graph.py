"""Programs on a lazy tensor device: one graph per step, none new after the second, nothing run on the host."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("torch_xla", reason="needs torch-xla")

SCRIPT = textwrap.dedent(
    """
    import sys, torch, torch_xla
    import torch_xla.debug.metrics as metrics
    from msgspec import structs
    from trnbench.case import case_from
    from trnbench.workloads.inference import DecodeProgram, PrefillProgram
    from trnbench.workloads.presets import preset
    from trnbench.workloads.training import TrainProgram

    phase = sys.argv[1]
    extra = {"micro_batch": 2} if phase == "train_step" else {"new_tokens": 3} if phase == "decode" else {}
    case = case_from(
        dict(suite="test", workload="nano", phase=phase, precision="fp32", mode="compiled", tier="smoke",
             batch=4, sequence=16) | extra
    )
    # One layer: every layer repeats the same operators, and compiling them is what takes the time.
    shallow = structs.replace(preset("nano"), layers=1)
    program = {"train_step": TrainProgram, "prefill": PrefillProgram, "decode": DecodeProgram}[phase]
    as_is = lambda function, mode: function
    lazy, plain = (program(case, shallow, device, as_is, 0) for device in (torch_xla.device(), torch.device("cpu")))
    compiles = []
    for _ in range(7):
        lazy.reset()
        plain.reset()
        got, expected = lazy.step(), plain.step()
        torch_xla.sync()
        compiles.append(metrics.metric_data("CompileTime")[0])
        torch.testing.assert_close(got[-1].cpu(), expected[-1], rtol=1e-4, atol=1e-5)
    on_host = [name for name in metrics.counter_names() if name.startswith("aten::")]
    assert not on_host, on_host
    assert compiles[1:] == [compiles[1]] * 6, compiles
    torch.testing.assert_close(lazy.loss_like(got).cpu(), plain.loss_like(expected), rtol=1e-4, atol=1e-5)
    """
)


@pytest.mark.xla
@pytest.mark.parametrize("phase", ["train_step", "prefill", "decode"])
def test_nothing_compiles_after_the_second_step(phase: str) -> None:
    """A5: the second graph starts from what the first left on the device; all later steps are that graph."""
    environment = os.environ | {"PJRT_DEVICE": "CPU"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, phase], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
