"""HTML guard: refuse HTML that takes a parser too much time or memory.

HTML parsing is quadratic, and worse, in the depth of a page, its open formatting elements and the
attributes of a tag, and no parser can be interrupted. Most pages are too small for that, or have
too few open tags. Others are first parsed in a process that the kernel kills when it takes too long
(docs/decisions/0036-html-is-probed.md).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from longline.core.model import Usage
from longline.core.piped_program import PipedProgram
from longline.http.errors import BadAnswer
from longline.http.messages import Middleware, Page, Request, may_be_html
from longline.http.middleware import html_probe
from longline.http.middleware.html_probe import GOOD

_WAIT = 30.0  # seconds; the process limits its processor time to far less
_TOO_COSTLY = (
    "its HTML takes too long or too much memory to parse (tags nested too deeply, too many "
    "attributes or elements)"
)

_FEW_TAGS = 1_500
_SOME_TAGS = 5_000  # even all of them nested, and none a formatting element, take 0.1 s
_MANY_TAGS = 20_000
_FEW_BYTES = 50_000
_MANY_BYTES = 250_000
_UNCLOSED = 40_000_000  # tags times unclosed tags: about 0.1 s
_FORMATTING = 1_000_000  # tags times formatting tags: elements that a parser may make of them
# Formatting elements with attributes; without, no more than three of a kind are reopened.
# Written in both cases, which takes a third of the time of IGNORECASE.
_FORMATS = re.compile(
    rb"<[bBiIsSuUcCeEfFnNtT](?:|[iI][gG]|[oO][dD][eE]|[mM]|[oO][nN][tT]|[oO][bB][rR]"
    rb"|[mM][aA][lL][lL]|[tT][rR][iI][kK][eE]|[tT][rR][oO][nN][gG]|[tT])[\t\n\f\r /]"
)
_LONG = 8_000  # bytes of a tag; ordinary ones are short
_LONG_TAG = re.compile(rb"<[A-Za-z][^<>]{%d}" % _LONG)


def is_suspicious(body: bytes) -> bool:
    """Return whether HTML may take a parser longer than its length suggests."""
    tags, size = body.count(b"<"), len(body)
    if tags <= _FEW_TAGS and size <= _FEW_BYTES:
        return False
    if tags > _MANY_TAGS or size > _MANY_BYTES or _has_long_tag(body):
        return True
    if tags > _FEW_TAGS and len(_FORMATS.findall(body)) * tags > _FORMATTING:
        return True
    return tags > _SOME_TAGS and (tags - 2 * body.count(b"</")) * tags > _UNCLOSED


def _has_long_tag(body: bytes) -> bool:
    # A tag of twice the length fills a whole window, which is cheap to detect.
    windows = range(0, len(body) - _LONG, _LONG)
    if all(body.find(b"<", start, start + _LONG) >= 0 for start in windows):
        return False
    return _LONG_TAG.search(body) is not None


class HtmlProbe(PipedProgram):
    """Parses texts in a child process, one at a time."""

    def __init__(self) -> None:
        super().__init__(html_probe.__file__, timeout=_WAIT)

    def __call__(self, text: bytes) -> bool:
        """Return whether parsing ends in time; block until then."""
        return self.ask(text) == GOOD


class HtmlGuard(Middleware):
    """Raises BadAnswer for a page that would take a parser too long; `probe` tries it first."""

    def __init__(self, inner: Middleware, probe: Callable[[bytes], bool]) -> None:
        self._inner = inner
        self._probe = probe

    async def __call__(self, request: Request, usage: Usage) -> Page:
        page = await self._inner(request, usage)
        if not may_be_html(page.headers) or not is_suspicious(page.body):
            return page
        text = await asyncio.to_thread(lambda: page.text.encode("utf-8", "replace"))
        if not await asyncio.to_thread(self._probe, text):
            raise BadAnswer(request.url, _TOO_COSTLY)
        return page
