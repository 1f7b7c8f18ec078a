"""Words that must follow the records: devices measured, metrics as the field spells them, and dollars that are n/a."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from site_helpers import build, runs_of, words
from site_samples import START, sample_case, sample_check, sample_device, sample_environment, sample_record

from trnbench.compare.metrics import METRICS
from trnbench.report.format import flops
from trnbench.report.metric_names import capitalised, metric_words, readable
from trnbench.status import Status

if TYPE_CHECKING:
    from pathlib import Path

    from trnbench.records.schema import Record


def index_words(site: Path) -> str:
    """The text of the front page."""
    return words((site / "index.html").read_text("utf-8"))


NAMELESS = {"instance_type": None, "region": None}


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (["cpu"], "Devices with records: cpu. No Trainium and no GPU has been measured yet."),
        (["cpu", "h100"], "Devices with records: 8 x H100 SXM (cuda) and cpu. No Trainium has been measured yet."),
        (["trn2"], "Devices with records: 16 x Trainium2 (neuron). No GPU has been measured yet."),
        (["trn2", "h100"], "Devices with records: 16 x Trainium2 (neuron) and 8 x H100 SXM (cuda). The"),
    ],
)
def test_the_front_page_says_what_was_measured(tmp_path: Path, kinds: list[str], said: str) -> None:
    """Derived from the records' chips and the catalog; with both kinds measured nothing is said to be missing."""
    index = index_words(build(tmp_path, [sample_record(kind, run=kind) for kind in kinds]))
    assert said in index
    if len(kinds) == 2 and "cpu" not in kinds:
        assert "measured yet" not in index


def test_a_record_without_a_measurement_measures_no_device(tmp_path: Path) -> None:
    """A Trainium that ran out of memory has a record, and still none has been measured."""
    oom = {"rate": None, "status": Status.OOM, "reason": "out of memory"}
    index = index_words(build(tmp_path, [sample_record("trn2", **oom), sample_record("h100")]))
    assert "Devices with records: 16 x Trainium2 (neuron) and 8 x H100 SXM (cuda)." in index
    assert "No Trainium has been measured yet." in index


def test_a_chip_outside_the_catalog_leads_to_no_claim(tmp_path: Path) -> None:
    """Nobody knows whether it is a GPU, so none is said to be missing."""
    index = index_words(build(tmp_path, [sample_record("h100", device=sample_device("h100", chip="rtx-9999"))]))
    assert "The catalog of chips does not hold rtx-9999." in index
    assert "measured yet" not in index


def test_a_stand_in_is_no_measured_device(tmp_path: Path) -> None:
    """Shown with permission, named as simulated, and counted as neither Trainium nor GPU."""
    stand_in = sample_device("trn2", chip="cpu")
    site = build(tmp_path, [sample_record("trn2", simulated=True, device=stand_in)], allow_simulated=True)
    assert "16 x cpu (neuron), simulated. No Trainium and no GPU has been measured yet." in index_words(site)


def modes(kind: str, **changes: object) -> list[Record]:
    """Compiled at 1700 and eager at 1000 tokens a second on one machine."""
    made = []
    for mode, rate in (("eager", 1000.0), ("compiled", 1700.0)):
        made += runs_of(kind, rate, case=sample_case(mode=mode), **changes)
    return made


def test_on_one_machine_the_price_cancels(tmp_path: Path) -> None:
    """Without any price the cost ratio is one over the throughput ratio, said in words and with its interval."""
    site = build(tmp_path, modes("cpu", device=sample_device("cpu", **NAMELESS)))
    page = next((site / "comparisons").glob("mode-*.html"))
    data = json.loads(page.with_suffix(".json").read_bytes())["comparison"]
    expected = f"the cost ratio is 1 over the throughput ratio, {1 / data['throughput_ratio']['value']:.3f}"
    for text in (words(page.read_text("utf-8")), index_words(site)):
        assert "Both sides ran on the same machine, so its price cancels" in text
        assert expected in text
        assert "n/a, no price is known for either side: the record names no instance type." in text
        assert "$" not in text


def test_on_two_machines_the_price_does_not_cancel(tmp_path: Path) -> None:
    """Two hosts that differ in nothing but their CPU may differ in price, even where no price is known."""
    records = []
    for model, rate in (("Example CPU 1", 900.0), ("Example CPU 2", 1000.0)):
        environment = sample_environment("cpu", cpu={"model": model, "threads": 2})
        changes = {"device": sample_device("cpu", **NAMELESS), "environment": environment}
        records += [
            sample_record(
                "cpu", run=f"{model}-{night}", rate=rate + night, started=START + timedelta(days=night), **changes
            )
            for night in range(3)
        ]
    index = index_words(build(tmp_path, records))
    assert "is faster than" in index
    assert "price cancels" not in index


def test_the_price_of_one_side_alone_is_named(tmp_path: Path) -> None:
    """Which side lacks a price, and why."""
    site = build(
        tmp_path, [*runs_of("trn2", 900.0), *runs_of("h100", 1000.0, device=sample_device("h100", **NAMELESS))]
    )
    said = "n/a, no price is known for 8 x H100 SXM (cuda): the record names no instance type."
    assert said in index_words(site)


