"""The formats level for one backend and mode: every verdict as a check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.conformance.formats.block_formats import BLOCK_FORMATS
from trnbench.conformance.formats.capability import capability_check
from trnbench.conformance.formats.definitions import FORMATS
from trnbench.conformance.formats.device_caster import DeviceCaster
from trnbench.conformance.formats.judge import ROUND_TRIPS, judge_scalar
from trnbench.conformance.formats.judge_blocks import judge_blocks
from trnbench.status import UsageError
from trnbench.wording import nearest

if TYPE_CHECKING:
    from trnbench.backends.base import Backend
    from trnbench.records.schema import Check

GROUPS: tuple[str, ...] = ("casts", "blocks")
"""Scalar formats, and block-scaled ones."""


SPARED_BLOCKS: tuple[str, ...] = ("mxfp8 ocp", "nvfp4")
"""The block formats that are tried sparingly: of either kind of scale one."""


def check_formats(backend: Backend, mode: str, group: str, *, sparing: bool = False) -> list[Check]:
    """One check a format and question, capabilities first. The backend is open; numerics switches do not matter here.

    With `sparing` only what a compiler is known to change: round trips, and of block formats `SPARED_BLOCKS`. Raises
    `UsageError` for an unknown group, and whatever the backend raises that is no missing format.
    """
    if group not in GROUPS:
        raise UsageError(f"no group {group!r} of formats; {nearest(group, GROUPS, 'there are ' + ', '.join(GROUPS))}")
    caster = DeviceCaster(backend, mode)
    if group == "casts":
        if sparing:
            return judge_scalar(caster, ROUND_TRIPS, frozenset({"round trip", "excess precision"}))
        return [capability_check(backend, one) for one in FORMATS.values()] + judge_scalar(caster)
    if sparing:
        return judge_blocks(caster, SPARED_BLOCKS)
    return [capability_check(backend, one) for one in BLOCK_FORMATS.values()] + judge_blocks(caster)
