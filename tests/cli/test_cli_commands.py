"""The commands that look, compare and publish."""

from __future__ import annotations

import datetime
import json
import socket
from typing import TYPE_CHECKING

import pytest
from driver_world import World
from factory import H100, TRAINIUM, make_case, make_check, make_device, make_environment, make_record, make_runs

from trnbench.catalog.prices import PricePoint
from trnbench.cli import main
from trnbench.compare.gate import case_name
from trnbench.records.json_schema import record_schema
from trnbench.records.store import Store
from trnbench.status import Status
from trnbench.wording import SIMULATED_NOTICE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trnbench.records.schema import Record

# Empty, the encoding of standard output follows the locale again: some test runners, tox among them, fix it.
HOSTILE_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
STEADY = [1000.0, 1010.0, 990.0, 1005.0]
PRICE_HEADER = "instance_type,region,term,usd_per_hour,currency,as_of,source\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def stored(folder: Path, records: Sequence[Record]) -> str:
    store = Store(folder)
    for record in records:
        store.write(record)
    return str(folder)


def two_sides(folder: Path, **trainium: object) -> str:
    fast = make_runs([2 * rate for rate in STEADY], "trn", device=make_device(**TRAINIUM), **trainium)
    return stored(folder, [*fast, *make_runs(STEADY, "gpu", device=make_device(**H100))])


def test_list_shows_cases_without_a_device(world: World) -> None:
    world.suite(cases=3)
    done = world.trnbench("list", STAND_IN_OPENS="crash")
    assert done.returncode == 0
    assert "nano-prefill-fp32-eager-b1-s3" in done.stdout
    assert "3 cases" in done.stdout
    listed = json.loads(world.trnbench("list", "--json", "-k", "s2").stdout)
    assert [item["case"]["sequence"] for item in listed] == [2]
    assert world.trnbench("list", "--tier", "node").returncode == 3
    assert world.logged() == []


def test_doctor_lists_every_backend_and_describes_one(world: World) -> None:
    done = world.trnbench("doctor", "--json")
    found = {entry["backend"]: entry for entry in json.loads(done.stdout)}
    assert {"cpu", "cuda", "neuron", "xla", "stand-in"} <= set(found)
    assert found["stand-in"]["available"] is True
    assert "amazonaws" in found["neuron"]["reason"]
    machine = json.loads(world.trnbench("doctor", "--backend", "stand-in", "--json").stdout)
    assert machine["device"]["read_back"] == {"kind": "stand-in"}
    assert machine["environment"]["versions"]["stand-in"] == "1.0"
    assert {item["precision"] for item in machine["supported"]} == {"fp32", "tf32", "bf16", "fp16"}
    assert "stand-in" in world.trnbench("doctor", "--backend", "stand-in").stdout
    assert world.trnbench("doctor", "--backend", "stand-in", STAND_IN_OPENS="busy").returncode == 4


def test_schema_is_the_published_one(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsysbinary.readouterr().out) == record_schema()


