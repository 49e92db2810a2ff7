"""Which characters the bytes of a page stand for."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache

_DECLARED = re.compile(rb"charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.\-]+)", re.IGNORECASE)
_SNIFFED_BYTES = 2048
# Codecs that Python has besides; they fail in ways of their own, or make halves of characters.
_NOT_OF_PAGES = frozenset(
    {
        *("idna", "mbcs", "oem", "punycode", "raw-unicode-escape", "raw_unicode_escape"),
        *("undefined", "unicode-escape", "unicode_escape", "utf-7"),
    }
)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MARKS = tuple(mark for mark, _ in _BOMS)


def decode(body: bytes, content_type: str) -> str:
    """Return the text of a body.

    A byte order mark wins, then the header, then the page's own declaration, then UTF-8; each
    only if every byte fits, because sites declare what they do not send. What is left is guessed
    from the bytes, and replaced where nothing fits: a page is never lost to its character set.
    """
    if (declared := _named(content_type)) and not body.startswith(_MARKS):
        with suppress(UnicodeError, LookupError):
            return body.decode(declared)  # as nearly always
    for name in _candidates(body, content_type):
        try:
            return body.decode(name)
        except (UnicodeError, LookupError):
            continue
    return _guess(body)


def _candidates(body: bytes, content_type: str) -> Iterator[str]:
    yield from (name for bom, name in _BOMS if body.startswith(bom))
    if declared := _named(content_type):
        yield declared
    if (found := _DECLARED.search(body, 0, _SNIFFED_BYTES)) and (name := _known(found[1])):
        yield name
    yield "utf-8"


@lru_cache(maxsize=256)
def _named(content_type: str) -> str | None:
    found = _DECLARED.search(content_type.encode("latin-1", "ignore"))
    return _known(found[1]) if found else None


def _known(name: bytes) -> str | None:
    """Return the name of a character set that pages are written in; None for any other."""
    text = name.decode("ascii")
    try:
        codec = codecs.lookup(text)
    except (LookupError, ValueError):
        return None
    return None if codec.name in _NOT_OF_PAGES else text


def _guess(body: bytes) -> str:
    # Slow to import and seldom needed: most pages are what they say or UTF-8.
    from charset_normalizer import from_bytes  # noqa: PLC0415

    best = from_bytes(body[:65536]).best()
    return body.decode(best.encoding if best else "utf-8", "replace")
