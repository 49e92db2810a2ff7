"""robots.txt by RFC 9309: fetch it from each host, and obey its rules and rates."""

from __future__ import annotations

import asyncio
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from urllib.parse import quote, unquote

from longline.core.clock import Clock, backoff
from longline.core.errors import CircuitOpen, Deferred, FailureKind, FetchError, RobotsUnreachable
from longline.core.model import Usage
from longline.http.errors import BadAnswer, NoProxy, RobotsDisallowed, SessionEnded
from longline.http.messages import Middleware, Page, Request, origin_of, without_userinfo
from longline.http.middleware.retry import RetryMiddleware
from longline.http.middleware.status import RedirectMiddleware, StatusMiddleware
from longline.limits.backends.state import MemoryStateBackend, StateBackend
from longline.limits.retry import RETRIED_KINDS, RetryHandler

AGENT = "longline"
"""Our product token in robots.txt."""
EVERYONE = "*"
LARGEST = 500 * 1024
"""Bytes that are read, as RFC 9309 requires; the rest is ignored."""
MOST_RULES = 5_000
"""Rules for one agent; with more, nothing is allowed, since every check would take too long."""
SLOWEST = 24 * 3600.0
"""The longest believed seconds between two requests: after that robots.txt is read again."""

# ---------------- Lines and groups

_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_BOM = re.compile(rb"\A\xef(?:\xbb\xbf?)?(?=[\x00-\x7f]|\Z)")
_LINE_END = re.compile(r"\r\n|\r|\n")
_MOST_WORDS = 2  # before a colon that belongs to the value: `Sitemap https://…`
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_COMPATIBLE = re.compile(r"\(\s*compatible;\s*([A-Za-z0-9_-]+)", re.IGNORECASE)


class Field(StrEnum):
    """The supported fields."""

    AGENT = "user-agent"
    ALLOW = "allow"
    DISALLOW = "disallow"
    CRAWL_DELAY = "crawl-delay"
    REQUEST_RATE = "request-rate"
    SITEMAP = "sitemap"


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
    """A line with a supported field; `number` counts from 1."""

    number: int
    field: Field
    value: str

    def __str__(self) -> str:
        return f"{self.field.capitalize()}: {self.value}"


def text_of(body: bytes) -> str:
    """Return a body as text, without a byte order mark and cut at the last line within LARGEST.

    The byte order mark may be incomplete. Bytes that are not UTF-8 are percent-encoded, as they
    are in URLs.
    """
    if len(body) > LARGEST:
        body = body[: LARGEST + 1]
        # Half a rule would be another rule.
        body = body[: max(body.rfind(b"\n"), body.rfind(b"\r"), 0)]
    body = _BOM.sub(b"", body, count=1)
    text = body.decode("utf-8", "surrogateescape")
    return _NOT_UTF8.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", text)


def product_token(agent: str) -> str:
    """Return the product token of an agent in lower case; `*` is everyone."""
    if agent == EVERYONE or agent.startswith(("* ", "*\t")):
        return EVERYONE
    found = _TOKEN.match(agent)
    return found[0].lower() if found else ""


def robots_agent(user_agent: str) -> str:
    """Return the product token by which robots.txt names the sender of this User-Agent.

    A bot that poses as a browser names itself after `compatible;`, if at all.
    """
    name = product_token(user_agent)
    if name == "mozilla":
        found = _COMPATIBLE.search(user_agent)
        name = found[1].lower() if found else ""
    return name or AGENT


def _read_lines(text: str) -> Iterator[Line]:
    """Yield the lines with a supported field; comments and others are skipped."""
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.partition("#")[0].strip()
        name, colon, value = line.partition(":")
        known = _FIELDS.get(" ".join(name.split()).lower()) if colon else None
        if known is None:
            if colon and len(name.split()) > _MOST_WORDS:
                continue  # a sentence that starts like a rule
            # Some forget the colon, which RFC 9309 allows to accept.
            name, _, value = " ".join(line.split()).partition(" ")
            known = _FIELDS.get(name.lower()) if value else None
        if known is not None:
            yield Line(number, known, value.strip())