def test_prices_warn_when_old_and_fail_in_ci(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """E4: a price older than 90 days is a warning with its age, and an error under --ci; the date is always shown."""
    today = datetime.datetime.now(datetime.UTC).date()
    fresh, old = tmp_path / "fresh.csv", tmp_path / "old.csv"
    rows = "{type},us-east-1,on-demand,{usd},USD,{date},an offer\n"
    history = rows.format(type="a.large", usd=2, date="2024-01-01")
    fresh.write_text(PRICE_HEADER + history + rows.format(type="a.large", usd=1.5, date=today))
    old.write_text(PRICE_HEADER + history)
    assert main(["prices", "--prices", str(fresh), "--ci"]) == 0
    output = capsys.readouterr()
    assert output.err == "", "a newer price replaces the old one, whose age then says nothing"
    assert today.isoformat() in output.out
    assert "2024-01-01" not in output.out
    assert main(["prices", "--prices", str(old)]) == 0
    assert f"{(today - datetime.date(2024, 1, 1)).days} days" in capsys.readouterr().err
    assert main(["prices", "--prices", str(old), "--ci"]) == 1
    assert main(["prices", "--prices", str(old), "--instance-type", "b.large"]) == 3


def old_price(instance_type: str, as_of: str) -> PricePoint:
    return PricePoint(
        instance_type=instance_type,
        region="us-east-1",
        term="on-demand",
        usd_per_hour=16.0,
        currency="USD",
        as_of=as_of,
        source="an offer",
        note="",
    )


@pytest.mark.parametrize("command", ["compare", "report"])
@pytest.mark.parametrize(("as_of", "age"), [("2024-01-01", 1064), ("2026-09-01", 90)])
def test_dollars_at_an_old_price_warn_and_fail_in_ci(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, as_of: str, age: int
) -> None:
    """E4: a price of 2024-01-01 used on 2026-11-30 warns with its age, and ends with 1 under --ci; 90 days do not."""
    started = [f"2026-11-30T0{hour}:00:00Z" for hour in range(4)]
    records = [
        make_record(f"{name}-{number}", device=make_device(**device), price=old_price(kind, as_of), started_at=moment)
        for name, device, kind in (("t", TRAINIUM, "trn2.3xlarge"), ("g", H100, "p5.4xlarge"))
        for number, moment in enumerate(started)
    ]
    arguments = [command, stored(tmp_path / "results", records)]
    arguments += ["--out", str(tmp_path / "site")] if command == "report" else []
    assert main(arguments) == 0
    output = capsys.readouterr()
    told = [line for line in output.err.splitlines() if f"{age} days old on 2026-11-30, and the limit is 90" in line]
    assert len(told) == (2 if age > 90 else 0), output.err
    shown = output.out
    if command == "report":
        shown = "".join(page.read_text("utf-8") for page in (tmp_path / "site" / "comparisons").glob("*.html"))
    assert as_of in shown, "the date of a price stands beside its dollars"
    assert (f"{age} days old" in " ".join(shown.split())) == (age > 90)
    assert main([*arguments, "--ci"]) == (1 if age > 90 else 0)


def test_price_file_with_a_wrong_value_names_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """H1: a user's file is read strictly; the error names file, line and column."""
    file = tmp_path / "mine.csv"
    file.write_text(PRICE_HEADER + "a.large,us-east-1,on-demand,cheap,USD,2026-11-01,an offer\n")
    assert main(["prices", "--prices", str(file)]) == 2
    message = capsys.readouterr().err
    assert "mine.csv" in message
    assert "2" in message
    assert "usd_per_hour" in message


def test_a_record_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file given by name: one that is no record, and one that the system will not hand out, each in one sentence."""
    broken, pipe = tmp_path / "broken.json", tmp_path / "socket.json"
    broken.write_text("{")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(pipe))
        for path in (broken, pipe):
            assert main(["compare", str(path)]) == 2
            message = capsys.readouterr().err
            assert path.name in message
            assert message.count("\n") == 1


def test_compare_prints_verdict_interval_and_break_even(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", two_sides(tmp_path / "results")]) == 0
    output = capsys.readouterr().out
    for word in ("faster", "[", "95%", "break-even", "n/a"):
        assert word in output


def test_compare_for_machines_is_in_seconds_with_units(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """D15: runs of 1.5 s and 0.5 s: always seconds, always with the unit beside the value."""
    slow = make_runs([1000 / 1.5] * 3, "trn", device=make_device(**TRAINIUM))
    fast = make_runs([1000 / 0.5] * 3, "gpu", device=make_device(**H100))
    assert main(["compare", "--json", stored(tmp_path, [*slow, *fast])]) == 0
    (comparison,) = json.loads(capsysbinary.readouterr().out)["comparisons"]
    for name, seconds in (("a", 1.5), ("b", 0.5)):
        sides = [side for side in (comparison["a"], comparison["b"]) if side["value"] == pytest.approx(1000 / seconds)]
        assert len(sides) == 1, name
        for run in sides[0]["runs"]:
            assert run["round_seconds"] == {"values": [pytest.approx(seconds)] * 5, "unit": "s"}
    assert comparison["a"]["unit"] == comparison["metric"]["unit"] == "token/s"
    assert comparison["throughput_ratio"]["low"] > 0


@pytest.mark.parametrize("verdict", ["fail", "non-finite"])
def test_compare_with_a_side_that_does_not_conform_fails(tmp_path: Path, verdict: str) -> None:
    check = make_check(verdict, value=None if verdict == "non-finite" else 3.0)
    records = make_runs(STEADY, "trn", device=make_device(**TRAINIUM))
    bad = make_runs(STEADY, "gpu", device=make_device(**H100), conformance=[check], status=Status.NONCONFORMANT)
    unknown = {"conformance[*].value": "the check produced no finite value"} if verdict == "non-finite" else {}
    for record in bad:
        record.unknown.update(unknown)
    assert main(["compare", stored(tmp_path, [*records, *bad])]) == 1


def test_compare_with_nothing_alike_has_its_own_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D13: nothing comparable is neither ok nor a failure."""
    assert main(["compare", stored(tmp_path, make_runs(STEADY))]) == 5
    assert "nothing to compare" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["compare", str(tmp_path / "empty")]) == 5


