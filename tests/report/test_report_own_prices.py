"""A price of one's own reaches the page: Trainium2 has no public on-demand price, so its dollars depend on it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from site_samples import sample_record, write_all

from trnbench.catalog.prices import PriceTable
from trnbench.report.site import build_site
from trnbench.status import UsageError

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "instance_type,region,term,usd_per_hour,currency,as_of,source,note\n"


def costs(site: Path) -> dict[str, dict]:
    """The scenarios of the site's one comparison along the device axis, by name."""
    (exported,) = (site / "comparisons").glob("device-*.json")
    comparison = json.loads(exported.read_text(encoding="utf-8"))["comparison"]
    return {scenario["name"]: scenario for scenario in comparison["costs"]}


def test_a_deal_of_ones_own_is_a_scenario_of_its_own(tmp_path: Path) -> None:
    """E2, E3: dollars for both sides in the same scenario, the package's scenarios unchanged beside it."""
    records = [sample_record(kind, run=f"run-{run}") for kind in ("trn2", "h100") for run in range(3)]
    results = write_all(tmp_path / "results", records)
    lines = "".join(
        f"{one.instance_type},{one.region},user,{price},USD,2026-11-01,our contract,\n"
        for one, price in ((records[0].device, 21.0), (records[-1].device, 30.0))
    )
    deal = tmp_path / "deal.csv"
    deal.write_text(HEADER + lines, encoding="utf-8")

    build_site(results, tmp_path / "plain")
    build_site(results, tmp_path / "priced", prices=PriceTable.extended(deal))
    plain, priced = costs(tmp_path / "plain"), costs(tmp_path / "priced")
    assert "user" not in plain
    own = priced.pop("user")
    assert own["a"]["price"]["usd_per_hour"] == 21.0
    assert own["b"]["price"]["usd_per_hour"] == 30.0
    assert own["a"]["billed_usd"] > 0
    assert own["cost_ratio"]["value"] > 0
    sides = [{name: (one["a"]["price"], one["b"]["price"]) for name, one in each.items()} for each in (plain, priced)]
    assert sides[0] == sides[1]


def test_a_wrong_price_file_leaves_no_site(tmp_path: Path) -> None:
    """E2: a price of 0 is refused with file and row, before anything is built."""
    deal = tmp_path / "deal.csv"
    deal.write_text(HEADER + "trn2.48xlarge,us-east-2,user,0,USD,2026-11-01,our contract,\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"deal\.csv.*never free"):
        PriceTable.extended(deal)