def _rules_for(
    token: str, lines: Iterable[Line]
) -> tuple[str | None, Sequence[Line], Sequence[Line]]:
    """Return rules and rates of the groups for an agent, or else for everyone (RFC 9309 2.2.1).

    They follow the name by which they were chosen; None when there is no such group. A Crawl-delay
    or Request-rate applies only to the agents named directly before it. By RFC 9309 such a line
    does not end the list of agents, so rules apply to all of them; but the delay of one agent is
    not that of the next.
    """
    rules: dict[str, list[Line]] = {}
    rates: dict[str, list[Line]] = {}
    group: set[str] = set()  # which of the two names the current group has
    recent: set[str] = set()  # … since the last rate
    has_rules = is_after_rate = False
    for line in lines:
        match line.field:
            case Field.AGENT:
                group = set() if has_rules else group
                recent = set() if has_rules or is_after_rate else recent
                has_rules = is_after_rate = False
                if (name := product_token(line.value)) in (token, EVERYONE):
                    group.add(name)
                    recent.add(name)
                    rules.setdefault(name, [])
            case Field.CRAWL_DELAY | Field.REQUEST_RATE:
                is_after_rate = True
                for name in recent:
                    rates.setdefault(name, []).append(line)
            case Field.ALLOW | Field.DISALLOW:
                has_rules = True
                for name in group if line.value else ():
                    rules[name].append(line)
    chosen = next((name for name in (token, EVERYONE) if name in rules), None)
    return (None, [], []) if chosen is None else (chosen, rules[chosen], rates.get(chosen, []))


# ---------------- Paths and patterns: one spelling for each URL and each rule

_PLAIN = re.compile(r"[a-z]+://[^/?#]+(/(?:[A-Za-z0-9_~/=-]|(?<!/)\.)*)").fullmatch
_AUTHORITY = re.compile(r"^[^/?]*")
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
# Characters that need no escape: letters, digits, - . _ ~ =
_NEEDLESS = re.compile(r"%(?:2D|2E|3[0-9D]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE])", re.IGNORECASE)
_ESCAPE = re.compile("%[0-9a-f]{2}", re.IGNORECASE)
_SLASH = re.compile("%2F", re.IGNORECASE)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.~/%=*-]")


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A rule: the `parts` of its path between wildcards, and whether a `$` anchors its end."""

    line: Line
    parts: tuple[str, ...]
    is_anchored: bool
    length: int

    @classmethod
    def of(cls, line: Line) -> _Pattern:
        text = _normalise(line.value.removesuffix("$").replace("$", "%24"))
        is_anchored = line.value.endswith("$")
        return cls(line, tuple(text.split("*")), is_anchored, len(text) + is_anchored)

    def matches(self, path: str) -> bool:
        first, *rest = self.parts
        if not path.startswith(first):
            return False
        if not rest:
            return not self.is_anchored or path == first
        at = len(first)
        for part in rest[:-1]:
            found = path.find(part, at)
            if found < 0:
                return False
            at = found + len(part)
        if self.is_anchored:
            return path.endswith(rest[-1]) and len(path) - len(rest[-1]) >= at
        return path.find(rest[-1], at) >= 0


def path_of(url: str) -> str:
    """Return the path and query of a URL as rules are compared with it."""
    if plain := _PLAIN(url):
        return plain[1]
    rest = url.partition("#")[0].partition("://")[2]
    text = _normalise(_AUTHORITY.sub("", rest).replace("*", "%2A"))
    path, mark, query = text.partition("%3F")
    return (_without_dots(path) or "/") + mark + query


def _normalise(text: str) -> str:
    path, mark, query = text.partition("?")
    # In a query a slash separates nothing, so both spellings are the same.
    return _escape(path) + ("%3F" if mark else "") + _SLASH.sub("/", _escape(query))


def _escape(text: str) -> str:
    """Escape what needs it, in capitals, and nothing else."""
    text = _BARE_PERCENT.sub("%25", text)
    text = _UNSAFE.sub(lambda found: quote(found[0], safe="", errors="surrogatepass"), text)
    text = _NEEDLESS.sub(lambda found: unquote(found[0]), text)
    return _ESCAPE.sub(lambda found: found[0].upper(), text)


def _without_dots(path: str) -> str:
    """Resolve . and .., as it is done before a request is sent (RFC 3986 5.2.4)."""
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


# ---------------- Rates

_FASTEST = 1e6  # requests per second
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_HOURS = r"\s+[0-9]{2}:?[0-9]{2}\s*-.*"
_REQUEST_RATE = re.compile(
    rf"{_NUMBER}\s*/\s*{_NUMBER}?\s*([smhd]?)[a-z]*(?:{_HOURS})?", re.IGNORECASE
).fullmatch


def _crawl_delay(text: str) -> float | None:
    """Return the seconds of a Crawl-delay, at most SLOWEST; None for anything else."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return min(seconds, SLOWEST) if math.isfinite(seconds) and seconds > 0 else None


