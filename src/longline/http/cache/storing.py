"""Whether an answer is stored, as what, and what a 304 changes about it (RFC 9111 §3, §4.3).

hishel's state machine judges; what it leaves out is added here.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import hishel
from multidict import CIMultiDict, CIMultiDictProxy

from longline.http.cache.base import Entry
from longline.http.cache.policy import Asked, lifetime_of, read_directives, variant_of, whole_header
from longline.http.messages import Page, Request

FIRST_SERVER_ERROR = 500
_OPTIONS = hishel.CacheOptions(shared=False, supported_methods=["GET"])
# Failures that may pass: a retry has to reach the site, not its stored excuse.
_PASSING = frozenset({408, 425, 429})
_UNDERSTOOD = frozenset(
    {200, 203, 204, 300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 410, 414}
)
_OF_A_CONNECTION = frozenset(
    {
        *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"),
        *("proxy-authenticate", "proxy-authentication-info", "proxy-authorization"),
        "proxy-connection",
    }
)
# They describe the body, which a 304 does not bring. The tag is that of the body, too: whatever
# tag a 304 shows, it is the answer to a question about ours.
_OF_THE_BODY = frozenset(
    {"content-encoding", "content-length", "content-md5", "content-range", "etag"}
)


def entry_of(
    request: Request, asked: Asked, page: Page, now: float, *, heuristic: bool = False
) -> Entry | None:
    """Return what to store of an answer that has just arrived; None when nothing is gained."""
    headers = page.headers
    has_control, has_expires = "cache-control" in headers, "expires" in headers
    has_validator = "etag" in headers or "last-modified" in headers
    if not (has_control or has_expires or has_validator):
        return None
    control = whole_header(headers, "cache-control") if has_control else ""
    if not _may_be_stored(page.status, control, has_expires=has_expires):
        return None
    variant = variant_of(whole_header(headers, "vary"), asked.headers) if "vary" in headers else ()
    if variant is None:
        return None
    kept = _storable(headers, control)
    asked_at = now - page.seconds  # the wait for a pace is not part of an answer's age
    entry = Entry(request.url, asked.owner, variant, page.status, kept, asked_at, now, now, now)
    return entry if has_validator or _is_useful(entry, control, heuristic=heuristic) else None


def conditions(entry: Entry) -> dict[str, str]:
    """Return the headers that ask whether an answer still holds; none when it has no validator."""
    found = {
        "If-None-Match": entry.headers.get("etag"),
        "If-Modified-Since": entry.headers.get("last-modified"),
    }
    return {name: value for name, value in found.items() if value}


def freshened(entry: Entry, page: Page, now: float) -> Entry:
    """Return the entry with what a 304, or a 200 to HEAD, says anew."""
    old = {name: values for name, values in _lists(entry.headers).items() if name != "age"}
    news = _storable(page.headers, whole_header(page.headers, "cache-control"))
    new = {name: values for name, values in _lists(news).items() if name not in _OF_THE_BODY}
    stored = hishel.Entry(
        uuid.UUID(int=0),
        hishel.Request("GET", entry.url),
        hishel.Response(entry.status, hishel.Headers(old)),
    )
    # hishel matches by validators; ours stay out of `new`, since only one answer was asked about.
    matching = {name: values for name, values in new.items() if name != "last-modified"}
    state = hishel.NeedRevalidation(
        options=_OPTIONS,
        request=stored.request,
        original_request=stored.request,
        revalidating_entries=[stored],
    ).next(hishel.Response(304, hishel.Headers(matching)))
    assert isinstance(state, hishel.NeedToBeUpdated)  # noqa: S101  # one entry always matches
    merged = state.updating_entries[0].response.headers
    lists = {name: merged.get_list(name) or [] for name in merged}
    # hishel keeps the type; but it describes the meaning of the bytes, which the site may mend.
    lists |= {name: new[name] for name in ("content-type", "last-modified") if name in new}
    headers = CIMultiDict((name, value) for name, values in lists.items() for value in values)
    return replace(
        entry,
        headers=CIMultiDictProxy(headers),
        requested_at=now - page.seconds,
        responded_at=now,
        used_at=now,
    )


def describes(page: Page, entry: Entry) -> bool:
    """Say whether an answer to HEAD is about the stored answer (RFC 9111 §4.3.5)."""
    told = ("etag", "last-modified", "content-length")
    return all(
        page.headers[name] == entry.headers.get(name) for name in told if name in page.headers
    )


@lru_cache(maxsize=1024)
def _may_be_stored(status: int, control: str, *, has_expires: bool) -> bool:
    # For a private cache the verdict depends on nothing else, so it is asked for only once.
    if status >= FIRST_SERVER_ERROR or status in _PASSING:
        return False
    if "must-understand" in read_directives(control) and status not in _UNDERSTOOD:
        return False
    headers = {"cache-control": control} | ({"expires": "0"} if has_expires else {})
    response = hishel.Response(status, hishel.Headers(headers))
    request = hishel.Request("GET", "")
    state = hishel.CacheMiss(options=_OPTIONS, request=request).next(response)
    return isinstance(state, hishel.StoreAndUse)


def _is_useful(entry: Entry, control: str, *, heuristic: bool) -> bool:
    said = read_directives(control)
    if said.is_bare("no-cache"):
        return False
    if lifetime_of(entry, heuristic=heuristic) > 0:
        return True
    return bool(said.seconds("stale-if-error") or said.seconds("stale-while-revalidate"))


def _storable(headers: Mapping[str, str], control: str) -> CIMultiDictProxy[str]:
    """Return the headers that outlive their connection."""
    connection = whole_header(headers, "connection") if "connection" in headers else ""
    kept = CIMultiDict(headers)
    for name in _passing(tuple(headers), connection, control):
        kept.popall(name, None)
    return CIMultiDictProxy(kept)


@lru_cache(maxsize=1024)  # the answers of a site have the same headers again and again
def _passing(names: tuple[str, ...], connection: str, control: str) -> tuple[str, ...]:
    """Return which headers do not outlive their connection, or must not be kept."""
    gone = _OF_A_CONNECTION | {name.strip() for name in connection.lower().split(",")}
    gone |= read_directives(control).fields("no-cache")
    return tuple(name for name in names if name.lower() in gone)


def _lists(headers: CIMultiDictProxy[str]) -> dict[str, list[str]]:
    lists: dict[str, list[str]] = {}
    for name, value in headers.items():
        lists.setdefault(name.lower(), []).append(value)
    return lists
