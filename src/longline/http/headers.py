"""HTTP headers: rate-limit quotas, joined values, and containers that hide secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from longline.core.http_headers import parse_http_date, parse_number
from longline.http.messages import Request


def joined_header(headers: Mapping[str, str], name: str) -> str:
    """Return all lines of a header, joined as one list; empty without the header."""
    getall = getattr(headers, "getall", None)
    return headers.get(name, "") if getall is None else ", ".join(getall(name, ()))


def has_header(headers: Mapping[str, str], name: str) -> bool:
    """Return whether there is a header of this name, in any case."""
    wanted = name.lower()
    return any(one.lower() == wanted for one in headers)


def with_header(request: Request, name: str, value: str) -> Request:
    """Return the request with this header, unless it already has one of that name."""
    if has_header(request.headers, name):
        return request
    return request.having(Redacted({**request.headers, name: value}))


class Redacted(dict[str, str]):
    """A dict whose repr shows its names and hides its values."""

    def __repr__(self) -> str:
        return f"Redacted({', '.join(self)})"


class RedactedBody(bytes):
    """Bytes whose repr shows only their number."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"RedactedBody({len(self)} bytes)"


# ---------------- Quotas: the rate limit that a site declares in its responses

_LARGEST = 1e9  # requests; larger values are not credible
_EPOCH = 1e9  # a larger reset is a time since the epoch, not a duration
_EPOCH_MILLISECONDS = 1e12
_LONGEST_RESET = 366 * 86_400.0  # seconds
_UNITS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0}
_PREFIXES = ("x-ratelimit-", "x-rate-limit-", "ratelimit-")
_FIELDS = {"limit", "remaining", "reset"}


@dataclass(frozen=True, slots=True)
class Quota:
    """`limit` requests in a `window` of seconds, of which `remaining` are left until the reset.

    Values that the site does not send are None.
    """

    limit: float | None = None
    remaining: float | None = None
    reset_seconds: float | None = None
    window: float | None = None

    @property
    def rate(self) -> float | None:
        """Requests per second, when limit and window are known; a limit below 1 is ignored."""
        if not self.limit or not self.window or self.limit < 1:
            return None
        return self.limit / self.window


def read_quotas(headers: Mapping[str, str], now: float) -> list[Quota]:
    """Return every quota that a response declares; invalid ones are left out."""
    names = [name for name in headers if "imit" in name.lower()]
    fields = {name.lower(): joined_header(headers, name) for name in names}
    quotas = (*_structured(fields), *_listed(fields, now), *_families(fields, now))
    return [quota for quota in dict.fromkeys(quotas) if quota != Quota()]


# ------------------------------------------------------- RateLimit: "default";r=50;t=30


def _structured(fields: Mapping[str, str]) -> Iterator[Quota]:
    """Read the current draft: named policies, and the rest of each."""
    policies = dict(_quoted_items(fields.get("ratelimit-policy", "")))
    # Some limits count bytes or concurrent requests: those are not rate limits.
    foreign = {name for name, values in policies.items() if _is_foreign(values)}
    left = dict(_quoted_items(fields.get("ratelimit", "")))
    for name in (policies.keys() | left.keys()) - foreign:
        policy, rest = policies.get(name, {}), left.get(name, {})
        yield Quota(
            limit=_parse_count(policy.get("q")),
            remaining=_parse_count(rest.get("r")),
            reset_seconds=_parse_seconds(rest.get("t")),
            window=_parse_seconds(policy.get("w")),
        )


def _quoted_items(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the quoted members of a list with their parameters."""
    for member in text.split(","):
        name, *parameters = member.split(";")
        if name.strip().startswith('"'):
            yield name.strip(), dict(_split_pair(parameter) for parameter in parameters)


def _is_foreign(values: Mapping[str, str]) -> bool:
    return values.get("qu", '"requests"').strip('"') != "requests"


# ------------------------------------------------------- RateLimit: limit=100, remaining=50


def _listed(fields: Mapping[str, str], now: float) -> Iterator[Quota]:
    """Read the older drafts, whose policies have no name: `100;w=60`."""
    values = dict(
        _split_pair(part) for part in fields.get("ratelimit", "").split(",") if "=" in part
    )
    windows = list(_windows(fields.get("ratelimit-policy", "")))
    limit = _parse_count(values.get("limit"))
    window = next((window for size, window in windows if limit in (None, size)), None)
    yield Quota(
        limit=limit,
        remaining=_parse_count(values.get("remaining")),
        reset_seconds=_parse_reset(values.get("reset"), now),
        window=window if limit is not None else None,
    )
    for size, seconds in windows:
        yield Quota(limit=size, window=seconds)


def _windows(text: str) -> Iterator[tuple[float, float]]:
    for member in text.split(","):
        size, *parameters = member.split(";")
        limit = _parse_count(size)
        window = _parse_seconds(dict(_split_pair(parameter) for parameter in parameters).get("w"))
        if limit is not None and window is not None:
            yield limit, window


# ------------------------------------------------------- X-RateLimit-Limit: 100


def _families(fields: Mapping[str, str], now: float) -> Iterator[Quota]:
    """Read headers with one number each, grouped by prefix and unit."""
    groups: dict[tuple[str, str], dict[str, str]] = {}
    for name, text in fields.items():
        prefix = next((one for one in _PREFIXES if name.startswith(one)), None)
        word, _, unit = name.removeprefix(prefix).partition("-") if prefix else ("", "", "")
        if word == "reset" and unit == "after":
            unit = ""
        if prefix and word in _FIELDS and unit in {"", *_UNITS}:
            groups.setdefault((prefix, unit), {})[word] = text
    for (_, unit), values in groups.items():
        size, *windows = values.get("limit", "").split(",")
        named = next((window for _, window in _windows(",".join(windows))), None)
        yield Quota(
            limit=_parse_count(size.partition(";")[0]),
            remaining=_parse_count(values.get("remaining")),
            reset_seconds=_parse_reset(values.get("reset"), now),
            window=_UNITS.get(unit, named),
        )


def _split_pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip().lower(), value.strip()


def _parse_count(text: str | None) -> float | None:
    value = parse_number(text) if text else None
    return value if value is not None and value <= _LARGEST else None


def _parse_seconds(text: str | None) -> float | None:
    value = parse_number(text) if text else None
    return value if value is not None and value <= _LONGEST_RESET else None


def _parse_reset(text: str | None, now: float) -> float | None:
    """Return seconds from now; the site may send a duration or a time."""
    if not text:
        return None
    value = parse_number(text)
    if value is None:
        value = parse_http_date(text)
    if value is None:
        return None
    if value >= _EPOCH_MILLISECONDS:
        value /= 1000
    seconds = max(0.0, value - now) if value >= _EPOCH else value
    return seconds if seconds <= _LONGEST_RESET else None
