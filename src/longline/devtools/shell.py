"""Fetch pages at a Python prompt, within the limits of a home."""

from __future__ import annotations

import pydoc
import tempfile
import webbrowser
from collections.abc import Callable
from contextlib import AsyncExitStack
from html import escape
from pathlib import Path
from typing import Any, Self
from urllib.parse import urljoin, urlsplit

from selectolax.lexbor import LexborNode

from longline.config.job_spec import JobSpec
from longline.config.settings import Settings
from longline.core.clock import Clock, SystemClock
from longline.core.errors import BadOption, UnexpectedShape
from longline.core.model import Usage
from longline.core.threads import LoopThread
from longline.devtools.session import ExchangeLog, open_page_chain
from longline.http.messages import Page, Request

_ANY_STATUS = frozenset(range(400, 600))
WORDS = {
    "page": "the response: page.status, page.headers, page.text, page.css(…)",
    "fetch(url)": "fetch another page as `page`; url may be relative to `page`",
    "css(selector)": "the elements that match",
    "text(selector)": "the text of each of them",
    "json": "the response as JSON; None when it is not JSON",
    "view()": "open the page in a web browser, as it was received",
    "help": "this list; help(thing) explains a Python object",
}
"""The names at the prompt."""


class Help:
    """The `help` of the prompt: lists its names; called with an object, explains it."""

    def __repr__(self) -> str:
        return "\n".join(f"  {name:16} {about}" for name, about in WORDS.items())

    def __call__(self, *things: Any) -> None:
        if things:
            pydoc.help(*things)
        else:
            print(self)  # noqa: T201  # the output of a prompt


class PageShell:
    """Fetches pages for code without an event loop.

    Args:
        settings: the home, whose limits apply.
        spec: the source whose settings apply, or NO_SOURCE.
        clock: the time.
        show: opens an address for the user.
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
        self._ends = AsyncExitStack()
        self._link: ExchangeLog | None = None
        self.names: dict[str, Any] = {
            "fetch": self.fetch,
            "css": self.css,
            "text": self.text,
            "view": self.view,
            "help": Help(),
        }
        """The names at the prompt; `page` and `json` change with every page."""

    def __enter__(self) -> Self:
        self._loop = LoopThread("longline-shell")
        try:
            opening = open_page_chain(self._settings, self._spec, self._clock)
            self._link = self._loop.run(self._ends.enter_async_context(opening))
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self._loop.run(self._ends.aclose())
        finally:
            self._loop.close()

    @property
    def page(self) -> Page:
        """The last page.

        Raises:
            LookupError: none was fetched yet.
        """
        if "page" not in self.names:
            message = "no page was fetched; use fetch(url)"
            raise LookupError(message)
        page: Page = self.names["page"]
        return page

    def fetch(self, url: str) -> Page:
        """Fetch a page as `page`, with any status.

        Args:
            url: an address, or one that is relative to the last page.

        Raises:
            BadOption: it is not an http or https address.
            FetchError: there is no response, or robots.txt disallows the address.
        """
        assert self._link is not None  # noqa: S101  # the shell is open
        request = Request(self._resolve_url(url), accept=_ANY_STATUS)
        page = self._loop.run(self._link(request, Usage()))
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
        """Open the page in a web browser, as it was received; return the address of the file."""
        page = self.page
        # With its address, so that relative links to styles and images work.
        base = f'<base href="{escape(page.url)}">'
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", suffix=".html", prefix="longline-", delete=False
        ) as file:
            file.write(f'<!DOCTYPE html><meta charset="utf-8">{base}\n{page.text}')
        address = Path(file.name).as_uri()
        self._show(address)
        return address

    def _resolve_url(self, url: str) -> str:
        last = self.names.get("page")
        try:
            address = urljoin(last.url, url.strip()) if last is not None else url.strip()
            parts = urlsplit(address)
        except ValueError as error:
            raise BadOption("URL", f"{url!r} is not an address: {error}") from error
        if parts.scheme.lower() not in {"http", "https"} or not parts.hostname:
            problem = f"must be a full URL like https://example.org/a, not {url!r}"
            raise BadOption("URL", problem)
        return address


def _json_of(page: Page) -> Any:
    try:
        return page.json
    except UnexpectedShape:
        return None
