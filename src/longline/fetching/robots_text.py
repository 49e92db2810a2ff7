"""What stands in a robots.txt: its lines, its groups, and which of them speak to whom.

Which lines count is decided here, by RFC 9309; what a path means is left to protego.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

AGENT = "longline"
"""The product token by which a robots.txt names us."""
EVERYONE = "*"
LARGEST = 500 * 1024
"""Bytes that are read, as RFC 9309 asks for; what comes after is ignored."""

_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_BOM = re.compile(rb"\A\xef(?:\xbb\xbf?)?(?=[\x00-\x7f]|\Z)")
_LINE_END = re.compile(r"\r\n|\r|\n")
_MOST_WORDS = 2  # before a colon that belongs to the value: `Sitemap https://…`
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_COMPATIBLE = re.compile(r"\(\s*compatible;\s*([A-Za-z0-9_-]+)", re.IGNORECASE)


class Field(StrEnum):
    """The fields that mean something to us."""

    AGENT = "user-agent"
    ALLOW = "allow"
    DISALLOW = "disallow"
    CRAWL_DELAY = "crawl-delay"
    REQUEST_RATE = "request-rate"
    SITEMAP = "sitemap"


_PACES = frozenset({Field.CRAWL_DELAY, Field.REQUEST_RATE})
_MISSPELT = {
    **dict.fromkeys(("useragent", "user agent"), Field.AGENT),
    **dict.fromkeys(("dissallow", "dissalow", "disalow", "diasllow", "disallaw"), Field.DISALLOW),
    **dict.fromkeys(("crawldelay", "crawl delay"), Field.CRAWL_DELAY),
    **dict.fromkeys(("requestrate", "request rate"), Field.REQUEST_RATE),
    **dict.fromkeys(("sitemaps", "site-map"), Field.SITEMAP),
}
_FIELDS = {**{one.value: one for one in Field}, **_MISSPELT}


@dataclass(frozen=True, slots=True)
class Line:
    """A line that means something; `number` counts from 1."""

    number: int
    field: Field
    value: str

    def __str__(self) -> str:
        return f"{self.field.capitalize()}: {self.value}"


@dataclass(slots=True)
class Group:
    """Agents, in lower case, and the rules they share.

    A Crawl-delay or Request-rate binds only the agents that are named directly before it: those
    from `start` to `end` of `agents`. By RFC 9309 such a line does not end the list of agents, so
    rules bind all of them; but the delay of one agent is not that of the next.
    """

    agents: list[str] = field(default_factory=list)
    rules: list[Line] = field(default_factory=list)
    paces: list[tuple[int, int, Line]] = field(default_factory=list)
    _start: int = 0
    _has_pace: bool = False

    def add(self, line: Line) -> None:
        """Take the next line."""
        if line.field is Field.AGENT:
            if self._has_pace:
                self._start, self._has_pace = len(self.agents), False
            self.agents.append(product_token(line.value))
        elif line.field in _PACES:
            self._has_pace = True
            self.paces.append((self._start, len(self.agents), line))
        else:
            self.rules.append(line)

    def paces_of(self, agent: str | None) -> list[Line]:
        """Return the Crawl-delay and Request-rate lines of an agent."""
        places = [place for place, name in enumerate(self.agents) if name == agent]

        def is_bound(start: int, end: int) -> bool:
            first = bisect_left(places, start)
            return first < len(places) and places[first] < end

        return [line for start, end, line in self.paces if is_bound(start, end)]


def text_of(body: bytes) -> str:
    """Return a body as text: without a byte order mark, and no more of it than is to be read.

    A byte order mark may be incomplete: its first one or two bytes are left out as well.

    Bytes that are not UTF-8 become their percent-encoding, which is how they stand in addresses.
    """
    if len(body) > LARGEST:
        body = body[: LARGEST + 1]
        # Half a rule is another rule.
        body = body[: max(body.rfind(b"\n"), body.rfind(b"\r"), 0)]
    body = _BOM.sub(b"", body, count=1)
    text = body.decode("utf-8", "surrogateescape")
    return _NOT_UTF8.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", text)


def product_token(agent: str) -> str:
    """Return the name by which an agent is told from others, in lower case; `*` is everyone."""
    if agent == EVERYONE or agent.startswith(("* ", "*\t")):
        return EVERYONE
    found = _TOKEN.match(agent)
    return found[0].lower() if found else ""


def robots_agent(user_agent: str) -> str:
    """Return the product token by which robots.txt names the sender of this User-Agent.

    One that poses as a browser names itself after `compatible;`, if at all.
    """
    name = product_token(user_agent)
    if name == "mozilla":
        found = _COMPATIBLE.search(user_agent)
        name = found[1].lower() if found else ""
    return name or AGENT


def lines_of(text: str) -> Iterator[Line]:
    """Yield the lines that mean something; comments and all others are passed over."""
    for number, raw in enumerate(_LINE_END.split(text), 1):
        if parts := _parts(raw.partition("#")[0].strip()):
            yield Line(number, *parts)


def groups_for(agent: str, lines: Iterable[Line]) -> list[Group]:
    """Return the groups that name an agent, or else those for everyone, as RFC 9309 2.2.1 says."""
    groups = _groups(lines)
    token = product_token(agent)
    return [one for one in groups if token in one.agents] or [
        one for one in groups if EVERYONE in one.agents
    ]


def _groups(lines: Iterable[Line]) -> list[Group]:
    groups: list[Group] = []
    for line in lines:
        if line.field is Field.SITEMAP:
            continue  # belongs to the whole site, and ends no group
        if line.field is Field.AGENT and (not groups or groups[-1].rules):
            groups.append(Group())
        if groups:  # rules before the first agent are nobody's
            groups[-1].add(line)
    return groups


def _parts(line: str) -> tuple[Field, str] | None:
    name, colon, value = line.partition(":")
    known = _FIELDS.get(" ".join(name.split()).lower())
    if known is None and colon and len(name.split()) > _MOST_WORDS:
        return None  # a sentence that begins like a rule
    if known is None:  # some forget the colon, and RFC 9309 allows to understand them
        name, *rest = line.split(maxsplit=1) or [""]
        known, value = _FIELDS.get(name.lower()), "".join(rest)
        return (known, value.strip()) if known and value.strip() else None
    return (known, value.strip()) if colon else None
