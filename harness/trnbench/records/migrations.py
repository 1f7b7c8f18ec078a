"""How records of older schema versions are brought up to the present one.

`MIGRATIONS` maps the version a step produces to the step. A new version that adds nullable fields is one line:
`2: added("device.firmware", "measurement.rounds[*].throttled"),` beside the line in the history of schema.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Migration = Callable[[dict[str, Any], int], None]
"""Changes the plain JSON object of a record in place from the version before; the second argument is that version."""


def added(*paths: str) -> Migration:
    """A step for fields that did not exist before: null where absent, with the reason in `unknown`.

    A path names objects by key and every item of a list by `[*]`: `measurement.rounds[*].throttled`. Where an object
    on the way is null or absent, there is nothing to add.
    """

    def migrate(record: dict[str, Any], before: int) -> None:
        for path in paths:
            *parents, field = path.split(".")
            holders = [holder for holder in _holders(record, parents) if field not in holder]
            for holder in holders:
                holder[field] = None
            if holders:
                record.setdefault("unknown", {})[path] = f"not recorded by schema version {before}"

    return migrate


def _holders(value: object, steps: list[str]) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and not steps:
        yield value
    elif isinstance(value, dict):
        child = value.get(steps[0].removesuffix("[*]"))
        for item in child if steps[0].endswith("[*]") and isinstance(child, list) else [child]:
            yield from _holders(item, steps[1:])


def unchanged(record: dict[str, Any], before: int) -> None:
    """A step to a version whose new fields have a default that is true of every older record."""


MIGRATIONS: Mapping[int, Migration] = {2: unchanged, 3: unchanged}


def migrate(record: dict[str, Any], current: int, migrations: Mapping[int, Migration]) -> None:
    """Bring a plain record in place from its own `schema_version` to `current`, one version at a time."""
    for version in range(record["schema_version"] + 1, current + 1):
        migrations[version](record, version - 1)
        record["schema_version"] = version
