"""The catalog's own data: sources and dates on every row, arithmetic that must hold, names that must not be guessed."""

from __future__ import annotations

import random
from datetime import date

import pytest

from trnbench.catalog import chips as catalog
from trnbench.catalog.chips import chip, chip_for_device_name, conflicts, dense_peak, device_names, peaks, why_no_chip
from trnbench.catalog.instances import instance, instances
from trnbench.catalog.market import market_rates
from trnbench.catalog.prices import TERMS, PriceTable
from trnbench.status import UsageError

GIB, TIB, TERA = 2**30, 2**40, 10**12
LAST_READ = date(2026, 11, 30)

ALL_ROWS = [
    *catalog.chips().values(),
    *peaks().values(),
    *device_names().values(),
    *conflicts(),
    *instances().values(),
    *PriceTable.load().rows,
    *market_rates(),
]


def peak(name: str, precision: str) -> catalog.Peak:
    found = dense_peak(name, precision)
    assert not isinstance(found, str), found
    return found


def test_every_row_has_a_source_and_a_date() -> None:
    """B6: no fact without where it was read and when; no date in the future of the reading."""
    for row in ALL_ROWS:
        assert row.source.strip(), row
        assert date(2017, 1, 1) <= row.as_of <= LAST_READ, row


def test_every_peak_is_dense_per_chip_with_a_format() -> None:
    """B6: each peak states precision, number format and scope, and a sparse figure is never below the dense one."""
    for row in peaks().values():
        assert row.scope == "chip"
        assert row.format
        assert row.dense_per_second > 0
        assert row.confidence in ("A", "B", "C")
        assert row.unit == ("op/s" if row.precision == "int8" else "FLOP/s")
        if row.sparse_per_second is not None:
            assert row.sparse_per_second >= row.dense_per_second, row


def test_the_headline_with_sparsity_is_not_the_peak() -> None:
    """B6: H100 SXM has 989.5 dense TFLOP/s in bf16; 1979 is the sparse figure and stays in its own column."""
    row = peak("h100-sxm", "bf16")
    assert row.dense_per_second == 989_500 * 10**9
    assert row.sparse_per_second == 1979 * TERA
    assert peak("trainium2", "fp8").dense_per_second == 1299 * TERA
    assert peak("trainium2", "fp8").sparse_per_second == 2563 * TERA


def test_fp8_names_its_kind() -> None:
    """B6: an FP8 number carries its format: cFP8 on Trainium1, MXFP8 on Trainium3, OCP FP8 on Hopper and CDNA3."""
    assert peak("trainium1", "fp8").format == "cFP8"
    assert peak("trainium3", "fp8").format == "MXFP8"
    assert peak("h100-sxm", "fp8").format == peak("mi300x", "fp8").format == "OCP FP8"
    assert peak("b200-sxm", "fp4").format == "NVFP4"
    assert peak("trainium3", "fp4").format == peak("mi355x", "fp4").format == "MXFP4"


def test_generations_in_ratios() -> None:
    """Trainium3 over Trainium2: FP8 1.94x and BF16 1.006x; FP8 over BF16 is 1.0 on Trainium1 and 1.95 on Trainium2."""
    fp8 = peak("trainium3", "fp8").dense_per_second / peak("trainium2", "fp8").dense_per_second
    bf16 = peak("trainium3", "bf16").dense_per_second / peak("trainium2", "bf16").dense_per_second
    assert fp8 == pytest.approx(1.94, abs=0.005)
    assert bf16 == pytest.approx(1.006, abs=0.0005)
    assert peak("trainium1", "fp8").dense_per_second == peak("trainium1", "bf16").dense_per_second
    ratio = peak("trainium2", "fp8").dense_per_second / peak("trainium2", "bf16").dense_per_second
    assert ratio == pytest.approx(1.95, abs=0.005)


