"""Pages that failed, kept as a picture and as HTML for whoever wants to know why."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from pathlib import Path

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from longline.clock import Clock, moment
from longline.private import make_private_file, make_private_folder

_LONGEST = 5.0  # seconds; a page that hangs may not even be able to be shown
_UNSAFE = re.compile(r"[^A-Za-z0-9]+")
_MOST_LETTERS = 60


class Failures:
    """A folder that holds the latest failed pages, and no more than so many."""

    def __init__(self, folder: Path | None, most: int, clock: Clock) -> None:
        self._folder = folder if most else None
        self._most = most
        self._clock = clock

    async def keep(self, page: Page, url: str) -> Path | None:
        """Keep how a page looks now; return the path without its ending, None if it could not."""
        if self._folder is None:
            return None
        make_private_folder(self._folder)
        stem = self._folder / self._name(url)
        with suppress(PlaywrightError, TimeoutError, OSError):
            async with asyncio.timeout(_LONGEST):
                html = await page.content()
                for ending in (".html", ".png"):
                    make_private_file(stem.with_suffix(ending))
                stem.with_suffix(".html").write_text(html, "utf-8")
                await page.screenshot(path=stem.with_suffix(".png"), timeout=0)
        self._forget_old(self._folder)
        return stem if stem.with_suffix(".html").exists() else None

    def _name(self, url: str) -> str:
        when = moment(self._clock.now()).strftime("%Y%m%dT%H%M%S%f")
        address = _UNSAFE.sub("-", url.partition("://")[2].partition("?")[0])
        return f"{when}-{address[:_MOST_LETTERS].strip('-')}"

    def _forget_old(self, folder: Path) -> None:
        pages = sorted(folder.glob("*.html"))
        for old in pages[: max(0, len(pages) - self._most)]:
            old.unlink(missing_ok=True)
            old.with_suffix(".png").unlink(missing_ok=True)
