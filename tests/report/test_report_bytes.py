"""The same bytes every time, nothing unescaped in them, and no byte changed by a build that fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from conformance_samples import write_conformance
from site_helpers import HOSTILE, build, hostile_records, pages, runs_of, tree
from site_samples import (
    sample_device,
    sample_record,
    write_all,
)

from trnbench.report import site as site_module
from trnbench.report.site import build_site
from trnbench.status import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def test_markup_in_records_is_text_on_every_page(tmp_path: Path) -> None:
    """F6: in titles, headings, cells, alternative texts, descriptions and file names."""
    site = build(tmp_path, hostile_records(), title=f"Title {HOSTILE[2]}")
    shown = pages(site)
    assert len(list((site / "comparisons").glob("*.html"))) == 1
    for name, text in shown.items():
        assert "<script" not in text, name
        assert not re.search(r"<img (?!src=\"(\.\./)?plots/)", text), name
        assert "3702" not in text, name
        assert re.fullmatch(r"[a-z0-9._/-]+", name)
    everything = "".join(shown.values())
    for hostile in HOSTILE:
        escaped = hostile.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        assert escaped.replace('"', "&#34;").replace("'", "&#39;") in everything, hostile
    alts = re.findall(r'alt="([^"]*)"', everything)
    assert any("&lt;img" in alt for alt in alts)
    assert re.search(r"<h1>[^<]*&lt;img", everything)
    assert re.search(r"<title>[^<]*&lt;img", everything)


def test_results_and_site_must_be_apart(tmp_path: Path) -> None:
    """A site within its own results would be read as records, and the other way round be replaced."""
    results = write_all(tmp_path / "results", [sample_record()])
    for out in (results, results / "site", tmp_path):
        with pytest.raises(UsageError, match="must be apart"):
            build_site(results, out)
    with pytest.raises(UsageError, match="not a folder"):
        build_site(tmp_path / "nowhere", tmp_path / "site")


def test_a_build_that_fails_leaves_the_former_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong while rendering, the folder keeps the bytes it had."""
    site = build(tmp_path, [sample_record()])
    before = tree(site)

    def broken(_: object) -> None:
        raise RuntimeError("broken template")

    monkeypatch.setattr(site_module, "render", broken)
    with pytest.raises(RuntimeError):
        build_site(tmp_path / "results", site)
    assert tree(site) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results", "site"]


BUILD = (
    "import sys; from pathlib import Path; from trnbench.report.site import build_site\n"
    "build_site(Path(sys.argv[1]), Path(sys.argv[2]), deviations=Path(sys.argv[3]))\n"
)


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    """Another folder, time zone, locale and hash seed; D18: also where the locale knows nothing but ASCII."""
    records = [
        *runs_of("trn2", 900.0),
        *runs_of("h100", 1000.0),
        sample_record("cpu", run="\u00e9\u00b5", device=sample_device("cpu", read_back={"note": "caf\u00e9 \u00b5s"})),
    ]
    results = write_all(write_conformance(tmp_path / "results"), records)
    worlds = [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "1"},
        {"LC_ALL": "C.UTF-8", "TZ": "America/New_York", "PYTHONHASHSEED": "2", "MPLBACKEND": "TkAgg"},
    ]
    built = []
    for place, world in enumerate(worlds):
        here = tmp_path / f"world {place}"
        here.mkdir()
        environment = {name: value for name, value in os.environ.items() if name not in ("LANG", "LC_CTYPE")}
        command = [sys.executable, "-c", BUILD, str(results), "site", str(tmp_path / "deviations")]
        subprocess.run(command, cwd=here, env={**environment, **world}, check=True, timeout=300)
        built.append(tree(here / "site"))
    assert built[0] == built[1]
    assert any("caf\u00e9 \u00b5s".encode() in data for data in built[0].values())
