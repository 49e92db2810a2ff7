"""The contestant without a framework: aiohttp, selectolax and SQLite in one loop.

What a competent engineer writes in an afternoon. It commits each page immediately, but it does not
resume, retry, respect limits or validate fields.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import click
from selectolax.lexbor import LexborHTMLParser

from children import peak_memory
from contest import Score
from pages import FIELDS, addresses, digest

_INSERT = f"INSERT INTO pages VALUES ({', '.join('?' * (len(FIELDS) + 1))})"  # noqa: S608  # our own names


@click.command()
@click.argument("url")
@click.argument("count", type=int)
@click.argument("concurrency", type=int)
@click.argument("folder", type=click.Path(path_type=Path))
def main(url: str, count: int, concurrency: int, folder: Path) -> None:
    """Collect COUNT pages below URL into a database in FOLDER."""
    database = _open(folder / "pages.sqlite")
    started = time.perf_counter()
    asyncio.run(_collect(addresses(url, count), concurrency, database))
    seconds = time.perf_counter() - started
    peak = peak_memory()
    database.row_factory = sqlite3.Row
    rows = [dict(row) for row in database.execute("SELECT * FROM pages")]
    Score(len(rows), seconds, peak, digest(rows)).print_json()


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)  # every INSERT commits itself
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute(f"CREATE TABLE pages (url TEXT PRIMARY KEY, {', '.join(FIELDS)})")
    return database


async def _collect(
    wanted: Iterator[tuple[str, str]], concurrency: int, database: sqlite3.Connection
) -> None:
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(_work(wanted, session, database))


async def _work(
    wanted: Iterator[tuple[str, str]],
    session: aiohttp.ClientSession,
    database: sqlite3.Connection,
) -> None:
    for _, url in wanted:  # all workers share this iterator
        async with session.get(url) as response:
            response.raise_for_status()
            text = await response.text()
        database.execute(_INSERT, (url, *_parse(text)))


def _parse(text: str) -> Iterator[str | None]:
    tree = LexborHTMLParser(text)
    for field in FIELDS.values():
        node = tree.css_first(field.css)
        if node is None:
            yield None
        elif field.attribute:
            yield node.attributes.get(field.attribute)
        else:
            yield node.text(strip=True)


if __name__ == "__main__":
    main()
