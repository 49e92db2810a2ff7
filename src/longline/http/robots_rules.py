"""What a robots.txt means for one agent: what may be asked for, how fast, and why."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from itertools import islice
from urllib.parse import quote, unquote, unquote_to_bytes

from protego import Protego

from longline.http.messages import without_userinfo

# ---------------- Paths as RFC 9309 compares them: one spelling for each address and each rule

ANYWHERE = "http://any.test"
"""Rules know paths only, and protego wants whole addresses."""
END = "%%"
"""Marks where an address ends; in all the rest of it digits follow each percent sign."""
_PLAIN = re.compile(r"[a-z]+://[^/?#]+(/(?:[A-Za-z0-9_~/=-]|(?<!/)\.)*)").fullmatch
_AUTHORITY = re.compile(r"^[^/?]*")
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
# What needs no escape: letters, digits, - . _ ~ and, as protego has it, =
_NEEDLESS = re.compile(r"%(?:2D|2E|3[0-9D]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE])", re.IGNORECASE)
_HIGH_OCTETS = re.compile(r"(?:%[89A-F][0-9A-F])+", re.IGNORECASE)
_SLASH = re.compile("%2F", re.IGNORECASE)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.~/%=*-]")
_SURROGATES = ("\udc80", "\udcff")


def path_of(url: str) -> str:
    """Return the path and query of an address."""
    if plain := _PLAIN(url):
        return plain[1]
    rest = url.partition("#")[0].partition("://")[2]
    spelt = _spelt(_AUTHORITY.sub("", rest).replace("*", "%2A"))
    path, mark, query = spelt.partition("%3F")
    return (_without_dots(path) or "/") + mark + query


def pattern_of(rule: str, *, is_marked: bool) -> str:
    """Return the pattern of a rule; a marked one is for addresses with END behind them.

    Marked patterns are all one character longer than they were, so the longest stays the longest.
    """
    pattern = _spelt(rule.removesuffix("$").replace("$", "%24"))
    if not is_marked:
        return pattern
    return pattern + (END if rule.endswith("$") else "*")


def is_markworthy(rule: str, *, is_allowing: bool) -> bool:
    """Whether protego would read more into a rule than stands there, unless it is marked.

    To it a $ at the end may also be a plain character, and who allows /index.html allows /.
    """
    return rule.endswith("$") or (is_allowing and _spelt(rule).endswith("/index.html"))


def _spelt(text: str) -> str:
    path, mark, query = text.partition("?")
    # In a query a slash separates nothing, and is sent alike however it was written.
    return _escaped(path) + ("%3F" if mark else "") + _SLASH.sub("/", _escaped(query))


def _escaped(text: str) -> str:
    """Escape what needs it, in capitals, and nothing else."""
    text = _BARE_PERCENT.sub("%25", text)
    text = _UNSAFE.sub(lambda found: quote(found[0], safe="", errors="surrogatepass"), text)
    text = _NEEDLESS.sub(lambda found: unquote(found[0]), text)
    text = _HIGH_OCTETS.sub(lambda found: _octets(found[0]), text)
    return re.sub("%[0-9a-f]{2}", lambda found: found[0].upper(), text, flags=re.IGNORECASE)


def _octets(escapes: str) -> str:
    """Escape octets that are not UTF-8 twice, since protego takes all of them for the same."""
    text = unquote_to_bytes(escapes).decode("utf-8", "surrogateescape")
    low, high = _SURROGATES
    return "".join(
        f"%25{ord(one) - 0xDC00:02X}" if low <= one <= high else quote(one) for one in text
    )


def _without_dots(path: str) -> str:
    """Take out . and .., as it is done before an address is sent (RFC 3986 5.2.4)."""
    if "/." not in path:
        return path
    kept: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == "..":
            kept = kept[:1] + kept[1:-1]  # the root stays
        elif segment != ".":
            kept.append(segment)
    return "/".join([*kept, ""] if segments[-1] in {".", ".."} else kept)


# ---------------- What stands in a robots.txt: its lines, its groups, and which of them speak to

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


_ITSELF = "/robots.txt"  # always allowed, by RFC 9309 2.2.2
SLOWEST = 24 * 3600.0
"""Seconds between two requests that are believed at most: after that robots.txt is read again."""
MOST_RULES = 5_000
"""Rules for one agent; with more, no address may be asked for, since each would cost too long."""
_MOST_PACES = 1_000
_TOO_MANY = f"it has {{}} rules for us, and no more than {MOST_RULES} are checked"
_FASTEST = 1e6  # requests per second
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_UNIT = "s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?"
_HOURS = r"[0-9]{1,2}:?[0-9]{2}\s*-\s*[0-9]{1,2}:?[0-9]{2}(?:\s*(?:utc|gmt|z))?"
_RATE = re.compile(
    rf"Request-rate:\s*(?P<requests>{_NUMBER})\s*/\s*(?P<time>{_NUMBER})?\s*(?P<unit>{_UNIT})?"
    rf"(?:\s+{_HOURS})?\s*",
    re.IGNORECASE,
).fullmatch


@dataclass(frozen=True, slots=True)
class RobotsText:
    """A robots.txt as it was found: `status` is the answer's, `text` empty unless it was good."""

    text: str
    status: int
    fetched_at: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an address may be asked for, or not.

    `group` is the agent whose rules apply, None when there are none for us. `rule` decided, and
    stands on `line` (from 1); None when no rule matched. Where the rules as a whole cannot be used,
    `rule` says why and has no line. `crawl_delay` is in seconds, `rate` what
    it and Request-rate come to in requests a second; None where nothing is said.
    """

    url: str
    agent: str
    is_allowed: bool
    group: str | None
    rule: str | None
    line: int | None
    crawl_delay: float | None
    rate: float | None
    sitemaps: tuple[str, ...]


class Rules:
    """What a robots.txt says to one agent; `problem` is why nothing may be asked for, if so."""

    def __init__(self, text: str, agent: str = AGENT) -> None:
        lines = list(lines_of(text))
        groups = groups_for(agent, lines)
        named = {name for group in groups for name in group.agents}
        ours = [one for one in (product_token(agent), EVERYONE) if one in named]
        self.group = ours[0] if ours else None
        self.sitemaps = tuple(
            without_userinfo(one.value) for one in lines if one.field is Field.SITEMAP
        )
        rules = [one for group in groups for one in group.rules if one.value]
        rules = list({(one.field, one.value): one for one in reversed(rules)}.values())[::-1]
        self.problem = _TOO_MANY.format(len(rules)) if len(rules) > MOST_RULES else None
        self._rules = [] if self.problem else rules
        self._paces = _distinct(one for group in groups for one in group.paces_of(self.group))
        self._is_marked = any(
            is_markworthy(one.value, is_allowing=one.field is Field.ALLOW) for one in self._rules
        )

    @property
    def count(self) -> int:
        """The number of different rules."""
        return len(self._rules)

    @cached_property
    def is_open(self) -> bool:
        """Whether nothing is disallowed at all, so that no address need be looked at."""
        return all(one.field is Field.ALLOW for one in self._rules)

    @cached_property
    def crawl_delay(self) -> float | None:
        """Seconds between two requests; the longest of those asked for."""
        found = (_parsed(one).crawl_delay(EVERYONE) for one in self._paces)
        return max((min(seconds, SLOWEST) for seconds in found if seconds), default=None)

    @cached_property
    def rate(self) -> float | None:
        """Requests a second; the slowest of what Crawl-delay and Request-rate ask for."""
        found = (_request_rate(one) for one in self._paces)
        rates = [rate for rate in found if rate is not None]
        if self.crawl_delay:
            rates.append(1 / self.crawl_delay)
        return min(rates, default=None)

    def allows(self, url: str) -> bool:
        """Whether an address may be asked for."""
        if self.problem:
            return _is_itself(path_of(url))
        return self.is_open or self._passes(self._whole, url)

    def deciding(self, url: str) -> Line | None:
        """Return the rule that decides about an address: the longest that matches."""
        path = path_of(url)
        # Most rules begin otherwise, which is found out faster than by a judge for each.
        near = (one for one in self._patterns if path.startswith(one[2]))
        found = [one for one in near if not self._passes(_parsed(f"disallow: {one[1]}"), url)]
        if not found:
            return None
        return max(found, key=lambda one: (len(one[1]), one[0].field is Field.ALLOW))[0]

    @cached_property
    def _whole(self) -> Protego:
        return _parsed(*(f"{one.field}: {self._pattern(one)}" for one in self._rules))

    @cached_property
    def _patterns(self) -> list[tuple[Line, str, str]]:
        """Each rule, its pattern, and what every path begins with that it matches."""
        patterns = [(one, self._pattern(one)) for one in self._rules]
        return [(one, text, text.partition("*")[0].removesuffix(END)) for one, text in patterns]

    def _pattern(self, rule: Line) -> str:
        return pattern_of(rule.value, is_marked=self._is_marked)

    def _passes(self, judge: Protego, url: str) -> bool:
        path = path_of(url)
        if _is_itself(path):
            return True
        end = END if self._is_marked else ""
        return bool(judge.can_fetch(f"{ANYWHERE}{path}{end}", EVERYONE))


def explain(text: str, url: str, agent: str = AGENT) -> Explanation:
    """Return what a robots.txt says to an agent about an address, and where it says so."""
    rules = Rules(text, agent)
    rule = rules.deciding(url)
    return Explanation(
        url=url,
        agent=agent,
        is_allowed=rules.allows(url) if rule is None else rule.field is Field.ALLOW,
        group=rules.group,
        rule=rules.problem if rule is None else str(rule),
        line=None if rule is None else rule.number,
        crawl_delay=rules.crawl_delay,
        rate=rules.rate,
        sitemaps=rules.sitemaps,
    )


def _parsed(*lines: str) -> Protego:
    return Protego.parse("\n".join([f"User-agent: {EVERYONE}", *lines]))


def _is_itself(path: str) -> bool:
    return path == _ITSELF or path.startswith(f"{_ITSELF}%3F")


def _distinct(lines: Iterable[Line]) -> list[str]:
    """Return the different lines of several, no more than are read."""
    return list(islice(dict.fromkeys(map(str, lines)), _MOST_PACES))


def _request_rate(line: str) -> float | None:
    """Return the requests per second of a Request-rate line, within bounds; None for others.

    `5/10`, `5/10s`, `5 / 10 min` and `5/hour` are read, with or without a time of day.
    """
    found = _RATE(line)
    if found is None or not (found["time"] or found["unit"]):
        return None
    try:
        requests, time = Fraction(found["requests"]), Fraction(found["time"] or 1)
    except ValueError:  # more digits than Python reads
        return None
    seconds = time * _SECONDS[(found["unit"] or "s")[0].lower()]
    if not requests or not seconds:
        return None
    rate = requests / seconds
    if rate >= int(_FASTEST):
        return _FASTEST
    return 1 / SLOWEST if rate <= Fraction(1, int(SLOWEST)) else float(rate)
