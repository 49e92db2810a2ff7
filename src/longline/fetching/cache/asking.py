"""What a request says about caching."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from longline.fetching.cache.base import Entry
from longline.fetching.cache.directives import read_date, read_directives
from longline.fetching.cache.vary import digest
from longline.fetching.messages import Request

# Who asks with one of these is given their own answer, and nobody else is given it.
_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "x-api-key", "x-auth-token"})
_BEYOND = frozenset({"range", "if-range", "if-match", "if-unmodified-since"})


@dataclass(frozen=True, slots=True)
class Wishes:
    """The directives of a request, in seconds where they have a time."""

    max_age: float = inf
    min_fresh: float = 0.0
    max_stale: float | None = None
    stale_if_error: float | None = None
    is_no_cache: bool = False
    is_no_store: bool = False
    is_only_if_cached: bool = False


_NO_WISHES = Wishes()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request says to a cache; its headers are by name in lower case."""

    headers: Mapping[str, str]
    owner: str = ""
    wishes: Wishes = _NO_WISHES

    @property
    def is_beyond(self) -> bool:
        """Whether it is for a part, or on a condition, that only the site can answer."""
        return not _BEYOND.isdisjoint(self.headers)

    @property
    def is_conditional(self) -> bool:
        """Whether the caller keeps an answer itself and asks if it still holds."""
        return "if-none-match" in self.headers or "if-modified-since" in self.headers


_NOTHING = Asked({})


def read_request(request: Request, mark: str = "") -> Asked:
    """Return what a request asks of a cache; `mark` is added to the secrets it carries."""
    if not (request.headers or request.hidden or mark):
        return _NOTHING
    headers = {name.lower(): value for name, value in request.headers.items()}
    owner = ""
    if mark or request.hidden or not _CREDENTIALS.isdisjoint(headers):
        owner = _owner(headers, request.hidden, mark)
    if "cache-control" in headers:
        return Asked(headers, owner, _wishes(headers["cache-control"]))
    if headers.get("pragma", "").strip().lower() == "no-cache":
        return Asked(headers, owner, Wishes(is_no_cache=True))
    return Asked(headers, owner)


def holds(entry: Entry, asked: Asked) -> bool:
    """Say whether the answer that the caller keeps is the stored one (RFC 9111 §4.3.2)."""
    tags = asked.headers.get("if-none-match")
    if tags is not None:  # wins over the date
        ours = _opaque(entry.headers.get("etag", ""))
        return tags.strip() == "*" or (ours != "" and ours in map(_opaque, tags.split(",")))
    since = read_date(asked.headers.get("if-modified-since", ""))
    dated = entry.headers.get("last-modified") or entry.headers.get("date", "")
    changed = read_date(dated)
    return since is not None and changed is not None and changed <= since


def _opaque(tag: str) -> str:
    # Weak comparison: what a weak tag calls equal is good enough for a 304.
    return tag.strip().removeprefix("W/")


def _wishes(control: str) -> Wishes:
    said = read_directives(control)
    max_age = said.seconds("max-age")
    return Wishes(
        max_age=inf if max_age is None else max_age,
        min_fresh=said.seconds("min-fresh") or 0.0,
        max_stale=said.seconds("max-stale", bare=inf),
        stale_if_error=said.seconds("stale-if-error"),
        is_no_cache="no-cache" in said,
        is_no_store="no-store" in said,
        is_only_if_cached="only-if-cached" in said,
    )


def _owner(headers: Mapping[str, str], hidden: Mapping[str, str], mark: str) -> str:
    secrets = [f"{name}={headers[name]}" for name in sorted(_CREDENTIALS & headers.keys())]
    secrets += [f"?{name}={value}" for name, value in sorted(hidden.items())]
    return digest(mark, *secrets)
