"""Clusters: records of one thing, joined by pairs and never across a contradiction."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from longline.analysis.match_rules import is_missing
from longline.core.clock import utc_datetime
from longline.core.errors import BadOption
from longline.storage.matches import CONFIRMED, REJECTED, Link, Matches, join_groups

Row = dict[str, Any]
_BATCH = 200  # clusters whose records are read together


@dataclass(frozen=True, slots=True)
class SplitConfirmation:
    """A confirmed pair that is not in one cluster, and the rejected pairs that prevent it."""

    confirmed: Link
    rejected: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """One thing: all its records, and the pairs that join them."""

    kind: str
    records: tuple[Row, ...]
    links: tuple[Link, ...]
    parted: tuple[SplitConfirmation, ...] = ()
    """Contradicting decisions; filled by `cluster_of` only."""

    @property
    def score(self) -> float:
        """The best score of its pairs."""
        return max((link.score for link in self.links), default=0.0)

    @property
    def sources(self) -> tuple[str, ...]:
        """Its distinct sources."""
        return tuple(sorted({row["source"] for row in self.records}))


async def clusters(matches: Matches, kind: str) -> AsyncIterator[Cluster]:
    """Yield all clusters of two and more records, in the order of their first records."""
    links = await matches.links(kind)
    async for cluster in _read_clusters(matches, kind, group_links(links), links):
        yield cluster


async def _read_clusters(
    matches: Matches, kind: str, groups: Sequence[tuple[int, ...]], links: Sequence[Link]
) -> AsyncIterator[Cluster]:
    inside = _links_by_group(groups, links)
    for start in range(0, len(groups), _BATCH):
        some = groups[start : start + _BATCH]
        rows = {row["id"]: row for row in await matches.records(i for g in some for i in g)}
        for group in some:
            own = tuple(inside.get(group[0], ()))
            yield Cluster(kind, tuple(rows[record] for record in group), own)


async def cluster_of(matches: Matches, kind: str, record: int) -> Cluster:
    """Return the cluster of a record; it may be the only one in it."""
    links = await matches.links_around(kind, record)
    groups = group_links(links)
    group = next((one for one in groups if record in one), (record,))
    rows = await matches.records(group)
    inside = _links_by_group([group], links).get(group[0], ())
    return Cluster(
        kind, tuple(rows), tuple(inside), tuple(_split_confirmations(group, groups, links))
    )


async def list_clusters(
    matches: Matches, kind: str | None = None, limit: int | None = None
) -> tuple[list[dict[str, Any]], int]:
    """Return summaries of the first `limit` clusters, of a kind or of all, and the number of all.

    Raises:
        BadOption: nothing was matched as this kind.
    """
    if kind is not None:
        await check_kind(matches, kind)
    rows: list[dict[str, Any]] = []
    total = 0
    for name in [kind] if kind is not None else await matches.kinds():
        links = await matches.links(name)
        groups = group_links(links)
        total += len(groups)
        first = groups if limit is None else groups[: limit - len(rows)]
        rows += [
            summarize_cluster(cluster)
            async for cluster in _read_clusters(matches, name, first, links)
        ]
    return rows, total


async def page_clusters(
    matches: Matches, kind: str | None, *, after: tuple[str, int] = ("", 0), limit: int
) -> list[Cluster]:
    """Return the next clusters of a kind, or of all, by kind and the id of their first records.

    `after` is the kind and the first id of the last known one.

    Raises:
        BadOption: nothing was matched as this kind.
    """
    if kind is not None:
        await check_kind(matches, kind)
    found: list[Cluster] = []
    for name in [kind] if kind is not None else await matches.kinds():
        if name < after[0]:
            continue
        links = await matches.links(name)
        # In a thread: hundreds of thousands of links take seconds.
        groups = await asyncio.to_thread(group_links, links)
        first = after[1] if name == after[0] else 0
        some = [one for one in groups if one[0] > first][: limit - len(found)]
        found += [one async for one in _read_clusters(matches, name, some, links)]
        if len(found) == limit:
            break
    return found


async def explain_record(matches: Matches, kind: str, name: str) -> dict[str, Any]:
    """Return the cluster of the record called `source/key` as JSON, with the evidence.

    Raises:
        BadOption: nothing was matched as this kind, or the name is malformed.
        UnknownRecord: there is no such record.
    """
    await check_kind(matches, kind)
    cluster = await cluster_of(matches, kind, await find_record_id(matches, name))
    return await explain_cluster(matches, cluster)


async def check_kind(matches: Matches, kind: str) -> None:
    """Check that records were matched as this kind.

    Raises:
        BadOption: none were.
    """
    known = await matches.kinds()
    if kind not in known:
        listed = ", ".join(known) or "none; run `longline duplicates find RULES.yaml` first"
        raise BadOption("KIND", f"there are no matches of kind {kind!r}; known kinds: {listed}")


async def find_record_id(matches: Matches, name: str) -> int:
    """Return the id of the record called `source/key`.

    Raises:
        BadOption: the name is malformed.
        UnknownRecord: there is no such record.
    """
    source, slash, key = name.partition("/")
    if not (source and slash and key):
        raise BadOption("KEY", f"{name!r} is not of the form source/key, as in `records list`")
    return await matches.find(source, key)


def group_links(links: Iterable[Link]) -> list[tuple[int, ...]]:
    """Return the groups of two and more records that the links join.

    Confirmed pairs are joined first, whatever the rules forbid; only a rejection separates them.
    Then the rules join, best score first. A link that would bring together a contradicting or
    rejected pair is left out, so a record that fits two exclusive ones joins the better match. A
    confirmation lifts a veto between the confirmed records only, not that of a third record.
    """
    best_first = sorted(links, key=lambda link: (-link.score, link.left, link.right))
    rejected = _apart(link for link in best_first if link.decision == REJECTED)
    apart = _apart(link for link in best_first if not link.joins)
    group_of: dict[int, set[int]] = {}
    for link in best_first:
        if link.decision == CONFIRMED:
            join_groups(group_of, link, rejected)
    for link in best_first:
        if link.decision is None and link.joins:
            join_groups(group_of, link, apart)
    distinct = {id(group): group for group in group_of.values()}
    return sorted(tuple(sorted(group)) for group in distinct.values() if len(group) > 1)


def _apart(links: Iterable[Link]) -> dict[int, set[int]]:
    """Return by record the records that it must not be joined with."""
    outside: dict[int, set[int]] = {}
    for link in links:
        outside.setdefault(link.left, set()).add(link.right)
        outside.setdefault(link.right, set()).add(link.left)
    return outside


def _split_confirmations(
    group: tuple[int, ...], groups: Iterable[tuple[int, ...]], links: Sequence[Link]
) -> Iterable[SplitConfirmation]:
    """Yield confirmed pairs that lead out of a group, with the rejections that prevent them."""
    own, group_of = set(group), {record: set(one) for one in groups for record in one}
    rejected = [link for link in links if link.decision == REJECTED]
    for link in links:
        if link.decision == CONFIRMED and (link.left in own) != (link.right in own):
            other = link.right if link.left in own else link.left
            others = group_of.get(other, {other})
            between = (one for one in rejected if own & {*one.ends} and others & {*one.ends})
            yield SplitConfirmation(link, tuple(between))


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


# ---------------- One merged view of a cluster


@dataclass(frozen=True, slots=True)
class SourceValue:
    """A value and the record that has it, as `source/key`."""

    record: str
    value: Any


@dataclass(frozen=True, slots=True)
class MergedField:
    """A field of the merged view; `record` is None when no value could be chosen."""

    name: str
    value: Any
    record: str | None
    others: tuple[SourceValue, ...] = ()
    """Differing values of other records."""
    note: str | None = None


def name_of(row: Row) -> str:
    """Return the name of a record: source/key."""
    return f"{row['source']}/{row['key']}"


def merge_fields(cluster: Cluster) -> tuple[MergedField, ...]:
    """Return one view of all records, with the origin of each value.

    Numbers come from the record seen last, texts from the one with the longest text, and booleans
    are chosen only if all records agree. Fields without any value are left out.
    """
    values: defaultdict[str, list[SourceValue]] = defaultdict(list)
    # Seen last first; the name makes the order deterministic.
    for row in sorted(cluster.records, key=lambda row: (-row["seen_at"], name_of(row))):
        for name, value in row["data"].items():
            if not is_missing(value):
                values[name].append(SourceValue(name_of(row), value))
    return tuple(_merge_field(name, several) for name, several in values.items())


def _merge_field(name: str, values: Sequence[SourceValue]) -> MergedField:
    if all(isinstance(one.value, bool) for one in values) and _differing(values[0], values):
        return MergedField(name, None, None, tuple(values), "the records contradict each other")
    chosen = values[0]
    if all(isinstance(one.value, str) for one in values):
        chosen = max(values, key=lambda one: len(one.value))
    return MergedField(name, chosen.value, chosen.record, _differing(chosen, values))


def _differing(chosen: SourceValue, values: Sequence[SourceValue]) -> tuple[SourceValue, ...]:
    # Python takes true for 1.
    return tuple(
        one
        for one in values
        if one.value != chosen.value
        or isinstance(one.value, bool) != isinstance(chosen.value, bool)
    )


# ---------------- Clusters as JSON: names instead of ids

_TITLES = ("title", "name")


def summarize_cluster(cluster: Cluster) -> dict[str, Any]:
    """Return a cluster as one row of a list."""
    merged = {field.name: field.value for field in merge_fields(cluster)}
    titles = (str(merged[name]) for name in _TITLES if merged.get(name))
    return {
        "kind": cluster.kind,
        "records": [name_of(row) for row in cluster.records],
        "sources": list(cluster.sources),
        "score": cluster.score,
        "title": next(titles, cluster.records[0]["url"]),
        "merged": merged,
    }


async def explain_cluster(matches: Matches, cluster: Cluster) -> dict[str, Any]:
    """Return a cluster with its records, their merged view and the evidence of its pairs."""
    names = {row["id"]: name_of(row) for row in cluster.records}
    pairs = await matches.evidence(cluster.kind, names)
    others = {
        one
        for split in cluster.parted
        for link in (split.confirmed, *split.rejected)
        for one in link.ends
    } - names.keys()
    all_names = names | {row["id"]: name_of(row) for row in await matches.records(others)}
    return {
        "kind": cluster.kind,
        "score": cluster.score,
        "records": [
            {
                "record": name_of(row),
                "url": row["url"],
                "seen_at": _timestamp(row["seen_at"]),
                "data": row["data"],
            }
            for row in cluster.records
        ],
        "merged": [asdict(field) for field in merge_fields(cluster)],
        "pairs": [
            {
                "left": names[row["left_id"]],
                "right": names[row["right_id"]],
                **{name: row[name] for name in ("score", "is_match", "decision")},
                "decided_at": _timestamp(row["decided_at"]),
                "evidence": row["evidence"],
            }
            for row in pairs
        ],
        "parted": [
            {
                "left": all_names[split.confirmed.left],
                "right": all_names[split.confirmed.right],
                "rejected": [[all_names[one] for one in link.ends] for link in split.rejected],
            }
            for split in cluster.parted
        ],
    }


def _timestamp(at: float | None) -> str | None:
    return None if at is None else utc_datetime(at).isoformat()
