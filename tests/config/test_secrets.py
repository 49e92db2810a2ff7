"""Secrets by reference: read when needed, sent to named hosts only, never shown."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from longline.config.secrets import Hosts, Reach, SecretRef, TextOrRef, is_loopback, reveal
from longline.core.errors import MissingExtra, UnknownSecret
from tests.config.messages import absent

SECRET = "hunter2-7f3a"  # noqa: S105  # nobody's


class Written(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)

    password: SecretRef
    user: TextOrRef = "me"


def problem_of(values: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        Written.model_validate(values)
    assert SECRET not in str(caught.value)
    return str(caught.value.errors()[0]["msg"])


@pytest.mark.parametrize("written", ["env:SHOP_KEY", " env:SHOP_KEY ", {"env": "SHOP_KEY"}])
def test_an_environment_variable_is_written_as_text_or_as_a_pair(
    written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", SECRET)

    reference = Written(password=written).password

    assert str(reference) == "env:SHOP_KEY"
    assert reference.read().get_secret_value() == SECRET


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
def test_a_file_is_read_without_the_line_end_at_its_end(tmp_path: Path, end: str) -> None:
    file = tmp_path / "key"
    file.write_bytes(f"{SECRET} with space {end}".encode())

    reference = Written.model_validate({"password": {"file": str(file)}}).password

    assert reference == SecretRef.parse(f"file:{file}")
    assert reveal(reference) == f"{SECRET} with space "


def test_a_relative_path_is_fixed_when_it_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")

    assert str(SecretRef.parse("file:keys/shop")) == f"file:{tmp_path}/keys/shop"
    assert str(SecretRef.parse("file:~/shop")) == "file:/home/me/shop"


def test_a_secret_is_read_when_it_is_needed_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_KEY", raising=False)
    reference = SecretRef.parse("env:SHOP_KEY")

    monkeypatch.setenv("SHOP_KEY", SECRET)

    assert reveal(reference) == SECRET


def test_neither_the_model_nor_its_dump_nor_what_was_read_shows_a_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHOP_KEY", SECRET)
    written = Written.model_validate({"password": "env:SHOP_KEY", "user": "env:SHOP_KEY"})

    shown = [repr(written), str(written), written.model_dump_json(), repr(written.model_dump())]

    assert SECRET not in " ".join([*shown, repr(written.password.read())])
    assert written.model_dump() == {"password": "env:SHOP_KEY", "user": "env:SHOP_KEY"}
    assert Written.model_validate(written.model_dump(mode="json")) == written


@pytest.mark.parametrize("literal", [SECRET, f"vault:{SECRET}", {"password": SECRET}, 7, None, []])
def test_a_secret_itself_is_refused_with_how_to_write_it(literal: Any) -> None:
    problem = problem_of({"password": literal})

    assert absent(problem, "env:NAME file:/path keyring:service/name") == []


@pytest.mark.parametrize(
    ("written", "data"),
    [
        (f"env:{SECRET}!", "environment variable"),
        ("env:", "environment variable"),
        ({"env": 7}, "environment variable"),
        ("file:", "file"),
        ({"file": None}, "file"),
    ],
)
def test_half_a_reference_is_refused_with_what_is_missing(written: Any, data: str) -> None:
    assert absent(problem_of({"password": written}), data) == []


def test_where_both_may_stand_text_is_text_and_a_reference_is_one() -> None:
    both = Written.model_validate({"password": "env:A", "user": 42})

    assert both.user == "42"
    assert Written(password=both.password, user="env:WHO").user == SecretRef("env", "WHO")


@pytest.mark.parametrize("user", [True, None, ["me"]])
def test_what_is_neither_text_nor_a_reference_is_refused(user: Any) -> None:
    assert "text" in problem_of({"password": "env:A", "user": user})


@pytest.mark.parametrize("value", [None, ""])
def test_a_variable_that_is_not_set_is_reported_by_its_name(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOP_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("SHOP_KEY", value)

    with pytest.raises(UnknownSecret) as caught:
        SecretRef.parse("env:SHOP_KEY").check()

    assert caught.value.reference == "env:SHOP_KEY"
    assert "SHOP_KEY" in caught.value.problem


def test_a_variable_that_is_not_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"SHOP_KEY", b"\xff\xfe")

    with pytest.raises(UnknownSecret, match="UTF-8"):
        SecretRef.parse("env:SHOP_KEY").check()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "file"),
        (b"", "empty"),
        (b"\r\n", "empty"),
        (b"\xff\xfe" + SECRET.encode(), "UTF-8"),
        (SECRET.encode() * 10000, "larger"),
    ],
)
def test_a_file_without_a_usable_secret_is_refused(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(UnknownSecret) as caught:
        SecretRef.parse(f"file:{file}").check()

    assert caught.value.reference == f"file:{file}"
    assert problem in caught.value.problem
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_folder_or_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(UnknownSecret) as of_pipe:
        SecretRef.parse(f"file:{pipe}").check()
    with pytest.raises(UnknownSecret) as of_folder:
        SecretRef.parse(f"file:{tmp_path}").check()

    assert of_pipe.value.reference == f"file:{pipe}"
    assert of_folder.value.reference == f"file:{tmp_path}"


class Rings:
    """A keyring with one entry, or one that cannot be opened."""

    def __init__(self, *, is_locked: bool = False) -> None:
        self._is_locked = is_locked

    def get_password(self, service: str, name: str) -> str | None:
        if self._is_locked:
            raise RuntimeError(SECRET)
        return SECRET if (service, name) == ("shop/eu", "api") else None


@pytest.mark.parametrize("written", ["keyring:shop/eu/api", {"keyring": "shop/eu/api"}])
def test_a_secret_is_read_from_the_keyring(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", Rings())

    reference = Written(password=written).password

    assert str(reference) == "keyring:shop/eu/api"
    assert reveal(reference) == SECRET


@pytest.mark.parametrize(
    ("rings", "data"),
    [
        (Rings(), "keyring set shop other"),
        (Rings(is_locked=True), "RuntimeError"),
    ],
)
def test_a_keyring_without_the_secret_is_refused(
    rings: Rings, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", rings)

    with pytest.raises(UnknownSecret) as caught:
        SecretRef.parse("keyring:shop/other").check()

    assert caught.value.reference == "keyring:shop/other"
    assert data in caught.value.problem
    assert SECRET not in str(caught.value)


def test_a_keyring_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)

    with pytest.raises(MissingExtra) as caught:
        SecretRef.parse("keyring:shop/api").check()

    assert caught.value.extra == "keyring"
    assert "keyring:shop/api" in caught.value.what


@pytest.mark.parametrize(
    "written", ["keyring:shop", "keyring:/api", "keyring:shop/", {"keyring": 7}]
)
def test_an_entry_of_a_keyring_has_a_service_and_a_name(written: Any) -> None:
    assert "keyring:shop/api" in problem_of({"password": written})


HOSTS: TypeAdapter[tuple[str, ...]] = TypeAdapter(Hosts)


def reach(*hosts: str, allow_http: bool = False) -> Reach:
    return Reach(HOSTS.validate_python(list(hosts)), allow_http)


@pytest.mark.parametrize(
    ("pattern", "url", "is_covered"),
    [
        ("shop.test", "https://shop.test/a?b#c", True),
        ("shop.test", "https://SHOP.test:443/", True),
        ("shop.test:443", "https://shop.test/", True),
        ("shop.test", "http://shop.test/", True),  # http is judged on its own
        ("shop.test", "https://shop.test:8443/", False),
        ("shop.test:8443", "https://shop.test:8443/", True),
        ("shop.test:8443", "https://shop.test/", False),
        ("127.0.0.1:80", "http://127.0.0.1/", True),
        ("shop.test", "https://api.shop.test/", False),
        ("*.shop.test", "https://api.shop.test/", True),
        ("*.shop.test", "https://v1.api.shop.test/", True),
        ("*.shop.test", "https://shop.test/", False),
        ("*.shop.test", "https://evilshop.test/", False),
        ("*.shop.test:8443", "https://api.shop.test:8443/", True),
        ("*.shop.test:8443", "https://api.shop.test/", False),
        ("shop.test", "https://shop.test.evil.test/", False),
        ("shop.test", "https://shop.test@evil.test/", False),
        ("shop.test", "https://evil.test/@shop.test/", False),
        ("shop.test", "https://evil.test#@shop.test/", False),
        ("shop.test", "https://evil.test\\@shop.test/", False),
        ("shop.test", "https://shop.test\t.evil.test/", False),
        ("shop.test", "https://shop.test./", False),
        ("[::1]:8000", "http://[::1]:8000/", True),
        ("bücher.test", "https://xn--bcher-kva.test/", True),
        ("shop.test", "not an address", False),
        ("shop.test", "https://shop.test:99999/", False),
    ],
)
def test_a_host_is_covered_by_exactly_what_was_named(
    pattern: str, url: str, *, is_covered: bool
) -> None:
    assert reach(pattern).covers(url) is is_covered


@pytest.mark.parametrize("url", ["https://shop.test/", "http://127.0.0.1:80/", "http://[::1]/"])
def test_a_secret_is_sent_over_encrypted_connections(url: str) -> None:
    assert reach("shop.test", "127.0.0.1", "[::1]").problem(url) is None


def test_a_secret_is_sent_unencrypted_only_if_allowed() -> None:
    problem = reach("shop.test").problem("http://shop.test/")

    assert absent(str(problem), "shop.test https allow_http") == []
    assert reach("shop.test", allow_http=True).problem("http://shop.test/") is None


def test_any_other_host_is_a_problem() -> None:
    problem = reach("shop.test").problem("https://evil.test/")

    assert absent(str(problem), "evil.test shop.test") == []
    assert "allow_http" not in str(problem)
    assert reach("shop.test").problem("https://[") is not None


@pytest.mark.parametrize(
    "pattern",
    [
        *("*", "*.test", "", " ", "https://a.test", "a.test/b", "a.test/", "u@a.test", "a.test?b"),
        *("a.test#b", "a b", "a.test:x", "*.*.a.test", "a.*.test", "a.test:99999", 7, None),
    ],
)
def test_a_pattern_that_is_none_or_too_wide_is_refused(pattern: Any) -> None:
    with pytest.raises(ValidationError):
        HOSTS.validate_python([pattern])


def test_one_host_needs_no_list_and_none_stands_twice() -> None:
    assert HOSTS.validate_python("Shop.test") == ("shop.test",)
    assert HOSTS.validate_python(["shop.test", "SHOP.test:443"]) == ("shop.test",)
    with pytest.raises(ValidationError, match="hosts"):
        HOSTS.validate_python(7)


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        *(("localhost", True), ("a.localhost", True), ("127.3.2.1", True), ("::1", True)),
        *(("localhost.evil.test", False), ("10.0.0.1", False), ("127.0.0.1.evil.test", False)),
    ],
)
def test_this_machine_is_known_by_its_names(host: str, *, is_ours: bool) -> None:
    assert is_loopback(host) is is_ours
