"""Forms of HTML pages: where they are sent, and what they send when nobody types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urljoin

from selectolax.lexbor import LexborNode

from longline.fetching.messages import Page, without_userinfo

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
