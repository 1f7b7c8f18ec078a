"""Every shape is warmed, counted and kept: nothing compiles while requests join and leave."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec

import pytest
import torch
from engine_world import QuicklyCompiling, drain, opened, plain_answers, samples_of, serving_case, warm_engine
from msgspec import structs

from trnbench.serving import build
from trnbench.serving.build import build_system, serving_model
from trnbench.serving.engine import Engine
from trnbench.serving.rows import Rows
from trnbench.serving.warming import WarmShapes
from trnbench.status import CaseError, Status
from trnbench.workloads.initial import build_model
from trnbench.workloads.presets import preset

COUNT = 12


def test_nothing_compiles_after_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the real torch.compile of captured graphs, whose writes must reach the cache through the views."""
    # One layer: every layer repeats the same operators, and compiling them is what takes the time.
    monkeypatch.setattr(build, "preset", lambda name: structs.replace(preset(name), layers=1))
    case = serving_case(mode="compiled", sequence=136, new_tokens=5, batch=2)
    samples = samples_of(case, COUNT)
    backend = opened(QuicklyCompiling())
    engine = warm_engine(case, samples, backend)
    before = backend.counters()
    answers, _ = drain(engine, [range(5), [], [], range(5, COUNT)])
    assert backend.counters() == before
    shapes = len(engine.rows.buckets.decode_shapes()) + len(engine.rows.buckets.prefill_shapes())
    assert shapes > 4
    assert before.compiles == shapes
    assert answers == plain_answers(case, samples)


@pytest.mark.slow
def test_nothing_compiles_after_warm_up_with_the_real_compiler() -> None:
    backend = opened()
    case = serving_case(mode="compiled", batch=2)
    if (refusal := backend.unsupported("fp32", "compiled")) is not None:
        pytest.skip(refusal)
    samples = samples_of(case, COUNT)
    with backend.numerics("fp32"):
        engine = warm_engine(case, samples, backend)
        before = backend.counters()
        answers, _ = drain(engine, [range(5), [], [], range(5, COUNT)])
    assert backend.counters() == before
    assert answers == plain_answers(case, samples)


def test_a_shape_that_was_not_warmed_is_refused() -> None:
    case = serving_case(batch=2)
    samples = samples_of(case, COUNT)
    engine = warm_engine(case, samples)
    with pytest.raises(CaseError, match="prompt length: 17 is more than the largest warmed bucket, 16") as error:
        engine.rows.prefill([samples.prompts[0].repeat(2)[:17]], [0])
    assert error.value.status is Status.INVALID
    with pytest.raises(CaseError, match="cache slots: 29 is more"):
        engine.rows.decode({0: 28})
    with pytest.raises(CaseError, match="rows of one decode step: 3 is more"):
        engine.rows.decode({2: 3})
    with pytest.raises(CaseError, match="do not fit"):
        engine.rows.prefill(samples.prompts[:2], [1, 1])


def test_a_bucket_left_out_of_the_warm_up_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    case = serving_case(batch=4)
    samples = samples_of(case, COUNT)

    def forgetful(self: Rows) -> None:
        self._run_prefill(samples.prompts[:1], [0])
        self._run_decode({0: 0})

    monkeypatch.setattr(Rows, "_run_every_shape", forgetful)
    engine = warm_engine(case, samples)
    with pytest.raises(CaseError, match="never warmed; it would compile now") as error:
        drain(engine, [range(COUNT)])
    assert error.value.status is Status.INVALID


def test_a_warm_up_that_never_settles_is_refused() -> None:
    backend = opened(QuicklyCompiling())
    passes = []

    def compile_each_time() -> None:
        passes.append(backend.compile(lambda x: x + len(passes), "compiled")(torch.ones(2)))

    with pytest.raises(CaseError, match="still compiled") as error:
        WarmShapes().warm(backend, compile_each_time)
    assert error.value.status is Status.INVALID
    assert len(passes) == 4


def test_the_built_system_is_warm() -> None:
    case = serving_case(batch=2)
    samples = samples_of(case, COUNT)
    system = build_system(case, opened(), samples)
    assert isinstance(system, Engine)
    assert drain(system, [[0]])[0].keys() == {0}


def test_weights_are_widened_by_powers_of_two_alone() -> None:
    """So every precision holds the same weights, and an answer depends on all of its prompt."""
    case = serving_case(batch=1)
    model = serving_model(case, torch.device("cpu"))
    plain = build_model(preset("nano"), "fp32", "cpu", 0, inference=True)
    factors = {}
    for (name, wide), before in zip(model.named_parameters(), plain.parameters(), strict=True):
        factor = (wide / before)[before != 0].unique()
        assert factor.numel() == 1
        factors[name] = float(factor)
    assert factors["embedding.weight"] == 1
    assert factors["layers.0.attention.query.weight"] == 4
    assert factors["layers.3.feed_forward.down.weight"] == 2
    assert factors["norm.weight"] == 1


LAZY = textwrap.dedent(
    """
    import torch
    from msgspec import structs
    from trnbench.backends.select import open_backend
    from trnbench.case import case_from
    from trnbench.serving.build import widen
    from trnbench.serving.buckets import Buckets
    from trnbench.serving.engine import Engine
    from trnbench.serving.rows import Rows
    from trnbench.serving.samples import draw_samples
    from trnbench.serving.system import Request
    from trnbench.workloads.initial import build_model
    from trnbench.workloads.presets import preset

    # One layer: every layer repeats the same operators, and compiling them is what takes the time.
    shallow = structs.replace(preset("nano"), layers=1)
    samples = draw_samples(shallow, 12, 8, 10, 1)
    buckets = Buckets(rows=(1, 3), contexts=(14, 20), prompts=(1, 2), lengths=(12,))
    backend = open_backend("xla")
    host = open_backend("cpu")
    answers = []
    with backend.numerics("fp32"):
        for side in (backend, host):
            model = build_model(shallow, "fp32", side.device, 0, inference=True, positions=20)
            widen(model)
            mode = "compiled" if side is backend else "eager"
            case = case_from(
                dict(suite="test", workload="nano", phase="serving", precision="fp32", mode=mode, tier="smoke",
                     scenario="offline", profile="quick", batch=3, sequence=12, new_tokens=8)
            )
            rows = Rows(model, side, buckets, case, stop_token=None)
            engine = Engine(rows, samples)
            engine.warm()
            before, said = side.counters(), {}
            engine.submit([Request(index, index) for index in range(4)])
            late = list(range(4, 10))
            while engine.busy or late:
                if late:
                    engine.submit([Request(late[0], late.pop(0))])
                said |= {one.id: one.tokens for one in engine.step().complete}
            assert side.counters() == before, (side.counters(), before)
            answers.append(said)
    assert backend.counters().compiles >= 6
    assert not backend.counters().fallbacks, backend.counters()
    assert len(answers[1]) == 10
    assert answers[0] == answers[1], answers
    """
)


@pytest.mark.xla
@pytest.mark.skipif(find_spec("torch_xla") is None, reason="torch-xla is not installed: pip install trnbench[xla]")
def test_nothing_compiles_after_warm_up_on_a_lazy_device() -> None:
    """Writes through views of the cache reach it there too, and no row, length or position becomes part of a graph."""
    environment = os.environ | {"PJRT_DEVICE": "CPU"}
    done = subprocess.run(
        [sys.executable, "-c", LAZY], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
