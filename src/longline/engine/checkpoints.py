"""Checkpoint documents: dated pictures of a job for people and tools.

The truth is the item table: a job goes on from there, whether or not a checkpoint was written.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from longline.core.clock import utc_datetime
from longline.core.errors import StoreFull
from longline.core.files import make_private_file, make_private_folder
from longline.engine.errors import UnknownCheckpoint
from longline.engine.progress import Progress

_KEPT = 100


class Checkpoints:
    """The checkpoint documents of a home, a folder a job, newest kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, progress: Progress, at: float) -> Path:
        """Write a document, whole or not at all; one of the same second is replaced.

        Raises:
            StoreFull: no room is left.
            OSError: it cannot be written for another reason.
        """
        document = snapshot(progress, at)
        path = self._folder / progress.job / f"{document['checkpoint_id']}.json"
        try:
            make_private_folder(self._folder)
            make_private_folder(path.parent)
            _write_whole(path, orjson.dumps(document, option=orjson.OPT_INDENT_2))
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise StoreFull(str(self._folder)) from error
            raise
        for old in sorted(path.parent.glob("*.json"))[:-_KEPT]:
            old.unlink(missing_ok=True)
        return path

    def list(self, job: str | None = None) -> list[dict[str, Any]]:
        """Return the documents, oldest first."""
        found = sorted(self._folder.glob("*/*.json"))
        paths = [path for path in found if job is None or path.parent.name == job]
        documents = [document for path in paths if (document := _read(path)) is not None]
        return sorted(documents, key=lambda document: str(document["checkpoint_id"]))

    def get(self, name: str) -> dict[str, Any]:
        """Return the newest document of this id; "latest" is the newest of all.

        Raises:
            UnknownCheckpoint: there is none.
        """
        documents = self.list()
        if name != "latest":
            documents = [one for one in documents if one["checkpoint_id"] == name]
        if not documents:
            raise UnknownCheckpoint(name)
        return documents[-1]


def _write_whole(path: Path, content: bytes) -> None:
    # Processes that share a job may write in the same second: each needs a name of its own.
    beside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        make_private_file(beside)
        beside.write_bytes(content)
        beside.replace(path)
    finally:
        with suppress(OSError):  # it was renamed or never came to be
            beside.unlink()


def _read(path: Path) -> dict[str, Any] | None:
    """Return a document, or None when somebody has damaged it: nothing depends on it."""
    try:
        document = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    is_whole = isinstance(document, dict) and {"checkpoint_id", "job"} <= set(document)
    return document if is_whole else None


def snapshot(progress: Progress, at: float) -> dict[str, Any]:
    """Return a checkpoint document."""
    return {
        "checkpoint_id": f"{utc_datetime(at):%Y%m%d_%H%M%S}",
        "timestamp": utc_datetime(at).isoformat(),
        "job": progress.job,
        "source": progress.source,
        "state": progress.state.value,
        "total": progress.total,
        "processed": progress.processed,
        "successful": progress.successful,
        "failed": progress.failed,
        "remaining": progress.remaining,
        "last_key": progress.last_key,
        "mean_seconds": progress.mean_seconds,
        "eta_seconds": progress.eta,
    }
