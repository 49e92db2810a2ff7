"""A source whose records have one file each; for the proof of files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from longline.core.model import Item
from longline.sources.base import Options, Source, Visit, layer


class FileOptions(Options):
    """Where the files are, and how many."""

    site: str
    count: int


class Files(Source):
    """The files /file/0, /file/1, … of a site."""

    name = "files"
    rate = None
    retry = {"attempts": 8, "base": 0.1, "max": 0.5}  # noqa: RUF012  # as in a job file
    Options = FileOptions

    async def discover(self, visit: Visit) -> AsyncIterator[Item]:
        """Yield an item for each file."""
        del visit
        for number in range(self.options.count):
            yield Item(str(number), f"{self.options.site}/file/{number}")

    @layer()
    async def file(self, visit: Visit) -> dict[str, Any]:
        """Download the file."""
        return {"file": await visit.download(visit.item.url, required=True)}
