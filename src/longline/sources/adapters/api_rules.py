"""Which rule of an endpoint an answer falls under, and how long to wait by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longline.config.manifests.api_endpoints import Endpoint
from longline.config.manifests.api_handlers import Handler, When
from longline.config.manifests.api_paths import find
from longline.config.patterns import user_pattern
from longline.errors import UnexpectedShape, bad_status
from longline.fetching.headers import number, retry_after
from longline.fetching.messages import Page
from longline.fetching.statuses import FIRST_BAD
from longline.resilience.retry import RETRIED_STATUSES, RetryPolicy

_USUAL_REST = 60.0  # seconds a source rests when neither the rule nor the site says how long
_AN_EPOCH = 1e9  # a reset of more than this is a moment and not a time
_BACKOFF = RetryPolicy()
MAY_PASS = Handler(when=When(status=tuple(RETRIED_STATUSES)), do="retry")
"""What the chain does about a failure that may pass; for statuses that the rules kept from it."""


def seen_by_rules(endpoint: Endpoint) -> frozenset[int]:
    """Return the statuses that the rules want to see, and those that are fine."""
    named = {status for rule in endpoint.handlers for status in rule.when.status}
    return frozenset(endpoint.accept) | frozenset(one for one in named if one >= FIRST_BAD)


def rule_for(endpoint: Endpoint, page: Page) -> Handler | None:
    """Return the rule that an answer falls under; None when it is fine.

    Raises:
        BadStatus: no rule fits, and the status says no for good.
    """
    for rule in endpoint.handlers:
        if _fits(rule.when, page):
            return rule
    if page.status < FIRST_BAD or page.status in endpoint.accept:
        return None
    if page.status in RETRIED_STATUSES:
        return MAY_PASS
    raise bad_status(page.url, page.status)


def wait_of(rule: Handler, page: Page, tries: int, now: float) -> float:
    """Return the seconds to wait after this many tries: as the rule, the site or habit says."""
    if rule.after is not None:
        return rule.after
    said = _said(page.headers.get(rule.after_header, "") if rule.after_header else "", now)
    if said is None:
        said = retry_after(page.headers, now)
    if rule.do == "wait":
        return _USUAL_REST if said is None else said
    return max(_BACKOFF.backoff(tries), said or 0.0)


def reason_of(rule: Handler, page: Page) -> str:
    """Return what a user reads about it."""
    if rule.reason:
        return rule.reason
    when = rule.when
    signs = [f"status {page.status}"] if when.status else []
    signs += [f"{when.body!r} holds"] if when.body else []
    signs += [f"header {name} is {page.headers.get(name)!r}" for name in when.header]
    return f"{', '.join(signs)}, which is to {rule.do}"


def is_true(value: Any) -> bool:
    """Return whether jmespath takes a value for true: zero is, empty things are not."""
    return not (value is None or value is False or (_is_empty(value)))


def _is_empty(value: Any) -> bool:
    return isinstance(value, str | list | Mapping) and not value


def _fits(when: When, page: Page) -> bool:
    if when.status and page.status not in when.status:
        return False
    if any(not _has(page.headers, name, text) for name, text in when.header.items()):
        return False
    return when.body is None or _holds(when.body, page)


def _has(headers: Mapping[str, str], name: str, text: str) -> bool:
    value = headers.get(name, headers.get(name.lower()))
    return value is not None and user_pattern(text, ignores_case=True).search(value) is not None


def _holds(condition: str, page: Page) -> bool:
    try:
        return is_true(find(condition, page.json))
    except (UnexpectedShape, ValueError):
        return False  # what is no JSON, or other JSON, does not meet a condition on it


def _said(text: str, now: float) -> float | None:
    seconds = number(text)
    if seconds is None:
        return None
    return max(0.0, seconds - now) if seconds > _AN_EPOCH else seconds
