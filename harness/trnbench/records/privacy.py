"""Keeps what names a machine, a person or an account out of records: they are made to be published.

Environment facts are collected by allow-list; this is for free text, such as the message of an exception.
"""

from __future__ import annotations

import os
import platform
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trnbench.device import Scalar

_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s,;'\"<>]+")
_REST = r"""[^\s,;:'"`)\]}>]*"""
_ABSOLUTE = re.compile(r"""(?<![^\s=:,;'"`(\[{<])(?:~[\w.-]*|[A-Za-z]:)?[/\\](?![/\\\s])""" + _REST)
_SHORTEST_HOST = 5
"""Shorter names ("gpu1", "h100") identify nobody, and are words that records need."""

_PLAIN_HOSTS = frozenset({"localhost", "localdomain", "ip6-localhost"})


def scrub(text: str) -> str:
    """`text` with absolute paths as `<path>`, URLs as `<url>`, the home folder as `<home>`, this host as `<host>`."""
    for folder in _private_folders():
        text = re.sub(re.escape(folder) + _REST, "<home>", text)
    text = _URL.sub("<url>", text)
    text = _ABSOLUTE.sub("<path>", text)
    for host in _host_names():
        text = re.sub(rf"(?<![\w-]){re.escape(host)}(?![\w-])", "<host>", text, flags=re.IGNORECASE)
    return text


def scrub_map(values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The same mapping with every text value scrubbed."""
    return {name: scrub(value) if isinstance(value, str) else value for name, value in values.items()}


def _private_folders() -> list[str]:
    folders = {os.environ.get("HOME", ""), os.environ.get("USERPROFILE", "")}
    with suppress(RuntimeError):  # raised where no home is known for this user: then there is none to hide
        folders.add(str(Path.home()))
    return sorted((folder for folder in folders if len(folder.strip("/\\")) > 1), key=len, reverse=True)


def _host_names() -> list[str]:
    names = {socket.gethostname(), platform.node()}
    names |= {name.partition(".")[0] for name in names}
    known = [name for name in names if len(name) >= _SHORTEST_HOST and name.lower() not in _PLAIN_HOSTS]
    return sorted(known, key=len, reverse=True)
