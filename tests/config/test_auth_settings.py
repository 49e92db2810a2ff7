"""What a user writes under `auth`: six kinds, strict, each error one sentence without a secret."""

from __future__ import annotations

from typing import Any

import pytest

from longline.config.auth import BearerAuth, OAuth2Auth, make_auth, mark_of
from longline.config.login import LoginAuth
from longline.config.secrets import SecretRef
from longline.errors import BadOption, UnknownSecret

SECRET = "hunter2-7f3a"  # noqa: S105  # nobody's
HOSTS = {"hosts": ["api.shop.test"]}
BASIC = {"kind": "basic", "user": "me", "password": "env:PW", **HOSTS}
BEARER = {"kind": "bearer", "token": "env:TOKEN", **HOSTS}
HEADER = {"kind": "header", "name": "X-Api-Key", "value": "env:KEY", **HOSTS}
QUERY = {"kind": "query", "name": "key", "value": "env:KEY", **HOSTS}
OAUTH2 = {
    "kind": "oauth2",
    "token_url": "https://id.shop.test/token",
    "client_id": "us",
    "client_secret": "file:/run/secrets/client",
    **HOSTS,
}
LOGIN = {
    "kind": "login",
    "url": "https://shop.test/login",
    "fields": {"user": "me", "password": {"env": "PW"}},
}
ALL = [BASIC, BEARER, HEADER, QUERY, OAUTH2, LOGIN]


def problem_of(values: Any) -> str:
    with pytest.raises(BadOption) as told:
        make_auth(values)
    assert SECRET not in str(told.value)
    assert told.value.__cause__ is None
    assert told.value.__suppress_context__
    return str(told.value)


@pytest.mark.parametrize("values", ALL, ids=lambda one: one["kind"])
def test_every_kind_comes_back_from_its_snapshot(values: dict[str, Any]) -> None:
    auth = make_auth(values)

    assert auth.kind == values["kind"]
    assert make_auth(auth.model_dump(mode="json")) == auth
    assert make_auth(auth) is auth


def test_a_login_is_for_the_host_of_its_form_unless_others_are_named() -> None:
    auth = make_auth({**LOGIN, "url": "http://127.0.0.1:8080/login"})
    wider = make_auth({**LOGIN, "hosts": ["shop.test", "*.shop.test"]})

    assert auth.hosts == ("127.0.0.1:8080",)
    assert wider.hosts == ("shop.test", "*.shop.test")


@pytest.mark.parametrize("values", [BASIC, BEARER, HEADER, QUERY, OAUTH2], ids=lambda o: o["kind"])
def test_a_secret_without_hosts_is_refused(values: dict[str, Any]) -> None:
    problem = problem_of({**values, "hosts": []})

    assert problem == (
        f"auth.{values['kind']}.hosts: name the hosts that may see the secret, "
        "for example hosts: [api.example.com]"
    )


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({**BASIC, "password": SECRET}, "auth.basic.password: a secret is never written here"),
        ({**BEARER, "token": SECRET}, "auth.bearer.token: a secret is never written here"),
        ({**HEADER, "value": SECRET}, "auth.header.value: a secret is never written here"),
        ({**QUERY, "value": SECRET}, "auth.query.value: a secret is never written here"),
        ({**OAUTH2, "client_secret": SECRET}, "auth.oauth2.client_secret: a secret is never"),
        (
            {**LOGIN, "fields": {"who": "env:WHO", "passwort": SECRET}},
            "auth.login.fields: passwort must be a reference: env:NAME or file:/path",
        ),
        (
            {**LOGIN, "fields": {"who": "me", "code": SECRET}},
            "auth.login.fields: the password must be a reference",
        ),
        (SECRET, "auth: kind must be one of basic, bearer, header, query, oauth2, login"),
        ({"kind": SECRET}, "auth: kind must be one of basic, bearer"),
        ({"password": SECRET}, "auth: kind must be one of basic, bearer"),
        ({**BEARER, "tokn": SECRET}, "auth.bearer: there is no setting 'tokn' here; known are"),
        ({"kind": "bearer", **HOSTS}, "auth.bearer.token: Field required"),
        ({**BASIC, "user": "a:b"}, "a user name with a colon"),
        ({**HEADER, "name": "X Key"}, "auth.header.name: the name of a header"),
        ({**HEADER, "prefix": "Token:\n"}, "auth.header.prefix: a prefix is one word"),
        ({**OAUTH2, "token_url": "http://id.shop.test"}, "token_url: must be https, or say"),
        ({**OAUTH2, "token_url": "id.shop.test"}, "token_url: write an address such as https"),
        ({**OAUTH2, "token_url": f"https://me:{SECRET}@id.test/"}, "without a user"),
        ({**LOGIN, "url": "ftp://shop.test/"}, "url: write an address such as https"),
        ({**LOGIN, "url": "https://["}, "auth.login.hosts: name the hosts"),
        ({**LOGIN, "hosts": ["other.test"]}, "url: shop.test is not among the hosts"),
        ({**LOGIN, "fields": {}}, "auth.login.fields"),
        ({**LOGIN, "form": "form["}, "auth.login.form: 'form[' is not a CSS selector"),
        ({**LOGIN, "success": {"selector": "a["}}, "'a[' is not a CSS selector"),
        ({**LOGIN, "success": {}}, "success: say exactly one of status, selector, cookie"),
        (
            {**LOGIN, "logged_out": {"status": 403, "redirect": "/login"}},
            "logged_out: say exactly one of status, selector, redirect",
        ),
    ],
)
def test_what_does_not_fit_is_told_in_one_sentence(values: Any, problem: str) -> None:
    assert problem in problem_of(values)


def test_a_token_address_may_be_unencrypted_when_it_is_said_or_on_this_machine() -> None:
    allowed = make_auth({**OAUTH2, "token_url": "http://id.shop.test/t", "allow_http": True})
    local = make_auth({**OAUTH2, "token_url": "http://localhost:99/t"})

    assert isinstance(allowed, OAuth2Auth)
    assert isinstance(local, OAuth2Auth)


def test_what_is_referred_to_can_be_checked_before_the_first_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    auth = make_auth({**LOGIN, "fields": {"who": "env:SHOP_WHO", "password": "env:SHOP_PW"}})
    monkeypatch.setenv("SHOP_WHO", "me")
    monkeypatch.delenv("SHOP_PW", raising=False)

    assert [str(one) for one in auth.references()] == ["env:SHOP_WHO", "env:SHOP_PW"]
    with pytest.raises(UnknownSecret, match="set the environment variable SHOP_PW"):
        auth.check()


def test_models_are_made_in_python_as_well() -> None:
    token = SecretRef.parse("env:TOKEN")

    assert BearerAuth(token=token, hosts=("api.shop.test",)) == make_auth(BEARER)
    assert LoginAuth.model_validate(LOGIN) == make_auth(LOGIN)


def test_two_identities_have_two_marks_and_nobody_has_none() -> None:
    cookies = {"shop.test": {"session": SecretRef.parse("env:SESSION")}}
    marks = [mark_of(make_auth(BASIC)), mark_of(make_auth(BEARER)), mark_of(None, cookies)]

    assert mark_of(None) == mark_of(None, cookies=False) == mark_of(None, {}) == ""
    assert len({*marks, mark_of(make_auth(BASIC), cookies)}) == 4
    assert marks[0] == mark_of(make_auth({**BASIC}))
