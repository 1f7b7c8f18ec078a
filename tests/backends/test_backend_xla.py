"""The xla backend on torch-xla's CPU device: real lazy graphs, real compile counts, real fallbacks."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import contract
import pytest

from trnbench.backends import packages, xla
from trnbench.backends.select import open_backend
from trnbench.status import BackendUnavailable, CaseError, Status, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trnbench.backends.base import Backend

needs_torch_xla = pytest.mark.skipif(
    importlib.util.find_spec("torch_xla") is None, reason="torch-xla is not installed: pip install trnbench[xla]"
)


@pytest.fixture(scope="module")
def subject() -> Iterator[contract.Subject]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PJRT_DEVICE", "CPU")
        backend = open_backend("xla")

        def falls_back() -> Any:
            import torch

            return torch.linalg.qr(torch.eye(4).to(backend.device)).Q

        yield contract.matmul_subject(backend, falls_back)


@pytest.fixture
def backend(subject: contract.Subject) -> Backend:
    return subject.backend


@pytest.mark.xla
@needs_torch_xla
class TestOnTheCpu:
    @pytest.mark.parametrize("rule", contract.RULES, ids=lambda rule: rule.__name__)
    def test_contract(self, rule: Any, subject: contract.Subject) -> None:
        rule(subject)

    def test_dispatch_is_not_the_step(self, backend: Backend) -> None:
        """A2: a step marker after each of 20 matmuls returns long before they have run; materialize does not."""
        import torch
        import torch_xla

        factor = torch.full((1024, 1024), 1 / 1024).to(backend.device)
        for _ in range(2):
            start = time.perf_counter()
            product = factor
            for _ in range(20):
                product = product @ factor
                torch_xla.sync()
            dispatched = time.perf_counter() - start
            backend.materialize([product])
            materialized = time.perf_counter() - start
        assert materialized > 2 * dispatched

    def test_each_length_is_a_compile_and_padding_saves_them(self, backend: Backend) -> None:
        """A5: ten lengths are ten compiles, ten steps padded to one length are at most one, and a rerun none."""
        import torch

        def step(length: int) -> int:
            values = torch.ones(length).to(backend.device)
            backend.materialize([values])
            before = backend.counters().compiles
            backend.materialize([(values * 3).sum()])
            return backend.counters().compiles - before

        assert [step(length) for length in range(10, 20)] == [1] * 10
        assert [step(16) for _ in range(10)] == [0] * 10

    def test_materialize_compiles_nothing_of_its_own(self, backend: Backend) -> None:
        """Reading one element back belongs to the step's graph: three outputs, three rounds, one compile."""
        import torch

        values = torch.ones(3, 5).to(backend.device)
        backend.materialize([values])
        compiles = []
        for _ in range(3):
            before = backend.counters().compiles
            backend.materialize([values + 1, values.sum(0) * 2, values.sum()])
            compiles.append(backend.counters().compiles - before)
        assert compiles == [1, 0, 0]

    def test_fallback_is_named_and_reading_back_is_none(self, backend: Backend) -> None:
        import torch

        before = backend.counters().fallbacks
        values = torch.ones(3).to(backend.device)
        values.sum().item()
        assert backend.counters().fallbacks == before
        torch.linalg.qr(torch.eye(3).to(backend.device))
        after = backend.counters().fallbacks
        assert after["aten::linalg_qr"] == before.get("aten::linalg_qr", 0) + 1

    def test_eager_is_refused(self, backend: Backend) -> None:
        assert "no eager mode" in backend.unsupported("fp32", "eager")
        with pytest.raises(CaseError) as refused:
            backend.compile(abs, "eager")
        assert refused.value.status is Status.UNSUPPORTED

    @pytest.mark.parametrize("name", ["XLA_USE_BF16", "XLA_DOWNCAST_BF16"])
    def test_switches_behind_pythons_back_are_refused(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.setenv(name, "1")
        with pytest.raises(UsageError, match=name), backend.numerics("fp32"):
            pass

    def test_matmul_precision_is_set_and_restored(self, backend: Backend) -> None:
        import torch_xla.backends

        before = torch_xla.backends.get_mat_mul_precision()
        with backend.numerics("fp32") as in_force:
            assert torch_xla.backends.get_mat_mul_precision() == in_force["xla.mat_mul_precision"] == "highest"
        assert torch_xla.backends.get_mat_mul_precision() == before

    def test_unset_pjrt_device_is_read_back_as_the_cpu(self) -> None:
        """G2: nothing asked for; the record says CPU because the runtime says so."""
        done = _describe(PJRT_DEVICE=None)
        assert done.stdout.split() == ["cpu", "cpu", "CPU", "nothing", "False"]

    def test_a_wish_for_another_device_never_ends_on_the_cpu(self) -> None:
        """G2: an accelerator was asked for and is not here: an error, no description."""
        done = _describe(PJRT_DEVICE="CUDA")
        assert done.returncode == 4, done.stderr
        assert done.stdout == ""
        assert "Traceback" not in done.stderr


DESCRIBE = """
import sys
from trnbench.backends.select import open_backend
from trnbench.status import TrnBenchError
try:
    backend = open_backend("xla")
except TrnBenchError as error:
    print(error, file=sys.stderr)
    sys.exit(int(error.exit_code))
device = backend.describe()
print(device.chip, device.platform, device.read_back["pjrt_device"], device.read_back["pjrt_device_asked_for"],
      backend.simulated)
"""


def _describe(**variables: str | None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    environment = {name: value for name, value in environment.items() if value is not None}
    return subprocess.run(
        [sys.executable, "-c", DESCRIBE], capture_output=True, text=True, env=environment, check=False
    )


def _installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    found = {name.replace("_", "-"): version for name, version in versions.items()}
    monkeypatch.setattr(xla, "installed_version", found.get)
    monkeypatch.setattr(packages, "installed_version", found.get)


class TestPreflight:
    """G4: what does not fit together is found before anything is imported, with both versions quoted."""

    def test_absent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _installed(monkeypatch, torch="2.9.1")
        with pytest.raises(BackendUnavailable, match="needs torch-xla") as absent:
            xla.XlaBackend.preflight()
        assert absent.value.status is Status.UNSUPPORTED

    def test_other_release_than_torch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _installed(monkeypatch, torch="2.13.0+cpu", torch_xla="2.9.0")
        with pytest.raises(BackendUnavailable, match=r"torch-xla 2\.9\.0 .* torch 2\.13\.0\+cpu") as mismatch:
            xla.XlaBackend.preflight()
        assert mismatch.value.status is Status.VERSION_MISMATCH

    @pytest.mark.parametrize(
        ("version", "words", "status"),
        [
            ("1.0", "1.0 is an empty placeholder; get it from https", Status.UNSUPPORTED),
            ("2.14.3.0", "run with --backend neuron", Status.VERSION_MISMATCH),
        ],
    )
    def test_wrong_neuron_package(
        self, monkeypatch: pytest.MonkeyPatch, version: str, words: str, status: Status
    ) -> None:
        monkeypatch.setenv("PJRT_DEVICE", "NEURON")
        _installed(monkeypatch, torch="2.9.1", torch_xla="2.9.0", torch_neuronx=version)
        with pytest.raises(BackendUnavailable, match=words) as wrong:
            xla.XlaBackend.preflight()
        assert wrong.value.status is status

    def test_the_pinned_release_passes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PJRT_DEVICE", "NEURON")
        _installed(monkeypatch, torch="2.9.1", torch_xla="2.9.0", torch_neuronx="2.9.0.2.15.32035")
        xla.XlaBackend.preflight()


@pytest.mark.parametrize(
    ("kind", "family", "chip"),
    [
        ("NC_v2", "trn1", "trainium1"),
        ("NC_v2", "trn1n", "trainium1"),
        ("NC_v2", "inf2", "inferentia2"),
        ("NC_v2", None, "NC_v2"),
        ("NC_v3", "trn2", "trainium2"),
        ("NC_v3d", None, "trainium2"),
        ("NC_v9", "trn9", "NC_v9"),
    ],
)
def test_chip_of_pjrt_kind(kind: str, family: str | None, chip: str) -> None:
    """NeuronCore-v2 is in two chips; without the instance family, the runtime's own name stands."""
    assert xla.chip_of_kind(kind, family) == chip


@pytest.mark.parametrize(
    ("flags", "precision", "pinned"),
    [
        ("", "fp32", "--auto-cast=none"),
        ("--model-type transformer", "bf16", "--model-type transformer --auto-cast=none"),
        ("--auto-cast=none -O1", "fp32", "--auto-cast=none -O1"),
        ("--auto-cast none", "fp32", "--auto-cast none --auto-cast=none"),
        ("", "tf32", "--auto-cast=matmult --auto-cast-type=tf32"),
    ],
)
def test_auto_cast_is_written_out(flags: str, precision: str, pinned: str) -> None:
    assert xla.auto_cast(flags, precision) == pinned


@pytest.mark.parametrize(
    ("flags", "precision"),
    [("--auto-cast=matmult", "fp32"), ("--auto-cast all", "bf16"), ("--auto-cast-type=bf16", "tf32")],
)
def test_auto_cast_that_contradicts_the_case_is_refused(flags: str, precision: str) -> None:
    with pytest.raises(UsageError, match="NEURON_CC_FLAGS has --auto-cast"):
        xla.auto_cast(flags, precision)


def test_compiler_flags_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O1")
    with xla._compiler_flags("NEURON", "fp32") as reported:
        assert os.environ["NEURON_CC_FLAGS"] == "-O1 --auto-cast=none"
        assert reported["neuron.auto_cast"] == "none"
    assert os.environ["NEURON_CC_FLAGS"] == "-O1"
    monkeypatch.delenv("NEURON_CC_FLAGS")
    with pytest.raises(ZeroDivisionError), xla._compiler_flags("NEURON", "tf32"):
        raise ZeroDivisionError
    assert "NEURON_CC_FLAGS" not in os.environ
    with xla._compiler_flags("CPU", "fp32") as reported:
        assert reported == {}


def test_neuron_compile_cache_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert xla.compile_cache_state("CPU") == "none"
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path))
    assert xla.compile_cache_state("NEURON") == "cold"
    (tmp_path / "neuronxcc-2.26").mkdir()
    assert xla.compile_cache_state("NEURON") == "warm"
    monkeypatch.setenv("NEURON_CC_FLAGS", f"--cache_dir={tmp_path / 'other'}")
    assert xla.compile_cache_state("NEURON") == "cold"
    monkeypatch.setenv("NEURON_CC_FLAGS", "--no_cache")
    assert xla.compile_cache_state("NEURON") == "none"
    monkeypatch.setenv("NEURON_CC_FLAGS", "")
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", "s3://bucket/cache")
    assert xla.compile_cache_state("NEURON") is None