def test_sixteen_chips_make_one_and_a_half_tebibytes() -> None:
    """16 chips of 96 GiB are 1.5 TiB; 64 are 6 TiB; the API's 512 GiB a chip is kept apart and not used."""
    for name in ("trn2.48xlarge", "trn2u.48xlarge"):
        row = instance(name)
        assert row.accelerators == 16
        assert row.accelerator_memory_bytes == 96 * GIB == chip("trainium2").memory_bytes
        assert row.total_accelerator_memory_bytes == 3 * TIB // 2
    assert instance("trn2.48xlarge").accelerator_memory_bytes_api == 512 * GIB
    assert instance("trn2-ultraserver").total_accelerator_memory_bytes == 6 * TIB


def test_an_ultraserver_is_four_of_the_linked_instances() -> None:
    """UltraServer = 4 x trn2u.48xlarge in chips, memory, vCPUs and host memory."""
    whole = instance("trn2-ultraserver")
    assert (whole.members, whole.member_type) == (4, "trn2u.48xlarge")
    part = instance(whole.member_type)
    assert whole.accelerators == 4 * part.accelerators == 64
    assert whole.vcpus == 4 * part.vcpus
    assert whole.host_memory_bytes == 4 * part.host_memory_bytes
    assert whole.total_accelerator_memory_bytes == 4 * (part.total_accelerator_memory_bytes or 0)


def test_ultraserver_peaks_add_up() -> None:
    """64 x 667 is 42.7 PFLOP/s in bf16 (published 42.8) and 64 x 1299 is 83.1 in FP8 (published 83.2)."""
    chips = instance("trn2-ultraserver").accelerators
    assert chips * peak("trainium2", "bf16").dense_per_second / 1e15 == pytest.approx(42.8, rel=0.005)
    assert chips * peak("trainium2", "fp8").dense_per_second / 1e15 == pytest.approx(83.2, rel=0.005)
    assert instance("trn3-gen2-ultraserver").total_accelerator_memory_bytes == 144 * 144 * GIB


def test_every_chip_of_an_instance_is_in_the_catalog() -> None:
    """An instance names a catalog chip or none; memory agrees with the chip's to the rounding of vendors."""
    for row in instances().values():
        assert bool(row.accelerators) == bool(row.accelerator_name), row
        if row.chip:
            memory = chip(row.chip).memory_bytes
            if row.accelerator_memory_bytes is not None and row.chip != "v100-sxm":
                assert row.accelerator_memory_bytes == pytest.approx(memory, rel=0.08), row


def test_every_peak_and_alias_names_a_chip() -> None:
    """No orphan rows: peaks, device names and conflicts refer to what exists."""
    known = set(catalog.chips())
    assert {row.chip for row in peaks().values()} == known
    assert {row.chip for row in device_names().values() if row.chip} <= known
    assert all(bool(row.chip) != bool(row.reason) for row in device_names().values())
    assert {row.subject for row in conflicts()} <= known | set(instances())


