"""Where the last complete run of a source ended, kept between its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from longline.resilience.keepers.cells import Cells
from longline.sources.adapters.api_records import digest


@dataclass(frozen=True, slots=True)
class Bookmark:
    """The latest that was seen: seconds since 1970, or an integer of the API's own."""

    value: float


class Bookmarks(Protocol):
    """Bookmarks by name."""

    async def read(self, name: str) -> float | None:
        """Return where the last complete run ended; None when there was none."""

    async def write(self, name: str, value: float) -> None:
        """Keep where a run ended; one that lies behind the kept one changes nothing."""


class MemoryBookmarks(Bookmarks):
    """Bookmarks that are gone when the process ends."""

    def __init__(self) -> None:
        self._values: dict[str, float] = {}

    async def read(self, name: str) -> float | None:
        return self._values.get(name)

    async def write(self, name: str, value: float) -> None:
        self._values[name] = max(value, self._values.get(name, value))


class CellBookmarks(Bookmarks):
    """Bookmarks in cells, shared by all who open them."""

    def __init__(self, cells: Cells[Bookmark]) -> None:
        self._cells = cells

    async def read(self, name: str) -> float | None:
        kept, _now = await self._cells.read(name)
        return None if kept is None else kept.value

    async def write(self, name: str, value: float) -> None:
        def step(kept: Bookmark | None, _now: float) -> tuple[Bookmark, None]:
            return (kept if kept and kept.value >= value else Bookmark(value)), None

        await self._cells.change(name, step)


def bookmark_name(source: str, endpoint: str, base_url: str, parameters: Mapping[str, Any]) -> str:
    """Return the name of a bookmark: jobs share one when they ask the same of the same API."""
    return f"{source}/{endpoint}/{digest([base_url, parameters])}"
