"""Whether a page is a ban or a challenge instead of an answer, and how one can tell.

A sign counts by where it stands: in what a reader sees, on a page that has little else to say, with
a status that refuses. A site that is merely closed, down, busy or wants a login is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from longline.fetching import signs
from longline.fetching.messages import Page
from longline.fetching.statuses import FIRST_BAD
from longline.fetching.visible import View, seen

SHORT = 1_200
"""A challenge says less than so many characters; an article about challenges says more."""
_TINY = 400
_SHORT_DATA = 4_000  # characters of JSON, XML and plain text
_SNIFFED = 65_536
_UNAUTHORISED = 401
_REFUSES_US = signs.REFUSALS - signs.PAUSES - {_UNAUTHORISED}
_LARGEST = 300_000  # bytes; more is no challenge
_MOST_ELEMENTS = 200  # with an end of their own, at the beginning of a challenge
_FILLED_IN = "input, textarea, select"
_NOT_FILLED_IN = frozenset({"hidden", "submit", "button", "checkbox", "radio", "image", "reset"})


def find_block(page: Page, expects: Sequence[str] = ()) -> str | None:
    """Return the evidence that a page blocks us, in words; None when there is none.

    `expects` are CSS selectors of which an HTML answer of the source has at least one: a page that
    has one is not blocked, and on a page that lacks them all lighter signs are enough.
    """
    if not is_suspect(page, expects):
        return None
    if _is_html(page):
        return _find_in_html(page, expects)
    return _find_in_headers(page) or _find_in_data(page)


def is_suspect(page: Page, expects: Sequence[str] = ()) -> bool:
    """Say quickly whether it is worth a closer look; True says nothing about the page."""
    if page.status in signs.REFUSALS or any(name in page.headers for name in signs.HEADERS):
        return True
    if len(page.body) > _LARGEST or not _is_html(page):
        return False
    # Whoever expects something reads the page anyway, and its tree is kept.
    return not _has_any(page, expects) if expects else _smells(page.body)


def _smells(body: bytes) -> bool:
    if body.count(b"</", 0, _SNIFFED) > _MOST_ELEMENTS:
        return False
    start = body[:_SNIFFED].lower()
    if any(stem in start for stem in signs.STEMS):
        return True
    return not start.isascii() and any(stem in start for stem in signs.CYRILLIC_STEMS)


def _has_any(page: Page, selectors: Sequence[str]) -> bool:
    return any(page.first(selector) is not None for selector in selectors)


def _find_in_html(page: Page, expects: Sequence[str]) -> str | None:
    if _has_any(page, expects):
        return None
    view = seen(page)
    strong = _find_in_headers(page) or _find_in_elements(page, view) or _find_in_text(page, view)
    if strong is not None or not expects:
        return strong
    weak = _find_weak(page, view)
    return weak and f"{weak}, and nothing of what is expected ({', '.join(expects)})"


def _find_in_headers(page: Page) -> str | None:
    for name, values in signs.HEADERS.items():
        value = page.headers.get(name, "").lower()
        if values.search(value):
            return f"{name}: {value}"
    if page.status in signs.REFUSALS:
        for name in signs.HEADERS_OF_REFUSALS:
            if name in page.headers:
                return f"status {page.status} and the header {name}"
    return None


def _find_in_elements(page: Page, view: View) -> str | None:
    """Look for a challenge that is the main thing on the page."""
    if len(view.text) >= SHORT:
        return None
    for what, selector in signs.ONLY_IN_CHALLENGES.items():
        if page.first(selector) is not None:
            return what
    if len(view.text) >= _TINY:
        return None
    if page.first(signs.WIDGETS) is not None and not _has_fields(page):
        return "a captcha and little else"
    return _find_in_scripts(page)


def _find_in_scripts(page: Page) -> str | None:
    """Look for a page that is a script and nothing to read."""
    scripts = page.css("script")
    for script in scripts:
        found = signs.SCRIPTS.search(script.attributes.get("src") or script.text())
        if found is None:
            continue
        # Incapsula adds its script to honest pages too, whose own scripts draw them.
        if "_Incapsula_" in found.group() and len(scripts) > 1:
            continue
        return f"a page that is only the script of a challenge ({found.group().strip('/?')})"
    return None


def _find_in_text(page: Page, view: View) -> str | None:
    is_refusal = page.status in signs.REFUSALS
    # Who says when to come back wants fewer requests, not none.
    is_pause = page.status in signs.PAUSES and "retry-after" in page.headers
    said = _said(page, signs.ASKS, view) or (None if is_pause else _said(page, signs.BANS, view))
    if said is not None:
        return f"status {page.status} and the text {said!r}" if is_refusal else f"the text {said!r}"
    if is_refusal and not is_pause:
        return _find_denial(page, view)
    return None


def _said(page: Page, phrases: re.Pattern[str], view: View) -> str | None:
    """Return what is said where it counts: loudly or on a short page, and on a good one both."""
    is_refusal = page.status in signs.REFUSALS
    if not is_refusal and (len(view.text) >= SHORT or signs.EXPLAINS.search(view.heads)):
        return None
    loud = phrases.search(view.heads)
    is_heard = len(view.text) < (SHORT if is_refusal else _TINY)
    said = loud or (phrases.search(view.text) if is_heard else None)
    return said.group() if said else None


def _find_denial(page: Page, view: View) -> str | None:
    """Look for a refusal of us, and not of anybody without a login or a right."""
    if len(view.text) >= SHORT or page.status == _UNAUTHORISED:
        return None
    hint = signs.HINTS.search(view.heads) or signs.HINTS.search(view.text)
    if hint is None:
        return None
    text = f"status {page.status} and the text {hint.group()!r}"
    reference = signs.REFERENCES.search(view.text)
    if reference:
        return f"{text} with {reference.group()!r}"
    # One who is busy may say much of this; that is the pace's business.
    is_other = page.status in signs.PAUSES or signs.OWN_AFFAIRS.search(view.text)
    return None if is_other else text


def _find_weak(page: Page, view: View) -> str | None:
    """Look for what proves nothing on a page that may be an answer."""
    if page.status >= FIRST_BAD and page.status not in _REFUSES_US:
        return None
    is_short = len(view.text) < SHORT
    is_other = signs.EXPLAINS.search(view.heads) or signs.OWN_AFFAIRS.search(view.text)
    for phrases in () if is_other else (signs.ASKS, signs.BANS, signs.HINTS):
        said = phrases.search(view.heads) or (phrases.search(view.text) if is_short else None)
        if said:
            return f"the text {said.group()!r}"
    if is_short and page.first(signs.WIDGETS) is not None and not _has_fields(page):
        return "a captcha"
    return None


def _find_in_data(page: Page) -> str | None:
    """Look into an answer for programs: only one that refuses, and briefly."""
    if page.status not in signs.REFUSALS or len(page.body) > _SHORT_DATA:
        return None
    text = page.text
    found = signs.IN_DATA.search(text)
    if found is None and not (page.status in signs.PAUSES and "retry-after" in page.headers):
        found = signs.ASKS.search(text) or signs.BANS.search(text)
    return f"status {page.status} and the text {found.group()!r}" if found else None


def _has_fields(page: Page) -> bool:
    """Whether there is something to fill in besides the captcha: a login, a search, a message."""
    return any(_is_field(node.attributes) for node in page.css(_FILLED_IN))


def _is_field(attributes: Mapping[str, str | None]) -> bool:
    name = f"{attributes.get('name') or ''} {attributes.get('id') or ''}".lower()
    kind = (attributes.get("type") or "text").lower()
    return kind not in _NOT_FILLED_IN and "captcha" not in name and "hidden" not in attributes


def _is_html(page: Page) -> bool:
    kind = page.headers.get("content-type", "")
    if not kind:
        return page.body[:200].lstrip()[:1] == b"<"
    return "html" in kind.lower()
