"""The fields that `--columns` names, and their values in a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from longline.clock import moment
from longline.errors import BadOption
from longline.stores.differences import value_at
from longline.stores.fields import path_of
from longline.stores.selecting import OWN_FIELDS


def columns_of(text: str | None) -> tuple[str, ...]:
    """Return the fields of a list such as `title,address.city,@score`; none when there is none.

    Raises:
        BadOption: one of them is no field.
    """
    if text is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name.startswith("@") and name[1:] not in OWN_FIELDS:
            known = ", ".join(f"@{own}" for own in OWN_FIELDS)
            raise BadOption("--columns", f"there is no {name}; there are {known}")
        path_of(name)
    return names


def value_of(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field of a record, or of one of our columns with `@` before it."""
    if not name.startswith("@"):
        return value_at(row["data"], path_of(name))
    value = row[name[1:]]
    is_moment = name.endswith("_at") and value is not None
    return moment(value).isoformat(timespec="seconds") if is_moment else value


def picked(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return source, key and these fields of a record."""
    own = {"source": row["source"], "key": row["key"]}
    return own | {name: value_of(row, name) for name in names}
