"""The environment: what is collected, what makes a fingerprint, and what never enters a record."""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_samples import device, record

from trnbench.device import Device, Scalar
from trnbench.records.environment import INSTRUCTION_SETS, collect, collect_with_reasons, cpu_facts
from trnbench.records.fingerprint import FINGERPRINT_VERSION, fingerprint
from trnbench.records.privacy import scrub
from trnbench.records.serialise import encode

CPUINFO = """\
processor\t: 0
model name\t: Intel(R) Xeon(R) Platinum 8488C
microcode\t: 0x2b000603
cpu MHz\t\t: {mhz}
flags\t\t: fpu sse4_2 avx avx2 fma avx512f avx512_bf16{more} hypervisor
bogomips\t: {bogomips}

processor\t: 1
model name\t: Intel(R) Xeon(R) Platinum 8488C
"""
ARM = """\
processor\t: 0
BogoMIPS\t: 2000.00
Features\t: fp asimd i8mm bf16 sve
CPU implementer\t: 0x41
CPU part\t: 0xd4f
"""


def cpu(mhz: float = 2400.0, bogomips: float = 4800.0, more: str = " amx_tile amx_bf16") -> dict[str, Scalar]:
    return cpu_facts(CPUINFO.format(mhz=mhz, bogomips=bogomips, more=more))[0]


VERSIONS = {"torch": "2.13.0", "python": "3.11.7", "kernel": "Linux 6.8.0", "trnbench": "0.1.0"}
FLAGS: dict[str, Scalar] = {"float32_matmul_precision": "highest", "allow_tf32": False}
PLAIN = fingerprint(device(), VERSIONS, FLAGS, cpu())


def test_a_clock_reading_and_a_host_name_are_no_other_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """D11: a 0.03 % other clock, other bogomips, other host name: same fingerprint."""
    assert fingerprint(device(), VERSIONS, FLAGS, cpu(mhz=2400.72, bogomips=4801.4)) == PLAIN
    monkeypatch.setattr(platform, "node", lambda: "another-box")
    monkeypatch.setattr(socket, "gethostname", lambda: "another-box")
    monkeypatch.setenv("HOME", "/home/another")
    assert fingerprint(device(), VERSIONS, FLAGS, cpu()) == PLAIN


@pytest.mark.parametrize(
    "same",
    [
        {"memory_bytes": 82_999_999_999},
        {"memory_bytes": None},
        {"instance_type": "trn2.48xlarge"},
        {"region": "us-east-1"},
        {"read_back": {"clock_mhz": 10_681, "temperature": 41.5}},
    ],
    ids=str,
)
def test_what_varies_on_one_machine_is_left_out(same: dict[str, object]) -> None:
    """D11."""
    assert fingerprint(device(**same), VERSIONS, FLAGS, cpu()) == PLAIN


@pytest.mark.parametrize(
    "other",
    [{"backend": "xla"}, {"platform": "windows"}, {"chip": "trainium2"}, {"chips": 2}, {"cores": 64}],
    ids=str,
)
def test_another_device_is_another_machine(other: dict[str, object]) -> None:
    assert fingerprint(device(**other), VERSIONS, FLAGS, cpu()) != PLAIN


def test_another_cpu_is_another_machine() -> None:
    """D11, C13: by model, and for the same model by instruction sets: with and without amx_bf16."""
    model = {**cpu(), "model": "Another CPU"}
    without = cpu(more="")
    assert "amx_bf16" in str(cpu()["isa"]).split()
    assert "amx_bf16" not in str(without["isa"]).split()
    assert len({PLAIN, *(fingerprint(device(), VERSIONS, FLAGS, facts) for facts in (model, without))}) == 3
    assert fingerprint(device(), VERSIONS, FLAGS, {**cpu(), "usable_cores": 10**6}) != PLAIN
    assert fingerprint(device(), VERSIONS, FLAGS, {**cpu(), "threads": 10**6}) != PLAIN


@pytest.mark.parametrize("name", sorted(INSTRUCTION_SETS))
def test_every_instruction_set_counts(name: str) -> None:
    """C13."""
    bare = cpu_facts("flags\t: fpu\n")[0]
    full = cpu_facts(f"flags\t: fpu {name}\n")[0]
    assert fingerprint(device(), VERSIONS, FLAGS, bare) != fingerprint(device(), VERSIONS, FLAGS, full)


@pytest.mark.parametrize(
    "flags",
    [
        {**FLAGS, "float32_matmul_precision": "medium"},
        {**FLAGS, "allow_tf32": True},
        {**FLAGS, "allow_tf32": 0},
        {"allow_tf32": False},
        {**FLAGS, "XLA_FLAGS": ""},
    ],
    ids=str,
)
def test_a_changed_numerics_flag_is_another_fingerprint(flags: dict[str, Scalar]) -> None:
    """C1: torch.set_float32_matmul_precision("medium") before the run shows."""
    assert fingerprint(device(), VERSIONS, flags, cpu()) != PLAIN


