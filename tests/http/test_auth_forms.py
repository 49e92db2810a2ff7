"""Forms, read as a browser would send them."""

from __future__ import annotations

import pytest

from longline.http.auth import Form, read_form
from longline.http.messages import Page


def read(html: str, selector: str | None = None) -> Form | None:
    return read_form(Page("https://shop.test/in/login?next=/", 200, {}, html.encode()), selector)


def fields_of(inside: str) -> dict[str, str]:
    form = read(f'<form method=post>{inside}<input type="PassWord" name="pw"></form>')
    assert form is not None
    return form.fields


def test_the_form_with_a_password_is_meant_unless_another_is_named() -> None:
    html = "<form id=search><input name=q></form><form id=in><input type=password name=p></form>"

    assert read(html) == Form(
        "https://shop.test/in/login?next=/", "https://shop.test/in/login?next=/", "GET", {"p": ""}
    )
    found = read(html, "#search")
    assert found is not None
    assert found.fields == {"q": ""}


def test_a_page_without_such_a_form_has_none() -> None:
    assert read("<form><input name=q></form>") is None
    assert read("<form><input type=password></form>", "#other") is None
    assert read("") is None


@pytest.mark.parametrize(
    ("action", "target"),
    [
        ("", "https://shop.test/in/login?next=/"),
        ("check", "https://shop.test/in/check"),
        ("/check#top", "https://shop.test/check"),
        ("?go", "https://shop.test/in/login?go"),
        (" https://id.test/x ", "https://id.test/x"),
        ("//id.test/x", "https://id.test/x"),
    ],
)
def test_the_action_is_resolved_against_the_page(action: str, target: str) -> None:
    form = read(f'<form action="{action}" method="Post"><input type=password></form>')

    assert form is not None
    assert (form.action, form.method) == (target, "POST")


def test_the_base_of_the_page_counts_where_there_is_an_action() -> None:
    base = '<base href="/else/"><form action="{}"><input type=password></form>'
    near, same = read(base.format("x")), read(base.format(""))

    assert near is not None
    assert same is not None
    assert near.action == "https://shop.test/else/x"
    assert same.action == "https://shop.test/in/login?next=/"


@pytest.mark.parametrize(
    ("inside", "fields"),
    [
        ('<input type=hidden name=csrf value="a&amp;b">', {"csrf": "a&b"}),
        ("<input name=user value=me>", {"user": "me"}),
        ("<input type=hidden name=csrf disabled value=x>", {}),
        ("<input type=hidden value=x>", {}),
        ("<input type=checkbox name=stay><input type=checkbox name=agb checked>", {"agb": "on"}),
        ("<input type=radio name=r value=1><input type=radio name=r value=2 checked>", {"r": "2"}),
        ("<input type=file name=f><input type=reset name=x><input type=image name=y>", {}),
        ("<select name=s><option value=1>a<option value=2 selected>b</select>", {"s": "2"}),
        ("<select name=s><option> a </option><option>b</option></select>", {"s": "a"}),
        ("<select name=s></select>", {}),
        ("<textarea name=t>a b</textarea>", {"t": "a b"}),
        (
            "<button name=go value=in>In</button><button name=go value=out>Out</button>",
            {"go": "in"},
        ),
        ("<input type=submit name=go value=in><button type=button name=x>", {"go": "in"}),
    ],
)
def test_a_form_sends_what_a_browser_would(inside: str, fields: dict[str, str]) -> None:
    assert fields_of(inside) == {**fields, "pw": ""}
