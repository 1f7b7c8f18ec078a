"""Collects the environment of a run by allow-list: versions, flags, CPU facts and the state of the code.

Nothing is copied wholesale from the system, so no host name, user, path or account can slip in.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.records.fingerprint import FINGERPRINT_VERSION, fingerprint
from trnbench.records.git import git_state
from trnbench.records.privacy import scrub_map
from trnbench.records.schema import Environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trnbench.device import Device, Scalar

INSTRUCTION_SETS = frozenset(["sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni"]).union(
    ["avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16"],
    ["amx_tile", "amx_int8", "amx_bf16", "amx_fp16"],
    ["asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2", "svebf16", "sme", "sme2"],
)
"""The CPU flags that decide how fast, and at 16 bits how exactly, a matrix product runs (x86-64 and AArch64)."""

_PACKAGES = ("trnbench", "pytest-benchmark", "numpy")


def collect(
    device: Device,
    versions: Mapping[str, str],
    flags: Mapping[str, Scalar],
    start: Path,
    outputs: Sequence[Path] = (),
) -> Environment:
    """The environment of a run, without the reasons of its nulls; see `collect_with_reasons`."""
    return collect_with_reasons(device, versions, flags, start, outputs)[0]


def collect_with_reasons(
    device: Device,
    versions: Mapping[str, str],
    flags: Mapping[str, Scalar],
    start: Path,
    outputs: Sequence[Path] = (),
) -> tuple[Environment, dict[str, str]]:
    """The environment, and by path the reason of everything in it that is not known, as `assemble` takes them.

    `versions` and `flags` come from the backend and the numerics context; `start` lies in the checkout whose code
    runs; `outputs` are folders this tool writes to, which do not make the checkout dirty. Never raises.
    """
    cpu, cpu_reasons = cpu_facts()
    git, git_reasons = git_state(start, outputs)
    all_versions = dict(sorted({**_host_versions(), **versions}.items()))
    clean_flags = dict(sorted(scrub_map(flags).items()))
    environment = Environment(
        versions=all_versions,
        flags=clean_flags,
        cpu=cpu,
        git=git,
        fingerprint=fingerprint(device, all_versions, clean_flags, cpu),
        fingerprint_version=FINGERPRINT_VERSION,
    )
    reasons = {f"environment.git.{name}": reason for name, reason in git_reasons.items()}
    return environment, reasons | {f"environment.cpu.{name}": reason for name, reason in cpu_reasons.items()}


def cpu_facts(cpuinfo: str | None = None) -> tuple[dict[str, Scalar], dict[str, str]]:
    """Facts about the host's CPU, and by key why one is missing.

    `architecture`, `model` and `isa` (instruction sets of `INSTRUCTION_SETS`, space separated) describe the CPU;
    `logical_cores` counts those of the host, `usable_cores` those this process may run on, `threads` those torch
    uses inside one operator. Clock readings are left out: they change from boot to boot. `cpuinfo` is the text of
    /proc/cpuinfo, read from there by default.
    """
    text = _proc_cpuinfo() if cpuinfo is None else cpuinfo
    facts: dict[str, Scalar] = {}
    reasons: dict[str, str] = {}
    if platform.machine():
        facts["architecture"] = platform.machine()
    else:
        reasons["architecture"] = "the system does not tell its architecture"
    model = _cpu_model(text)
    if model:
        facts["model"] = model
    else:
        reasons["model"] = "the system does not name its CPU where this tool can read it"
    present = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    if present:
        facts["isa"] = " ".join(sorted(INSTRUCTION_SETS.intersection(present[1].split())))
    else:
        reasons["isa"] = "the system does not list CPU flags where this tool can read them"
    cores = os.cpu_count()
    if cores is not None:
        facts["logical_cores"] = cores
    else:
        reasons["logical_cores"] = "the system does not tell how many cores it has"
    if sys.platform == "linux":
        facts["usable_cores"] = len(os.sched_getaffinity(0))
    else:
        reasons["usable_cores"] = "only Linux tells which cores a process may use"
    # torch is asked only where the backend has loaded it: importing it here would cost seconds and fix its threads.
    torch = sys.modules.get("torch")
    if torch is not None:
        facts["threads"] = int(torch.get_num_threads())
    else:
        reasons["threads"] = "torch was not loaded in the process that wrote the record"
    return facts, reasons


def _proc_cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _cpu_model(cpuinfo: str) -> str | None:
    """The marketing name on x86-64; implementer and part number on AArch64, which has no name there."""
    named = re.search(r"^model name\s*:\s*(\S.*?)\s*$", cpuinfo, re.MULTILINE)
    if named:
        return " ".join(named[1].split())
    numbers = [
        re.search(rf"^CPU {field}\s*:\s*(0x[0-9a-fA-F]+)\s*$", cpuinfo, re.MULTILINE)
        for field in ("implementer", "part")
    ]
    if all(numbers):
        return "arm implementer {} part {}".format(*(match[1] for match in numbers if match))
    return platform.processor() or None


def _host_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    # A kernel's own build may carry the builder's name after the number, so only the number is taken.
    kernel = re.match(r"\d+(\.\d+)*", platform.release())
    if kernel:
        versions["kernel"] = f"{platform.system()} {kernel[0]}"
    try:
        distribution = platform.freedesktop_os_release()
        versions["os"] = f"{distribution.get('ID', 'linux')} {distribution.get('VERSION_ID', '')}".strip()
    except OSError:
        # Not Linux: the kernel entry names the system.
        return versions
    return versions
