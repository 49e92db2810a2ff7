"""A page to play with: fetched politely, with the tools to look at it, for a prompt."""

from __future__ import annotations

import asyncio
import pydoc
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from html import escape
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urljoin, urlsplit

from selectolax.lexbor import LexborNode

from longline.config.job_spec import JobSpec
from longline.config.settings import Settings
from longline.core.clock import Clock, SystemClock
from longline.core.errors import BadOption, UnexpectedShape
from longline.core.model import Usage
from longline.devtools.bench import open_page_link
from longline.devtools.exchanges import Watching
from longline.http.messages import Page, Request

T = TypeVar("T")
_ANY_ANSWER = frozenset(range(400, 600))
WORDS = {
    "page": "the answer: page.status, page.headers, page.text, page.css(…)",
    "fetch(url)": "another page, politely; it becomes `page`; url may be relative to `page`",
    "css(selector)": "the elements that match",
    "text(selector)": "the text of each of them",
    "json": "the answer as JSON; None when it is none",
    "view()": "the page in a web browser, as it was received",
    "help": "this list; help(thing) explains a Python object",
}
"""What there is at the prompt, and what it is for."""


class Help:
    """The `help` of the prompt: shows what there is; called with an object, explains it."""

    def __repr__(self) -> str:
        return "\n".join(f"  {name:16} {about}" for name, about in WORDS.items())

    def __call__(self, *things: Any) -> None:
        if things:
            pydoc.help(*things)
        else:
            print(self)  # noqa: T201  # the answer of a prompt


class PageShell:
    """Fetches pages for a person, who need not know of event loops: they run in a thread.

    Args:
        settings: the home, whose limits are shared.
        spec: the source whose manners count, or SINGLE for none.
        clock: what time it is.
        show: opens an address for the person to see.
    """

    def __init__(
        self,
        settings: Settings,
        spec: JobSpec,
        *,
        clock: Clock | None = None,
        show: Callable[[str], object] = webbrowser.open,
    ) -> None:
        self._settings = settings
        self._spec = spec
        self._clock = clock or SystemClock()
        self._show = show
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._ends = AsyncExitStack()
        self._link: Watching | None = None
        self.names: dict[str, Any] = {
            "fetch": self.fetch,
            "css": self.css,
            "text": self.text,
            "view": self.view,
            "help": Help(),
        }
        """What the prompt knows; `page` and `json` change with every page."""

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            opening = open_page_link(self._settings, self._spec, self._clock)
            self._link = self._wait(self._ends.enter_async_context(opening))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._wait(self._ends.aclose())
        finally:
            self._end()

    @property
    def page(self) -> Page:
        """The last page.

        Raises:
            LookupError: none was fetched yet.
        """
        if "page" not in self.names:
            message = "there is no page yet: fetch(url) one"
            raise LookupError(message)
        page: Page = self.names["page"]
        return page

    def fetch(self, url: str) -> Page:
        """Return a page, whatever its status; it becomes `page`.

        Args:
            url: an address, or one that is relative to the last page.

        Raises:
            BadOption: it is not an http or https address.
            FetchError: there is no answer, or robots.txt does not allow to ask.
        """
        assert self._link is not None  # noqa: S101  # the shell is open
        request = Request(self._address(url), accept=_ANY_ANSWER)
        page = self._wait(self._link(request, Usage()))
        self.names["page"] = page
        self.names["json"] = _json_of(page)
        return page

    def css(self, selector: str) -> list[LexborNode]:
        """Return the elements of the page that match."""
        return self.page.css(selector)

    def text(self, selector: str) -> list[str]:
        """Return the text of the elements that match."""
        return [" ".join(node.text(separator=" ").split()) for node in self.css(selector)]

    def view(self) -> str:
        """Open the page in a web browser, as it was received; return where it was put."""
        page = self.page
        # With its address, so that styles and pictures are found.
        base = f'<base href="{escape(page.url)}">'
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", suffix=".html", prefix="longline-", delete=False
        ) as file:
            file.write(f'<!DOCTYPE html><meta charset="utf-8">{base}\n{page.text}')
        address = Path(file.name).as_uri()
        self._show(address)
        return address

    def _address(self, url: str) -> str:
        last = self.names.get("page")
        try:
            address = urljoin(last.url, url.strip()) if last is not None else url.strip()
            parts = urlsplit(address)
        except ValueError as error:
            raise BadOption("URL", f"{url!r} is not an address: {error}") from error
        if parts.scheme.lower() not in {"http", "https"} or not parts.hostname:
            problem = f"{url!r} is not an address of a page; write https://example.com/page"
            raise BadOption("URL", problem)
        return address

    def _wait(self, task: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(task, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


def _json_of(page: Page) -> Any:
    try:
        return page.json
    except UnexpectedShape:
        return None