def test_versions_count_and_those_of_harness_and_kernel_do_not() -> None:
    """D11: an update of torch starts a new history; one of the kernel or of this tool does not."""
    assert fingerprint(device(), {**VERSIONS, "torch": "2.13.1"}, FLAGS, cpu()) != PLAIN
    assert fingerprint(device(), {**VERSIONS, "neuronx-cc": "2.1"}, FLAGS, cpu()) != PLAIN
    for name in ("kernel", "trnbench", "pytest-benchmark", "os"):
        assert fingerprint(device(), {**VERSIONS, name: "new"}, FLAGS, cpu()) == PLAIN


@given(
    st.dictionaries(st.text("abc", min_size=1), st.text("abc")),
    st.dictionaries(st.text("abc", min_size=1), st.text() | st.integers(-(2**63), 2**63) | st.booleans()),
)
def test_fingerprint_is_a_function_of_content_not_order(versions: dict[str, str], flags: dict[str, Scalar]) -> None:
    first = fingerprint(device(), versions, flags, {})
    turned = fingerprint(device(), dict(reversed(versions.items())), dict(reversed(flags.items())), {})
    assert first == turned
    assert re.fullmatch("[0-9a-f]{16}", first)


def test_fingerprint_version_1_is_pinned() -> None:
    """Histories hang on it: whoever changes the computation must raise FINGERPRINT_VERSION and this value."""
    plain = Device(backend="cpu", platform="linux", chip="cpu", chips=1, cores=2)
    assert FINGERPRINT_VERSION == 1
    assert fingerprint(plain, {"torch": "2.13.0"}, {"tf32": False}, {"model": "A"}) == "8fc242677cd44606"


def test_fingerprint_is_the_same_in_another_process(tmp_path: Path) -> None:
    """D11: no hash seed, working folder or environment variable enters."""
    code = """
    from pathlib import Path
    from trnbench.device import Device
    from trnbench.records.environment import collect
    device = Device(backend="cpu", platform="linux", chip="cpu", chips=1, cores=2)
    print(collect(device, {"torch": "2"}, {"tf32": False}, Path(".")).fingerprint)
    """
    seen = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "HOME": f"/home/user{seed}", "HOSTNAME": f"host{seed}"}
        finished = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            check=True,
            capture_output=True,
            encoding="utf-8",
            env=environment,
            cwd=tmp_path,
        )
        seen.add(finished.stdout.strip())
    assert len(seen) == 1


def test_cpu_facts_of_this_host() -> None:
    facts, reasons = cpu_facts()
    assert set(facts) | set(reasons) == {"architecture", "model", "isa", "logical_cores", "usable_cores", "threads"}
    assert not set(facts) & set(reasons)
    if sys.platform == "linux":
        assert 1 <= facts["usable_cores"] <= facts["logical_cores"]
    assert not re.search("mhz|clock|node|host", " ".join(facts), re.IGNORECASE)


def test_cpu_facts_of_others() -> None:
    assert cpu()["model"] == "Intel(R) Xeon(R) Platinum 8488C"
    assert cpu()["isa"] == "amx_bf16 amx_tile avx avx2 avx512_bf16 avx512f fma sse4_2"
    arm = cpu_facts(ARM)[0]
    assert arm["model"] == "arm implementer 0x41 part 0xd4f"
    assert arm["isa"] == "asimd bf16 i8mm sve"


def test_a_host_that_tells_nothing_is_unknown_with_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a default: what is missing has a reason instead."""
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    facts, reasons = cpu_facts("")
    assert {"architecture", "model", "isa", "logical_cores"} <= set(reasons)
    assert not {"architecture", "model", "isa", "logical_cores"} & set(facts)


def test_threads_are_those_of_torch_where_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Torch:
        @staticmethod
        def get_num_threads() -> int:
            return 7

    monkeypatch.setitem(sys.modules, "torch", Torch)
    assert cpu_facts()[0]["threads"] == 7
    monkeypatch.delitem(sys.modules, "torch")
    facts, reasons = cpu_facts()
    assert "threads" not in facts
    assert reasons["threads"]
    assert "torch" not in sys.modules


def test_collected_environment_makes_a_complete_record(tmp_path: Path) -> None:
    """D8: outside any checkout, with every reason in place."""
    environment, reasons = collect_with_reasons(device(), {"torch": "2.13.0"}, dict(FLAGS), tmp_path)
    stored = record(environment=environment, reasons=reasons)
    assert stored.environment.git.dirty is None
    assert stored.unknown["environment.git.dirty"] == "not in a git checkout"
    assert environment.versions["python"] == platform.python_version()
    assert environment.fingerprint_version == FINGERPRINT_VERSION
    assert collect(device(), {"torch": "2.13.0"}, dict(FLAGS), tmp_path) == environment


def test_output_folders_do_not_make_the_environment_dirty(tmp_path: Path) -> None:
    """D9: the folder that a run writes its records to is handed down to git."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "record.json").write_text("{}", encoding="utf-8")
    assert collect(device(), {}, {}, tmp_path).git.dirty is True
    assert collect(device(), {}, {}, tmp_path, outputs=[tmp_path / "mine"]).git.dirty is False


