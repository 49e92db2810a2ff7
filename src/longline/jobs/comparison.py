"""What extracting again came to: item by item, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from longline.stores.bulk import as_json


class Finding(StrEnum):
    """What came of extracting an item again."""

    SAME = "same"
    CHANGED = "changed"
    NEW = "new"
    REMOVED = "removed"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Change:
    """A field that differs; `old` or `new` is missing from `as_dict` where there was no field."""

    field: str
    values: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"field": self.field, **self.values}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One item: what was found, the fields that differ, why it failed.

    `new_key` is the key that the source gives it now, if that is another one.
    `is_superseded` says that a later job has seen the record since: it is compared with what that
    one stored, but for the volatile fields, and never replaced.
    """

    key: str
    finding: Finding
    changes: tuple[Change, ...] = ()
    reason: str | None = None
    is_superseded: bool = False
    requests: int = 0
    new_key: str | None = None


@dataclass(frozen=True, slots=True)
class Reextraction:
    """What came of extracting the items of a job again.

    Attributes:
        job: its id.
        comparisons: one of each item, those that only the source of now finds included.
        written: how many records were written.
        unfinished: how many items of the job were never finished, and are not compared.
        discovery_problem: why it is unknown whether the source finds other items now.
        is_discovery_repeated: whether discovery was repeated; if not, nothing is known of items
            that the source would find now.
    """

    job: str
    comparisons: tuple[Comparison, ...]
    written: int = 0
    unfinished: int = 0
    discovery_problem: str | None = None
    is_discovery_repeated: bool = True

    @property
    def requests(self) -> int:
        """How many requests were made, as counted by the chain."""
        return sum(one.requests for one in self.comparisons)

    @property
    def exit_code(self) -> int:
        """0 when all could be extracted and compared, 3 when some could not."""
        lacking = self.of(Finding.FAILED) + self.of(Finding.REMOVED)
        return 3 if lacking or self.unfinished or self.discovery_problem else 0

    def of(self, finding: Finding) -> list[Comparison]:
        """Return the items of which this was found."""
        return [one for one in self.comparisons if one.finding is finding]

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {
            "job": self.job,
            "items": len(self.comparisons),
            **{finding.value: len(self.of(finding)) for finding in Finding},
            "superseded": sum(one.is_superseded for one in self.comparisons),
            "written": self.written,
            "requests": self.requests,
            "unfinished": self.unfinished,
            "discovery": {
                "repeated": self.is_discovery_repeated,
                "problem": self.discovery_problem,
            },
            "changes": {
                one.key: [change.as_dict() for change in one.changes]
                for one in self.of(Finding.CHANGED)
            },
            "renamed": {one.key: one.new_key for one in self.comparisons if one.new_key},
            "failures": {one.key: one.reason for one in self.of(Finding.FAILED)},
            "not_found": {one.key: one.reason for one in self.of(Finding.REMOVED)},
        }


def changes_between(
    old: Mapping[str, Any], new: Mapping[str, Any], ignored: frozenset[str] = frozenset()
) -> tuple[Change, ...]:
    """Return the fields that differ between stored data and new data, but for the ignored ones."""
    new = _plain(new)
    return tuple(
        Change(
            name, {side: data[name] for side, data in (("old", old), ("new", new)) if name in data}
        )
        for name in dict.fromkeys([*old, *new])
        if name not in ignored and _text(old, name) != _text(new, name)
    )


def _text(data: Mapping[str, Any], name: str) -> bytes | None:
    """Return a field as text: unlike `==`, it tells 1 from 1.0 and from true."""
    return orjson.dumps(data[name], option=orjson.OPT_SORT_KEYS) if name in data else None


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data as the database would give it back."""
    plain: dict[str, Any] = orjson.loads(as_json(data))
    return plain
