"""What a robots.txt means for one agent: what may be asked for, how fast, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import islice

from protego import Protego

from longline.fetching.messages import without_userinfo
from longline.fetching.robots_paths import ANYWHERE, END, is_markworthy, path_of, pattern_of
from longline.fetching.robots_text import (
    AGENT,
    EVERYONE,
    Field,
    Line,
    groups_for,
    lines_of,
    product_token,
)

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
