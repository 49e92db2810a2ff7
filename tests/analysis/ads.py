"""Ads as records, the rules of the example, and a store to compare them in."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from longline.analysis.clusters import clusters
from longline.analysis.match_rules import Rules, read_rules
from longline.core.model import Record
from longline.storage.matches import Matches
from longline.storage.records import Records
from tests.virtual import EPOCH

EXAMPLE = Path(__file__).parents[2] / "examples" / "listings_match.yaml"
RULES = read_rules(EXAMPLE)
IMOTI, HOMES, WOHNEN = RULES.sources

FLAT: Mapping[str, Any] = {
    "city": "София",
    "neighbourhood": "Лозенец",
    "rooms": 3,
    "area_m2": 92.0,
    "floor": 3,
    "floors": 6,
    "year": 1998,
    "building_type": "brick",
    "price_eur": 250_000.0,
}
NOTHING = dict.fromkeys(FLAT)

Name = tuple[str, str]


def flat(**changes: Any) -> dict[str, Any]:
    """Return the data of an ad for one flat, which differs from others as shown."""
    return {**FLAT, **changes}


def rules(**changes: Any) -> Rules:
    """Return the rules of the example, changed."""
    return Rules.model_validate({**RULES.model_dump(exclude_unset=True), **changes})


def ad(source: str, key: str, data: Mapping[str, Any]) -> Record:
    """Return an ad as a record; its fingerprint follows its data."""
    return Record(
        source=source,
        key=key,
        url=f"https://{source}.test/{key}",
        data=data,
        fingerprint=repr(sorted(data.items())),
        provenance={},
        notes=(),
        layers={},
        quality=None,
    )


async def put(
    records: Records, source: str, key: str, data: Mapping[str, Any], *, at: float = EPOCH
) -> None:
    """Store an ad as a job would."""
    await records.create(ad(source, key, data), at=at)


async def pairs_in(matches: Matches, kind: str = RULES.match) -> set[frozenset[Name]]:
    """Return the pairs that the rules or a person call the same, by source and key."""
    links = [link for link in await matches.links(kind) if link.joins]
    ids = {one for link in links for one in (link.left, link.right)}
    names = {row["id"]: (row["source"], row["key"]) for row in await matches.records(ids)}
    return {frozenset((names[link.left], names[link.right])) for link in links}


async def groups_in(matches: Matches, kind: str = RULES.match) -> set[frozenset[str]]:
    """Return the clusters, by the keys of their records."""
    return {
        frozenset(row["key"] for row in cluster.records)
        async for cluster in clusters(matches, kind)
    }


def pairs_of(groups: Mapping[Any, list[Name]]) -> set[frozenset[Name]]:
    """Return every pair within each group."""
    return {frozenset(pair) for group in groups.values() for pair in combinations(group, 2)}