def _request_rate(text: str) -> float | None:
    """Return the requests per second of a Request-rate, within bounds; None for anything else.

    `5/10`, `5/10s`, `5 / 10 min` and `5/hour` are read; a time of day after it is ignored.
    """
    found = _REQUEST_RATE(text)
    if found is None or not (found[2] or found[3]):
        return None
    requests, seconds = float(found[1]), float(found[2] or 1) * _SECONDS[found[3].lower()]
    if not requests or not seconds:
        return None
    return min(max(requests / seconds, 1 / SLOWEST), _FASTEST)


# ---------------- Decisions


@dataclass(frozen=True, slots=True)
class RobotsText:
    """A fetched robots.txt: its `text` is empty unless the `status` was 2xx. Stored as JSON."""

    text: str
    status: int
    fetched_at: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a URL may be fetched, or not.

    `group` is the agent whose rules apply; None when there are none for us. `rule` on `line` (from
    1) decided; both are None when no rule matched. Where the rules cannot be used as a whole,
    `rule` says why and has no line. `crawl_delay` is in seconds, `rate` is the resulting maximum of
    it and Request-rate in requests per second; None without one.
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
    """The rules of a robots.txt for one agent; `problem` is why nothing is allowed, if so."""

    def __init__(self, text: str, agent: str = AGENT) -> None:
        lines = list(_read_lines(text))
        self.group, rules, rates = _rules_for(product_token(agent), lines)
        self.sitemaps = tuple(
            without_userinfo(one.value) for one in lines if one.field is Field.SITEMAP
        )
        rules = list({(one.field, one.value): one for one in reversed(rules)}.values())
        self.problem = (
            f"it has {len(rules)} rules for our user agent; at most {MOST_RULES} are supported"
            if len(rules) > MOST_RULES
            else None
        )
        # The longest rule first; of equally long ones Allow is first.
        self._patterns = sorted(
            (_Pattern.of(one) for one in ([] if self.problem else rules)),
            key=lambda one: (-one.length, one.line.field is not Field.ALLOW),
        )
        self.is_open = not self.problem and all(one.field is Field.ALLOW for one in rules)
        """Whether nothing is disallowed, so that no URL needs a check."""
        values = {(line.field, line.value) for line in rates}
        delays = [_crawl_delay(value) for name, value in values if name is Field.CRAWL_DELAY]
        self.crawl_delay = max((one for one in delays if one is not None), default=None)
        """Seconds between two requests; the longest Crawl-delay."""
        limits = [_request_rate(value) for name, value in values if name is Field.REQUEST_RATE]
        limits.append(1 / self.crawl_delay if self.crawl_delay else None)
        self.rate = min((one for one in limits if one is not None), default=None)
        """Requests per second; the lowest of Crawl-delay and Request-rate."""

    def allows(self, url: str) -> bool:
        """Whether a URL may be fetched."""
        if self.is_open:
            return True
        path = path_of(url)
        if _is_robots_txt(path):
            return True
        rule = self._match(path)
        return self.problem is None and (rule is None or rule.field is Field.ALLOW)

    def decisive_rule(self, url: str) -> Line | None:
        """Return the rule that decides about a URL: the longest that matches."""
        path = path_of(url)
        return None if _is_robots_txt(path) else self._match(path)

    def _match(self, path: str) -> Line | None:
        return next((one.line for one in self._patterns if one.matches(path)), None)