def test_gate_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D13: no baseline, a baseline of another machine, a regression and an equal run have three exit codes."""
    same = stored(tmp_path / "same", make_runs(STEADY, "old"))
    now = stored(tmp_path / "now", make_runs(STEADY, "new"))
    slow = stored(tmp_path / "slow", make_runs([rate / 2 for rate in STEADY], "slow"))
    elsewhere = make_environment(cpu={"model": "Another CPU", "isa": "avx2", "threads": 64}, fingerprint="e" * 16)
    other = stored(tmp_path / "other", make_runs(STEADY, "other", device=make_device(**H100), environment=elsewhere))
    (tmp_path / "empty").mkdir()
    assert main(["compare", "--baseline", same, "--current", now]) == 0
    assert main(["compare", "--baseline", same, "--current", slow]) == 1
    assert "red" in capsys.readouterr().err
    assert main(["compare", "--baseline", str(tmp_path / "empty"), "--current", now]) == 5
    assert main(["compare", "--baseline", other, "--current", now]) == 5
    assert main(["compare", "--baseline", same]) == 2
    assert main(["compare", "--baseline", same, "--current", "nowhere"]) == 2


def test_gate_on_a_renamed_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D14: a renamed case is missing under its old name and new under the other, exit 1; an alias joins the two."""
    old, new = make_case(workload="step"), make_case(workload="train")
    before = stored(tmp_path / "before", make_runs(STEADY, "old", case=old))
    now = stored(tmp_path / "now", make_runs(STEADY, "new", case=new))
    arguments = ["compare", "--baseline", before, "--current", now]
    assert main(arguments) == 1
    output = capsys.readouterr()
    lines = [" ".join(line.split()) for line in output.out.splitlines()]
    assert any(line.startswith(f"missing {case_name(old)}") for line in lines), lines
    assert any(line.startswith(f"new {case_name(new)}") for line in lines), lines
    assert f"red: {case_name(old)}" in output.err
    aliases = tmp_path / "aliases.toml"
    aliases.write_text(f'[aliases]\n"{case_name(old)}" = "{case_name(new)}"\n')
    assert main([*arguments, "--aliases", str(aliases)]) == 0


def test_a_dropped_case_is_red(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D14: the case that is left is fine, the one that is gone still makes the gate red."""
    gone = make_runs(STEADY, "old", case=make_case(workload="gone"))
    before = stored(tmp_path / "before", [*make_runs(STEADY, "old"), *gone])
    now = stored(tmp_path / "now", make_runs(STEADY, "new"))
    assert main(["compare", "--baseline", before, "--current", now]) == 1
    assert "gone" in capsys.readouterr().err


def test_gate_reads_aliases_strictly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """H1: an alias given twice is an error that names the file and the line."""
    same = stored(tmp_path / "same", make_runs(STEADY, "old"))
    aliases = tmp_path / "aliases.toml"
    aliases.write_text('[aliases]\n"a" = "b"\n"a" = "c"\n')
    assert main(["compare", "--baseline", same, "--current", same, "--aliases", str(aliases)]) == 2
    message = capsys.readouterr().err
    assert "aliases.toml" in message
    assert "line 3" in message


def test_compare_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """H3, H2: a misspelt axis names the nearest; `--json maybe` is refused."""
    assert main(["compare", str(tmp_path), "--axis", "devise"]) == 2
    assert "'device'" in capsys.readouterr().err
    assert main(["compare", "--json", "maybe"]) == 2
    assert main(["compare"]) == 2


def test_report_says_where_the_page_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = two_sides(tmp_path / "results")
    out = tmp_path / "site"
    assert main(["report", results, "--out", str(out)]) == 0
    index = out / "index.html"
    assert str(index) in capsys.readouterr().out
    assert index.exists()
    assert main(["report", str(tmp_path / "nowhere"), "--out", str(out)]) == 2


def test_run_against_a_baseline(world: World) -> None:
    """H6, D13: an empty baseline lets the run measure and ends with 5; the records are there."""
    world.suite(cases=1)
    (world.folder / "baseline").mkdir()
    done = world.run("--compare", "baseline")
    assert done.returncode == 5
    assert "no comparable baseline" in done.stderr
    assert world.statuses() == {1: Status.OK}


def test_output_survives_a_locale_without_unicode(world: World) -> None:
    """D18: under LC_ALL=C without UTF-8, running, listing, comparing and reporting degrade instead of failing."""
    world.suite("if n == 2: return measure(Status.NONCONFORMANT, 'error of 3 \\u00b5V in \\u2264 1')", cases=2)
    done = world.run(**HOSTILE_LOCALE)
    assert done.returncode == 1, done.stderr
    assert "\\xb5V" in done.stdout
    assert [record.reason for record in world.records()] == ["", "error of 3 \u00b5V in \u2264 1"]
    results = two_sides(world.folder / "compared")
    for arguments in (["list"], ["prices"], ["doctor"], ["compare", results], ["report", results, "--out", "site"]):
        done = world.trnbench(*arguments, **HOSTILE_LOCALE)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
    assert SIMULATED_NOTICE not in (world.folder / "site" / "index.html").read_text(encoding="utf-8")