PRIVATE = """
import os, platform, socket, sys
from pathlib import Path
node = "secret-box.corp.example"
platform.node = lambda: node
socket.gethostname = lambda: node
platform.uname()
sys.path.insert(0, sys.argv[1])
from record_samples import check, device, record
from trnbench.records.environment import collect_with_reasons
from trnbench.records.store import Store
from trnbench.status import Status
flags = {
    "NEURON_CC_FLAGS": "--cache_dir=/home/someone/cache -O2 --dump '/home/someone/with space/x'",
    "XLA_FLAGS": "--xla_dump_to=" + os.environ["HOME"],
    "NEURON_COMPILE_CACHE_URL": "s3://someone-bucket-1234/cache",
    "CACHE": "~someone/cache:/var/home/someone",
    "NODE": node,
}
ours = device(read_back={"path": "/home/someone/driver", "seen_on": "SECRET-BOX"})
environment, reasons = collect_with_reasons(ours, {"torch": "2.13.0"}, flags, Path.cwd())
path = Store(Path(sys.argv[2])).write(record(
    environment=environment, device=ours, status=Status.FAILED,
    reason=f'File "{os.environ["HOME"]}/x.py" on {node}, see ssh://someone@secret-box/~/x and '
    r'\\\\secret-box\\share',
    conformance=[check(where="/home/someone/model.py:3")],
    reasons={**reasons, "price": f"no table in {Path.home()}/prices.csv"},
))
print(path)
"""


def test_no_host_name_and_no_home_path_in_a_full_record(tmp_path: Path) -> None:
    """D19: HOME=/home/someone on host secret-box; neither occurs anywhere in the file or its path."""
    finished = subprocess.run(
        [sys.executable, "-c", PRIVATE, str(Path(__file__).parent), str(tmp_path / "results")],
        check=True,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "HOME": "/home/someone"},
        cwd=tmp_path,
    )
    path = Path(finished.stdout.strip())
    text = f"{path.relative_to(tmp_path)}\n{path.read_text(encoding='utf-8')}"
    for private in ("secret-box", "someone", "/home", str(tmp_path)):
        assert private not in text.lower()
    assert "-O2" in json.loads(path.read_text(encoding="utf-8"))["environment"]["flags"]["NEURON_CC_FLAGS"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No such file: '/opt/data/x.json'", "No such file: '<path>'"),
        ("--dir=/a/b,/c:/d -O2", "--dir=<path>,<path>:<path> -O2"),
        ("C:\\Users\\x\\y.py failed", "<path> failed"),
        ("see https://example.com/a?b=c.", "see <url>"),
        ("~/x and ~user/y", "<path> and <path>"),
        ("3.2 tokens/s, and/or 1/2, a / b, //, 5 % / s", "3.2 tokens/s, and/or 1/2, a / b, //, 5 % / s"),
        ("device:0, shape [1, 2], key=value", "device:0, shape [1, 2], key=value"),
        ("(/a/b) [/c] {/d} </e>", "(<path>) [<path>] {<path>} <<path>>"),
    ],
)
def test_scrubbing_takes_paths_and_leaves_words(text: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """D19."""
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    monkeypatch.setattr(platform, "node", lambda: "cpu")
    assert scrub(text) == expected


def test_a_home_with_spaces_or_at_the_root_is_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    """D19: the home folder is taken as a whole; a home of "/" must not turn every slash into it."""
    monkeypatch.setattr(socket, "gethostname", lambda: "build-host-7")
    monkeypatch.setattr(platform, "node", lambda: "build-host-7")
    monkeypatch.setenv("HOME", "/Users/some one")
    assert scrub("in /Users/some one/x/y.py on Build-Host-7") == "in <home> on <host>"
    monkeypatch.setenv("HOME", "/")
    assert scrub("1/2 of it") == "1/2 of it"


@given(st.text())
def test_scrubbing_twice_is_scrubbing_once(text: str) -> None:
    assert scrub(scrub(text)) == scrub(text)


def test_flags_keep_their_types(tmp_path: Path) -> None:
    flags: dict[str, Scalar] = {"a": True, "b": 1, "c": 1.5, "d": "x"}
    environment, reasons = collect_with_reasons(device(), {}, flags, tmp_path)
    assert environment.flags == flags
    assert b'"a": true' in encode(record(environment=environment, reasons=reasons))
