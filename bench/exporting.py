"""Exports of many records: complete, readable by other programs, and in constant memory.

    python bench/exporting.py --records 1000000

Makes a home with that many records, runs `longline export` in a process of its own for each
format, reads its peak memory, and lets csv, pyarrow and DuckDB count what was written.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from children import LONGLINE, exit_on_sigterm, run
from longline.core.model import Record
from longline.storage.database import open_database
from longline.storage.records import store_records

LARGEST = 300.0  # MB, for each export
_PATIENCE = 3600.0
_AT = 1_790_000_000.0
_PAGE = 1_000
_PRICES = 1_000


@dataclass(frozen=True, slots=True)
class Counted:
    """What a reader found: number of records and keys, and the sum of the prices."""

    records: int
    keys: int
    prices: int


def truth(count: int) -> Counted:
    """Return what every reader must find."""
    whole, rest = divmod(count, _PRICES)
    return Counted(count, count, whole * sum(range(_PRICES)) + sum(range(rest)))


def main() -> None:
    """Measure each format; exit with 1 when a bar is missed."""
    exit_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--formats", default="jsonl,csv,parquet")
    count = parser.parse_args().records
    names = parser.parse_args().formats.split(",")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        asyncio.run(_fill(home, count))
        is_met = [_measured(home, Path(folder) / f"records.{name}", count) for name in names]
    sys.exit(0 if all(is_met) else 1)


async def _fill(home: Path, count: int) -> None:
    home.mkdir()
    database = open_database(f"sqlite:///{home / 'longline.sqlite'}")
    for first in range(0, count, _PAGE):
        page = [(one, None, _AT) for one in _records(first, min(first + _PAGE, count))]
        await database.write(store_records, page)
    database.close()


def _records(first: int, end: int) -> Iterator[Record]:
    for number in range(first, end):
        data = {
            "title": f"Thing {number}, “größer” als der vorige",
            "price": number % _PRICES,
            "area": number / 7,
            "tags": ["new", str(number % 13)],
            "address": {"city": f"City {number % 997}", "floor": number % 9 or None},
            "text": f"A text of some length about thing {number}. " * 8,
            "listed_at": f"2026-{number % 12 + 1:02}-01T00:00:00Z",
            **({"rare": number} if number % 1001 == 0 else {}),
        }
        yield Record("shop", f"key-{number}", f"https://shop.test/{number}", data, f"f{number}")


def _measured(home: Path, path: Path, count: int) -> bool:
    ended = run([LONGLINE, "export", "--home", str(home), "-o", str(path)], timeout=_PATIENCE)
    peak = (ended.peak_bytes or 0) / 1e6
    readers = _READERS[path.suffix]
    if ended.code != 0:
        print(f"{path.name}: exit code {ended.code}: {ended.errors.strip()[-500:]}")
        return False
    found = {reader.__name__.strip("_"): reader(path) for reader in readers}
    wrong = {name: one for name, one in found.items() if one != truth(count)}
    print(
        f"{path.suffix:9} {count:,} records, {path.stat().st_size / 1e6:.0f} MB written, "
        f"peak {peak:.0f} MB (at most {LARGEST:g}), {ended.seconds:.0f} s, "
        f"read by {', '.join(found)}: {wrong or 'complete'}"
    )
    return not wrong and 0 < peak <= LARGEST


def _csv(path: Path) -> Counted:
    records, prices, keys = 0, 0, set()
    with path.open(newline="", encoding="utf-8") as text:
        for row in csv.DictReader(text, strict=True):
            records += 1
            prices += int(row["price"])
            keys.add(row["key"])
    return Counted(records, len(keys), prices)


def _pyarrow(path: Path) -> Counted:
    table = pq.read_table(path, columns=["key", "price"])
    keys = len(table["key"].unique())
    return Counted(table.num_rows, keys, sum(table["price"].to_pylist()))


def _duckdb(path: Path) -> Counted:
    price = "data.price" if path.suffix == ".jsonl" else "price"
    with duckdb.connect() as connection:
        if path.suffix in (".duckdb", ".sqlite"):
            connection.execute(f"ATTACH '{path}' AS made (READ_ONLY)")
            found = connection.table("made.records")
        elif path.suffix == ".jsonl":
            found = connection.read_json(str(path))
        else:
            found = connection.query(f"FROM '{path}'")
        (counted,) = found.aggregate(
            f"count(*), count(DISTINCT key), sum({price})::BIGINT"
        ).fetchall()
    return Counted(*counted)


_READERS: dict[str, tuple[Callable[[Path], Counted], ...]] = {
    ".jsonl": (_duckdb,),
    ".csv": (_csv, _duckdb),
    ".parquet": (_pyarrow, _duckdb),
    ".duckdb": (_duckdb,),
}


if __name__ == "__main__":
    main()
