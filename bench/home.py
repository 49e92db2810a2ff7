"""Reads the database of a home without the code of longline."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any


class Home:
    """A home folder whose job has ended; nothing in it is changed."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "longline.sqlite"

    def records(self) -> list[dict[str, Any]]:
        """Return the data of every record."""
        return [json.loads(row[0]) for row in self.query("SELECT data FROM records")]

    def states(self) -> Counter[str]:
        """Return the number of items in each state, over all jobs."""
        return Counter(dict(self.query("SELECT state, count(*) FROM items GROUP BY state")))

    def number(self, sql: str) -> int:
        """Return the number that a query returns; 0 if there are no rows."""
        return int(self.query(sql)[0][0] or 0)

    def query(self, sql: str) -> list[Any]:
        """Return all rows of a query; none while the database or table does not exist."""
        if not self._file.is_file():
            return []
        database = sqlite3.connect(f"file:{self._file}?mode=ro", uri=True, timeout=10.0)
        try:
            return database.execute(sql).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            return []
        finally:
            database.close()

    def problems(self, count: int) -> list[str]:
        """Return why these are not `count` items, each stored exactly once."""
        figures = {
            "items": self.number("SELECT count(*) FROM items"),
            "items in the state stored": self.states()["stored"],
            "records": self.number("SELECT count(*) FROM records"),
            "different keys of records": self.number("SELECT count(DISTINCT key) FROM records"),
            "records in their first version": self.number(
                "SELECT count(*) FROM records WHERE version = 1"
            ),
            "events of stored items": self.number(
                "SELECT count(*) FROM events WHERE type = 'item.stored'"
            ),
            "different keys in those events": self.number(
                "SELECT count(DISTINCT key) FROM events WHERE type = 'item.stored'"
            ),
        }
        wrong = [f"{found} {name}" for name, found in figures.items() if found != count]
        integrity = str(self.query("PRAGMA integrity_check")[0][0])
        return wrong if integrity == "ok" else [*wrong, integrity]
