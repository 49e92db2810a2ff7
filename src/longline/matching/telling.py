"""Clusters as people and programs get them: names instead of ids, and the evidence of each pair."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from longline.clock import moment
from longline.matching.clusters import Cluster, Parted
from longline.matching.merging import MergedField, merged, name_of
from longline.stores.matches import Matches

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
        "seen_at": moment(row["seen_at"]).isoformat(),
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
        "decided_at": None if decided is None else moment(decided).isoformat(),
        "evidence": row["evidence"],
    }


def _title(view: tuple[MergedField, ...]) -> str | None:
    by_name = {field.name: field.value for field in view}
    return next((str(by_name[name]) for name in _TITLES if by_name.get(name)), None)
