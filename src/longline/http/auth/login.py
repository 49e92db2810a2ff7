"""Login with an HTML form: the cookies of the response are the credentials."""

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
from longline.http.auth.base import ObtainedScheme, one_line
from longline.http.errors import AuthFailed
from longline.http.headers import RedactedBody
from longline.http.messages import FIRST_ERROR, Page, Request, origin_of, without_userinfo
from longline.http.middleware.base import Middleware
from longline.http.middleware.identity import set_cookies
from longline.http.middleware.redirects import REDIRECTS, RedirectMiddleware

# ---------------- HTML forms

PASSWORD = "input[type=password i]"  # noqa: S105  # a selector
_NEVER_SENT = frozenset({"button", "reset", "image", "file"})
_TICKED = frozenset({"checkbox", "radio"})


@dataclass(frozen=True, slots=True)
class Form:
    """A form of a page; `fields` are what a browser would send unchanged."""

    page: str
    action: str
    method: str
    fields: dict[str, str]


def read_form(page: Page, selector: str | None = None) -> Form | None:
    """Return the form that a selector matches, or that has a password field; None without one."""
    node = page.first(selector) if selector else _password_form(page)
    if node is None:
        return None
    base = urljoin(page.url, page.first_attribute("base[href]", "href") or "")
    action = (node.attributes.get("action") or "").strip()
    method = (node.attributes.get("method") or "get").strip().upper()
    # Without an action a form is sent to the page itself, whatever its <base> is.
    target = urljoin(base, without_userinfo(action)) if action else page.url
    return Form(page.url, target.partition("#")[0], method, dict(_form_fields(node)))


def _password_form(page: Page) -> LexborNode | None:
    return next((form for form in page.css("form") if form.css_first(PASSWORD)), None)


def _form_fields(form: LexborNode) -> Iterator[tuple[str, str]]:
    has_button = False
    for node in form.css("input, select, textarea, button"):
        name, kind = node.attributes.get("name"), _field_type(node)
        if not name or "disabled" in node.attributes:
            continue
        if kind == "submit":  # a browser sends only the pressed button
            if not has_button:
                yield name, node.attributes.get("value") or ""
            has_button = True
        elif (value := _field_value(node, kind)) is not None:
            yield name, value


def _field_type(node: LexborNode) -> str:
    if node.tag in {"select", "textarea"}:
        return node.tag
    default = "submit" if node.tag == "button" else "text"
    return (node.attributes.get("type") or default).lower()


def _field_value(node: LexborNode, kind: str) -> str | None:
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
_TEMPORARY = frozenset({429}) | frozenset(range(500, 600))
_FRESH = {"Cache-Control": "no-cache, no-store"}  # a hidden token of a form is valid once


