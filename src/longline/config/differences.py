"""What two configurations say differently, value by value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from longline.config.documents_problems import Location, written_as


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that is not the same; `change` tells a None that was said from one that was not."""

    path: str
    before: Any
    after: Any
    change: str
    """added, removed or changed."""


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Return what must be done to `before` to make it `after`, in the order of the names."""
    old, new = dict(leaves(before)), dict(leaves(after))
    return [
        Difference(written_as(loc), old.get(loc), new.get(loc), _change(loc in old, loc in new))
        for loc in [*old, *(loc for loc in new if loc not in old)]
        if (loc in old, old.get(loc)) != (loc in new, new.get(loc))
    ]


def leaves(value: Any, loc: Location = ()) -> Iterator[tuple[Location, Any]]:
    """Yield every value that holds no other, with its location."""
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from leaves(below, (*loc, str(name)))
    elif isinstance(value, list | tuple) and value:
        for number, below in enumerate(value):
            yield from leaves(below, (*loc, number))
    else:
        yield loc, value


def _change(was: bool, is_now: bool) -> str:  # noqa: FBT001  # two claims, named
    if was and is_now:
        return "changed"
    return "added" if is_now else "removed"
