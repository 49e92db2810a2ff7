"""What differs between two versions of a record's data, field by field, however deep they stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, select

from longline.storage.schema import record_versions, records

_DEEPEST = 12  # below this a value is compared as a whole, whatever a site has nested


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that differs; `old` or `new` is missing from `values` where there was no field."""

    field: str
    values: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"field": self.field, **self.values}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the fields that differ, by dotted paths.

    Lists of one length are compared element by element, others as a whole.
    """
    return tuple(_inside("", old, new, _DEEPEST))


def value_at(data: Any, path: tuple[str | int, ...]) -> Any:
    """Return the value at a path of the data; None when there is none."""
    for step in path:
        if isinstance(data, list) and isinstance(step, int):
            data = data[step] if step < len(data) else None
        elif isinstance(data, Mapping):
            data = data.get(str(step))
        else:
            return None
    return data


def is_same(old: Any, new: Any) -> bool:
    """Return whether two values are the same; unlike `==`, it tells 1 from 1.0 and from true."""
    return _text(old) == _text(new)


def _inside(
    place: str, old: Mapping[str, Any], new: Mapping[str, Any], depth: int
) -> Iterator[Difference]:
    for name in dict.fromkeys([*old, *new]):
        field = f"{place}.{name}" if place else str(name)
        if name in old and name in new:
            yield from _between(field, old[name], new[name], depth - 1)
        else:
            sides = (("old", old), ("new", new))
            yield Difference(field, {side: data[name] for side, data in sides if name in data})


def _between(field: str, old: Any, new: Any, depth: int) -> Iterator[Difference]:
    if is_same(old, new):
        return
    inner = _as_mappings(old, new)
    if inner is None or not depth:
        yield Difference(field, {"old": old, "new": new})
    else:
        yield from _inside(field, *inner, depth)


def _as_mappings(old: Any, new: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    if isinstance(old, dict) and isinstance(new, dict):
        return old, new
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return (
            {str(index): one for index, one in enumerate(old)},
            {str(index): one for index, one in enumerate(new)},
        )
    return None


def _text(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


# ---------------- The versions that records have had, the present one last


@dataclass(frozen=True, slots=True)
class Version:
    """What a record was from `since` on; `until` is None for the present version.

    `job` has made it; None when a person did, or when that is not known any more.
    """

    version: int
    job: str | None
    fingerprint: str
    since: float
    until: float | None
    data: dict[str, Any]


def versions_of(connection: Connection, ids: Sequence[int]) -> dict[int, list[Version]]:
    """Return the versions of these records by their ids, oldest first, the present one last."""
    past = select(record_versions).where(record_versions.c.record_id.in_(ids))
    present = select(records).where(records.c.id.in_(ids))
    found: dict[int, list[Version]] = {}
    for row in connection.execute(past.order_by(record_versions.c.version)):
        version = Version(
            row.version, row.job_id, row.fingerprint, row.since, row.until, dict(row.data)
        )
        found.setdefault(row.record_id, []).append(version)
    for row in connection.execute(present):
        version = Version(
            row.version, row.changed_by, row.fingerprint, row.changed_at, None, dict(row.data)
        )
        found.setdefault(row.id, []).append(version)
    return found


def version_at(versions: Sequence[Version], moment: float) -> Version | None:
    """Return what a record was at a moment; None when it was not there yet."""
    begun = [one for one in versions if one.since <= moment]
    return begun[-1] if begun else None
