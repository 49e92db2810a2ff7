"""Logging in with a form: the cookies that come back are the proof, kept by Identity's jar."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode, urljoin, urlsplit

from selectolax.lexbor import LexborNode

from longline.config.auth import LoginAuth
from longline.config.secrets import Reach, reveal
from longline.core.clock import Clock
from longline.core.errors import bad_status
from longline.core.model import Usage
from longline.http.auth.base import Obtained, cleaned
from longline.http.errors import AuthFailed
from longline.http.headers import RedactedBody
from longline.http.messages import FIRST_ERROR, Page, Request, origin_of, without_userinfo
from longline.http.middleware.base import Middleware
from longline.http.middleware.identity import set_cookies
from longline.http.middleware.redirects import RedirectMiddleware

# ---------------- Forms of HTML pages: where they are sent, and what they send when nobody types

PASSWORD = "input[type=password i]"  # noqa: S105  # a selector
_NEVER_SENT = frozenset({"button", "reset", "image", "file"})
_TICKED = frozenset({"checkbox", "radio"})


@dataclass(frozen=True, slots=True)
class Form:
    """A form as it stands in a page; `fields` are what a browser would send unchanged."""

    page: str
    action: str
    method: str
    fields: dict[str, str]


def read_form(page: Page, selector: str | None = None) -> Form | None:
    """Return the form that a selector finds, or that has a password field; None without one."""
    node = page.first(selector) if selector else _with_password(page)
    if node is None:
        return None
    base = urljoin(page.url, page.first_attribute("base[href]", "href") or "")
    action = (node.attributes.get("action") or "").strip()
    method = (node.attributes.get("method") or "get").strip().upper()
    # Without an action a form is sent to the page itself, whatever its base is.
    target = urljoin(base, without_userinfo(action)) if action else page.url
    return Form(page.url, target.partition("#")[0], method, dict(_fields(node)))


def _with_password(page: Page) -> LexborNode | None:
    return next((form for form in page.css("form") if form.css_first(PASSWORD)), None)


def _fields(form: LexborNode) -> Iterator[tuple[str, str]]:
    has_button = False
    for node in form.css("input, select, textarea, button"):
        name, kind = node.attributes.get("name"), _kind(node)
        if not name or "disabled" in node.attributes:
            continue
        if kind == "submit":  # of several buttons a browser sends the one that was pressed
            if not has_button:
                yield name, node.attributes.get("value") or ""
            has_button = True
        elif (value := _value(node, kind)) is not None:
            yield name, value


def _kind(node: LexborNode) -> str:
    if node.tag in {"select", "textarea"}:
        return node.tag
    default = "submit" if node.tag == "button" else "text"
    return (node.attributes.get("type") or default).lower()


def _value(node: LexborNode, kind: str) -> str | None:
    if kind in _NEVER_SENT or (kind in _TICKED and "checked" not in node.attributes):
        return None
    if kind == "select":
        chosen = node.css_first("option[selected]") or node.css_first("option")
        if chosen is None:
            return None
        text = chosen.text(strip=True)
        return chosen.attributes.get("value", text) or ""
    if kind == "textarea":
        return node.text()
    return node.attributes.get("value") or ("on" if kind in _TICKED else "")


_UNAUTHORIZED = 401
_PASSING = frozenset({429}) | frozenset(range(500, 600))
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_FRESH = {"Cache-Control": "no-cache, no-store"}  # a form's hidden token is good once


class Login(Obtained):
    """Logs in at the first request to a covered host, and again when the session has ended."""

    def __init__(self, inner: Middleware, auth: LoginAuth, clock: Clock) -> None:
        super().__init__()
        self._inner = inner
        self._auth = auth
        self._clock = clock
        self._doors = {_bare(auth.url)}

    async def sign(self, request: Request, usage: Usage) -> Request:
        await self.have(request, usage)
        return request  # the cookies are added further in

    def is_at_hand(self) -> bool:
        return self.serial > 0

    def doubt(self, page: Page) -> str | None:
        sign = self._auth.logged_out
        if sign is None:
            return _by_status(page, _UNAUTHORIZED) or self._by_redirect(page, self._doors)
        if sign.status is not None:
            return _by_status(page, sign.status)
        if sign.redirect is not None:
            return self._by_redirect(page, {_bare(urljoin(page.url, sign.redirect))})
        return _by_selector(page, sign.selector or "")

    async def obtain(self, request: Request, usage: Usage) -> None:
        hops = _Hops(self._inner, self._auth.reach)
        form = await self._form(hops, request, usage)
        before = len(hops.pages)
        page = await RedirectMiddleware(hops)(self._filled(form, request.priority), usage)
        self._raise_passing(page)
        if problem := self._problem(page, hops.pages, before):
            raise AuthFailed(self._auth.url, f"the login did not work: {problem}{self._odd(form)}")
        usage.add_event("auth.login", host=Request(self._auth.url).domain)

    async def _form(self, hops: _Hops, request: Request, usage: Usage) -> Form:
        """Return the form to fill in; without one to read, it is sent to the address itself."""
        auth = self._auth
        if auth.form is False:
            return Form(auth.url, auth.url, "POST", {})
        asking = Request(auth.url, headers=_FRESH, priority=request.priority)
        page = await RedirectMiddleware(hops)(asking, usage)
        self._raise_passing(page)
        form = read_form(page, auth.form if isinstance(auth.form, str) else None)
        if form is None:
            what = f"form {auth.form!r}" if isinstance(auth.form, str) else "form with a password"
            raise AuthFailed(auth.url, f"the login page answered {page.status} and has no {what}")
        if form.method != "POST":
            raise AuthFailed(auth.url, "its form would write the password into the address")
        self._doors.add(_bare(page.url))
        return form

    def _filled(self, form: Form, priority: int) -> Request:
        fields = form.fields | {name: reveal(value) for name, value in self._auth.fields.items()}
        scheme, host = origin_of(form.page)
        headers = {"Content-Type": "application/x-www-form-urlencoded", **_FRESH}
        # Frameworks check one or the other before they accept a form.
        headers |= {"Origin": f"{scheme}://{host}", "Referer": _bare(form.page)}
        body = RedactedBody(urlencode(fields).encode())
        return Request(form.action, "POST", headers, body, priority=priority)

    def _raise_passing(self, page: Page) -> None:
        if page.status in _PASSING:  # the site is in trouble, which says nothing about the login
            raise bad_status(page.url, page.status, page.retry_after(self._clock.now()))

    def _problem(self, page: Page, pages: list[Page], before: int) -> str | None:
        """Return what speaks against the login; `pages` from `before` on came after the form."""
        sign, answers = self._auth.success, pages[before:]
        if sign is None:
            return _usual_problem(page, pages)
        if sign.status is not None:
            got = answers[0].status
            return None if got == sign.status else f"the form was answered {got}"
        if sign.cookie is not None:
            is_set = any(_sets(answer, sign.cookie) for answer in answers)
            return None if is_set else f"no cookie {sign.cookie} was set ({page.status})"
        is_there = page.first(sign.selector or "") is not None
        return None if is_there else f"the page shows no {sign.selector} ({page.status})"

    def _odd(self, form: Form) -> str:
        """Return a hint when the form does not have the fields that were filled in."""
        missing = [name for name in self._auth.fields if form.fields and name not in form.fields]
        if not missing:
            return ""
        has = cleaned(", ".join(form.fields))
        return f"; its form has no field {', '.join(missing)}, but {has}"

    def _by_redirect(self, page: Page, doors: set[str]) -> str | None:
        target = page.headers.get("location")
        if page.status not in _REDIRECTS or not target:
            return None
        where = _bare(urljoin(page.url, target))
        return f"the session has ended: sent to {where}" if where in doors else None


class _Hops(Middleware):
    """Takes a login from page to page, and lets a filled form go only where the secret may."""

    def __init__(self, inner: Middleware, reach: Reach) -> None:
        self._inner = inner
        self._reach = reach
        self.pages: list[Page] = []

    async def __call__(self, request: Request, usage: Usage) -> Page:
        if request.body is not None and (problem := self._reach.problem(request.url)):
            raise AuthFailed(request.url, f"the login form is not sent: {problem}")
        page = await self._inner(request, usage)
        self.pages.append(page)
        return page


def _usual_problem(page: Page, pages: list[Page]) -> str | None:
    if page.status >= FIRST_ERROR:
        return f"the site answered {page.status}"
    if not any(set_cookies(one) for one in pages):
        return f"no cookie was set ({page.status})"
    if page.first(PASSWORD) is not None:
        return f"the page still asks for the password ({page.status})"
    return None


def _by_status(page: Page, status: int) -> str | None:
    return f"the session has ended: answered {status}" if page.status == status else None


def _by_selector(page: Page, selector: str) -> str | None:
    is_html = "html" in page.headers.get("content-type", "html")
    has_ended = is_html and page.first(selector) is not None
    return f"the session has ended: the page shows {selector}" if has_ended else None


def _sets(page: Page, name: str) -> bool:
    """Return whether an answer sets a cookie to something; an empty value takes it away."""
    pairs = (line.partition(";")[0].partition("=") for line in set_cookies(page))
    return any(key.strip() == name and value.strip(' "') for key, _, value in pairs)


def _bare(url: str) -> str:
    """Return an address without query and fragment, by which a page is known."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{origin_of(url)[1]}{parts.path or '/'}"