def test_conflicting_values_stand_side_by_side() -> None:
    """Every conflict holds at least two values, and none of them is an average of others."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for row in conflicts():
        grouped.setdefault((row.subject, row.field), []).append(f"{row.value} {row.unit}".strip())
    assert all(len(set(values)) >= 2 for values in grouped.values())
    assert grouped["trainium3", "scale_up_bandwidth"] == ["2560 GB/s", "2048 GiB/s", "704 GB/s"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA B300", "b300-sxm"),
        ("NVIDIA GB300", "gb300"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA H100 80GB", None),
        ("NVIDIA H200 Something", None),
        ("B300", None),
        ("nvidia h200", None),
        ("MI350X", None),
        ("NoSuchChip 9000", None),
        ("", None),
    ],
)
def test_names_are_matched_whole(name: str, expected: str | None) -> None:
    """B5 and B4: a name means its own entry or nothing with a reason; a part of a name never matches."""
    found = chip_for_device_name(name)
    assert (found.chip if found else None) == expected
    assert bool(why_no_chip(name)) == (expected is None)


def test_ambiguous_names_say_so() -> None:
    """B5: the H100 without its form factor is known to be ambiguous; an unknown name is just unknown."""
    assert "leaves the form factor open" in why_no_chip("NVIDIA H100")
    assert why_no_chip("NoSuchChip 9000") == "the catalog does not know the device name 'NoSuchChip 9000'"


def test_the_order_of_the_table_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """B5: shuffled tables give the same chip for every name."""
    before = {name: chip_for_device_name(name) for name in device_names()}
    items = list(device_names().items())
    for seed in range(10):
        shuffled = dict(random.Random(seed).sample(items, len(items)))
        monkeypatch.setattr(catalog, "device_names", lambda shuffled=shuffled: shuffled)
        assert {name: chip_for_device_name(name) for name in before} == before


@pytest.mark.parametrize("name", ["MI350X", "NoSuchChip 9000", "cpu", ""])
def test_an_unknown_chip_has_no_peak(name: str) -> None:
    """B4: a reason with the name, never a default."""
    assert dense_peak(name, "bf16") == f"peak unknown for {name}"


def test_a_precision_without_a_peak_borrows_none() -> None:
    """B4: a T4 has an fp16 peak and no bf16 one, and the one never stands in for the other."""
    assert peak("t4", "fp16").dense_per_second == 65 * TERA
    assert dense_peak("t4", "bf16") == "peak unknown for t4 in bf16"


def test_a_wrong_key_names_the_nearest() -> None:
    """A typing mistake in a chip or instance type is one sentence with what would be right."""
    with pytest.raises(UsageError, match="no chip 'trainum2'; did you mean 'trainium2'"):
        chip("trainum2")
    with pytest.raises(UsageError, match=r"no instance type 'trn2\.48xlarg'; did you mean 'trn2\.48xlarge'"):
        instance("trn2.48xlarg")
    assert chip("Trainium2") is chip("trainium2")


def test_packaged_prices_are_plausible_and_unambiguous() -> None:
    """One price per type, region, term and day; a known type, a known term, and no hour above 1000 dollars."""
    rows = PriceTable.load().rows
    keys = {(row.instance_type, row.region, row.term, row.as_of) for row in rows}
    assert len(keys) == len(rows)
    for row in rows:
        assert row.term in TERMS
        assert row.usd_per_hour is None or 0 < row.usd_per_hour < 1000, row


@pytest.mark.parametrize(
    ("instance_type", "per_accelerator"),
    [
        ("trn1.2xlarge", 1.344),
        ("trn1.32xlarge", 1.344),
        ("trn1n.32xlarge", 1.549),
        ("inf2.48xlarge", 1.082),
        ("p4d.24xlarge", 2.745),
        ("p5.4xlarge", 6.88),
        ("p5.48xlarge", 6.88),
        ("p5en.48xlarge", 7.912),
        ("p6-b200.48xlarge", 14.24),
        ("p6-b300.48xlarge", 17.80),
    ],
)
def test_prices_per_accelerator(instance_type: str, per_accelerator: float) -> None:
    """The hourly price over the number of accelerators, as read from the sources independently."""
    price = PriceTable.load().find(instance_type, "us-east-1", "on-demand", LAST_READ)
    assert price.usd_per_hour / instance(instance_type).accelerators == pytest.approx(per_accelerator, abs=0.0055)


def test_peak_per_dollar() -> None:
    """Dense bf16 TFLOP/s per dollar and hour at list: 141 for trn1.32xlarge and 144 for p5.48xlarge."""
    for name, expected in (("trn1.32xlarge", 141), ("p5.48xlarge", 144)):
        row = instance(name)
        price = PriceTable.load().find(name, "us-east-1", "on-demand", LAST_READ)
        total = row.accelerators * peak(row.chip, "bf16").dense_per_second
        assert total / TERA / price.usd_per_hour == pytest.approx(expected, abs=0.5)
