"""What a robots.txt means for one agent: what may be asked for, how fast, and why."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from protego import Protego

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
    stands on `line` (from 1); None when no rule matched. `crawl_delay` is in seconds, `rate` what
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
    """What a robots.txt says to one agent."""

    def __init__(self, text: str, agent: str = AGENT) -> None:
        lines = list(lines_of(text))
        groups = groups_for(agent, lines)
        named = {name for group in groups for name in group.agents}
        ours = [one for one in (product_token(agent), EVERYONE) if one in named]
        self.group = ours[0] if ours else None
        self.sitemaps = tuple(one.value for one in lines if one.field is Field.SITEMAP)
        self._rules = [one for group in groups for one in group.rules if one.value]
        self._paces = [one for group in groups for one in group.paces_of(self.group)]
        self._is_marked = any(
            is_markworthy(one.value, is_allowing=one.field is Field.ALLOW) for one in self._rules
        )

    @cached_property
    def is_open(self) -> bool:
        """Whether nothing is disallowed at all, so that no address need be looked at."""
        return all(one.field is Field.ALLOW for one in self._rules)

    @cached_property
    def crawl_delay(self) -> float | None:
        """Seconds between two requests; the longest of those asked for."""
        found = (_parsed(str(one)).crawl_delay(EVERYONE) for one in self._paces)
        return max((seconds for seconds in found if seconds), default=None)

    @cached_property
    def rate(self) -> float | None:
        """Requests a second; the slowest of what Crawl-delay and Request-rate ask for."""
        found = [_parsed(str(one)).request_rate(EVERYONE) for one in self._paces]
        rates = [one.requests / one.seconds for one in found if one]
        if self.crawl_delay:
            rates.append(1 / self.crawl_delay)
        return min(rates, default=None)

    def allows(self, url: str) -> bool:
        """Whether an address may be asked for."""
        return self.is_open or self._passes(self._whole, url)

    def deciding(self, url: str) -> Line | None:
        """Return the rule that decides about an address: the longest that matches."""
        found = [one for one in self._alone if not self._passes(one[1], url)]
        if not found:
            return None
        return max(found, key=lambda one: (one[2], one[0].field is Field.ALLOW))[0]

    @cached_property
    def _whole(self) -> Protego:
        return _parsed(*(f"{one.field}: {self._pattern(one)}" for one in self._rules))

    @cached_property
    def _alone(self) -> list[tuple[Line, Protego, int]]:
        """Each rule as a judge of its own that bars what the rule matches, and its weight."""
        patterns = [(one, self._pattern(one)) for one in self._rules]
        return [(one, _parsed(f"disallow: {text}"), len(text)) for one, text in patterns]

    def _pattern(self, rule: Line) -> str:
        return pattern_of(rule.value, is_marked=self._is_marked)

    def _passes(self, judge: Protego, url: str) -> bool:
        path = path_of(url)
        if path == _ITSELF or path.startswith(f"{_ITSELF}%3F"):
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
        is_allowed=rule is None or rule.field is Field.ALLOW,
        group=rules.group,
        rule=None if rule is None else str(rule),
        line=None if rule is None else rule.number,
        crawl_delay=rules.crawl_delay,
        rate=rules.rate,
        sitemaps=rules.sitemaps,
    )


def _parsed(*lines: str) -> Protego:
    return Protego.parse("\n".join([f"User-agent: {EVERYONE}", *lines]))
