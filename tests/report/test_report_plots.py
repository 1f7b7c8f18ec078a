"""The plots on their own: what cannot be drawn, too many series, names that break things, and the caller's settings."""

from __future__ import annotations

import itertools
import math
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from trnbench import wording
from trnbench.report.canvas import text_width, wrap
from trnbench.report.plots import Drawing, Row, Series, intervals, rounds
from trnbench.report.styles import COLOURS, DARK, PANEL_SERIES, style

if TYPE_CHECKING:
    from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: bytes) -> list[str]:
    """Every drawn text, in order; fails for bytes that are not well-formed XML."""
    root = ElementTree.fromstring(svg)
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


def draw_rows(rows: list[Row], **options: object) -> Drawing:
    """The rows on a logarithmic scale unless told otherwise."""
    return intervals(rows, title="title", description="words", axis="axis", **{"log": True, **options})


def test_no_display_and_a_hostile_setting_change_nothing(tmp_path: Path) -> None:
    """F1: no DISPLAY, MPLBACKEND=TkAgg and a read-only HOME: plots are made, pyplot stays out, rcParams return."""
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    script = (
        "import sys, matplotlib\n"
        "matplotlib.rcParams['font.size'] = 31\n"
        "before = dict(matplotlib.rcParams)\n"
        "from trnbench.report.plots import Row, Series, intervals, rounds\n"
        "intervals([Row(name='a', value=1.0)], title='t', description='d', axis='x')\n"
        "rounds([Series(name='a', values=[1.0, 2.0])], title='t', description='d', axis='x')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert dict(matplotlib.rcParams) == before\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "MPLCONFIGDIR")}
    environment |= {"MPLBACKEND": "TkAgg", "HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_CACHE_HOME": str(home)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=120)


def test_the_callers_settings_do_not_change_the_plot() -> None:
    """F1, the other way round: what the caller set in rcParams does not reach the plot."""
    rows = [Row(name="a", value=2.0, low=1.0, high=3.0)]
    plain = draw_rows(rows)
    with mpl.rc_context({"font.size": 40, "svg.fonttype": "path", "axes.facecolor": "red", "savefig.dpi": 300}):
        assert draw_rows(rows) == plain


def test_values_without_a_place_on_a_log_scale_are_named() -> None:
    """F2: 0, 5, a negative, nan and a missing value: all names appear, each without a point says why, differently."""
    values = {"zero": 0.0, "five": 5.0, "negative": -1.0, "nan": math.nan, "missing": None}
    rows = [Row(name=name, value=value, missing="out of memory") for name, value in values.items()]
    drawing = draw_rows(rows)
    for svg in (drawing.wide, drawing.narrow, drawing.wide_dark, drawing.narrow_dark):
        shown = texts(svg)
        assert set(values) <= set(shown)
        reasons = ["0: has no place", "-1.000: has no place", "not a finite number", "out of memory"]
        for reason in reasons:
            assert sum(text.startswith(reason) for text in shown) == 1, (reason, shown)


@pytest.mark.parametrize("value", [None, 0.0, math.nan, 1e-300, 1e300])
def test_a_plot_of_one_odd_value_is_still_a_plot(value: float | None) -> None:
    """F2: nothing to scale by is no reason to fail, on either scale."""
    for log in (True, False):
        assert "only" in texts(draw_rows([Row(name="only", value=value)], log=log, reference=1.0).wide)


def test_an_interval_that_reaches_zero_stays_on_the_log_scale() -> None:
    """F2: the lower end of an interval may have no place even though the value has one."""
    svg = draw_rows([Row(name="wide", value=1.0, low=0.0, high=4.0)]).wide.decode()
    assert "wide" in texts(svg.encode())
    for path in re.findall(r' d="([^"]*)"', svg):
        assert "nan" not in path
        assert "inf" not in path


def test_no_two_series_share_colour_and_marker() -> None:
    """F3: 14 series with 40-character names: each look is unique, and no panel repeats a marker."""
    looks = [style(place) for place in range(70)]
    assert len({(look.colour, look.marker) for look in looks}) == 70
    names = [f"series {place:02d} " + "x" * 30 for place in range(14)]
    assert {len(name) for name in names} == {40}
    drawing = rounds(
        [Series(name=name, values=[1.0 + place, 2.0 + place]) for place, name in enumerate(names)],
        title="t",
        description="d",
        axis="seconds",
    )
    for svg in (drawing.wide, drawing.narrow):
        shown = texts(svg)
        assert [text for text in shown if text.startswith("series")] == names
        assert shown.count("round") == -(-len(names) // PANEL_SERIES)


def test_series_can_be_told_apart_without_hue() -> None:
    """F4: drawn in one grey, no two series of a panel look the same."""
    drawn = []
    for place in range(PANEL_SERIES):
        hidden = [Series(name="", values=[]) for _ in range(place)]
        series = [*hidden, Series(name="one", values=[1.0, 2.0, 1.5])]
        svg = rounds(series, title="t", description="d", axis="y").wide.decode()
        for colour in COLOURS:
            svg = svg.replace(colour, "#888888")
        body = re.search(r'<g id="axes_1">.*', svg, flags=re.DOTALL)
        assert body
        drawn.append(re.sub(r"[mp][0-9a-f]{10}", "id", body[0]))
    for one, other in itertools.combinations(drawn, 2):
        assert one != other


def test_light_and_dark_use_different_inks() -> None:
    """The dark form keeps no light colour, so no ink is lost on dark paper."""
    drawing = draw_rows([Row(name="a", value=2.0, low=1.0, high=3.0, text="2.0")])
    assert drawing.wide != drawing.wide_dark
    for light in DARK:
        assert light not in drawing.wide_dark.decode()


def test_dollars_and_backslashes_are_plain_text() -> None:
    """F7: no text is read as mathematics, whatever it holds."""
    names = ["tokens per $ vs $/h", r"$\foo{", "a_b^c $x$", "{", "\\", "100 %"]
    drawing = intervals(
        [Row(name=name, value=1.0, text=name) for name in names],
        title="$\\title{",
        description="$",
        axis="tokens per $ vs $/h",
    )
    shown = texts(drawing.wide)
    for name in names:
        assert shown.count(name) >= 2
    series = rounds([Series(name=r"$\foo{", values=[1.0])], title="$", description="$", axis=r"$\foo{")
    assert texts(series.wide).count(r"$\foo{") == 2


def test_markup_and_control_characters_stay_text() -> None:
    """F6: names with tags, entities, comments, NUL and surrogates give well-formed SVG that shows them."""
    names = [
        "<img src=x onerror=alert(1)>",
        "a & b </td>",
        "--> ]]>",
        "nul\x00bell\x07",
        "lone \ud800",
        "caf\u00e9 \u00b5s",
    ]
    drawing = intervals(
        [Row(name=name, value=1.0, missing=name) for name in names],
        title="</title><script>alert(1)</script>",
        description="</desc><script>alert(1)</script>",
        axis="<b>",
    )
    root = ElementTree.fromstring(drawing.wide)
    assert not list(root.iter(f"{SVG}script"))
    assert not list(root.iter(f"{SVG}img"))
    assert {"<img src=x onerror=alert(1)>", "a & b </td>", "--> ]]>", "caf\u00e9 \u00b5s"} <= set(texts(drawing.wide))


def test_every_form_carries_the_disclaimer() -> None:
    """Shown at the foot and spoken in the description, in all four forms."""
    drawing = rounds([Series(name="a", values=[1.0, None, 2.0])], title="t", description="d", axis="x")
    for svg in (drawing.wide, drawing.narrow, drawing.wide_dark, drawing.narrow_dark):
        assert wording.DISCLAIMER in " ".join(texts(svg))
        root = ElementTree.fromstring(svg)
        assert wording.DISCLAIMER in root.findtext(f"{SVG}desc", "")
        assert root.findtext(f"{SVG}title") == "t"
        assert b"dc:date" not in svg


def test_wrapped_text_loses_nothing_and_fits() -> None:
    """F3: names are wrapped, not clipped; a word without joints is broken where it must be."""
    for name in ("llama3.2-1b-train_step-bf16-compiled-b8-s2048", "x" * 200, "short", "two words", ""):
        lines = wrap(name, 11, 120)
        assert "".join(lines).replace(" ", "") == name.replace(" ", "")
        assert all(text_width(line, 11) <= 120 for line in lines)
