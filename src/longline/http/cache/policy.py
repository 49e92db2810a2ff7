"""HTTP cache policy by RFC 9111: what is stored, how long it is fresh, and when it is reused."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache
from math import inf

from multidict import CIMultiDict, CIMultiDictProxy

from longline.core.http_headers import parse_http_date
from longline.http.headers import joined_header
from longline.http.messages import Page, Request

FIRST_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A stored response without its body.

    `owner` is a digest of the secrets in the request, so that responses are not shared between
    identities. `vary` pairs the request headers that the response depends on with digests of their
    values; None for a header that was not sent. `saved_at` identifies the version of the body.
    """

    url: str
    owner: str
    vary: tuple[tuple[str, str | None], ...]
    status: int
    headers: CIMultiDictProxy[str]
    requested_at: float
    responded_at: float
    saved_at: float
    used_at: float

    @property
    def variant(self) -> tuple[str, tuple[tuple[str, str | None], ...]]:
        """What distinguishes it from other responses of its URL."""
        return self.owner, self.vary


# ---------------- Cache-Control

_DIRECTIVE = re.compile(
    r"""\s*(?P<name>[^\s,="]+)
        (?P<argument>=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^,"]*)))?
        (?P<rest>[^,]*)(?:,|$)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Directives:
    """The directives of a Cache-Control header by lower-case name; None has no argument."""

    arguments: Mapping[str, tuple[str | None, ...]]

    def __contains__(self, name: str) -> bool:
        return name in self.arguments

    def is_bare(self, name: str) -> bool:
        """Return whether the directive is present without a list of fields."""
        return None in self.arguments.get(name, ())

    def seconds(self, name: str, *, bare: float = 0.0) -> float | None:
        """Return the seconds of a directive; None when it is not present.

        An invalid number is 0, the safe reading, and of several the lowest counts. `bare` is the
        value without an argument.
        """
        found = self.arguments.get(name)
        if found is None:
            return None
        return min(bare if text is None else parse_delta_seconds(text) or 0.0 for text in found)

    def fields(self, name: str) -> set[str]:
        """Return the header names that a directive lists, in lower case."""
        lists = (text for text in self.arguments.get(name, ()) if text is not None)
        return {field.strip().lower() for text in lists for field in text.split(",")}


@lru_cache(maxsize=1024)  # the responses of a site repeat it
def parse_directives(header: str) -> Directives:
    """Parse a Cache-Control header; several lines must be joined by commas."""
    arguments: dict[str, tuple[str | None, ...]] = {}
    for match in _DIRECTIVE.finditer(header):
        name = match["name"].lower()
        arguments[name] = (*arguments.get(name, ()), _argument(match))
    return Directives(arguments)


def parse_delta_seconds(text: str) -> float | None:
    """Return a number of seconds as HTTP writes it: digits only."""
    if not (text.isascii() and text.isdigit()):
        return None
    return float(text) if len(text) < 20 else inf  # noqa: PLR2004  # beyond any duration


def _argument(match: re.Match[str]) -> str | None:
    if match["argument"] is None:
        rest = match["rest"].strip()
        # "max-age =3600" is not the directive max-age without an argument.
        return rest if rest.startswith("=") else None
    if match["quoted"] is not None:
        return re.sub(r"\\(.)", r"\1", match["quoted"])
    return match["plain"].rstrip() + match["rest"].strip()


# ---------------- Vary

Variant = tuple[tuple[str, str | None], ...]
_PREFERENCES = frozenset({"accept", "accept-charset", "accept-encoding", "accept-language"})


def variant_of(vary: str, headers: Mapping[str, str]) -> Variant | None:
    """Return what a response depends on; None when it depends on more than headers (`*`).

    Args:
        vary: the Vary header, with all its lines.
        headers: those of the request, by lower-case name.
    """
    names = sorted({name.strip().lower() for name in vary.split(",")} - {""})
    if "*" in names:
        return None
    return tuple((name, _digest_header(name, headers.get(name))) for name in names)


def select_entry(
    entries: Iterable[CacheEntry], owner: str, headers: Mapping[str, str]
) -> CacheEntry | None:
    """Return the newest stored response that matches; None without one."""
    matching = [one for one in entries if one.owner == owner and _matches_vary(one.vary, headers)]
    return max(matching, key=lambda one: one.responded_at, default=None)


def digest(*parts: str) -> str:
    """Return a one-way digest of texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _matches_vary(vary: Variant, headers: Mapping[str, str]) -> bool:
    return all(value == _digest_header(name, headers.get(name)) for name, value in vary)


def _digest_header(name: str, value: str | None) -> str | None:
    return None if value is None else digest(name, _normalise_header(name, value))


def _normalise_header(name: str, value: str) -> str:
    """Return the value without differences in white space and in the order of preferences."""
    members = [" ".join(part.split()) for part in value.split(",")]
    if name in _PREFERENCES:  # weights count, not the order
        members = sorted(member.lower().replace(" ", "") for member in members)
    return ",".join(members)


# ---------------- Requests

# Responses to requests with one of these are not shared.
_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "x-api-key", "x-auth-token"})
_UNCACHEABLE = frozenset({"range", "if-range", "if-match", "if-unmodified-since"})