class LoginScheme(ObtainedScheme):
    """Logs in at the first request to a covered host, and again when the session has expired."""

    def __init__(self, inner: Middleware, auth: LoginAuth, clock: Clock) -> None:
        super().__init__()
        self._inner = inner
        self._auth = auth
        self._clock = clock
        self._login_pages = {_without_query(auth.url)}

    async def sign(self, request: Request, usage: Usage) -> Request:
        await self.ensure(request, usage)
        return request  # IdentityMiddleware adds the cookies

    def has_credentials(self) -> bool:
        return self.serial > 0

    def expiry_reason(self, page: Page) -> str | None:
        condition = self._auth.logged_out
        if condition is None:
            return _expired_status(page, _UNAUTHORIZED) or _expired_redirect(
                page, self._login_pages
            )
        if condition.status is not None:
            return _expired_status(page, condition.status)
        if condition.redirect is not None:
            return _expired_redirect(page, {_without_query(urljoin(page.url, condition.redirect))})
        return _expired_selector(page, condition.selector or "")

    async def obtain(self, request: Request, usage: Usage) -> None:
        hops = _Hops(self._inner, self._auth.reach)
        form = await self._form(hops, request, usage)
        before = len(hops.pages)
        page = await RedirectMiddleware(hops)(self._filled_form(form, request.priority), usage)
        self._raise_if_temporary(page)
        if problem := self._login_problem(page, hops.pages, before):
            raise AuthFailed(self._auth.url, f"the login failed: {problem}{self._field_hint(form)}")
        usage.add_event("auth.login", host=Request(self._auth.url).domain)

    async def _form(self, hops: _Hops, request: Request, usage: Usage) -> Form:
        """Return the form to fill in; with `form: false`, the fields are sent to the URL itself."""
        auth = self._auth
        if auth.form is False:
            return Form(auth.url, auth.url, "POST", {})
        request_for_form = Request(auth.url, headers=_FRESH, priority=request.priority)
        page = await RedirectMiddleware(hops)(request_for_form, usage)
        self._raise_if_temporary(page)
        form = read_form(page, auth.form if isinstance(auth.form, str) else None)
        if form is None:
            what = f"form {auth.form!r}" if isinstance(auth.form, str) else "form with a password"
            raise AuthFailed(auth.url, f"the login page answered {page.status} and has no {what}")
        if form.method != "POST":
            raise AuthFailed(auth.url, "its form would send the password in the URL")
        self._login_pages.add(_without_query(page.url))
        return form

    def _filled_form(self, form: Form, priority: int) -> Request:
        fields = form.fields | {name: reveal(value) for name, value in self._auth.fields.items()}
        scheme, host = origin_of(form.page)
        headers = {"Content-Type": "application/x-www-form-urlencoded", **_FRESH}
        # Frameworks check one or the other of these against CSRF.
        headers |= {"Origin": f"{scheme}://{host}", "Referer": _without_query(form.page)}
        body = RedactedBody(urlencode(fields).encode())
        return Request(form.action, "POST", headers, body, priority=priority)

    def _raise_if_temporary(self, page: Page) -> None:
        if page.status in _TEMPORARY:  # says nothing about the login
            raise bad_status(page.url, page.status, page.retry_after(self._clock.now()))

    def _login_problem(self, page: Page, pages: list[Page], before: int) -> str | None:
        """Return why the login failed; `pages` from `before` on came after the form."""
        condition, answers = self._auth.success, pages[before:]
        if condition is None:
            return _default_problem(page, pages)
        if condition.status is not None:
            got = answers[0].status
            return None if got == condition.status else f"the form was answered {got}"
        if condition.cookie is not None:
            is_set = any(_sets_cookie(answer, condition.cookie) for answer in answers)
            return None if is_set else f"no cookie {condition.cookie} was set ({page.status})"
        is_present = page.first(condition.selector or "") is not None
        return None if is_present else f"the page shows no {condition.selector} ({page.status})"

    def _field_hint(self, form: Form) -> str:
        """Return a hint when the form does not have the configured fields."""
        missing = [name for name in self._auth.fields if form.fields and name not in form.fields]
        if not missing:
            return ""
        has = one_line(", ".join(form.fields))
        return f"; its form has no field {', '.join(missing)}, but {has}"


class _Hops(Middleware):
    """Records the pages of a login, and sends a filled form only to covered hosts."""

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


def _default_problem(page: Page, pages: list[Page]) -> str | None:
    if page.status >= FIRST_ERROR:
        return f"the site answered {page.status}"
    if not any(set_cookies(one) for one in pages):
        return f"no cookie was set ({page.status})"
    if page.first(PASSWORD) is not None:
        return f"the page still asks for the password ({page.status})"
    return None


def _expired_status(page: Page, status: int) -> str | None:
    return f"the session has expired: answered {status}" if page.status == status else None


def _expired_redirect(page: Page, login_pages: set[str]) -> str | None:
    target = page.headers.get("location")
    if page.status not in REDIRECTS or not target:
        return None
    where = _without_query(urljoin(page.url, target))
    return f"the session has expired: redirected to {where}" if where in login_pages else None


def _expired_selector(page: Page, selector: str) -> str | None:
    is_html = "html" in page.headers.get("content-type", "html")
    has_expired = is_html and page.first(selector) is not None
    return f"the session has expired: the page shows {selector}" if has_expired else None


def _sets_cookie(page: Page, name: str) -> bool:
    """Return whether a response sets a cookie; an empty value deletes it."""
    pairs = (line.partition(";")[0].partition("=") for line in set_cookies(page))
    return any(key.strip() == name and value.strip(' "') for key, _, value in pairs)


def _without_query(url: str) -> str:
    """Return a URL without query and fragment."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{origin_of(url)[1]}{parts.path or '/'}"
