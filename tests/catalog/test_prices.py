"""Prices are found exactly or refused with what is there instead; nothing is ever guessed, free or silently stale."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import msgspec
import pytest

from trnbench.catalog.prices import NoPrice, PricePoint, PriceTable, SeveralPrices, check_price, staleness
from trnbench.status import ExitCode, UsageError

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "instance_type,region,term,usd_per_hour,currency,as_of,source,operating_system,tenancy,capacity_status,note\n"
TODAY = date(2026, 11, 30)


def table(tmp_path: Path, *lines: str) -> PriceTable:
    path = tmp_path / "prices.csv"
    path.write_text(HEADER + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return PriceTable.load(path)


def line(usd: str = "16.00", source: str = "list", **changes: str) -> str:
    fields = {
        "instance_type": "trn9.48xlarge",
        "region": "us-east-1",
        "term": "on-demand",
        "usd_per_hour": usd,
        "currency": "USD",
        "as_of": "2026-11-01",
        "source": source,
        "operating_system": "Linux",
        "tenancy": "shared",
        "capacity_status": "used",
        "note": "",
        **changes,
    }
    return ",".join(fields.values())


def find(prices: PriceTable, region: str = "us-east-1", term: str = "on-demand", on: date = TODAY) -> PricePoint:
    return prices.find("trn9.48xlarge", region, term, on)


def test_the_plain_linux_price_is_found_among_its_variants(tmp_path: Path) -> None:
    """E1: Linux shared used 16.00 among a reservation at 0.00, Windows at 24.00 and dedicated at 17.60."""
    prices = table(
        tmp_path,
        line("0.00", capacity_status="AllocatedCapacityReservation"),
        line("24.00", operating_system="Windows"),
        line("17.60", tenancy="dedicated"),
        line("16.00"),
    )
    assert find(prices).usd_per_hour == 16.00


def test_two_prices_are_an_error_that_lists_both(tmp_path: Path) -> None:
    """E1: never the first, the least or 0; equal prices of two sources are still two."""
    for second in ("9.00", "16.00"):
        prices = table(tmp_path, line("16.00", "one"), line(second, "two"))
        with pytest.raises(SeveralPrices, match=rf"2 prices .* 16\.0 USD/h from one; {float(second)} USD/h from two"):
            find(prices)


def test_a_repeated_row_is_refused(tmp_path: Path) -> None:
    """H1: the same row twice is an error with both line numbers."""
    with pytest.raises(UsageError, match=r"prices.csv line 3: .* was already given in line 2"):
        table(tmp_path, line("16.00"), line("17.00"))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (line("0"), r"usd_per_hour is 0\.0; a compute instance is never free"),
        (line("0.00"), "never free"),
        (line("-1"), r"usd_per_hour is -1\.0"),
        (line("-1", tenancy="dedicated"), r"usd_per_hour is -1\.0"),
        (line(currency="EUR"), "column currency is 'EUR'; only USD"),
        (line(""), "column usd_per_hour is empty; column note must then say why"),
        (line("free"), "line 2, column usd_per_hour: 'free' does not fit"),
        (line("nan"), "line 2, column usd_per_hour: 'nan'"),
        (line(term="ondemand"), "line 2, column term: 'ondemand' does not fit"),
        (line(as_of="yesterday"), "line 2, column as_of: 'yesterday' does not fit"),
        (line(source=""), "line 2, column source: the cell is empty"),
    ],
)
def test_a_price_that_cannot_be_used_is_refused_on_loading(tmp_path: Path, bad: str, message: str) -> None:
    """E2: 0, negative, foreign or unsourced prices never get as far as a cost."""
    with pytest.raises(UsageError, match=message):
        table(tmp_path, bad)


def test_a_missing_price_says_what_is_there(tmp_path: Path) -> None:
    """E2 and E5: no price for another region, term or type, and no substitution."""
    prices = table(tmp_path, line())
    with pytest.raises(NoPrice, match=r"no price for trn9\.48xlarge in eu-south-2, on-demand: no price for region"):
        find(prices, region="eu-south-2")
    with pytest.raises(
        NoPrice, match=r"no price for trn9\.48xlarge in us-east-1, capacity-block: .* only as on-demand"
    ):
        find(prices, term="capacity-block")
    with pytest.raises(NoPrice, match=r"does not hold trn8\.48xlarge"):
        prices.find("trn8.48xlarge", "us-east-1", "on-demand", TODAY)
    assert NoPrice("").exit_code is ExitCode.USAGE


def test_only_other_variants_is_no_price(tmp_path: Path) -> None:
    """E1: a Windows price alone is no price for Linux."""
    with pytest.raises(NoPrice):
        find(table(tmp_path, line("24.00", operating_system="Windows")))


def test_listed_without_a_price_is_not_free(tmp_path: Path) -> None:
    """E2: a type that the source lists with an empty price gives that fact as the reason."""
    prices = table(tmp_path, line("", note="sold in capacity blocks only"))
    with pytest.raises(NoPrice, match="sold in capacity blocks only, says list as of 2026-11-01"):
        find(prices)
    assert prices.terms("trn9.48xlarge", "us-east-1") == ()


def test_the_price_in_force_on_the_day_is_used(tmp_path: Path) -> None:
    """E3: a run of last year is priced by the newest price not after it, never by a later one."""
    prices = table(
        tmp_path, line("20", as_of="2025-01-01"), line("16", as_of="2026-01-01"), line("9", as_of="2026-11-15")
    )
    assert find(prices).usd_per_hour == 9
    assert find(prices, on=date(2026, 11, 14)).usd_per_hour == 16
    assert find(prices, on=date(2025, 1, 1)).usd_per_hour == 20
    with pytest.raises(NoPrice, match=r"on 2024-12-31: the earliest in .* is of 2025-01-01"):
        find(prices, on=date(2024, 12, 31))


def test_the_published_history_is_kept() -> None:
    """E3: p5.48xlarge was 98.32 USD/h until 2025-06-23 and is 55.04 since."""
    prices = PriceTable.load()
    assert prices.find("p5.48xlarge", "us-east-1", "on-demand", date(2025, 6, 22)).usd_per_hour == 98.32
    assert prices.find("p5.48xlarge", "us-east-1", "on-demand", TODAY).usd_per_hour == 55.04


def test_trainium2_has_no_public_on_demand_price() -> None:
    """E2: what is not sold on demand is n/a with that reason, in every region."""
    with pytest.raises(NoPrice, match="EMPTY on-demand price"):
        PriceTable.load().find("trn2.48xlarge", "us-east-2", "on-demand", TODAY)


def test_a_users_file_is_a_price_like_any_other(tmp_path: Path) -> None:
    """A negotiated price needs only the required columns and keeps its source and note."""
    path = tmp_path / "mine.csv"
    path.write_text(
        "instance_type,region,term,usd_per_hour,currency,as_of,source,note\n"
        "trn2.48xlarge,us-east-2,user,1.1e1,USD,2026-11-20,our contract,three years\n",
        encoding="utf-8",
    )
    found = PriceTable.load(path).find("trn2.48xlarge", "us-east-2", "user", TODAY)
    assert found == PricePoint(
        instance_type="trn2.48xlarge",
        region="us-east-2",
        term="user",
        usd_per_hour=11.0,
        currency="USD",
        as_of="2026-11-20",
        source="our contract",
        note="three years",
    )


def test_an_old_price_warns_and_fails_in_ci(tmp_path: Path) -> None:
    """E4: a price of 2024-01-01 used on 2026-11-30 under a limit of 90 days; 90 days exactly are still fresh."""
    price = find(table(tmp_path, line(as_of="2024-01-01")))
    warning = staleness(price, TODAY)
    assert "1064 days old on 2026-11-30, and the limit is 90" in warning
    with pytest.raises(UsageError, match="1064 days old"):
        staleness(price, TODAY, ci=True)
    fresh = msgspec.structs.replace(price, as_of="2026-09-01")
    assert staleness(fresh, TODAY) == ""
    assert staleness(fresh, date(2026, 12, 1)) != ""
    assert staleness(fresh, TODAY, limit_days=30) != ""


def test_a_date_that_does_not_parse_counts_as_stale() -> None:
    """E4: a price without a usable date is not taken for a fresh one."""
    price = PricePoint(
        instance_type="x", region="r", term="user", usd_per_hour=1.0, currency="USD", as_of="?", source="s", note=""
    )
    assert "no usable date" in staleness(price, TODAY)


@pytest.mark.parametrize(
    ("usd", "currency"), [(0.0, "USD"), (-1.0, "USD"), (float("nan"), "USD"), (float("inf"), "USD"), (1.0, "EUR")]
)
def test_a_stored_price_is_checked_before_use(usd: float, currency: str) -> None:
    """E2: a record may carry any number; arithmetic on a bad one is an error that names the place."""
    price = PricePoint(
        instance_type="x",
        region="r",
        term="user",
        usd_per_hour=usd,
        currency=currency,
        as_of="2026-11-01",
        source="s",
        note="",
    )
    with pytest.raises(UsageError, match="record 7: price of x"):
        check_price(price, "record 7")