@dataclass(frozen=True, slots=True)
class RequestDirectives:
    """The Cache-Control directives of a request; durations are in seconds."""

    max_age: float = inf
    min_fresh: float = 0.0
    max_stale: float | None = None
    stale_if_error: float | None = None
    is_no_cache: bool = False
    is_no_store: bool = False
    is_only_if_cached: bool = False


_NO_DIRECTIVES = RequestDirectives()


@dataclass(frozen=True, slots=True)
class CacheRequest:
    """A request as the cache sees it; headers by lower-case name."""

    headers: Mapping[str, str]
    owner: str = ""
    directives: RequestDirectives = _NO_DIRECTIVES

    @property
    def is_uncacheable(self) -> bool:
        """Whether it has a range or a condition that only the site can evaluate."""
        return not _UNCACHEABLE.isdisjoint(self.headers)

    @property
    def is_conditional(self) -> bool:
        """Whether the caller has a stored response and asks whether it is still valid."""
        return "if-none-match" in self.headers or "if-modified-since" in self.headers


_PLAIN_REQUEST = CacheRequest({})


def read_request(request: Request, mark: str = "") -> CacheRequest:
    """Return a request as the cache sees it; `mark` is added to its secrets."""
    if not (request.headers or request.hidden or mark):
        return _PLAIN_REQUEST
    headers = {name.lower(): value for name, value in request.headers.items()}
    owner = ""
    if mark or request.hidden or not _CREDENTIALS.isdisjoint(headers):
        owner = _owner_of(headers, request.hidden, mark)
    if "cache-control" in headers:
        return CacheRequest(headers, owner, _parse_request_directives(headers["cache-control"]))
    if headers.get("pragma", "").strip().lower() == "no-cache":
        return CacheRequest(headers, owner, RequestDirectives(is_no_cache=True))
    return CacheRequest(headers, owner)


def is_not_modified(entry: CacheEntry, asked: CacheRequest) -> bool:
    """Return whether the response that the caller has is the stored one (RFC 9111 §4.3.2)."""
    tags = asked.headers.get("if-none-match")
    if tags is not None:  # takes precedence over the date
        ours = _opaque_tag(entry.headers.get("etag", ""))
        return tags.strip() == "*" or (ours != "" and ours in map(_opaque_tag, tags.split(",")))
    since = parse_http_date(asked.headers.get("if-modified-since", ""))
    dated = entry.headers.get("last-modified") or entry.headers.get("date", "")
    changed = parse_http_date(dated)
    return since is not None and changed is not None and changed <= since


def _opaque_tag(tag: str) -> str:
    # Weak comparison is sufficient for a 304.
    return tag.strip().removeprefix("W/")


def _parse_request_directives(control: str) -> RequestDirectives:
    declared = parse_directives(control)
    max_age = declared.seconds("max-age")
    return RequestDirectives(
        max_age=inf if max_age is None else max_age,
        min_fresh=declared.seconds("min-fresh") or 0.0,
        max_stale=declared.seconds("max-stale", bare=inf),
        stale_if_error=declared.seconds("stale-if-error"),
        is_no_cache="no-cache" in declared,
        is_no_store="no-store" in declared,
        is_only_if_cached="only-if-cached" in declared,
    )


def _owner_of(headers: Mapping[str, str], hidden: Mapping[str, str], mark: str) -> str:
    secrets = [f"{name}={headers[name]}" for name in sorted(_CREDENTIALS & headers.keys())]
    secrets += [f"?{name}={value}" for name, value in sorted(hidden.items())]
    return digest(mark, *secrets)


# ---------------- Freshness

_HEURISTIC_SHARE = 0.1  # of the time since the last change
_HEURISTIC_MOST = 7 * 24 * 3600.0
_HEURISTIC_STATUSES = frozenset({200, 203, 204, 300, 301, 308, 404, 405, 410, 414})


class Reuse(Enum):
    """How a stored response may be used."""

    REUSE = auto()
    REUSE_AND_REFRESH = auto()
    VALIDATE = auto()


