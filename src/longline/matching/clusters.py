"""Clusters: records that are one thing, joined by pairs and never over a contradiction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longline.stores.matches import Matches
from longline.stores.matches_words import CONFIRMED, REJECTED, Link

Row = dict[str, Any]
_AT_ONCE = 200  # clusters whose records are read together


@dataclass(frozen=True, slots=True)
class Parted:
    """A pair that a person confirmed, and the pairs whose rejection keeps it from being one."""

    confirmed: Link
    rejected: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """One thing: every record of it, side by side, and the pairs that join them."""

    kind: str
    records: tuple[Row, ...]
    links: tuple[Link, ...]
    parted: tuple[Parted, ...] = ()
    """Where people contradict each other about it; known of a thing that is asked for alone."""

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
    async for cluster in first_clusters(matches, kind, await grouped(matches, kind)):
        yield cluster


@dataclass(frozen=True, slots=True)
class Grouped:
    """The things of a kind by the ids of their records, before any record is read."""

    groups: Sequence[tuple[int, ...]]
    links: Sequence[Link]


async def grouped(matches: Matches, kind: str) -> Grouped:
    """Return all things that have more than one record, in the order of their first records."""
    links = await matches.links(kind)
    return Grouped(group_links(links), links)


async def first_clusters(
    matches: Matches, kind: str, known: Grouped, most: int | None = None
) -> AsyncIterator[Cluster]:
    """Yield the first things, at most so many, with their records."""
    groups = known.groups[:most]
    inside = _links_by_group(groups, known.links)
    for start in range(0, len(groups), _AT_ONCE):
        some = groups[start : start + _AT_ONCE]
        rows = {row["id"]: row for row in await matches.records(i for g in some for i in g)}
        for group in some:
            own = tuple(inside.get(group[0], ()))
            yield Cluster(kind, tuple(rows[record] for record in group), own)


async def cluster_of(matches: Matches, kind: str, record: int) -> Cluster:
    """Return the thing that a record is; it may be the only one of it."""
    links = await matches.links_around(kind, record)
    groups = group_links(links)
    group = next((one for one in groups if record in one), (record,))
    rows = await matches.records(group)
    inside = _links_by_group([group], links).get(group[0], ())
    return Cluster(kind, tuple(rows), tuple(inside), tuple(_parted(group, groups, links)))


def group_links(links: Iterable[Link]) -> list[tuple[int, ...]]:
    """Return the groups of two and more records that the links join.

    What a person confirmed comes first: it is one group whatever the rules forbid, and only
    another rejection can part it. Then the rules join, best score first, and a link that would
    bring together a pair that contradicts itself or was rejected is left out: who fits two that
    exclude each other goes with the one it fits best. So a confirmation lifts a veto between
    those that people joined, and no veto of a third record against one of them.
    """
    best_first = sorted(links, key=lambda link: (-link.score, link.left, link.right))
    rejected = _apart(link for link in best_first if link.decision == REJECTED)
    apart = _apart(link for link in best_first if not link.joins)
    groups = _Groups()
    for link in best_first:
        if link.decision == CONFIRMED:
            groups.join(link, unless=rejected)
    for link in best_first:
        if link.decision is None and link.joins:
            groups.join(link, unless=apart)
    return groups.found()


class _Groups:
    """Disjoint groups of records."""

    def __init__(self) -> None:
        self._group: dict[int, set[int]] = {}

    def join(self, link: Link, *, unless: Mapping[int, set[int]]) -> None:
        """Make one group of two, unless a record of one must stay outside the other."""
        small, large = sorted((self._of(link.left), self._of(link.right)), key=len)
        if small is large or any(unless.get(one, set()) & large for one in small):
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


def _apart(links: Iterable[Link]) -> dict[int, set[int]]:
    """Return whom each record must be kept apart from."""
    outside: dict[int, set[int]] = {}
    for link in links:
        outside.setdefault(link.left, set()).add(link.right)
        outside.setdefault(link.right, set()).add(link.left)
    return outside


def _parted(
    group: tuple[int, ...], groups: Iterable[tuple[int, ...]], links: Sequence[Link]
) -> Iterable[Parted]:
    """Yield what a person confirmed of a group and others, with the rejections in its way."""
    own, group_of = set(group), {record: set(one) for one in groups for record in one}
    rejected = [link for link in links if link.decision == REJECTED]
    for link in links:
        if link.decision == CONFIRMED and (link.left in own) != (link.right in own):
            other = link.right if link.left in own else link.left
            others = group_of.get(other, {other})
            yield Parted(link, tuple(one for one in rejected if _is_between(one, own, others)))


def _is_between(link: Link, one: set[int], other: set[int]) -> bool:
    return (link.left in one and link.right in other) or (link.right in one and link.left in other)


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
