"""A source for trials of the cluster: a list in pages, slow items, and a poison item."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic import Field

from longline import Cursor, Item, Options, Source, Visit, layer


class TrialOptions(Options):
    """Name and size of the trial, and the item that kills the process that works on it."""

    base_url: str
    trial: str
    count: int = Field(80, ge=1)
    pages: int = Field(8, ge=1)
    poison: int = Field(-1, description="the number of the deadly item; none by default")
    marks: str = Field("", description="a file that gets a line when the job is over")


class Trials(Source):
    """Items whose keys begin with the name of their trial."""

    name = "trials"
    Options = TrialOptions

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Read the list page by page; a cursor follows each."""
        wanted = self.options
        size = -(-wanted.count // wanted.pages)
        for page in range((visit.cursor or {}).get("page", 0), wanted.pages):
            await visit.fetch(f"{wanted.base_url}/list/{wanted.trial}/{page}")
            for number in range(page * size, min((page + 1) * size, wanted.count)):
                key = f"{wanted.trial}-{number:05}"
                yield Item(key, f"{wanted.base_url}/item/{key}", data={"number": number})
            yield Cursor({"page": page + 1})

    @layer()
    async def told(self, visit: Visit) -> dict[str, Any]:
        """Read an item; the poison item kills the process after its page was received."""
        page = await visit.fetch(visit.item.url)
        if visit.item.data["number"] == self.options.poison:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"title": page.first_text("h1")}

    async def finished(self, visit: Visit) -> None:
        """Leave a mark."""
        del visit
        if self.options.marks:
            with Path(self.options.marks).open("a", encoding="utf-8") as file:
                file.write(f"{self.options.trial}\n")
