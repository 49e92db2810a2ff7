"""Compare two JSON objects field by field."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

Path = tuple[str | int, ...]
_MAX_DEPTH = 12  # deeper values are compared as a whole


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """One field that differs; `values` lacks `old` for an added field, `new` for a removed one."""

    path: Path
    values: Mapping[str, Any]

    @property
    def field(self) -> str:
        """The path with dots between its steps."""
        return ".".join(map(str, self.path))

    @property
    def change(self) -> str:
        """`added`, `removed` or `changed`."""
        if "old" not in self.values:
            return "added"
        return "changed" if "new" in self.values else "removed"

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"field": self.field, **self.values}


def diff_json(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    max_depth: int = _MAX_DEPTH,
    ignored: Collection[str] = (),
    by_leaf: bool = False,
) -> tuple[FieldDiff, ...]:
    """Return the fields that differ, in the order of `old`, then of `new`.

    Args:
        old: the object before.
        new: the object after.
        max_depth: deeper values are compared as a whole; 1 compares top-level fields only.
        ignored: top-level fields that are not compared.
        by_leaf: report added and removed objects value by value, and compare lists of different
            lengths element by element. Otherwise both are reported as a whole.
    """
    return tuple(
        diff
        for diff in _diff((), old, new, max_depth, by_leaf=by_leaf)
        if diff.path[0] not in ignored
    )


def is_same_json(old: Any, new: Any) -> bool:
    """Return whether two values are equal; unlike `==`, 1, 1.0 and true all differ."""
    try:
        return _dump(old) == _dump(new)
    except TypeError:  # an integer of more than 64 bits
        return type(old) is type(new) and bool(old == new)


def value_at(data: Any, path: Path) -> Any:
    """Return the value at a path; None when there is none."""
    for step in path:
        if isinstance(data, list) and isinstance(step, int):
            data = data[step] if step < len(data) else None
        elif isinstance(data, Mapping):
            data = data.get(str(step))
        else:
            return None
    return data


def _diff(
    path: Path, old: Mapping[Any, Any], new: Mapping[Any, Any], depth: int, *, by_leaf: bool
) -> Iterator[FieldDiff]:
    for name in dict.fromkeys([*old, *new]):
        values = {side: data[name] for side, data in (("old", old), ("new", new)) if name in data}
        if len(values) == 2 and is_same_json(*values.values()):  # noqa: PLR2004  # both sides
            continue
        inner = _children(values, by_leaf=by_leaf) if depth > 1 else None
        if inner is None:
            yield FieldDiff((*path, name), values)
        else:
            yield from _diff((*path, name), *inner, depth - 1, by_leaf=by_leaf)


def _children(
    values: Mapping[str, Any], *, by_leaf: bool
) -> tuple[Mapping[Any, Any], Mapping[Any, Any]] | None:
    """Return both sides as mappings to compare further; None to compare them as a whole."""
    present = list(values.values())
    if not any(present) or (len(present) == 1 and not by_leaf):
        return None
    if all(isinstance(one, list) for one in present):
        if len({len(one) for one in present}) > 1 and not by_leaf:
            return None
        return dict(enumerate(values.get("old", ()))), dict(enumerate(values.get("new", ())))
    if all(isinstance(one, Mapping) for one in present):
        return values.get("old", {}), values.get("new", {})
    return None


def _dump(value: Any) -> bytes:
    return orjson.dumps(value, default=str, option=orjson.OPT_SORT_KEYS)
