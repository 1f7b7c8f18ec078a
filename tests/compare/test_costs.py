"""Dollars against hand calculations, price scenarios that are never blended, and prices that never change silently."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest
from factory import H100, TRAINIUM, make_device, make_record, make_runs
from hypothesis import given
from hypothesis import strategies as st

from trnbench.catalog.prices import PricePoint, PriceRow, PriceTable
from trnbench.compare.cost import billed_usd_per_hour, reprice, usd_per_million
from trnbench.compare.engine import compare_records
from trnbench.status import UsageError

if TYPE_CHECKING:
    from trnbench.compare.model import Comparison, CostScenario

REGION = "us-east-2"
WHOLE_TRN = make_device(**{**TRAINIUM, "chips": 16, "cores": 1}, instance_type="trn2.48xlarge", region=REGION)
ONE_CHIP = make_device(**{**TRAINIUM, "chips": 1, "cores": 1}, instance_type="trn2.48xlarge", region=REGION)
GPU = make_device(**H100, instance_type="p5.4xlarge", region=REGION)


def row(
    instance_type: str, usd: float | None, term: str = "on-demand", as_of: str = "2026-10-15", **changes
) -> PriceRow:
    fields = {
        "instance_type": instance_type,
        "region": REGION,
        "term": term,
        "usd_per_hour": usd,
        "currency": "USD",
        "as_of": date.fromisoformat(as_of),
        "source": "made for a test",
        **changes,
    }
    return PriceRow(**fields)


def point(instance_type: str, usd: float, **changes) -> PricePoint:
    fields = {
        "instance_type": instance_type,
        "region": REGION,
        "term": "on-demand",
        "usd_per_hour": usd,
        "currency": "USD",
        "as_of": "2026-10-15",
        "source": "made for a test",
        "note": "",
        **changes,
    }
    return PricePoint(**fields)


TABLE = PriceTable([row("trn2.48xlarge", 16.0), row("p5.4xlarge", 4.0)], "test.csv")


def compared(trn: list[float], gpu: list[float], device=WHOLE_TRN, prices: PriceTable | None = TABLE) -> Comparison:
    records = make_runs(trn, "t", device=device) + make_runs(gpu, "g", device=GPU)
    (comparison,) = compare_records(records, "device", prices)
    return comparison


def on_demand(comparison: Comparison) -> CostScenario:
    (scenario,) = [scenario for scenario in comparison.costs if scenario.name == "on-demand"]
    return scenario


def test_a_whole_instance_by_hand() -> None:
    """E6: 16.00 USD/h and 8000 tokens/s on all 16 chips are 0.5556 USD per million tokens, billed and pro rata."""
    cost = on_demand(compared([8000] * 3, [1000] * 3)).a
    assert cost.billed_usd == pytest.approx(0.5556, abs=5e-5)
    assert cost.pro_rata_usd == pytest.approx(0.5556, abs=5e-5)
    assert (cost.unit, cost.instances) == ("USD/Mtoken", 1)


def test_one_chip_of_sixteen_by_hand() -> None:
    """E6: 500 tokens/s on 1 of 16 chips are 8.89 USD as billed and 0.5556 pro rata, both named."""
    cost = on_demand(compared([500] * 3, [1000] * 3, device=ONE_CHIP)).a
    assert cost.billed_usd == pytest.approx(8.89, abs=5e-3)
    assert cost.pro_rata_usd == pytest.approx(0.5556, abs=5e-5)


def test_a_price_shifts_the_interval_and_turns_it_round() -> None:
    """The dearest end of the cost ratio belongs to the lowest end of the throughput ratio."""
    comparison = compared([7000, 8000, 9000], [900, 1000, 1100])
    cost, throughput = on_demand(comparison).cost_ratio, comparison.throughput_ratio
    assert cost is not None
    assert throughput is not None
    assert cost.low == pytest.approx(16 / 4 / throughput.high)
    assert cost.high == pytest.approx(16 / 4 / throughput.low)
    assert cost.low < cost.value < cost.high


def test_cores_are_not_chips() -> None:
    """E6: half of a chip's cores are half a chip of the instance, not half of the instance."""
    half = make_device(**{**TRAINIUM, "chips": 1, "cores": 2}, instance_type="trn2.48xlarge", region=REGION)
    cost = on_demand(compared([500] * 3, [1000] * 3, device=half)).a
    assert cost.pro_rata_usd == pytest.approx(usd_per_million(16.0 / 32, 500))


