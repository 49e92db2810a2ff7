"""What differs between two versions of a record's data, field by field, however deep they stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

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
