"""What measuring a case yields, whichever part of the harness measured it: raw values, the judgement, and its proof."""

from __future__ import annotations

import msgspec

from trnbench.records.schema import Check, Measurement
from trnbench.status import Status


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Rounds and the judgement on them. `reason` is empty only for a clean `OK`; drift is `OK` with its warning.

    `unknown` maps the record's path of every null in `measurement` to the reason (`[*]` for all items of a list).
    `files` go beside the record, by name; `checks` are verdicts that measuring itself brought with it.
    """

    measurement: Measurement
    status: Status
    reason: str
    unknown: dict[str, str]
    files: dict[str, bytes] = {}
    checks: list[Check] = []