def test_two_instances_and_a_head_node_by_hand() -> None:
    """E7: 2 x 16.00 USD/h at 15 000 tokens/s are 0.5926, with a head node at 1.00 USD/h 0.6111; and back again."""
    price = point("trn2.48xlarge", 16.0)
    without = usd_per_million(billed_usd_per_hour(price, 2), 15_000)
    with_head = usd_per_million(billed_usd_per_hour(price, 2, 1.0), 15_000)
    assert without == pytest.approx(0.5926, abs=5e-5)
    assert with_head == pytest.approx(0.6111, abs=5e-5)
    assert without * 15_000 * 3600 / 1e6 == pytest.approx(32.0)
    assert with_head * 15_000 * 3600 / 1e6 == pytest.approx(33.0)


def test_several_instances_are_billed_whole() -> None:
    """E7: 32 chips of 16 a piece are two instances, at the rate of the whole system."""
    double = make_device(**{**TRAINIUM, "chips": 32, "cores": 1}, instance_type="trn2.48xlarge", region=REGION)
    cost = on_demand(compared([15_000] * 3, [1000] * 3, device=double)).a
    assert cost.instances == 2
    assert cost.billed_usd == pytest.approx(0.5926, abs=5e-5)


def test_a_head_node_changes_both_sides_and_says_so() -> None:
    """E7: the option reaches the scenario, its note and its ratio."""
    comparison = compared([8000] * 3, [1000] * 3)
    (scenario,) = reprice(comparison, TABLE, date(2026, 11, 30), head_node_usd_per_hour=4.0)
    assert scenario.a.billed_usd == pytest.approx(usd_per_million(20.0, 8000))
    assert scenario.b.billed_usd == pytest.approx(usd_per_million(8.0, 1000))
    assert scenario.cost_ratio is not None
    assert scenario.cost_ratio.value == pytest.approx(20 / 8 / 8)
    assert "head node at 4 USD/h" in scenario.note


@given(price_a=st.floats(0.01, 500), price_b=st.floats(0.01, 500), rate_a=st.floats(1, 1e6), rate_b=st.floats(1, 1e6))
def test_break_even_times_price_identity(price_a: float, price_b: float, rate_a: float, rate_b: float) -> None:
    """The cost ratio is the price ratio over break-even, and is 1 exactly where the price ratio is break-even."""
    table = PriceTable([row("trn2.48xlarge", price_a), row("p5.4xlarge", price_b)], "test.csv")
    comparison = compared([rate_a] * 3, [rate_b] * 3, prices=table)
    scenario, even = on_demand(comparison), comparison.break_even_price_ratio
    assert even is not None
    assert scenario.cost_ratio is not None
    assert scenario.a.billed_usd is not None
    assert scenario.b.billed_usd is not None
    assert scenario.cost_ratio.value == pytest.approx(scenario.a.billed_usd / scenario.b.billed_usd)
    assert scenario.cost_ratio.value * even == pytest.approx(price_a / price_b)
    at_even = PriceTable([row("trn2.48xlarge", price_b * even), row("p5.4xlarge", price_b)], "test.csv")
    (repriced,) = reprice(comparison, at_even, date(2026, 11, 30))
    assert repriced.cost_ratio is not None
    assert repriced.cost_ratio.value == pytest.approx(1.0)


@given(price=st.floats(0.01, 500), rate=st.floats(1, 1e6))
def test_dollars_scale(price: float, rate: float) -> None:
    """Twice the price is twice the dollars; twice the rate is half; dollars times rate are the price again."""
    cost = usd_per_million(price, rate)
    assert usd_per_million(2 * price, rate) == pytest.approx(2 * cost)
    assert usd_per_million(price, 2 * rate) == pytest.approx(cost / 2)
    assert cost * rate * 3600 / 1e6 == pytest.approx(price)


