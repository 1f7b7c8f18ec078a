"""Identifiers and instants: unique, sortable by time, and free of anything that names a machine or a person."""

from __future__ import annotations

import datetime
import secrets
import time


def new_id() -> str:
    """22 hexadecimal digits: 12 of milliseconds since 1970, then 40 random bits.

    Ids sort as text in the order of the clock that made them, to the millisecond; two processes that ask in the same
    millisecond still get different ones.
    """
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(5)}"


def utc_now() -> str:
    """The instant in UTC, ISO 8601 with microseconds, whatever TZ says: `2026-11-30T09:15:00.000000Z`."""
    now = datetime.datetime.now(datetime.UTC)
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def instant(text: str) -> datetime.datetime:
    """The instant that an ISO 8601 text with an offset names, in UTC, so that it orders by time and not by spelling.

    Raises `ValueError` where the text is not ISO 8601 or has no offset: local time names no instant.
    """
    moment = datetime.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no UTC offset")
    try:
        return moment.astimezone(datetime.UTC)
    except OverflowError:
        raise ValueError(f"{text!r} lies outside the calendar") from None


def compact(text: str) -> str:
    """An instant as it appears in file names: `20261130T091500Z`. Raises `ValueError` as `instant` does."""
    return instant(text).strftime("%Y%m%dT%H%M%SZ")
