"""How old a stored answer is, how long it holds, and whether it may be used (RFC 9111 §4.2)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from enum import Enum, auto
from functools import lru_cache
from math import inf

from longline.http.cache.base import Entry
from longline.http.messages import Request

# ---------------- What the headers of caching say: Cache-Control, dates and plain numbers

_DIRECTIVE = re.compile(
    r"""\s*(?P<name>[^\s,="]+)
        (?P<argument>=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^,"]*)))?
        (?P<rest>[^,]*)(?:,|$)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Directives:
    """The directives of a Cache-Control header, by name in lower case; None has no argument."""

    arguments: Mapping[str, tuple[str | None, ...]]

    def __contains__(self, name: str) -> bool:
        return name in self.arguments

    def is_bare(self, name: str) -> bool:
        """Say whether the directive is there without a list of fields."""
        return None in self.arguments.get(name, ())

    def seconds(self, name: str, *, bare: float = 0.0) -> float | None:
        """Return the seconds of a directive; None when it is not there.

        What is no number is 0, the careful reading, and of several the least counts. `bare` is
        what the directive means without an argument.
        """
        found = self.arguments.get(name)
        if found is None:
            return None
        return min(bare if text is None else whole_number(text) or 0.0 for text in found)

    def fields(self, name: str) -> set[str]:
        """Return the names of headers that a directive lists, in lower case."""
        lists = (text for text in self.arguments.get(name, ()) if text is not None)
        return {field.strip().lower() for text in lists for field in text.split(",")}


@lru_cache(maxsize=1024)  # the answers of a site say the same again and again
def read_directives(header: str) -> Directives:
    """Read a Cache-Control header; several lines are joined by commas before."""
    arguments: dict[str, tuple[str | None, ...]] = {}
    for match in _DIRECTIVE.finditer(header):
        name = match["name"].lower()
        arguments[name] = (*arguments.get(name, ()), _argument(match))
    return Directives(arguments)


def whole_number(text: str) -> float | None:
    """Return a number of seconds as HTTP writes it: digits and nothing else."""
    if not (text.isascii() and text.isdigit()):
        return None
    return float(text) if len(text) < 20 else inf  # noqa: PLR2004  # longer than any time there is


@lru_cache(maxsize=1024)
def read_date(text: str) -> float | None:
    """Return a date of HTTP, in any of its three forms, in seconds since the epoch."""
    parsed = parsedate_tz(text)
    if parsed is None:
        return None
    try:
        return float(mktime_tz(parsed))
    except (ValueError, OverflowError):  # a year that no calendar has
        return None


def whole_header(headers: Mapping[str, str], name: str) -> str:
    """Return all lines of a header, joined as one list; empty when there is none."""
    every = getattr(headers, "getall", None)
    if every is None:
        return headers.get(name, "")
    return ", ".join(every(name, ()))


def _argument(match: re.Match[str]) -> str | None:
    if match["argument"] is None:
        rest = match["rest"].strip()
        # "max-age =3600" is not the directive max-age without an argument.
        return rest if rest.startswith("=") else None
    if match["quoted"] is not None:
        return re.sub(r"\\(.)", r"\1", match["quoted"])
    return match["plain"].rstrip() + match["rest"].strip()


# ---------------- Which stored answer fits a request: the headers that Vary names, compared by

Variant = tuple[tuple[str, str | None], ...]
_PREFERENCES = frozenset({"accept", "accept-charset", "accept-encoding", "accept-language"})


def variant_of(vary: str, headers: Mapping[str, str]) -> Variant | None:
    """Return what an answer depends on; None when it depends on more than headers (`*`).

    Args:
        vary: the Vary header, all its lines.
        headers: those of the request, by name in lower case.
    """
    names = sorted({name.strip().lower() for name in vary.split(",")} - {""})
    if "*" in names:
        return None
    return tuple((name, _digest(name, headers.get(name))) for name in names)


def select(entries: Iterable[Entry], owner: str, headers: Mapping[str, str]) -> Entry | None:
    """Return the newest stored answer that fits; None when there is none."""
    fitting = [one for one in entries if one.owner == owner and _fits(one.vary, headers)]
    return max(fitting, key=lambda one: one.responded_at, default=None)


def digest(*parts: str) -> str:
    """Return a digest of texts that cannot be turned back."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _fits(vary: Variant, headers: Mapping[str, str]) -> bool:
    return all(value == _digest(name, headers.get(name)) for name, value in vary)


def _digest(name: str, value: str | None) -> str | None:
    return None if value is None else digest(name, _normalised(name, value))


def _normalised(name: str, value: str) -> str:
    """Return the value without differences that cannot matter: white space, order of equals."""
    members = [" ".join(part.split()) for part in value.split(",")]
    if name in _PREFERENCES:  # their weights count, not their order
        members = sorted(member.lower().replace(" ", "") for member in members)
    return ",".join(members)


# ---------------- What a request says about caching

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


_HEURISTIC_PART = 0.1  # of the time since the last change
_HEURISTIC_MOST = 7 * 24 * 3600.0
_HEURISTIC_STATUSES = frozenset({200, 203, 204, 300, 301, 308, 404, 405, 410, 414})


class Use(Enum):
    """What may be done with a stored answer."""

    ANSWER = auto()
    ANSWER_AND_REFRESH = auto()
    VALIDATE = auto()


def directives_of(entry: Entry) -> Directives:
    """Return what the stored answer says of itself."""
    return read_directives(whole_header(entry.headers, "cache-control"))


def age_of(entry: Entry, now: float) -> float:
    """Return the seconds since the site made the answer, as RFC 9111 §4.2.3 counts them."""
    date = read_date(entry.headers.get("date", ""))
    apparent = 0.0 if date is None else max(0.0, entry.responded_at - date)
    told = whole_number(whole_header(entry.headers, "age")) or 0.0
    corrected = told + entry.responded_at - entry.requested_at
    return max(apparent, corrected) + max(0.0, now - entry.responded_at)


def lifetime_of(entry: Entry, *, heuristic: bool = False) -> float:
    """Return the seconds an answer holds from when it was made; 0 when it does not say."""
    age = whole_header(entry.headers, "age")
    if age and whole_number(age) is None:
        return 0.0  # somebody on the way counts wrongly: better to ask
    max_age = directives_of(entry).seconds("max-age")
    if max_age is not None:
        return max_age
    if "expires" in entry.headers:
        return _until_expiry(entry)
    return _guessed(entry) if heuristic else 0.0


def judge(entry: Entry, wishes: Wishes, now: float, *, heuristic: bool = False) -> Use:
    """Say whether a stored answer that fits a request may answer it now."""
    said = directives_of(entry)
    if wishes.is_no_cache or said.is_bare("no-cache"):
        return Use.VALIDATE
    age = age_of(entry, now)
    staleness = age - lifetime_of(entry, heuristic=heuristic)
    # RFC 8246: what is immutable is not asked for again while it is fresh, even on a reload.
    if age > wishes.max_age and not (staleness < 0 and "immutable" in said):
        return Use.VALIDATE
    if staleness + wishes.min_fresh < 0:
        return Use.ANSWER
    if "must-revalidate" in said or wishes.min_fresh:
        return Use.VALIDATE
    return _use_of_stale(said, wishes, staleness)


def holds_in_need(entry: Entry, wishes: Wishes, now: float, *, heuristic: bool = False) -> bool:
    """Say whether a stored answer may stand in for a site that fails (stale-if-error)."""
    said = directives_of(entry)
    if wishes.is_no_cache or said.is_bare("no-cache") or "must-revalidate" in said:
        return False
    allowed = [said.seconds("stale-if-error"), wishes.stale_if_error]
    longest = max((one for one in allowed if one is not None), default=-inf)
    return age_of(entry, now) - lifetime_of(entry, heuristic=heuristic) <= longest


def _use_of_stale(said: Directives, wishes: Wishes, staleness: float) -> Use:
    if wishes.max_stale is not None and staleness <= wishes.max_stale:
        return Use.ANSWER
    if staleness < (said.seconds("stale-while-revalidate") or 0.0):
        return Use.ANSWER_AND_REFRESH
    return Use.VALIDATE


def _until_expiry(entry: Entry) -> float:
    expires = read_date(entry.headers["expires"])
    if expires is None:
        return 0.0
    made = read_date(entry.headers.get("date", ""))
    return max(0.0, expires - (entry.responded_at if made is None else made))


def _guessed(entry: Entry) -> float:
    if entry.status not in _HEURISTIC_STATUSES and "public" not in directives_of(entry):
        return 0.0
    changed = read_date(entry.headers.get("last-modified", ""))
    if changed is None:
        return 0.0
    made = read_date(entry.headers.get("date", "")) or entry.responded_at
    return min(max(0.0, made - changed) * _HEURISTIC_PART, _HEURISTIC_MOST)
