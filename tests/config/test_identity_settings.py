"""Headers and cookies as a user writes them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from longline.config.identity import Cookies, Headers, check_cookies, merge_headers
from longline.config.secrets import SecretRef
from longline.core.errors import UnknownSecret
from tests.config.messages import absent

SECRET = "hunter2-7f3a"  # noqa: S105  # nobody's


class Written(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)

    headers: Headers = {}
    cookies: Cookies = True


def problem_of(**values: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        Written.model_validate(values)
    assert SECRET not in str(caught.value)
    return str(caught.value.errors()[0]["msg"])


def test_headers_are_text_and_of_two_with_one_name_the_later_wins() -> None:
    headers = {"Accept-Language": "de", "X-Page": 5, "accept-language": " en "}
    written = Written.model_validate({"headers": headers})

    assert written.headers == {"accept-language": "en", "X-Page": "5"}
    assert merge_headers({"A": "1", "B": "2"}, {"a": "3"}) == {"a": "3", "B": "2"}


@pytest.mark.parametrize(
    ("headers", "data"),
    [
        ({"Authorization": SECRET}, "Authorization auth"),
        ({"X-Api-Key": "env:KEY"}, "X-Api-Key auth"),
        ({"X-Api-Key": {"env": "KEY"}}, "X-Api-Key auth"),
        ({"Cookie": SECRET}, "cookies host"),
        ({"Host": "a.test"}, "Host longline"),
        ({"content-length": 5}, "content-length longline"),
        ({"X-A": "b\r\nX-B: c"}, "X-A"),
        ({"X-A": None}, "X-A"),
        ({"X-A": True}, "X-A"),
        ({"X A": "b"}, "name header"),
        ({7: "b"}, "name header"),
        ("X-A: b", "headers"),
    ],
)
def test_headers_that_cannot_be_sent_or_hold_secrets_are_refused(headers: Any, data: str) -> None:
    assert absent(problem_of(headers=headers), data) == []


def test_start_cookies_are_by_host_and_come_back_from_a_snapshot() -> None:
    written = Written.model_validate({"cookies": {"Shop.test": {"session": "env:S", "lang": "en"}}})

    assert written.cookies == {
        "shop.test": {"session": SecretRef.parse("env:S"), "lang": "en"},
    }
    dumped = written.model_dump(mode="json")
    assert dumped["cookies"] == {"shop.test": {"session": "env:S", "lang": "en"}}
    assert Written.model_validate(dumped) == written
    assert Written(cookies=False).model_dump()["cookies"] is False


@pytest.mark.parametrize(
    ("cookies", "data"),
    [
        ("a=b", "false"),
        ({"*.shop.test": {"a": "b"}}, "host *"),
        ({"shop.test:8080": {"a": "b"}}, "host port"),
        ({"https://shop.test": {"a": "b"}}, "host"),
        ({"shop.test": SECRET}, "shop.test"),
        ({"shop.test": {"a b": "c"}}, "name"),
        ({"shop.test": {"a": "b; Domain=evil.test"}}, "value"),
        ({"shop.test": {"a": "b\nc"}}, "value"),
        ({"shop.test": {"a": ["b"]}}, "text"),
        ({"shop.test": {"a": f"env:{SECRET}"}}, "environment variable"),
    ],
)
def test_cookies_that_cannot_be_kept_are_refused(cookies: Any, data: str) -> None:
    assert absent(problem_of(cookies=cookies), data) == []


def test_secret_cookies_can_be_checked_before_the_first_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SHOP_SESSION", raising=False)
    check_cookies(None)
    check_cookies(cookies=True)

    with pytest.raises(UnknownSecret, match="env:SHOP_SESSION"):
        check_cookies({"shop.test": {"lang": "en", "s": SecretRef.parse("env:SHOP_SESSION")}})
