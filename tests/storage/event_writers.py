"""Processes that all append events to one database, some in transactions that stay open.

Usage: event_writers.py ADDRESS PROCESSES TRANSACTIONS EVENTS [no-turns]. Started by
test_event_order.py. Each process prints a line of JSON per transaction: its name, and when its
write was called and returned, by the monotonic clock that all processes share. With `no-turns`, the
writers do not wait for each other before they insert their events.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import sys
import time

from sqlalchemy import Connection

from longline.storage.database import Database, defer_write, open_database
from longline.storage.events import events
from longline.storage.events.events import append_events, event_row

LONGEST = 2.0  # seconds that one transaction of all stays open
HELD = 0.05  # share of the others that stay open for a short time


def transact(connection: Connection, name: str, count: int, before: float, after: float) -> None:
    """Append events, with a pause before they are inserted, and one before the commit."""
    rows = [event_row(None, time.time(), "custom.written", key=f"{name}-{n}") for n in range(count)]
    append_events(connection, rows)
    time.sleep(before)
    defer_write(connection, lambda _connection, _arguments: time.sleep(after), None, is_last=True)


async def write(database: Database, process: int, transactions: int, count: int) -> None:
    chance = random.Random(process)
    for number in range(transactions):
        name = f"{process}-{number}"
        before = after = 0.0
        if chance.random() < HELD:
            before, after = chance.uniform(0, 0.2), chance.uniform(0, 0.1)
        if (process, number) == (0, transactions // 3):
            before = LONGEST
        if (process, number) == (1, transactions // 2):
            after = LONGEST / 4
        called = time.monotonic()
        await database.write(transact, name, count, before, after)
        sys.stdout.write(json.dumps([name, called, time.monotonic()]) + "\n")
        sys.stdout.flush()


def run(address: str, process: int, transactions: int, count: int) -> None:
    database = open_database(address)
    asyncio.run(write(database, process, transactions, count))
    database.close()


def main(address: str, processes: int, transactions: int, count: int) -> int:
    started = [
        multiprocessing.Process(target=run, args=(address, one, transactions, count))
        for one in range(processes)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join()
    return max(process.exitcode or 0 for process in started)


if __name__ == "__main__":
    if "no-turns" in sys.argv:
        setattr(events, "wait_for_turn", lambda _connection: None)  # noqa: B010  # mypy knows its type
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:5])))
