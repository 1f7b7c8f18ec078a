"""A run to quality on a lazy tensor device: nothing compiles after the warm-up, a changing learning rate included."""

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
    import torch_xla.core.xla_model as xla_model
    import torch_xla.debug.metrics as metrics
    from msgspec import structs
    from trnbench.case import case_from
    from trnbench.workloads import quality
    from trnbench.workloads.presets import preset
    from trnbench.workloads.recipes import recipe_of
    from trnbench.workloads.text import open_data

    # One layer: every layer repeats the same operators, and compiling them is what takes the time.
    shallow = structs.replace(preset("nano"), layers=1)
    quality.preset = lambda name: shallow
    phase, precision = sys.argv[1:]
    recipe = structs.replace(recipe_of("nano", phase), batch=4, micro_batch=2, sequence=16, evaluation_sequences=6)
    shape = {name: getattr(recipe, name) for name in ("phase", "batch", "micro_batch", "sequence")}
    case = case_from(
        dict(suite="test", workload="nano", precision=precision, mode="compiled", tier="smoke") | shape
    )
    data = open_data("source", shallow, recipe)
    as_is = lambda function, mode: function

    def wait(outputs):
        torch_xla.sync()
        xla_model.wait_device_ops()

    lazy = quality.Learner(case, recipe, torch_xla.device(), as_is, wait, seed=1)
    plain = quality.Learner(case, recipe, torch.device("cpu"), as_is, lambda outputs: None, seed=1)
    lazy.warm_up()
    compiles = [metrics.metric_data("CompileTime")[0]]
    tolerance = 1e-4 if precision == "fp32" else 2e-2
    for step in range(4):
        got, expected = lazy.train(data.batch(1, step)), plain.train(data.batch(1, step))
        wait([got])
        torch.testing.assert_close(got.cpu(), expected, rtol=tolerance, atol=tolerance)
        assert abs(lazy.evaluate(data.evaluation()) - plain.evaluate(data.evaluation())) < tolerance
        compiles.append(metrics.metric_data("CompileTime")[0])
    assert len(set(compiles)) == 1, compiles

    resumed = quality.Learner(case, recipe, torch_xla.device(), as_is, wait, seed=1)
    resumed.warm_up()
    resumed.load_state(lazy.state())
    before = metrics.metric_data("CompileTime")[0]
    for learner in (lazy, resumed):
        wait([learner.train(data.batch(1, 4))])
    assert metrics.metric_data("CompileTime")[0] == before
    assert lazy.evaluate(data.evaluation()) == resumed.evaluate(data.evaluation())
    on_host = [name for name in metrics.counter_names() if name.startswith("aten::") and "_local_scalar" not in name]
    assert not on_host, on_host
    """
)


@pytest.mark.xla
@pytest.mark.parametrize(("phase", "precision"), [("pretrain", "fp32"), ("finetune_lora", "bf16")])
def test_nothing_compiles_after_the_warm_up(phase: str, precision: str) -> None:
    """A5: warm-up leaves the graph of every later step, whatever its learning rate, and of the evaluation."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, phase, precision],
        env=os.environ | {"PJRT_DEVICE": "CPU"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
