"""The link that refuses HTML which a parser cannot read in reasonable time and memory.

The HTML algorithm is quadratic, and worse, in the depth of a page, its open formatting elements and
the attributes of a tag, and no parser can be interrupted. Most pages are too small for that to
matter, or have too few open tags, which three counts show. Others are parsed in a process that the
kernel ends when they take too long (docs/decisions/0036-html-is-probed.md).
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Protocol

from longline.core.model import Usage
from longline.http.errors import BadAnswer
from longline.http.messages import Page, Request, may_be_html
from longline.http.middleware import html_probe
from longline.http.middleware.base import Middleware
from longline.http.middleware.html_probe import GOOD, SIZE

# Started by its path: as a module it would first import the whole package.
_PROGRAM = (sys.executable, "-P", html_probe.__file__)
_WAIT = 30.0  # seconds; the process limits itself to far less of processor time
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
# Formatting elements with attributes; without, no more than three of a kind are opened again.
# Written out in both cases, which takes a third of the time that IGNORECASE does.
_FORMATS = re.compile(
    rb"<[bBiIsSuUcCeEfFnNtT](?:|[iI][gG]|[oO][dD][eE]|[mM]|[oO][nN][tT]|[oO][bB][rR]"
    rb"|[mM][aA][lL][lL]|[tT][rR][iI][kK][eE]|[tT][rR][oO][nN][gG]|[tT])[\t\n\f\r /]"
)
_LONG = 8_000  # bytes of a tag; an ordinary one is short
_LONG_TAG = re.compile(rb"<[A-Za-z][^<>]{%d}" % _LONG)


def is_suspicious(body: bytes) -> bool:
    """Whether HTML may take a parser longer than its length suggests."""
    tags, size = body.count(b"<"), len(body)
    if tags <= _FEW_TAGS and size <= _FEW_BYTES:
        return False
    if tags > _MANY_TAGS or size > _MANY_BYTES or _has_long_tag(body):
        return True
    if tags > _FEW_TAGS and len(_FORMATS.findall(body)) * tags > _FORMATTING:
        return True
    return tags > _SOME_TAGS and (tags - 2 * body.count(b"</")) * tags > _UNCLOSED


def _has_long_tag(body: bytes) -> bool:
    # A tag of twice the length fills a whole window, which is cheap to see.
    windows = range(0, len(body) - _LONG, _LONG)
    if all(body.find(b"<", start, start + _LONG) >= 0 for start in windows):
        return False
    return _LONG_TAG.search(body) is not None


class Probe(Protocol):
    """Finds out whether a text can be parsed."""

    def __call__(self, text: bytes) -> bool:
        """Return whether parsing it ends in time; blocks until that is known."""


class HtmlProbe(Probe):
    """Parses texts in a process of its own, one at a time, which is started when it is needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def __call__(self, text: bytes) -> bool:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = _start()
            is_good = _ask(self._process, text)
            if not is_good:
                _end(self._process)
                self._process = None
            return is_good

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            if self._process is not None:
                _end(self._process)
                self._process = None


class HtmlGuard(Middleware):
    """Raises BadAnswer for a page that would take a parser too long.

    Args:
        inner: The next link.
        probe: What parses suspicious pages for a try.
    """

    def __init__(self, inner: Middleware, probe: Probe) -> None:
        self._inner = inner
        self._probe = probe

    async def __call__(self, request: Request, usage: Usage) -> Page:
        page = await self._inner(request, usage)
        if not may_be_html(page.headers) or not is_suspicious(page.body):
            return page
        is_good = await asyncio.to_thread(self._probed, page)
        if not is_good:
            raise BadAnswer(request.url, _TOO_COSTLY)
        return page

    def _probed(self, page: Page) -> bool:
        return self._probe(page.text.encode("utf-8", "replace"))


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603  # our own module
        _PROGRAM,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _ask(process: subprocess.Popen[bytes], text: bytes) -> bool:
    if process.stdin is None or process.stdout is None:
        return False
    killing = threading.Timer(_WAIT, process.kill)
    killing.daemon = True
    killing.start()
    try:
        process.stdin.write(SIZE.pack(len(text)))
        process.stdin.write(text)
        process.stdin.flush()
        return process.stdout.read(1) == GOOD
    except OSError:
        return False
    finally:
        killing.cancel()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with suppress(OSError):
        process.communicate(timeout=5)