@pytest.mark.parametrize(("price", "rate"), [(0.0, 100.0), (-1.0, 100.0), (10.0, 0.0), (10.0, -1.0)])
def test_nothing_is_free_and_nothing_is_infinite(price: float, rate: float) -> None:
    """E2: a price of 0, or a rate of 0, is an error and never a cost of 0 or infinity."""
    with pytest.raises(UsageError, match="must be above 0"):
        usd_per_million(price, rate)


def test_a_missing_price_is_not_free() -> None:
    """E2: a side without a price has no cost, the reason, and no cost ratio."""
    scenario = on_demand(compared([8000] * 3, [1000] * 3, prices=PriceTable([row("p5.4xlarge", 4.0)], "test.csv")))
    assert scenario.a.billed_usd is None
    assert scenario.a.pro_rata_usd is None
    assert (
        scenario.a.reason == "no price for trn2.48xlarge in us-east-2, on-demand: test.csv does not hold trn2.48xlarge"
    )
    assert scenario.b.billed_usd is not None
    assert scenario.cost_ratio is None


def test_a_stored_price_of_zero_has_no_cost() -> None:
    """E2: a record that carries a price of 0 gets the reason, not a cost of 0."""
    records = make_runs([8000], "t", device=WHOLE_TRN, price=point("trn2.48xlarge", 0.0))
    (comparison,) = compare_records([*records, make_record("g", device=GPU)], "device", TABLE)
    cost = on_demand(comparison).a
    assert cost.billed_usd is None
    assert "it must be above 0" in cost.reason


def test_no_other_region_is_substituted() -> None:
    """E5: tagged eu-south-2 with prices for us-east-2 only: no price, and the regions that are held are named."""
    elsewhere = make_device(**{**TRAINIUM, "chips": 16, "cores": 1}, instance_type="trn2.48xlarge", region="eu-south-2")
    scenario = on_demand(compared([8000] * 3, [1000] * 3, device=elsewhere))
    assert scenario.a.price is None
    assert scenario.a.reason == (
        "no price for trn2.48xlarge in eu-south-2, on-demand: no price for region eu-south-2; test.csv holds us-east-2"
    )


def test_prices_of_two_regions_are_labelled() -> None:
    """E5: both regions appear beside the scenario."""
    table = PriceTable([row("trn2.48xlarge", 16.0, region="us-west-2"), row("p5.4xlarge", 4.0)], "test.csv")
    west = make_device(**{**TRAINIUM, "chips": 16, "cores": 1}, instance_type="trn2.48xlarge", region="us-west-2")
    scenario = on_demand(compared([8000] * 3, [1000] * 3, device=west, prices=table))
    assert scenario.note == "prices are from different regions: us-west-2 vs us-east-2"


@pytest.mark.parametrize(
    "catalog", [TABLE, PriceTable([row("trn2.48xlarge", 9.0)], "new.csv"), PriceTable([], "empty.csv"), None]
)
def test_the_stored_price_stays(catalog: PriceTable | None) -> None:
    """E3: a run stored at 16.00 stays at 16.00 with date and source when the catalog says 9.00 or forgets it."""
    stored = point("trn2.48xlarge", 16.0)
    records = make_runs([8000] * 3, "t", device=WHOLE_TRN, price=stored) + make_runs([1000] * 3, "g", device=GPU)
    (comparison,) = compare_records(records, "device", catalog)
    cost = on_demand(comparison).a
    assert cost.price == stored
    assert cost.billed_usd == pytest.approx(0.5556, abs=5e-5)
    assert cost.warning == ""


