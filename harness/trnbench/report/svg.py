"""From a matplotlib figure to SVG bytes: the same bytes for the same figure, on light and on dark paper.

Nothing here, nor in `plots`, imports pyplot, picks a backend for the process or leaves a changed rcParam behind (F1).
"""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from matplotlib import style

from trnbench import wording
from trnbench.report.names import printable
from trnbench.report.styles import DARK, INK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure

_FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_SETTINGS: dict[str, Any] = {
    # Layout is measured with the font that matplotlib ships, which is wider than the readers' own, so nothing clips.
    "font.family": ["DejaVu Sans"],
    "font.size": 11.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "trnbench",
    "text.parse_math": False,
    "text.usetex": False,
    "text.color": INK,
    "path.simplify": False,
}


@contextmanager
def settings() -> Iterator[None]:
    """matplotlib's shipped defaults plus ours for the duration; the caller's rcParams and backend return untouched."""
    with style.context(_SETTINGS, after_reset=True):
        yield


def to_svg(figure: Figure, title: str, description: str) -> bytes:
    """The figure as SVG: text stays text, no date, a title and a description for those who cannot see it.

    Call it inside `settings()`. Width and height are in px; the figure's dpi must be 72.
    """
    buffer = io.BytesIO()
    metadata = {"Date": None, "Creator": "TrnBench", "Title": printable(title), "Description": wording.DISCLAIMER}
    figure.savefig(buffer, format="svg", metadata=metadata)
    text = buffer.getvalue().decode("utf-8")
    text = re.sub(r"<!DOCTYPE[^>]*>\n?", "", text, count=1)
    text = re.sub(r'(<svg [^>]*?)width="([0-9.]+)pt" height="([0-9.]+)pt"', r'\1width="\2" height="\3"', text, count=1)
    text = text.replace("'DejaVu Sans'", _FAMILY)
    spoken = f"<title>{_escape(title)}</title>\n <desc>{_escape(description + ' ' + wording.DISCLAIMER)}</desc>\n "
    return text.replace("<metadata>", spoken + "<metadata>", 1).encode("utf-8")


def darkened(svg: bytes) -> bytes:
    """The same drawing on dark paper."""
    text = svg.decode("utf-8")
    for light, dark in DARK.items():
        text = text.replace(light, dark)
    return text.encode("utf-8")


def _escape(text: str) -> str:
    return printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
