"""The store under several processes, sudden death, full disks and hostile locales: real processes, real files."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from trnbench.records.serialise import decode
from trnbench.records.store import Store

HERE = Path(__file__).parent
PREAMBLE = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(HERE)!r})
from record_samples import record
from trnbench.records.store import Store, StoreError
store = Store(Path(sys.argv[1]))
"""


def start(code: str, root: Path, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(code), str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=environment,
    )


def test_four_processes_in_one_second_write_four_files(tmp_path: Path) -> None:
    """D4: same run, case and second, released together; 4 files, all whole, all different."""
    code = """
    mine = record(started_at="2026-11-30T09:15:00Z")
    print("ready", flush=True)
    sys.stdin.readline()
    print(store.write(mine))
    """
    writers = [start(code, tmp_path) for _ in range(4)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    paths = {Path(writer.communicate(timeout=60)[0].strip()) for writer in writers}
    assert [writer.returncode for writer in writers] == [0, 0, 0, 0]
    loaded = Store(tmp_path).load()
    assert {item.path for item in loaded.records} == paths
    assert len(paths) == 4
    assert len({path.name.removesuffix(".json").rpartition("s64")[2] for path in paths}) == 4
    assert loaded.rejected == []


def test_a_killed_writer_leaves_only_whole_files(tmp_path: Path) -> None:
    """D3, G11: SIGKILL at random moments; what was acknowledged is there, and every file that is there is whole."""
    code = """
    print("ready", flush=True)
    while True:
        print(store.write(record()), flush=True)
    """
    chance = random.Random(20261130)
    acknowledged: set[Path] = set()
    for _ in range(8):
        writer = start(code, tmp_path)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0.0, 0.15))
        writer.send_signal(signal.SIGKILL)
        output, _ = writer.communicate(timeout=60)
        assert writer.returncode == -signal.SIGKILL
        acknowledged |= {Path(line) for line in output.splitlines() if line.endswith(".json")}
    files = set(tmp_path.rglob("*.json"))
    assert acknowledged
    assert acknowledged <= files
    for path in files:
        decode(path.read_bytes(), str(path))
    assert Store(tmp_path).load().rejected == []
    assert len(files) - len(acknowledged) <= 8


def test_a_reader_beside_a_writer_sees_only_whole_files(tmp_path: Path) -> None:
    """D3: loading again and again while records appear never meets half of one."""
    writer = start("for _ in range(60):\n    store.write(record())\n", tmp_path)
    counts = [0]
    while writer.poll() is None:
        loaded = Store(tmp_path).load()
        assert loaded.rejected == []
        counts.append(len(loaded.records))
        time.sleep(0.01)
    writer.communicate()
    assert counts == sorted(counts)
    assert len(Store(tmp_path).load().records) == 60


FILL = """
written = 0
try:
    for _ in range(200):
        store.write(record())
        written += 1
except StoreError as error:
    print(written, error)
"""


def test_a_full_disk_ends_in_one_sentence(tmp_path: Path) -> None:
    """G11: a real file system of 256 kB fills up; what fitted is whole, the rest is one clear error."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs rights that this user has not")
    try:
        output, problems = start(FILL, disk).communicate(timeout=60)
        assert problems == ""
        count, sentence = output.split(" ", 1)
        loaded = Store(disk).load()
        assert 0 < len(loaded.records) == int(count)
        assert loaded.rejected == []
        assert "the disk is full; nothing partial is left" in sentence
        assert [path for path in disk.rglob("*") if path.is_file() and path.suffix != ".json"] == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_file_size_limit_ends_in_one_sentence(tmp_path: Path) -> None:
    """G11: the same through a limit that needs no rights: the write itself stops halfway through the file."""
    code = f"""
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    mine = record()
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, {resource.RLIM_INFINITY}))
    try:
        store.write(mine)
    except StoreError as error:
        print(error)
    """
    output, problems = start(code, tmp_path).communicate(timeout=60)
    assert problems == ""
    assert output.startswith("the record of case nano-")
    assert "file too large; nothing partial is left" in output
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_locale_has_no_say(tmp_path: Path) -> None:
    """D18: under LC_ALL=C without UTF-8 mode, non-ASCII text is stored and read as UTF-8."""
    code = r"""
    import locale
    mine = record(reason="12 \N{MICRO SIGN}s on \N{LATIN SMALL LETTER E WITH ACUTE}l\N{SNOWMAN}")
    path = store.write(mine)
    (loaded,) = store.load().records
    assert loaded.record == mine
    print(ascii(locale.getpreferredencoding(False)), path)
    """
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    output, problems = start(code, tmp_path, environment).communicate(timeout=60)
    assert problems == ""
    encoding, path = output.split()
    assert "utf" not in encoding.lower()
    assert "12 \N{MICRO SIGN}s on \N{LATIN SMALL LETTER E WITH ACUTE}l\N{SNOWMAN}" in Path(path).read_bytes().decode()
