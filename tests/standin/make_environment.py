"""Make a Python environment in which `torch-neuronx` is the stand-in: `python make_environment.py DIR [VERSION]`.

The environment is a virtual one without pip that sees the packages of the interpreter running this script, plus a
distribution `torch-neuronx` whose entry points torch loads on import. Prints the new interpreter's path.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import site
import sys
import sysconfig
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = "2.13.3.0"

METADATA = """Metadata-Version: 2.1
Name: torch-neuronx
Version: {version}
Summary: Stand-in for AWS's torch-neuronx: a simulated device, for tests
Keywords: simulated-device
Requires-Python: >=3.11
Requires-Dist: torch (=={major_minor}.*)
"""
ENTRY_POINTS = """[torch.backends]
torch_neuronx = torch_neuronx._autoload:autoload

[torch_dynamo_backends]
neuron = torch_neuronx.neuron_dynamo_backend:neuron_backend
"""


def install(packages: Path, version: str = VERSION) -> Path:
    """Put the stand-in distribution into the folder `packages`; returns its dist-info folder."""
    shutil.copytree(HERE / "torch_neuronx", packages / "torch_neuronx", ignore=shutil.ignore_patterns("__pycache__"))
    info = packages / f"torch_neuronx-{version}.dist-info"
    info.mkdir()
    major_minor = ".".join(version.split(".")[:2])
    (info / "METADATA").write_text(METADATA.format(version=version, major_minor=major_minor), encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    (info / "INSTALLER").write_text("make_environment\n", encoding="utf-8")
    files = [*sorted((packages / "torch_neuronx").rglob("*.py")), *sorted(info.iterdir())]
    lines = [f"{file.relative_to(packages).as_posix()},{_digest(file)},{file.stat().st_size}" for file in files]
    lines.append(f"{info.name}/RECORD,,")
    (info / "RECORD").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return info


def make(directory: Path, version: str = VERSION) -> Path:
    """Create the environment in `directory`, which must not exist; returns its interpreter."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(directory)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(directory), "platbase": str(directory)}))
    seen = [folder for folder in site.getsitepackages() if Path(folder).is_dir()]
    # addsitedir, not a bare path, so that .pth files in there (editable installs) count as well.
    lines = [f"import site; site.addsitedir({folder!r})" for folder in seen]
    (packages / "host_packages.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    install(packages, version)
    return directory / "bin" / "python"


def _digest(file: Path) -> str:
    encoded = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest())
    return "sha256=" + encoded.rstrip(b"=").decode("ascii")


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit("usage: python make_environment.py DIR [VERSION]")
    print(make(Path(sys.argv[1]), *sys.argv[2:]))
