"""How the time to find duplicates grows with the records: at most like n log n."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import click

from longline.analysis.clusters import clusters
from longline.analysis.duplicates import find_duplicates
from longline.analysis.match_rules import Rules, read_rules
from longline.core.clock import SystemClock
from longline.core.model import Record
from longline.sandbox.sites.listings.rounds import Ad, make_ads
from longline.storage.database import Database, open_database
from longline.storage.matches import Matches
from longline.storage.records import store_records

RULES = Path(__file__).parent.parent / "examples" / "listings_match.yaml"
_REGION = 2500  # ads of one region, which has five towns of its own
_BATCH = 5000
_GROWTH = 1.25  # of time / (n log n), from the smallest size to the largest


@dataclass(frozen=True, slots=True)
class Line:
    """One size: its duration and quality."""

    records: int
    seconds: float
    per_n_log_n: float
    """Microseconds."""
    compared: int
    crowded: int
    precision: float
    recall: float
    seconds_for_one: float
    """To compare one more record, when all others are there."""


@click.command()
@click.option(
    "--sizes",
    default="10000,30000,100000",
    show_default=True,
    help="Numbers of records.",
)
@click.option(
    "--dense/--wide",
    default=False,
    help="More ads in the same towns, or (by default) in more towns.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(*, sizes: str, dense: bool, as_json: bool) -> None:
    """Measure and print; exit with 1 when time grows faster than n log n."""
    rules = read_rules(RULES)
    lines = [asyncio.run(_measure(int(size), rules, dense=dense)) for size in sizes.split(",")]
    growth = lines[-1].per_n_log_n / lines[0].per_n_log_n
    if as_json:
        print(json.dumps({"lines": [asdict(line) for line in lines], "growth": growth}))
    else:
        print(_table(lines))
        print(f"\ntime / (n log n) grew {growth:.2f} times (at most {_GROWTH:g})")
    sys.exit(0 if growth <= _GROWTH else 1)


async def _measure(size: int, rules: Rules, *, dense: bool) -> Line:
    with tempfile.TemporaryDirectory() as folder:
        database = open_database(f"sqlite:///{folder}/bench.sqlite")
        try:
            return await _measure_in(database, size, rules, dense=dense)
        finally:
            database.close()


async def _measure_in(database: Database, size: int, rules: Rules, *, dense: bool) -> Line:
    properties = await _fill(database, size, dense=dense)
    matches = Matches(database)
    found = await find_duplicates(matches, rules, clock=SystemClock())
    precision, recall = await _quality(matches, rules.match, properties)
    await database.write(store_records, [(_record(make_ads(seed=1)[0], "one more"), None, 2.0)])
    one = await find_duplicates(matches, rules, clock=SystemClock())
    return Line(
        records=found.records,
        seconds=found.seconds,
        per_n_log_n=found.seconds / (size * math.log2(size)) * 1e6,
        compared=found.compared,
        crowded=len(found.crowded),
        precision=precision,
        recall=recall,
        seconds_for_one=one.seconds,
    )


async def _fill(database: Database, size: int, *, dense: bool) -> dict[str, Any]:
    ads = _dense(size) if dense else _wide()
    properties: dict[str, Any] = {}
    wanted = islice(ads, size)
    while some := list(islice(wanted, _BATCH)):
        properties |= {record.key: property_ for record, property_ in some}
        await database.write(store_records, [(record, None, 1.0) for record, _ in some])
    return properties


def _dense(size: int) -> Iterator[tuple[Record, Any]]:
    for ad in make_ads(properties=size * 6 // 10, ads=size):
        yield _record(ad, ad.key), ad.property


def _wide() -> Iterator[tuple[Record, Any]]:
    region = 0
    while True:
        for ad in make_ads(seed=region, properties=_REGION * 6 // 10, ads=_REGION):
            record = _record(ad, f"{region}.{ad.key}", region=f" {region}")
            yield record, (region, ad.property)
        region += 1


def _record(ad: Ad, key: str, *, region: str = "") -> Record:
    data = dict(ad.values)
    for name in ("city", "neighbourhood"):
        data[name] = data[name] and f"{data[name]}{region}"
    return Record(
        source=ad.site,
        key=key,
        url=f"http://127.0.0.1/{key}",
        data=data,
        fingerprint=key,
        provenance={},
        notes=(),
        layers={},
        quality=None,
    )


async def _quality(matches: Matches, kind: str, properties: dict[str, Any]) -> tuple[float, float]:
    """Return precision and recall over pairs."""
    right = found = 0
    async for cluster in clusters(matches, kind):
        owners = [properties[row["key"]] for row in cluster.records]
        found += _pairs(len(owners))
        right += sum(_pairs(owners.count(one)) for one in set(owners))
    counts: dict[Any, int] = {}
    for one in properties.values():
        counts[one] = counts.get(one, 0) + 1
    return right / max(1, found), right / max(1, sum(map(_pairs, counts.values())))


def _pairs(count: int) -> int:
    return count * (count - 1) // 2


def _table(lines: list[Line]) -> str:
    head = "records   seconds  µs/(n log n)  compared/record  crowded  precision  recall  one more"
    rows = (
        f"{one.records:7,}  {one.seconds:8.1f}  {one.per_n_log_n:12.2f}"
        f"  {one.compared / one.records:15.1f}  {one.crowded:7,}  {one.precision:9.4f}"
        f"  {one.recall:6.4f}  {one.seconds_for_one * 1000:5.0f} ms"
        for one in lines
    )
    return "\n".join((head, *rows))


if __name__ == "__main__":
    main()
