"""What tests of the site share: building one, reading it back, and records whose every text is markup."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from site_samples import (
    START,
    sample_case,
    sample_check,
    sample_device,
    sample_environment,
    sample_record,
    write_all,
)

from trnbench.report.site import build_site
from trnbench.status import Status

if TYPE_CHECKING:
    from pathlib import Path

    from trnbench.records.schema import Record


def pages(folder: Path) -> dict[str, str]:
    """Every page by path."""
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in sorted(folder.rglob("*.html"))}


def tree(folder: Path) -> dict[str, bytes]:
    """Every file by path."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def words(html: str) -> str:
    """The text of a page, tags left out, white space joined; a place for a line break is no space."""
    return " ".join(re.sub(r"<[^>]*>", " ", html.replace("<wbr>", "")).split())


def build(tmp_path: Path, records: list[Record], **options: object) -> Path:
    """Store the records, build the site, return its folder."""
    build_site(write_all(tmp_path / "results", records), tmp_path / "site", **options)
    return tmp_path / "site"


def runs_of(kind: str, rate: float, nights: int = 3, **changes: object) -> list[Record]:
    """One record a night, with a run-to-run spread of about one percent."""
    return [
        sample_record(
            kind,
            run=f"{kind}-{night}",
            rate=rate * (1 + 0.01 * (night - 1)),
            started=START + timedelta(days=night, hours=1 if kind == "trn2" else 0),
            **changes,
        )
        for night in range(nights)
    ]


HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "a & b </td>",
    "\"'><script>alert(1)</script>",
    "caf\u00e9 \u00b5s \u4e2d",
    "{{ 1234 * 3 }}",
]


def hostile_records() -> list[Record]:
    """Markup in every text that a record can hold."""
    records = []
    for kind in ("trn2", "h100"):
        for night in range(3):
            bad = HOSTILE[0]
            versions = {**sample_environment(kind).versions, bad: HOSTILE[2]}
            environment = sample_environment(kind, versions=versions, cpu={"model": HOSTILE[1], "threads": 2})
            device = sample_device(kind, read_back={"note": HOSTILE[2]}, chip=kind + bad)
            case = sample_case(suite=HOSTILE[1], workload=bad + HOSTILE[3] + "$\\foo{")
            started = START + timedelta(days=night, hours=kind == "trn2")
            checks = [sample_check(bad, where=HOSTILE[2], reference=HOSTILE[1], metric=HOSTILE[4])]
            records.append(
                sample_record(
                    kind,
                    run=f"{kind}-{night}{bad}",
                    case=case,
                    device=device,
                    environment=environment,
                    started=started,
                    conformance=checks,
                )
            )
    reason = "".join(HOSTILE)
    failed = {"rate": None, "status": Status.FAILED, "reason": reason}
    records.append(sample_record("trn2", run=f"x{HOSTILE[0]}", case=sample_case(workload=HOSTILE[2]), **failed))
    return records


def record_of(site: Path, case: str) -> Path:
    """The page of the first record whose case begins so."""
    return next(p for p in sorted((site / "records").glob("*.html")) if f"<h1>{case}" in p.read_text("utf-8"))


def kinds_of_pages(site: Path) -> list[str]:
    """One page of every kind, by path: of comparisons one with a ratio, of records a measured and a missing one."""
    comparisons = sorted((site / "comparisons").glob("*.html"))
    with_ratio = next(path for path in comparisons if "prices-table" in path.read_text("utf-8"))
    without = next(path for path in comparisons if "No verdict" in path.read_text("utf-8"))
    run = next((site / "runs").glob("20261103-h100*.html"))
    found = [with_ratio, without, run]
    for status in ("ok", "oom"):
        pattern = re.compile(rf'<p class="lead"><span class="tag[^>]*><span[^>]*>.</span> {status}</span>')
        found.append(next(p for p in sorted((site / "records").glob("*.html")) if pattern.search(p.read_text("utf-8"))))
    for mark in ("serving-server", "serving-single_stream", "pretrain"):
        found.append(record_of(site, f"nano-{mark}"))
    pages_of_kinds = ["index.html", "runs.html", "reading.html", "serving.html", "training.html"]
    return [*pages_of_kinds, *(path.relative_to(site).as_posix() for path in found)]
