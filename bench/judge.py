"""Reads the database of a cluster with SQL, without the code of longline."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

FINAL = ("complete", "partial", "failed", "cancelled")
_ENDS = "(" + ", ".join(f"'job.{state}'" for state in FINAL) + ")"
_BACK = 30.0  # seconds until a killed database must respond again
_LOOK = 0.1


@dataclass(frozen=True, slots=True)
class Standing:
    """A snapshot of a job; `finder` holds its discovery, `holders` hold its leases."""

    state: str
    is_discovered: bool
    finder: str | None
    items: int
    stored: int
    finished: int
    holders: tuple[str, ...]

    @property
    def is_final(self) -> bool:
        """Whether no process will continue it."""
        return self.state in FINAL


class Judge:
    """The tables of one database; repeats a query after an outage of the server."""

    def __init__(self, database: Path | str) -> None:
        self._database = database
        self._connection: Any = None

    def prepare(self, open_longline: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        """Create the tables before many processes open the database."""

        async def make() -> None:
            async with open_longline() as longline:
                await longline.store.jobs.list(limit=1)

        asyncio.run(make())

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error, sqlite3.Error):
                self._connection.close()
        self._connection = None

    def query(self, sql: str, *values: Any) -> list[Any]:
        """Return all rows of a query; `values` replace the question marks.

        Raises:
            TimeoutError: the database is still unreachable.
        """
        until = time.monotonic() + _BACK
        while True:
            try:
                return self._ask(sql, values)
            except (psycopg.OperationalError, sqlite3.OperationalError) as error:
                self.close()
                if time.monotonic() > until:
                    message = f"the database does not respond: {error}"
                    raise TimeoutError(message) from error
                time.sleep(_LOOK)

    def number(self, sql: str, *values: Any) -> float:
        """Return the number that a query returns; 0 if there are no rows."""
        rows = self.query(sql, *values)
        return float(rows[0][0] or 0) if rows else 0.0

    def standing(self, job: str) -> Standing:
        """Return a snapshot of a job."""
        state, is_discovered, finder = self.query(
            "SELECT state, is_discovered, discovery_owner FROM jobs WHERE id = ?", job
        )[0]
        states = dict(
            self.query("SELECT state, count(*) FROM items WHERE job_id = ? GROUP BY state", job)
        )
        holders = self.query(
            "SELECT DISTINCT lease_owner FROM items WHERE job_id = ? AND state = 'leased'", job
        )
        items = sum(states.values())
        return Standing(
            state=state,
            is_discovered=bool(is_discovered),
            finder=finder,
            items=items,
            stored=states.get("stored", 0),
            finished=items - states.get("queued", 0) - states.get("leased", 0),
            holders=tuple(row[0] for row in holders if row[0]),
        )

    def await_end(self, job: str, seconds: float) -> Standing:
        """Wait until a job has ended or is paused, at most `seconds`; return a snapshot of it."""
        until = time.monotonic() + seconds
        # Only the state is queried: counting items repeatedly would slow the job down.
        while self._is_running(job) and time.monotonic() < until:
            time.sleep(_LOOK)
        return self.standing(job)

    def _is_running(self, job: str) -> bool:
        state = self.query("SELECT state FROM jobs WHERE id = ?", job)[0][0]
        return state in {"pending", "running"}

    def problems(self, job: str, count: int, *, quarantined: int = 0) -> list[str]:
        """Return why a job does not have `count` items, each stored exactly once, and one end."""
        stored = count - quarantined
        wanted = {
            "items": (count, "SELECT count(*) FROM items WHERE job_id = ?"),
            "items in the state stored": (
                stored,
                "SELECT count(*) FROM items WHERE job_id = ? AND state = 'stored'",
            ),
            "items in quarantine": (
                quarantined,
                "SELECT count(*) FROM items WHERE job_id = ? AND state = 'quarantined'",
            ),
            "records": (stored, "SELECT count(*) FROM records WHERE job_id = ?"),
            "records in their first version": (
                stored,
                "SELECT count(*) FROM records WHERE job_id = ? AND version = 1",
            ),
            "events of stored items": (
                stored,
                "SELECT count(*) FROM events WHERE job_id = ? AND type = 'item.stored'",
            ),
            "different keys in those events": (
                stored,
                "SELECT count(DISTINCT key) FROM events WHERE job_id = ? AND type = 'item.stored'",
            ),
            "ends": (
                1,
                "SELECT count(*) FROM events WHERE job_id = ? AND type IN " + _ENDS,  # noqa: S608  # our own words
            ),
            "leases left": (
                0,
                "SELECT count(*) FROM items WHERE job_id = ? AND state = 'leased'",
            ),
        }
        found = {name: int(self.number(sql, job)) for name, (_, sql) in wanted.items()}
        wrong = [
            f"{found[name]} {name}" for name, (right, _) in wanted.items() if found[name] != right
        ]
        state, reason = self.query("SELECT state, reason FROM jobs WHERE id = ?", job)[0]
        is_right = state == ("partial" if quarantined else "complete")
        return wrong if is_right else [*wrong, f"the job is {state} ({reason})"]

    def _ask(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        if isinstance(self._database, Path):
            return self._ask_file(sql, values)
        if self._connection is None:
            address = self._database.replace("+psycopg", "")
            self._connection = psycopg.connect(address, autocommit=True, connect_timeout=5)
        rows: list[Any] = self._connection.execute(sql.replace("?", "%s"), values).fetchall()
        return rows

    def _ask_file(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        if self._connection is None:
            self._connection = sqlite3.connect(
                f"file:{self._database}?mode=ro", uri=True, timeout=10.0
            )
        return list(self._connection.execute(sql, values).fetchall())
