"""Ban middleware: detect ban pages and challenges.

A pattern counts by where it occurs: in the visible text, on a page with little other text, with a
status that refuses. A site that is closed, down or busy, or requires a login, is not a ban.
`http/ban_patterns.toml` has the phrases.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from selectolax.lexbor import LexborNode

from longline.core.errors import Blocked
from longline.core.model import Usage
from longline.http.messages import FIRST_ERROR, Middleware, Page, Request

_PATTERNS: Mapping[str, Any] = tomllib.loads(
    (files("longline.http") / "ban_patterns.toml").read_text("utf-8")
)


@cache
def _phrases(name: str) -> re.Pattern[str]:
    """Return a pattern of all phrases of one kind; compiling them takes long, and few runs do."""
    pattern = "|".join(rf"(?<!\w)(?:{phrase})(?!\w)" for phrase in _PATTERNS[name])
    return re.compile(pattern, re.IGNORECASE)


_STEMS = tuple(stem.encode() for stem in _PATTERNS["stems"])
_CYRILLIC_STEMS = tuple(
    stem.encode(charset) for stem in _PATTERNS["cyrillic_stems"] for charset in ("utf-8", "cp1251")
)
_ELEMENTS: Mapping[str, str] = _PATTERNS["elements"]

_REFUSALS = frozenset({401, 403, 405, 406, 412, 418, 420, 423, 429, 430, 444, 456, 503, 999})
"""Statuses with which sites refuse bots; most responses with them mean something else."""
_PAUSES = frozenset({429, 503})
_UNAUTHORISED = 401
_REFUSES_US = _REFUSALS - _PAUSES - {_UNAUTHORISED}
_HEADERS = {
    "cf-mitigated": re.compile("challenge"),
    "x-amzn-waf-action": re.compile("challenge|captcha"),
    "x-vercel-mitigated": re.compile("challenge|deny"),
}
"""Headers of challenges, with their values."""
_REFUSAL_HEADERS = ("x-dd-b", "x-datadome-cid")
"""Headers of challenges, but only with a refusing status."""
_WIDGETS = (
    ".g-recaptcha:not([data-size='invisible']), .h-captcha:not([data-size='invisible']),"
    " .cf-turnstile, iframe[src*='/recaptcha/'], iframe[src*='hcaptcha.com'],"
    " iframe[src*='challenges.cloudflare.com'], #captcha-form, form[action*='captcha' i],"
    " input[name*='captcha' i]:not([type='hidden']), form img[src*='captcha' i], #captcha-container"
)
"""Captchas, which also occur below ordinary forms."""
_SCRIPTS = re.compile(
    r"_cf_chl_opt|/orchestrate/(?:chl_page|jsch|captcha)/|captcha-delivery\.com/c\.js"
    r"|ct\.datado\.me/|captcha\.px-c(?:dn|loud)\.net|/captcha/captcha\.js\?a=c"
    r"|sucuri_cloudproxy_js|AwsWafIntegration\.(?:checkForceRefresh|forceRefreshToken)"
    r"|/_Incapsula_Resource\?SWJIYLWA"
)
"""Scripts of challenge pages that have nothing else to show."""
_IN_DATA = re.compile(
    r"captcha-delivery\.com/|\"(?:blockscript|captcha_?url|challenge_?url)\"\s*:", re.IGNORECASE
)
"""Challenges in JSON and other data."""

_SHORT = 1_200  # characters of text; a challenge has fewer, an article about challenges more
_TINY = 400
_SHORT_DATA = 4_000  # characters of JSON, XML and plain text
_SNIFFED_BYTES = 65_536
_LARGEST = 300_000  # bytes; a larger page is not a challenge
_MOST_ELEMENTS = 200  # with an end tag, at the beginning of a challenge
_IGNORED_FIELDS = frozenset({"hidden", "submit", "button", "checkbox", "radio", "image", "reset"})


class BanMiddleware(Middleware):
    """Raises Blocked for a page that bans us or requires a person to solve a challenge.

    `expects` are CSS selectors of which every HTML page of the source matches at least one.
    """

    def __init__(self, inner: Middleware, *, expects: Sequence[str] = ()) -> None:
        self._inner = inner
        self._expects = tuple(expects)

    async def __call__(self, request: Request, usage: Usage) -> Page:
        page = await self._inner(request, usage)
        evidence = find_ban(page, self._expects)
        if evidence is not None:
            raise Blocked(request.url, evidence)
        return page


def find_ban(page: Page, expects: Sequence[str] = ()) -> str | None:
    """Return the evidence that a page is a ban or a challenge, in words; None without any.

    A page that matches one of `expects` is not a ban; if none matches, weaker evidence is enough.
    """
    if not is_suspicious_page(page, expects):
        return None
    if _is_html(page):
        return _find_in_html(page, expects)
    return _find_in_headers(page) or _find_in_data(page)


def is_suspicious_page(page: Page, expects: Sequence[str] = ()) -> bool:
    """Return quickly whether a page needs a closer look."""
    if page.status in _REFUSALS or any(name in page.headers for name in _HEADERS):
        return True
    if len(page.body) > _LARGEST or not _is_html(page):
        return False
    # A source with expectations reads the page anyway, and its tree is kept.
    return not _matches_any(page, expects) if expects else _has_stem(page.body)


def _has_stem(body: bytes) -> bool:
    if body.count(b"</", 0, _SNIFFED_BYTES) > _MOST_ELEMENTS:
        return False
    start = body[:_SNIFFED_BYTES].lower()
    if any(stem in start for stem in _STEMS):
        return True
    return not start.isascii() and any(stem in start for stem in _CYRILLIC_STEMS)


def _matches_any(page: Page, selectors: Sequence[str]) -> bool:
    return any(page.first(selector) is not None for selector in selectors)


def _find_in_html(page: Page, expects: Sequence[str]) -> str | None:
    if _matches_any(page, expects):
        return None
    visible = _read_visible(page)
    strong = (
        _find_in_headers(page) or _find_in_elements(page, visible) or _find_in_text(page, visible)
    )
    if strong is not None or not expects:
        return strong
    weak = _find_weak(page, visible)
    return weak and f"{weak}, and no expected element ({', '.join(expects)})"


def _find_in_headers(page: Page) -> str | None:
    for name, values in _HEADERS.items():
        value = page.headers.get(name, "").lower()
        if values.search(value):
            return f"{name}: {value}"
    if page.status in _REFUSALS:
        for name in _REFUSAL_HEADERS:
            if name in page.headers:
                return f"status {page.status} and the header {name}"
    return None


def _find_in_elements(page: Page, visible: _Visible) -> str | None:
    """Find a challenge that is the main content of the page."""
    if len(visible.text) >= _SHORT:
        return None
    for name, selector in _ELEMENTS.items():
        if page.first(selector) is not None:
            return name
    if len(visible.text) >= _TINY:
        return None
    if page.first(_WIDGETS) is not None and not _has_form_fields(page):
        return "a captcha and little else"
    scripts = page.css("script")
    for script in scripts:
        found = _SCRIPTS.search(script.attributes.get("src") or script.text())
        if found is None:
            continue
        # Incapsula adds its script to ordinary pages too, which have other scripts.
        if "_Incapsula_" in found.group() and len(scripts) > 1:
            continue
        return f"a page that is only the script of a challenge ({found.group().strip('/?')})"
    return None


def _find_in_text(page: Page, visible: _Visible) -> str | None:
    is_refusal = page.status in _REFUSALS
    # A site that sends Retry-After wants fewer requests, not none.
    is_pause = page.status in _PAUSES and "retry-after" in page.headers
    found = _find_phrase(page, _phrases("asks"), visible) or (
        None if is_pause else _find_phrase(page, _phrases("bans"), visible)
    )
    if found is not None:
        text = f"the text {found!r}"
        return f"status {page.status} and {text}" if is_refusal else text
    return _find_denial(page, visible) if is_refusal and not is_pause else None


def _find_phrase(page: Page, phrases: re.Pattern[str], visible: _Visible) -> str | None:
    """Return a phrase in a heading or on a short page; with a good status both are required."""
    is_refusal = page.status in _REFUSALS
    if not is_refusal and (
        len(visible.text) >= _SHORT or _phrases("explains").search(visible.headings)
    ):
        return None
    found = phrases.search(visible.headings)
    if found is None and len(visible.text) < (_SHORT if is_refusal else _TINY):
        found = phrases.search(visible.text)
    return found.group() if found else None


def _find_denial(page: Page, visible: _Visible) -> str | None:
    """Find a refusal of us, not of every visitor without a login or a permission."""
    if len(visible.text) >= _SHORT or page.status == _UNAUTHORISED:
        return None
    hint = _phrases("hints").search(visible.headings) or _phrases("hints").search(visible.text)
    if hint is None:
        return None
    text = f"status {page.status} and the text {hint.group()!r}"
    reference = _phrases("references").search(visible.text)
    if reference:
        return f"{text} with {reference.group()!r}"
    # A busy site may say the same; the rate limiter handles that.
    is_other = page.status in _PAUSES or _phrases("own_affairs").search(visible.text)
    return None if is_other else text


def _find_weak(page: Page, visible: _Visible) -> str | None:
    """Find evidence that would prove nothing on a page with an expected element."""
    if page.status >= FIRST_ERROR and page.status not in _REFUSES_US:
        return None
    is_short = len(visible.text) < _SHORT
    is_other = _phrases("explains").search(visible.headings) or _phrases("own_affairs").search(
        visible.text
    )
    for phrases in () if is_other else (_phrases("asks"), _phrases("bans"), _phrases("hints")):
        found = phrases.search(visible.headings) or (
            phrases.search(visible.text) if is_short else None
        )
        if found:
            return f"the text {found.group()!r}"
    if is_short and page.first(_WIDGETS) is not None and not _has_form_fields(page):
        return "a captcha"
    return None


def _find_in_data(page: Page) -> str | None:
    """Find a challenge in a short response that is not HTML and has a refusing status."""
    if page.status not in _REFUSALS or len(page.body) > _SHORT_DATA:
        return None
    text = page.text
    found = _IN_DATA.search(text)
    if found is None and not (page.status in _PAUSES and "retry-after" in page.headers):
        found = _phrases("asks").search(text) or _phrases("bans").search(text)
    return f"status {page.status} and the text {found.group()!r}" if found else None


def _has_form_fields(page: Page) -> bool:
    """Return whether there is a field besides the captcha: a login, a search, a message."""
    for node in page.css("input, textarea, select"):
        attributes = node.attributes
        name = f"{attributes.get('name') or ''} {attributes.get('id') or ''}".lower()
        kind = (attributes.get("type") or "text").lower()
        if not (kind in _IGNORED_FIELDS or "captcha" in name or "hidden" in attributes):
            return True
    return False


def _is_html(page: Page) -> bool:
    kind = page.headers.get("content-type", "")
    if not kind:
        return page.body[:200].lstrip()[:1] == b"<"
    return "html" in kind.lower()


# ---------------- Visible text

_ENOUGH = 4_000  # characters; the rest of a longer text is not read
_INVISIBLE = frozenset(
    {"head", "script", "style", "noscript", "template", "svg", "math", "iframe", "object"}
)
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Visible:
    """The title and headings, and the text, that a page shows without its scripts."""

    headings: str
    text: str


def _read_visible(page: Page) -> _Visible:
    title, body = page.tree.css_first("title"), page.tree.body
    headings = [title.text()] if title else []
    texts: list[str] = []
    length = 0
    # With a stack, since pages nest deeply; each node has the flag whether it is in a heading.
    stack = [(body.first_child if body else None, False)]
    while stack and length <= _ENOUGH:
        node, is_heading = stack.pop()
        if node is None:
            continue
        stack.append((node.next, is_heading))
        if node.is_text_node:
            text = node.text_content or ""
            length += len(text.strip())
            texts.append(text)
            if is_heading:
                headings.append(text)
        elif node.is_element_node and not _is_hidden(node):
            stack.append((node.first_child, is_heading or node.tag in {"h1", "h2"}))
    return _Visible(_normalise_text(" ".join(headings)), _normalise_text(" ".join(texts)))


def _is_hidden(node: LexborNode) -> bool:
    attributes = node.attributes
    return (
        node.tag in _INVISIBLE
        or "hidden" in attributes
        or _HIDDEN_STYLE.search(attributes.get("style") or "") is not None
    )


def _normalise_text(text: str) -> str:
    return " ".join(text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").split())