def directives_of(entry: CacheEntry) -> Directives:
    """Return the Cache-Control directives of a stored response."""
    return parse_directives(joined_header(entry.headers, "cache-control"))


def age_of(entry: CacheEntry, now: float) -> float:
    """Return the age of a stored response in seconds (RFC 9111 §4.2.3)."""
    date = parse_http_date(entry.headers.get("date", ""))
    apparent = 0.0 if date is None else max(0.0, entry.responded_at - date)
    declared = parse_delta_seconds(joined_header(entry.headers, "age")) or 0.0
    corrected = declared + entry.responded_at - entry.requested_at
    return max(apparent, corrected) + max(0.0, now - entry.responded_at)


def lifetime_of(entry: CacheEntry, *, heuristic: bool = False) -> float:
    """Return the seconds for which a response is fresh; 0 when it does not say."""
    age = joined_header(entry.headers, "age")
    if age and parse_delta_seconds(age) is None:
        return 0.0  # a proxy counts wrongly: validate
    max_age = directives_of(entry).seconds("max-age")
    if max_age is not None:
        return max_age
    if "expires" in entry.headers:
        return _seconds_to_expiry(entry)
    return _heuristic_lifetime(entry) if heuristic else 0.0


def decide_reuse(
    entry: CacheEntry, directives: RequestDirectives, now: float, *, heuristic: bool = False
) -> Reuse:
    """Decide how a stored response that matches a request may be used."""
    declared = directives_of(entry)
    if directives.is_no_cache or declared.is_bare("no-cache"):
        return Reuse.VALIDATE
    age = age_of(entry, now)
    staleness = age - lifetime_of(entry, heuristic=heuristic)
    # RFC 8246: an immutable response is not validated while it is fresh, even on a reload.
    if age > directives.max_age and not (staleness < 0 and "immutable" in declared):
        return Reuse.VALIDATE
    if staleness + directives.min_fresh < 0:
        return Reuse.REUSE
    if "must-revalidate" in declared or directives.min_fresh:
        return Reuse.VALIDATE
    return _reuse_stale(declared, directives, staleness)


def is_usable_on_error(
    entry: CacheEntry, directives: RequestDirectives, now: float, *, heuristic: bool = False
) -> bool:
    """Return whether a stored response may replace that of a failing site (stale-if-error)."""
    declared = directives_of(entry)
    if directives.is_no_cache or declared.is_bare("no-cache") or "must-revalidate" in declared:
        return False
    allowed = [declared.seconds("stale-if-error"), directives.stale_if_error]
    longest = max((one for one in allowed if one is not None), default=-inf)
    return age_of(entry, now) - lifetime_of(entry, heuristic=heuristic) <= longest


def _reuse_stale(declared: Directives, directives: RequestDirectives, staleness: float) -> Reuse:
    if directives.max_stale is not None and staleness <= directives.max_stale:
        return Reuse.REUSE
    if staleness < (declared.seconds("stale-while-revalidate") or 0.0):
        return Reuse.REUSE_AND_REFRESH
    return Reuse.VALIDATE


def _seconds_to_expiry(entry: CacheEntry) -> float:
    expires = parse_http_date(entry.headers["expires"])
    if expires is None:
        return 0.0
    made = parse_http_date(entry.headers.get("date", ""))
    return max(0.0, expires - (entry.responded_at if made is None else made))


def _heuristic_lifetime(entry: CacheEntry) -> float:
    if entry.status not in _HEURISTIC_STATUSES and "public" not in directives_of(entry):
        return 0.0
    changed = parse_http_date(entry.headers.get("last-modified", ""))
    if changed is None:
        return 0.0
    made = parse_http_date(entry.headers.get("date", "")) or entry.responded_at
    return min(max(0.0, made - changed) * _HEURISTIC_SHARE, _HEURISTIC_MOST)


# ---------------- Storing

# A private cache may store any of these statuses without explicit freshness (RFC 9110 §15.1).
_CACHEABLE = _HEURISTIC_STATUSES | {501}
_PARTIAL = frozenset({206, 304})
# Temporary failures: a retry has to reach the site, not the stored failure.
_TEMPORARY = frozenset({408, 425, 429})
_UNDERSTOOD = frozenset(
    {200, 203, 204, 300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 410, 414}
)
_CONNECTION_HEADERS = frozenset(
    {
        *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"),
        *("proxy-authenticate", "proxy-authentication-info", "proxy-authorization"),
        "proxy-connection",
    }
)
# They describe the body, which a 304 does not have. The tag is that of the body, too: whatever tag
# a 304 has, it is the response to a question about ours.
_BODY_HEADERS = frozenset(
    {"content-encoding", "content-length", "content-md5", "content-range", "etag"}
)