def _is_robots_txt(path: str) -> bool:
    """Whether this is robots.txt itself, which is always allowed (RFC 9309 2.2.2)."""
    return path == "/robots.txt" or path.startswith("/robots.txt%3F")


def explain(text: str, url: str, agent: str = AGENT) -> Explanation:
    """Return what a robots.txt says to an agent about a URL, and in which line."""
    rules = Rules(text, agent)
    rule = rules.decisive_rule(url)
    return Explanation(
        url=url,
        agent=agent,
        is_allowed=rules.allows(url),
        group=rules.group,
        rule=rules.problem if rule is None else str(rule),
        line=None if rule is None else rule.number,
        crawl_delay=rules.crawl_delay,
        rate=rules.rate,
        sitemaps=rules.sitemaps,
    )


# ---------------- Fetching robots.txt, and the middleware

LIFETIME = 24 * 3600.0
"""Seconds for which a copy is valid, by RFC 9309 2.4."""
_FIRST = 1_000_000  # the priority of what all other requests to a host wait for
_ABSENT = frozenset(range(400, 500)) - {429}  # no robots.txt, so no rules
_GOOD = range(200, 300)
_PORT = re.compile(r":\d*$")


@dataclass(frozen=True, slots=True)
class RobotsCheck:
    """What robots.txt says about a URL, and how that is known.

    `found` is None when the rules are unknown; then `problem` says why, and nothing is allowed.
    """

    explanation: Explanation | None
    found: RobotsText | None
    is_kept: bool
    problem: str | None = None

    @property
    def is_allowed(self) -> bool:
        """Whether the URL may be fetched."""
        return self.explanation is not None and self.explanation.is_allowed


class RobotsReader:
    """Fetches robots.txt through `inner`, with redirects and retries.

    Copies are kept by origin (`https://host`) in `copies`, for other runs and processes.
    """

    def __init__(self, inner: Middleware, clock: Clock, copies: StateBackend[RobotsText]) -> None:
        retry = RetryHandler(circuit_breaker_threshold=None, clock=clock)
        self._chain = RetryMiddleware(
            RedirectMiddleware(StatusMiddleware(inner, clock)), retry, clock
        )
        self._clock = clock
        self._copies = copies

    async def kept(self, origin: str) -> RobotsText | None:
        """Return the copy that is kept, however old it is."""
        copy, _now = await self._copies.read(origin)
        return copy

    async def fetch(self, origin: str, usage: Usage) -> RobotsText:
        """Fetch it from the site, and keep a copy.

        Raises:
            FetchError: the rules are unknown (5xx, 429, no connection); nothing is allowed then.
        """
        # A cached response would count as younger than it is.
        request = Request(
            f"{origin}/robots.txt",
            headers={"cache-control": "no-cache"},
            accept=_ABSENT,
            priority=_FIRST,
            enough=LARGEST + 1,  # one more byte shows that there is a rest
        )
        page = await self._chain(request, usage)
        text = text_of(page.body) if page.status in _GOOD else ""
        found = RobotsText(text, page.status, self._clock.now())
        await self._copies.change(origin, lambda _old, _now: (found, None))
        return found

    def is_fresh(self, copy: RobotsText) -> bool:
        """Whether a copy is still valid."""
        # One from the future was made by a wrong clock.
        return 0 <= self._clock.now() - copy.fetched_at < LIFETIME

    async def check(self, url: str, *, agent: str = AGENT, is_fresh: bool = False) -> RobotsCheck:
        """Return what applies to a URL; with `is_fresh`, fetch even if a copy is kept."""
        origin = "://".join(origin_of(url))
        copy, problem = await self.kept(origin), None
        is_kept = not is_fresh and copy is not None and self.is_fresh(copy)
        if not is_kept:
            try:
                copy = await self.fetch(origin, Usage())
            except FetchError as error:
                is_kept, problem = copy is not None, str(error)
        explanation = None if copy is None else explain(copy.text, url, agent)
        return RobotsCheck(explanation, copy, is_kept, problem)


