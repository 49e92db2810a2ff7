"""Sitemaps and feeds, judged by the parser of ultimate-sitemap-parser.

The package publishes no tests, neither in its source distributions nor in its wheels (0.1 to
1.8.1), so its parser is the judge: both read the same generated documents, and the addresses must
be the same, in the same order. Some documents are cut off; both read them up to that place.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from longline.core.errors import UnexpectedShape
from longline.http.messages import Page
from longline.sources.html.sitemaps import read_sitemap
from others_frame import Suite, Verdict

_CASES = 400
_SEED = 1_800_000
_SHARE_CUT = 0.15
_SHARE_WITH_IMAGE = 0.3
_SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9"
_IMAGE = "http://www.google.com/schemas/sitemap-image/1.1"
_NEWS = "http://www.google.com/schemas/sitemap-news/0.9"
_PATHS = ("a", "shop/item-7", "düsseldorf", "q?x=1&y=2", "list?page=3#top", "%7Euser/", "片/1")
_DATES = ("", "<lastmod>2024-02-29</lastmod>", "<lastmod>2024-02-29T10:00:00+02:00</lastmod>")
_CUT = "the entry at which a document is cut off is left out; the job is partial, with the reason"


def judge(folder: Path) -> list[Verdict]:
    """Read generated documents with both parsers; each document is a case."""
    sys.path.insert(0, str(folder))
    try:
        from usp.tree import sitemap_from_str  # noqa: PLC0415  # it was just downloaded
    finally:
        sys.path.remove(str(folder))
    logging.getLogger("usp").setLevel(logging.CRITICAL)  # it reports each cut document
    draw = random.Random(_SEED)  # the same documents each time
    makers = (_urlset, _urlset, _index, _rss, _atom, _text)
    cases = []
    for number in range(_CASES):
        make = makers[number % len(makers)]
        text = make(draw, [_address(draw) for _ in range(draw.randrange(1, 9))])
        is_cut = make is not _text and draw.random() < _SHARE_CUT
        if is_cut:
            text = text[: draw.randrange(len(text) // 3, len(text))]
        name = f"{number} {make.__name__.strip('_')}{' cut' if is_cut else ''}"
        cases.append(_verdict(name, text, sitemap_from_str, is_cut=is_cut))
    return cases


def _verdict(name: str, text: str, parse: Callable[[str], Any], *, is_cut: bool) -> Verdict:
    expected = _addresses(parse(text))
    try:
        page = Page("http://site.test/", 200, {}, text.encode())
        found = list(dict.fromkeys(read_sitemap(page).urls))
    except UnexpectedShape:
        found = []
    if found == expected:
        return Verdict(name, str(expected), str(found), "right")
    if is_cut and found == expected[:-1]:
        return Verdict(name, str(expected), str(found), "policy", _CUT)
    return Verdict(name, str(expected), str(found), "wrong" if found else "refused")


def _addresses(sitemap: Any) -> list[str]:
    below = getattr(sitemap, "sub_sitemaps", None) or []
    pages = getattr(sitemap, "pages", None) or []
    return list(dict.fromkeys([one.url for one in below] or [one.url for one in pages]))


def _address(draw: random.Random) -> str:
    host = draw.choice(("http://site.test", "https://site.test", "https://www.site.test"))
    return f"{host}/{draw.choice(_PATHS)}{draw.randrange(99)}"


def _loc(draw: random.Random, address: str, tag: str = "loc") -> str:
    inside = draw.choice((escape(address), f"<![CDATA[{address}]]>", f"\n  {escape(address)}\n "))
    return f"<{tag}>{inside}</{tag}>"


def _document(draw: random.Random, root: str, body: str, spaces: str) -> str:
    head = draw.choice(("", '<?xml version="1.0" encoding="UTF-8"?>\n', '<?xml version="1.0"?>'))
    comment = draw.choice(("", "<!-- made by a shop -->", "\n"))
    return f"{head}{comment}<{root} {spaces}>{body}</{root}>\n"


def _urlset(draw: random.Random, addresses: Sequence[str]) -> str:
    return _document(draw, "urlset", "".join(_entry(draw, one) for one in addresses), _spaces(draw))


def _entry(draw: random.Random, address: str) -> str:
    parts = [
        _loc(draw, address),
        draw.choice(_DATES),
        draw.choice(("", "<changefreq>daily</changefreq>", "<priority>0.5</priority>")),
    ]
    if draw.random() < _SHARE_WITH_IMAGE:
        parts.append(f"<image:image><image:loc>{escape(address)}.png</image:loc></image:image>")
    draw.shuffle(parts)
    return f"<url>{draw.choice(('', chr(10))).join(parts)}</url>"


def _spaces(draw: random.Random) -> str:
    return draw.choice((f'xmlns="{_SITEMAP}"', f"xmlns='{_SITEMAP}' xmlns:news='{_NEWS}'")) + (
        f' xmlns:image="{_IMAGE}"'
    )


def _index(draw: random.Random, addresses: Sequence[str]) -> str:
    body = "".join(f"<sitemap>{_loc(draw, one)}</sitemap>" for one in addresses)
    return _document(draw, "sitemapindex", body, f'xmlns="{_SITEMAP}"')


def _rss(draw: random.Random, addresses: Sequence[str]) -> str:
    items = "".join(
        f"<item><title>A &amp; B</title>{_loc(draw, one, 'link')}<guid>{number}</guid></item>"
        for number, one in enumerate(addresses)
    )
    channel = f"<channel><title>News</title><link>http://site.test/</link>{items}</channel>"
    return _document(draw, "rss", channel, 'version="2.0"')


def _atom(draw: random.Random, addresses: Sequence[str]) -> str:
    entries = "".join(
        f'<entry><title>A</title><link href="{escape(one)}"/>'
        f"<updated>2024-02-29T10:00:00Z</updated></entry>"
        for one in addresses
    )
    return _document(
        draw, "feed", f"<title>News</title>{entries}", 'xmlns="http://www.w3.org/2005/Atom"'
    )


def _text(draw: random.Random, addresses: Sequence[str]) -> str:
    return draw.choice(("\n", "\r\n", "\n\n")).join(addresses) + draw.choice(("", "\n"))


SUITES = (
    Suite(
        "ultimate-sitemap-parser: sitemaps and feeds",
        "ultimate-sitemap-parser",
        "1.8.1",
        judge,
        0.95,
        form="wheel",
    ),
)
