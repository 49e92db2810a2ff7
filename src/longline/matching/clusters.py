"""Clusters: records that are one thing, joined by pairs and never over a contradiction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from longline.stores.matches import Matches
from longline.stores.matches_words import Link

Row = dict[str, Any]
_AT_ONCE = 200  # clusters whose records are read together


@dataclass(frozen=True, slots=True)
class Cluster:
    """One thing: every record of it, side by side, and the pairs that join them."""

    kind: str
    records: tuple[Row, ...]
    links: tuple[Link, ...]

    @property
    def score(self) -> float:
        """The best score of its pairs."""
        return max((link.score for link in self.links), default=0.0)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that have it, each once."""
        return tuple(sorted({row["source"] for row in self.records}))


async def clusters(matches: Matches, kind: str) -> AsyncIterator[Cluster]:
    """Yield every thing that has more than one record, in the order of their first records."""
    links = await matches.links(kind)
    groups = sorted(group_links(links), key=lambda group: group[0])
    inside = _links_by_group(groups, links)
    for start in range(0, len(groups), _AT_ONCE):
        some = groups[start : start + _AT_ONCE]
        rows = {row["id"]: row for row in await matches.records(i for g in some for i in g)}
        for group in some:
            own = tuple(inside.get(group[0], ()))
            yield Cluster(kind, tuple(rows[record] for record in group), own)


async def cluster_of(matches: Matches, kind: str, record: int) -> Cluster:
    """Return the thing that a record is; it may be the only one of it."""
    links = await matches.links_around(kind, record)
    group = next((one for one in group_links(links) if record in one), (record,))
    rows = await matches.records(group)
    return Cluster(kind, tuple(rows), tuple(_links_by_group([group], links).get(group[0], ())))


def group_links(links: Iterable[Link]) -> list[tuple[int, ...]]:
    """Return the groups of two and more records that the links join.

    Pairs that contradict each other, or that a person rejected, never come into one group, not
    even over others that fit both. So links join groups one after the other, a person's word
    first and then by score, and a link that would bring such a pair together is left out: who
    fits two that exclude each other goes with the one it fits best.
    """
    links = list(links)
    groups = _Groups(link for link in links if not link.joins)
    best_first = sorted(
        (link for link in links if link.joins),
        key=lambda link: (link.decision is None, -link.score, link.left, link.right),
    )
    for link in best_first:
        groups.join(link.left, link.right)
    return groups.found()


class _Groups:
    """Disjoint groups of records, each with those that must stay outside."""

    def __init__(self, apart: Iterable[Link]) -> None:
        self._group: dict[int, set[int]] = {}
        self._outside: dict[int, set[int]] = {}
        for link in apart:
            self._outside.setdefault(link.left, set()).add(link.right)
            self._outside.setdefault(link.right, set()).add(link.left)

    def join(self, left: int, right: int) -> None:
        """Make one group of two, unless a record of one must stay outside the other."""
        small, large = sorted((self._of(left), self._of(right)), key=len)
        if small is large or any(self._outside.get(one, set()) & large for one in small):
            return
        large |= small
        for one in small:
            self._group[one] = large

    def found(self) -> list[tuple[int, ...]]:
        """Return the groups, by the smallest id in each."""
        distinct = {id(group): group for group in self._group.values()}
        return sorted(tuple(sorted(group)) for group in distinct.values() if len(group) > 1)

    def _of(self, record: int) -> set[int]:
        return self._group.setdefault(record, {record})


def _links_by_group(
    groups: Sequence[tuple[int, ...]], links: Iterable[Link]
) -> dict[int, list[Link]]:
    """Return the links inside each group, by its first record."""
    first = {record: group[0] for group in groups for record in group}
    inside: dict[int, list[Link]] = {}
    for link in links:
        if link.left in first and first[link.left] == first.get(link.right):
            inside.setdefault(first[link.left], []).append(link)
    return inside