_SHORTEST_PAUSE = 60.0  # seconds until an unreachable robots.txt is fetched again
_LONGEST_PAUSE = 3600.0
_SILENT = frozenset({FailureKind.NETWORK, FailureKind.TIMEOUT})
_MOST_SILENT = 3  # failures in a row without a response, with 3 minutes of pauses between them
_MOST_FAILURES = 8  # failures in a row of a host that responds, with 2 hours of pauses


@dataclass(frozen=True, slots=True)
class _Host:
    """What is known of a host until a time: its rules, or why they are unknown."""

    until: float
    rules: Rules | None = None
    failure: FetchError | None = None
    failures: int = 0

    @property
    def is_given_up(self) -> bool:
        """Whether robots.txt failed so often that items fail, too, instead of being deferred."""
        is_silent = self.failure is not None and self.failure.kind in _SILENT
        return self.failures >= (_MOST_SILENT if is_silent else _MOST_FAILURES)


class RobotsMiddleware(Middleware):
    """Refuses URLs that robots.txt disallows, unless the host is in `ignored`.

    A host without one (any 4xx but 429) allows everything. While it cannot be fetched (5xx, 429, no
    connection), all requests to the host are deferred. After several failures in a row they fail
    with that reason. An older copy stays valid meanwhile.

    `inner` also fetches robots.txt. `ignored` are hosts, with or without port. `cap_rate` is called
    with a domain and the maximum requests per second that its robots.txt allows.
    """

    def __init__(
        self,
        inner: Middleware,
        clock: Clock,
        *,
        ignored: frozenset[str] = frozenset(),
        copies: StateBackend[RobotsText] | None = None,
        cap_rate: Callable[[str, float], None] | None = None,
        agent: str = AGENT,
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._ignored = ignored
        copies = MemoryStateBackend(clock) if copies is None else copies
        self._reader = RobotsReader(inner, clock, copies)
        self._cap_rate = cap_rate
        self._agent = agent
        self._hosts: dict[str, _Host] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._overridden: set[str] = set()

    async def __call__(self, request: Request, usage: Usage) -> Page:
        await self._check_url(request.url, usage)
        if request.is_rendered:
            # A click, a form or a script may lead the browser to other pages.
            request = replace(request, permit=lambda url: self._check_url(url, usage))
        return await self._inner(request, usage)

    async def _check_url(self, url: str, usage: Usage) -> None:
        scheme, host = origin_of(url)
        origin = f"{scheme}://{host}"
        if self._ignored and not self._ignored.isdisjoint({host, _PORT.sub("", host)}):
            if host not in self._overridden:
                self._overridden.add(host)
                usage.add_event("robots.ignored", host=host, url=url)
            return
        known = self._hosts.get(origin)
        if known is None or known.until <= self._clock.now():
            try:
                # Once for all tasks that wait for it.
                async with usage.waiting.to_enter(self._locks[origin]):
                    known = self._hosts.get(origin)
                    if known is None or known.until <= self._clock.now():
                        known = self._hosts[origin] = await self._load_rules(
                            origin, host, known, usage
                        )
            finally:
                usage.status = None  # that of robots.txt is not the request's own
        _raise_unless_allowed(known, url)

    async def _load_rules(
        self, origin: str, host: str, before: _Host | None, usage: Usage
    ) -> _Host:
        copy = await self._reader.kept(origin)
        if copy is None or not self._reader.is_fresh(copy):
            try:
                copy = await self._reader.fetch(origin, usage)
            except FetchError as error:
                old = None if copy is None else self._parse_copy(host, copy, usage)
                known = self._host_without_rules(error, old, before)
                usage.add_event(
                    "robots.unreachable", host=host, reason=str(error), until=known.until
                )
                return known
        return _Host(copy.fetched_at + LIFETIME, self._parse_copy(host, copy, usage))

    def _parse_copy(self, host: str, copy: RobotsText, usage: Usage) -> Rules:
        """Parse a copy, and pass on the rate limit in it."""
        rules = Rules(copy.text, self._agent)
        if rules.rate is not None:
            usage.add_event("robots.rate", host=host, rate=rules.rate)
            if self._cap_rate is not None:
                self._cap_rate(host, rules.rate)
        return rules

    def _host_without_rules(
        self, error: FetchError, old: Rules | None, before: _Host | None
    ) -> _Host:
        """Return what applies while robots.txt cannot be fetched; `before` applied until now.

        Raises:
            FetchError: it is not the request for robots.txt that failed, or the host bans us.
        """
        if old is None and isinstance(error, (NoProxy, SessionEnded)):
            raise error  # it says nothing about the host
        is_open = isinstance(error, CircuitOpen) and error.kind is not FailureKind.BLOCKED
        is_response = error.kind in RETRIED_KINDS or isinstance(error, BadAnswer)
        if old is None and not is_open and (isinstance(error, CircuitOpen) or not is_response):
            raise error
        failures = before.failures + 1 if before else 1
        until = self._clock.now() + pause_after(failures)
        if isinstance(error, (CircuitOpen, Deferred)):
            until = error.until
        # The reason is the failure that opened the breaker, not the open breaker.
        earlier = before.failure if before and isinstance(error, CircuitOpen) else None
        return _Host(until, old, earlier or error, failures)


def pause_after(failures: int) -> float:
    """Return the seconds until robots.txt is fetched again, after these failures in a row."""
    return backoff(failures, base=_SHORTEST_PAUSE, ceiling=_LONGEST_PAUSE)


def _raise_unless_allowed(known: _Host, url: str) -> None:
    """Return when a URL may be fetched.

    Raises:
        RobotsDisallowed: it may not.
        Deferred: the rules are unknown for now.
        CircuitOpen: the same, and the breaker of the host is open.
        RobotsUnreachable: robots.txt could not be fetched in several attempts.
        BadAnswer: the rules are unknown, and will stay so.
    """
    if known.rules is not None:
        if not known.rules.allows(url):
            raise RobotsDisallowed(url, _disallowed_by(known.rules, url))
        return
    if isinstance(known.failure, BadAnswer):
        raise BadAnswer(known.failure.url, known.failure.problem)
    kind = known.failure.kind if known.failure else FailureKind.NETWORK
    if known.is_given_up:
        raise RobotsUnreachable(url, str(known.failure), kind) from known.failure
    if isinstance(known.failure, CircuitOpen):
        raise CircuitOpen(url, known.until, known.failure.reason, kind)
    raise Deferred(url, known.until, str(known.failure), kind, is_for_domain=True)


def _disallowed_by(rules: Rules, url: str) -> str:
    if rules.problem:
        return rules.problem
    rule = rules.decisive_rule(url)
    line = f"line {rule.number}, {str(rule)!r}, " if rule else ""
    return f"{line}for {'all user agents' if rules.group == EVERYONE else rules.group}"