def test_groups_are_headed_by_their_phase_in_order(tmp_path: Path) -> None:
    """Training, prefill, decode, each once a pair; devices before modes before precisions."""
    records: list[Record] = []
    for kind in ("trn2", "h100"):
        for phase, more in (("decode", {"new_tokens": 16}), ("prefill", {}), ("train_step", {})):
            records += runs_of(kind, 1000.0, case=sample_case(phase=phase, **more))
    records += runs_of("h100", 500.0, case=sample_case(mode="eager"))
    records += runs_of("h100", 400.0, case=sample_case(precision="fp32"))
    site = build(tmp_path, records)
    headings = re.findall(r"<h4>([^<]*)</h4>", (site / "index.html").read_text("utf-8"))
    sides = "16 x Trainium2 (neuron) (a) against 8 x H100 SXM (cuda) (b)"
    where = "on 8 x H100 SXM (cuda), p5.48xlarge"
    assert headings == [
        f"{sides} \u00b7 training step",
        f"{sides} \u00b7 prefill",
        f"{sides} \u00b7 decode",
        f"compiled (a) against eager (b) {where} \u00b7 training step",
        f"bf16 (a) against fp32 (b) {where} \u00b7 training step",
    ]


def test_equal_gaps_share_a_row_that_counts_them(tmp_path: Path) -> None:
    """Three nights of one case with one reason are a row of 3; another reason is a row of its own."""
    unsupported = {"rate": None, "status": Status.UNSUPPORTED}
    records = runs_of("cpu", 0.0, 3, device=sample_device("cpu"), reason="not on x", status=Status.UNSUPPORTED)
    records.append(sample_record("cpu", run="later", device=sample_device("cpu"), reason="not here", **unsupported))
    index = (build(tmp_path, records) / "index.html").read_text("utf-8")
    table = re.search(r'<table id="gaps-table">.*?</table>', index, re.DOTALL)
    assert table
    rows = [words(row) for row in re.findall(r"<tr>.*?</tr>", table[0].split("<tbody>")[1], re.DOTALL)]
    assert sorted(re.search(r"(not [\w ]+) cpu backend cpu (\d)", row).groups() for row in rows) == [
        ("not here", "1"),
        ("not on x", "3"),
    ]


def test_metrics_are_spelt_as_the_field_does_and_exports_stay_raw(tmp_path: Path) -> None:
    """TPOT, TTFT and model FLOP/s with a readable unit on pages; the names of fields in data."""
    records = []
    for kind in ("trn2", "h100"):
        records += runs_of(kind, 1000.0, case=sample_case(phase="decode", new_tokens=16))
    site = build(tmp_path, records)
    pages = " ".join(words(path.read_text("utf-8")) for path in (site / "records").glob("*.html"))
    assert re.search(r"TPOT time per output token [\d.]+ ms ", pages)
    assert re.search(r"model FLOP/s [\d.,]+ [GM]FLOP/s ", pages)
    assert "tpot" not in pages
    assert "flops per second" not in pages
    metrics = json.loads(next((site / "comparisons").glob("*.json")).read_bytes())["comparison"]["a"]["runs"][0][
        "metrics"
    ]
    assert {"tpot_seconds", "flops_per_second"} <= set(metrics)


def test_every_metric_has_a_name_without_underscores() -> None:
    """A new metric is spelt somehow, and none loses its capitals at the start of a sentence."""
    for metric in METRICS.values():
        assert "_" not in metric_words(metric)
        assert capitalised(metric_words(metric))[1:] == metric_words(metric)[1:]


@given(st.floats(min_value=1e-9, max_value=1e24))
def test_flops_keep_their_value(value: float) -> None:
    """The number times its prefix is the value, to the digits shown; below the largest prefix it stays short."""
    shown, unit = flops(value).split()
    factor = {"FLOP": 1.0, "kFLOP": 1e3, "MFLOP": 1e6, "GFLOP": 1e9, "TFLOP": 1e12, "PFLOP": 1e15, "EFLOP": 1e18}[unit]
    assert float(shown.replace(",", "")) * factor == pytest.approx(value, rel=1e-3)
    assert readable(value, "FLOP/s") == (shown, f"{unit}/s")


def test_where_a_check_failed_stands_beside_the_other_side(tmp_path: Path) -> None:
    """Both sides' errors, limits and places in one row."""
    checks = {
        "trn2": sample_check("logits", 0.7, where="layer 3"),
        "h100": sample_check("logits", 0.2, where="layer 9"),
    }
    records = [record for kind, check in checks.items() for record in runs_of(kind, 900.0, conformance=[check])]
    page = next((build(tmp_path, records) / "comparisons").glob("*.html")).read_text("utf-8")
    table = re.search(r'<table id="checks-table">.*?</table>', page, re.DOTALL)
    assert table
    row = words(table[0].split("<tbody>")[1])
    assert re.search(r"0\.7 limit 1 .* pass layer 3 0\.2 limit 1 .* pass layer 9", row)
