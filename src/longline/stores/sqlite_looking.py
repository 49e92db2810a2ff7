"""SQLite files on file systems that may only be read here: opened anew for every look."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

from longline.errors import StoreReadOnly

_PAUSES = (0.001, 0.01, 0.1, 1.0)  # seconds, before each further try


def opened_to_look(file: Path, address: str) -> sqlite3.Connection:
    """Open a file that we cannot write; others may, by another mount, at any time.

    So it is right for one look only, and the next one takes another.

    Raises:
        StoreReadOnly: what is in the file is not all, and the rest cannot be read.
    """
    for pause in _PAUSES:
        try:
            return _opened(file.absolute(), address)
        except (sqlite3.OperationalError, StoreReadOnly):
            time.sleep(pause)  # others may just come or go, and their files with them
    return _opened(file.absolute(), address)


def _opened(file: Path, address: str) -> sqlite3.Connection:
    wal, shared = (file.with_name(file.name + end) for end in ("-wal", "-shm"))
    how = "mode=ro"
    if not (wal.exists() and shared.exists()):
        if _size(wal):
            problem = f"its last changes are in {wal.name}, which takes writing to be read"
            raise StoreReadOnly(address, problem)
        # SQLite cannot make the two files here, unless told that nobody changes the database.
        how += "&immutable=1"
    connection = sqlite3.connect(
        f"file:{quote(str(file))}?{how}", uri=True, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA schema_version")  # from here on nobody takes its files away
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
