from __future__ import annotations

import msgspec


class PricePoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """USD per instance-hour, and everything needed to check it."""

    instance_type: str
    region: str
    term: str
    usd_per_hour: float
    currency: str
    as_of: str
    source: str
    note: str
