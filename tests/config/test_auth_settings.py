"""What a user writes under `auth`: six kinds, strict, and no error repeats a secret."""

from __future__ import annotations

from typing import Any

import pytest

from longline.config.auth import Auth, BearerAuth, LoginAuth, OAuth2Auth, identity_hash
from longline.config.job_spec import make_spec
from longline.config.secrets import SecretRef
from longline.core.errors import BadOption, UnknownSecret
from tests.config.messages import absent

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


def make_auth(values: Any) -> Auth:
    auth = make_spec({"source": "shop", "auth": values}).auth
    assert auth is not None
    return auth


def problem_of(values: Any) -> str:
    with pytest.raises(BadOption) as caught:
        make_auth(values)
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__
    return str(caught.value)


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

    assert problem.startswith(f"auth.{values['kind']}.hosts: ")
    assert "hosts: [api.example.com]" in problem


@pytest.mark.parametrize(
    ("values", "data"),
    [
        ({**BASIC, "password": SECRET}, "auth.basic.password: env:NAME"),
        ({**BEARER, "token": SECRET}, "auth.bearer.token: env:NAME"),
        ({**HEADER, "value": SECRET}, "auth.header.value: env:NAME"),
        ({**QUERY, "value": SECRET}, "auth.query.value: env:NAME"),
        ({**OAUTH2, "client_secret": SECRET}, "auth.oauth2.client_secret: env:NAME"),
        (
            {**LOGIN, "fields": {"who": "env:WHO", "passwort": SECRET}},
            "auth.login.fields: passwort env:NAME file:/path",
        ),
        (
            {**LOGIN, "fields": {"who": "me", "code": SECRET}},
            "auth.login.fields: password",
        ),
        (SECRET, "auth:"),
        ({"kind": SECRET}, "auth.kind: basic bearer header query oauth2 login"),
        ({"password": SECRET}, "auth: kind"),
        ({**BEARER, "tokn": SECRET}, "auth.bearer.tokn: token"),
        ({"kind": "bearer", **HOSTS}, "auth.bearer.token:"),
        ({**BASIC, "user": "a:b"}, "auth.basic"),
        ({**HEADER, "name": "X Key"}, "auth.header.name:"),
        ({**HEADER, "prefix": "Token:\n"}, "auth.header.prefix:"),
        ({**OAUTH2, "token_url": "http://id.shop.test"}, "token_url: https allow_http"),
        ({**OAUTH2, "token_url": "id.shop.test"}, "token_url: https"),
        ({**OAUTH2, "token_url": f"https://me:{SECRET}@id.test/"}, "token_url: user"),
        ({**LOGIN, "url": "ftp://shop.test/"}, "url: https"),
        ({**LOGIN, "url": "https://["}, "auth.login.hosts:"),
        ({**LOGIN, "hosts": ["other.test"]}, "url: shop.test hosts"),
        ({**LOGIN, "fields": {}}, "auth.login.fields"),
        ({**LOGIN, "form": "form["}, "auth.login.form: 'form[' CSS"),
        ({**LOGIN, "success": {"selector": "a["}}, "'a[' CSS"),
        ({**LOGIN, "success": {}}, "success: status selector cookie"),
        (
            {**LOGIN, "logged_out": {"status": 403, "redirect": "/login"}},
            "logged_out: status selector redirect",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(values: Any, data: str) -> None:
    assert absent(problem_of(values), data) == []


def test_a_token_url_may_be_http_if_allowed_or_on_loopback() -> None:
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
    with pytest.raises(UnknownSecret, match="env:SHOP_PW"):
        auth.check()


def test_models_are_made_in_python_as_well() -> None:
    token = SecretRef.parse("env:TOKEN")

    assert BearerAuth(token=token, hosts=("api.shop.test",)) == make_auth(BEARER)
    assert LoginAuth.model_validate(LOGIN) == make_auth(LOGIN)


def test_two_identities_have_two_hashes_and_none_is_empty() -> None:
    cookies = {"shop.test": {"session": SecretRef.parse("env:SESSION")}}
    marks = [
        identity_hash(make_auth(BASIC)),
        identity_hash(make_auth(BEARER)),
        identity_hash(None, cookies),
    ]

    assert (
        identity_hash(None) == identity_hash(None, cookies=False) == identity_hash(None, {}) == ""
    )
    assert len({*marks, identity_hash(make_auth(BASIC), cookies)}) == 4
    assert marks[0] == identity_hash(make_auth({**BASIC}))
