"""Clusters: records that are one thing, joined by pairs and never over a contradiction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from longline.analysis.matching.comparing import is_missing, number
from longline.core.clock import utc_datetime
from longline.storage.records.matches import CONFIRMED, REJECTED, Link, Matches

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


# ---------------- One view of a cluster: for each field a value, whose it is, and what the others

_WIDE_GAP = 0.05  # of the smaller value; beyond it, the difference is noted

RecordRow = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """A value and the record that has it, as `source/key`."""

    record: str
    value: Any


@dataclass(frozen=True, slots=True)
class MergedField:
    """A field of the merged view; without a `record`, nobody's value could be taken."""

    name: str
    value: Any
    record: str | None
    others: tuple[Said, ...] = ()
    """What other records have there instead."""
    note: str | None = None


def name_of(row: RecordRow) -> str:
    """Return a record's name as lists show it."""
    return f"{row['source']}/{row['key']}"


def merged(cluster: Cluster) -> tuple[MergedField, ...]:
    """Return one view of all records: it says of each value where it comes from.

    Numbers come from the record seen last, texts from the one that says most, and true or false
    only stands when nobody contradicts. What is missing everywhere is left out.
    """
    # Seen last first; among those seen together the order is always the same.
    rows = sorted(cluster.records, key=lambda row: (-row["seen_at"], name_of(row)))
    names = dict.fromkeys(name for row in rows for name in row["data"])
    said = {name: [_said(row, name) for row in rows if _has(row, name)] for name in names}
    return tuple(_merged_field(name, values) for name, values in said.items() if values)


def _has(row: RecordRow, name: str) -> bool:
    return not is_missing(row["data"].get(name))


def _said(row: RecordRow, name: str) -> Said:
    return Said(name_of(row), row["data"][name])


def _merged_field(name: str, said: Sequence[Said]) -> MergedField:
    if all(isinstance(one.value, bool) for one in said) and _differing(said[0], said):
        return MergedField(name, None, None, tuple(said), "the records contradict each other")
    chosen = _chosen(said)
    note = _gap([one.value for one in said])
    return MergedField(name, chosen.value, chosen.record, _differing(chosen, said), note)


def _chosen(said: Sequence[Said]) -> Said:
    if all(isinstance(one.value, str) for one in said):
        return max(said, key=lambda one: len(one.value))
    return said[0]


def _differing(chosen: Said, said: Sequence[Said]) -> tuple[Said, ...]:
    # To Python, true is 1; to a reader it is not.
    return tuple(
        one
        for one in said
        if one.value != chosen.value
        or isinstance(one.value, bool) != isinstance(chosen.value, bool)
    )


def _gap(values: Sequence[Any]) -> str | None:
    """Return a note when amounts lie far apart."""
    amounts = [_amount(value) for value in values]
    numbers = [amount for amount, _ in amounts if amount is not None]
    if len(numbers) < len(values) or len({unit for _, unit in amounts}) > 1:
        return None
    low, high = min(numbers), max(numbers)
    if low <= 0 or high - low <= _WIDE_GAP * low:
        return None
    return f"from {low:g} to {high:g}, a gap of {(high - low) / low:.0%}"


def _amount(value: Any) -> tuple[float | None, Any]:
    """Return a number and its unit; money may be an amount with its currency."""
    if isinstance(value, Mapping):
        return number(value.get("amount")), value.get("currency")
    return number(value), None


# ---------------- Clusters as people and programs get them: names instead of ids, and the

_TITLES = ("title", "name")


def summarise(cluster: Cluster) -> dict[str, Any]:
    """Return what a list shows of a cluster."""
    view = merged(cluster)
    return {
        "kind": cluster.kind,
        "records": [name_of(row) for row in cluster.records],
        "sources": list(cluster.sources),
        "score": cluster.score,
        "title": _title(view) or cluster.records[0]["url"],
        "merged": {field.name: field.value for field in view},
    }


async def explain(matches: Matches, cluster: Cluster) -> dict[str, Any]:
    """Return a cluster with every record side by side, one view of all, and why they are one."""
    names = {row["id"]: name_of(row) for row in cluster.records}
    pairs = await matches.evidence(cluster.kind, names)
    others = {one for parted in cluster.parted for one in _ends(parted)} - names.keys()
    all_names = names | {row["id"]: name_of(row) for row in await matches.records(others)}
    return {
        "kind": cluster.kind,
        "score": cluster.score,
        "records": [_record(row) for row in cluster.records],
        "merged": [asdict(field) for field in merged(cluster)],
        "pairs": [_pair(row, names) for row in pairs],
        "parted": [_told(one, all_names) for one in cluster.parted],
    }


def _ends(parted: Parted) -> set[int]:
    links = (parted.confirmed, *parted.rejected)
    return {one for link in links for one in (link.left, link.right)}


def _told(parted: Parted, names: dict[int, str]) -> dict[str, Any]:
    """Return what was confirmed and yet is not one, and the rejections that are the reason."""
    return {
        "left": names[parted.confirmed.left],
        "right": names[parted.confirmed.right],
        "rejected": [[names[link.left], names[link.right]] for link in parted.rejected],
    }


def _record(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "record": name_of(row),
        "url": row["url"],
        "seen_at": utc_datetime(row["seen_at"]).isoformat(),
        "data": row["data"],
    }


def _pair(row: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    decided = row["decided_at"]
    return {
        "left": names[row["left_id"]],
        "right": names[row["right_id"]],
        "score": row["score"],
        "is_match": row["is_match"],
        "decision": row["decision"],
        "decided_at": None if decided is None else utc_datetime(decided).isoformat(),
        "evidence": row["evidence"],
    }


def _title(view: tuple[MergedField, ...]) -> str | None:
    by_name = {field.name: field.value for field in view}
    return next((str(by_name[name]) for name in _TITLES if by_name.get(name)), None)
