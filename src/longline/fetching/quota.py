"""What a site says about its limit in the headers of an answer.

Three families are read: `RateLimit` with `RateLimit-Policy` of the current IETF draft, the older
drafts' `RateLimit: limit=…` and `RateLimit-Limit`, and the `X-RateLimit-…` of everyday use, with
or without a dash in the middle and a unit at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from longline.fetching.headers import date, number

_LARGEST = 1e9  # requests, and seconds: more is nonsense
_EPOCH = 1e9  # a reset from here on is a moment; no window is thirty years long
_EPOCH_MILLISECONDS = 1e12
_LONGEST_RESET = 366 * 86_400.0
_UNITS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0}
_PREFIXES = ("x-ratelimit-", "x-rate-limit-", "ratelimit-")
_WORDS = {"limit", "remaining", "reset"}


@dataclass(frozen=True, slots=True)
class Quota:
    """`limit` requests in a `window` of seconds, of which `remaining` are left until the reset.

    What the site does not say is None.
    """

    limit: float | None = None
    remaining: float | None = None
    reset_seconds: float | None = None
    window: float | None = None

    @property
    def rate(self) -> float | None:
        """Requests a second, when limit and window are both known; a limit below 1 is none."""
        if not self.limit or not self.window or self.limit < 1:
            return None
        return self.limit / self.window


def has_quotas(headers: Mapping[str, str]) -> bool:
    """Say quickly whether an answer may speak of a quota; nearly none does."""
    names = " ".join(headers)
    return "imit" in names or "IMIT" in names


def read_quotas(headers: Mapping[str, str], now: float) -> list[Quota]:
    """Return every quota that an answer speaks of; what makes no sense is left out."""
    if not has_quotas(headers):
        return []
    names = [name for name in headers if "imit" in name.lower()]
    said = {name.lower(): _joined(headers, name) for name in names}
    quotas = (*_structured(said), *_listed(said, now), *_families(said, now))
    return [quota for quota in dict.fromkeys(quotas) if quota != Quota()]


def _joined(headers: Mapping[str, str], name: str) -> str:
    """Return all lines of a header as one; a header may be sent in several."""
    getall = getattr(headers, "getall", None)
    return ", ".join(getall(name)) if getall else headers[name]


# ------------------------------------------------------- RateLimit: "default";r=50;t=30


def _structured(said: Mapping[str, str]) -> Iterator[Quota]:
    """Read the current draft: policies by name, and what is left of each."""
    policies = dict(_items(said.get("ratelimit-policy", "")))
    # Some limits count bytes, or requests at once: those are not ours to pace by.
    foreign = {name for name, values in policies.items() if _is_foreign(values)}
    left = dict(_items(said.get("ratelimit", "")))
    for name in (policies.keys() | left.keys()) - foreign:
        policy, rest = policies.get(name, {}), left.get(name, {})
        yield Quota(
            limit=_count(policy.get("q")),
            remaining=_count(rest.get("r")),
            reset_seconds=_seconds(rest.get("t")),
            window=_seconds(policy.get("w")),
        )


def _items(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the quoted members of a list, each with its parameters."""
    for member in text.split(","):
        name, *parameters = member.split(";")
        if name.strip().startswith('"'):
            yield name.strip(), dict(_pair(parameter) for parameter in parameters)


def _is_foreign(values: Mapping[str, str]) -> bool:
    return values.get("qu", '"requests"').strip('"') != "requests"


# ------------------------------------------------------- RateLimit: limit=100, remaining=50


def _listed(said: Mapping[str, str], now: float) -> Iterator[Quota]:
    """Read the older drafts, in which a policy has no name: `100;w=60`."""
    values = dict(_pair(part) for part in said.get("ratelimit", "").split(",") if "=" in part)
    windows = list(_windows(said.get("ratelimit-policy", "")))
    limit = _count(values.get("limit"))
    window = next((window for size, window in windows if limit in (None, size)), None)
    yield Quota(
        limit=limit,
        remaining=_count(values.get("remaining")),
        reset_seconds=_reset(values.get("reset"), now),
        window=window if limit is not None else None,
    )
    for size, seconds in windows:
        yield Quota(limit=size, window=seconds)


def _windows(text: str) -> Iterator[tuple[float, float]]:
    for member in text.split(","):
        size, *parameters = member.split(";")
        limit = _count(size)
        window = _seconds(dict(_pair(parameter) for parameter in parameters).get("w"))
        if limit is not None and window is not None:
            yield limit, window


# ------------------------------------------------------- X-RateLimit-Limit: 100


def _families(said: Mapping[str, str], now: float) -> Iterator[Quota]:
    """Read the headers with one figure each, grouped by prefix and unit."""
    groups: dict[tuple[str, str], dict[str, str]] = {}
    for name, text in said.items():
        prefix = next((one for one in _PREFIXES if name.startswith(one)), None)
        word, _, unit = name.removeprefix(prefix).partition("-") if prefix else ("", "", "")
        if word == "reset" and unit == "after":
            unit = ""
        if prefix and word in _WORDS and unit in {"", *_UNITS}:
            groups.setdefault((prefix, unit), {})[word] = text
    for (_, unit), values in groups.items():
        size, *windows = values.get("limit", "").split(",")
        named = next((window for _, window in _windows(",".join(windows))), None)
        yield Quota(
            limit=_count(size.partition(";")[0]),
            remaining=_count(values.get("remaining")),
            reset_seconds=_reset(values.get("reset"), now),
            window=_UNITS.get(unit, named),
        )


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip().lower(), value.strip()


def _count(text: str | None) -> float | None:
    value = number(text) if text else None
    return value if value is not None and value <= _LARGEST else None


def _seconds(text: str | None) -> float | None:
    value = number(text) if text else None
    return value if value is not None and value <= _LONGEST_RESET else None


def _reset(text: str | None, now: float) -> float | None:
    """Return seconds from now, whether the site counts them or names the moment."""
    if not text:
        return None
    value = number(text)
    if value is None:
        value = date(text)
    if value is None:
        return None
    if value >= _EPOCH_MILLISECONDS:
        value /= 1000
    seconds = max(0.0, value - now) if value >= _EPOCH else value
    return seconds if seconds <= _LONGEST_RESET else None