def entry_of(
    request: Request, asked: CacheRequest, page: Page, now: float, *, heuristic: bool = False
) -> CacheEntry | None:
    """Return the entry of a response that has just arrived; None when storing it has no use."""
    headers = page.headers
    has_control, has_expires = "cache-control" in headers, "expires" in headers
    has_validator = "etag" in headers or "last-modified" in headers
    if not (has_control or has_expires or has_validator):
        return None
    control = joined_header(headers, "cache-control") if has_control else ""
    if not _may_be_stored(page.status, control, has_expires=has_expires):
        return None
    variant = variant_of(joined_header(headers, "vary"), asked.headers) if "vary" in headers else ()
    if variant is None:
        return None
    kept = _storable_headers(headers, control)
    asked_at = now - page.seconds  # waiting for the rate limit is not part of the age
    entry = CacheEntry(
        request.url, asked.owner, variant, page.status, kept, asked_at, now, now, now
    )
    return entry if has_validator or _is_useful(entry, control, heuristic=heuristic) else None


def conditions(entry: CacheEntry) -> dict[str, str]:
    """Return the headers that validate an entry; none when it has no validator."""
    found = {
        "If-None-Match": entry.headers.get("etag"),
        "If-Modified-Since": entry.headers.get("last-modified"),
    }
    return {name: value for name, value in found.items() if value}


def refreshed(entry: CacheEntry, page: Page, now: float) -> CacheEntry:
    """Return the entry with the headers of a 304, or of a 200 to HEAD (RFC 9111 §3.2)."""
    control = joined_header(page.headers, "cache-control")
    new = _header_lists(_storable_headers(page.headers, control))
    old = {name: values for name, values in _header_lists(entry.headers).items() if name != "age"}
    lists = old | {name: values for name, values in new.items() if name not in _BODY_HEADERS}
    headers = CIMultiDict((name, value) for name, values in lists.items() for value in values)
    return replace(
        entry,
        headers=CIMultiDictProxy(headers),
        requested_at=now - page.seconds,
        responded_at=now,
        used_at=now,
    )


def describes(page: Page, entry: CacheEntry) -> bool:
    """Return whether a response to HEAD is about the stored one (RFC 9111 §4.3.5)."""
    names = ("etag", "last-modified", "content-length")
    return all(
        page.headers[name] == entry.headers.get(name) for name in names if name in page.headers
    )


@lru_cache(maxsize=1024)
def _may_be_stored(status: int, control: str, *, has_expires: bool) -> bool:
    """Return whether a private cache may store a response to GET (RFC 9111 §3)."""
    if not 200 <= status < FIRST_SERVER_ERROR or status in _TEMPORARY | _PARTIAL:  # noqa: PLR2004
        return False
    declared = parse_directives(control)
    if "no-store" in declared or ("must-understand" in declared and status not in _UNDERSTOOD):
        return False
    is_explicit = has_expires or any(name in declared for name in ("public", "private", "max-age"))
    return is_explicit or status in _CACHEABLE


def _is_useful(entry: CacheEntry, control: str, *, heuristic: bool) -> bool:
    declared = parse_directives(control)
    if declared.is_bare("no-cache"):
        return False
    if lifetime_of(entry, heuristic=heuristic) > 0:
        return True
    return bool(declared.seconds("stale-if-error") or declared.seconds("stale-while-revalidate"))


def _storable_headers(headers: Mapping[str, str], control: str) -> CIMultiDictProxy[str]:
    """Return the headers that are not specific to a connection."""
    connection = joined_header(headers, "connection") if "connection" in headers else ""
    kept = CIMultiDict(headers)
    for name in _unstorable_names(tuple(headers), connection, control):
        kept.popall(name, None)
    return CIMultiDictProxy(kept)


@lru_cache(maxsize=1024)  # the responses of a site have the same headers
def _unstorable_names(names: tuple[str, ...], connection: str, control: str) -> tuple[str, ...]:
    gone = _CONNECTION_HEADERS | {name.strip() for name in connection.lower().split(",")}
    gone |= parse_directives(control).fields("no-cache")
    return tuple(name for name in names if name.lower() in gone)


def _header_lists(headers: CIMultiDictProxy[str]) -> dict[str, list[str]]:
    lists: dict[str, list[str]] = {}
    for name, value in headers.items():
        lists.setdefault(name.lower(), []).append(value)
    return lists