def test_repricing_is_another_view() -> None:
    """E3: repriced scenarios carry the day in their name and leave the comparison as it was."""
    stored = point("trn2.48xlarge", 16.0)
    records = make_runs([8000] * 3, "t", device=WHOLE_TRN, price=stored) + make_runs([1000] * 3, "g", device=GPU)
    (comparison,) = compare_records(records, "device", TABLE)
    now = PriceTable([row("trn2.48xlarge", 9.0), row("p5.4xlarge", 4.0)], "new.csv")
    (repriced,) = reprice(comparison, now, date(2026, 11, 30))
    assert repriced.name == "repriced 2026-11-30: on-demand"
    assert repriced.a.price is not None
    assert repriced.a.price.usd_per_hour == 9.0
    assert on_demand(comparison).a.price == stored


def test_a_price_looked_up_now_says_so() -> None:
    """E3: where no price was stored, the scenario says which table and day it is from."""
    cost = on_demand(compared([8000] * 3, [1000] * 3)).a
    assert cost.warning.startswith("not stored with the record: taken from test.csv for 2026-11-03")


def test_a_stale_price_warns_with_its_age() -> None:
    """E4: a price of 2024-01-01 used on 2026-11-30 is 1064 days old, and the limit is 90."""
    old = point("trn2.48xlarge", 16.0, as_of="2024-01-01")
    ran = make_record("t", device=WHOLE_TRN, price=old, started_at="2026-11-30T09:00:00Z")
    (comparison,) = compare_records([ran, make_record("g", device=GPU)], "device", None)
    assert "1064 days old on 2026-11-30, and the limit is 90" in on_demand(comparison).a.warning


def test_scenarios_are_never_blended() -> None:
    """A side sold on demand and a side sold in capacity blocks meet in neither scenario."""
    table = PriceTable([row("trn2.48xlarge", 16.0, "capacity-block"), row("p5.4xlarge", 4.0)], "test.csv")
    comparison = compared([8000] * 3, [1000] * 3, prices=table)
    assert [scenario.name for scenario in comparison.costs] == ["on-demand", "capacity-block"]
    assert all(scenario.cost_ratio is None for scenario in comparison.costs)
    assert [scenario.a.price is None for scenario in comparison.costs] == [True, False]
    assert [scenario.b.price is None for scenario in comparison.costs] == [False, True]


def test_every_term_is_a_scenario_of_its_own() -> None:
    """On-demand, reserved, capacity block, spot and a user's own deal each stand alone, in a fixed order."""
    terms = ["user", "reserved-3y", "spot-lowest-zone", "on-demand", "capacity-block", "reserved-1y"]
    rows = [row(kind, 10.0 + n, term) for n, term in enumerate(terms) for kind in ("trn2.48xlarge", "p5.4xlarge")]
    comparison = compared([8000] * 3, [1000] * 3, prices=PriceTable(rows, "test.csv"))
    assert [scenario.name for scenario in comparison.costs] == [
        "on-demand",
        "reserved-1y",
        "reserved-3y",
        "capacity-block",
        "spot-lowest-zone",
        "user",
    ]
    assert len({scenario.a.billed_usd for scenario in comparison.costs}) == 6


def test_an_unnamed_instance_has_no_price() -> None:
    """E2: a laptop is not free."""
    nowhere = make_device(**{**TRAINIUM, "chips": 16, "cores": 1})
    cost = on_demand(compared([8000] * 3, [1000] * 3, device=nowhere)).a
    assert (cost.billed_usd, cost.reason) == (None, "no price: the record names no instance type")


def test_a_cpu_instance_is_billed_whole() -> None:
    """Pro rata has no meaning where there is no accelerator to share."""
    cpu = make_device(instance_type="c7i.8xlarge", region=REGION)
    table = PriceTable([row("c7i.8xlarge", 1.428), row("p5.4xlarge", 4.0)], "test.csv")
    records = make_runs([100] * 3, "c", device=cpu) + make_runs([1000] * 3, "g", device=GPU)
    (comparison,) = compare_records(records, "device", table)
    cost = on_demand(comparison).b
    assert cost.billed_usd == pytest.approx(usd_per_million(1.428, 100))
    assert (cost.pro_rata_usd, cost.reason) == (None, "no pro-rata cost: the CPU is used whole")
