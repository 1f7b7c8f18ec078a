"""File names of pages and text that is safe to draw: what a record contains cannot leave its file or its tag."""

from __future__ import annotations

import hashlib
import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trnbench.records.passport import Passport
    from trnbench.records.schema import Record

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_LONGEST = 160


def file_stem(text: str) -> str:
    """A file name without folder or suffix. Text that had to be changed carries a hash, so no two texts share a name.

    File systems that ignore case would merge names that differ only in it, so capitals count as a change.
    """
    safe = _UNSAFE.sub("_", text).strip("._-").lower()
    if text and safe == text and len(safe) <= _LONGEST:
        return safe
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{safe[:_LONGEST]}-{digest}" if safe else f"x-{digest}"


def printable(text: str) -> str:
    """`text` without the control characters and lone surrogates that no XML or UTF-8 file can hold."""
    return _CONTROL.sub("\ufffd", text)


def record_page(record: Record) -> str:
    """Path of the record's page, relative to the site's root."""
    return f"records/{file_stem(record.record_id)}.html"


def run_page(run_id: str) -> str:
    """Path of the run's page, relative to the site's root."""
    return f"runs/{file_stem(run_id)}.html"


def comparison_page(comparison_id: str) -> str:
    """Path of the comparison's page, relative to the site's root."""
    return f"comparisons/{file_stem(comparison_id)}.html"


def passport_page(passport: Passport) -> str:
    """Path of the passport's page, relative to the site's root."""
    return f"passports/{passport_stem(passport)}.html"


def passport_stem(passport: Passport) -> str:
    """A readable file name that only this passport has."""
    return file_stem(f"{passport.device.backend}-{passport.mode}-{passport.passport_id}")


def passport_pair_page(a: Passport, b: Passport) -> str:
    """Path of the page that sets two passports side by side, relative to the site's root."""
    return f"passports/{file_stem(f'{passport_stem(a)}-against-{passport_stem(b)}')}.html"


def deviation_anchor(backend: str, deviation: str) -> str:
    """Id of a deviation's entry on the page of conformance."""
    return f"deviation-{file_stem(f'{backend}-{deviation}')}"


def rerun_command(record: Record, runs: int = 1) -> str:
    """One line that measures the record's case again on the same backend, in a checkout of this repository.

    `--select` matches parts of names, as pytest's -k does; in the brackets around it a case matches no longer one.
    """
    selected = f"[{record.case.id}]"
    return shlex.join(
        ["trnbench", "run", "--backend", record.device.backend, "--select", selected, "--runs", str(runs)]
    )
