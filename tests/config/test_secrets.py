"""References to secrets: how they are written, read late, and refused without repeating them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from longline.config.secrets import SecretRef, TextOrRef, reveal
from longline.core.errors import MissingExtra, UnknownSecret
from tests.config.messages import absent

SECRET = "hunter2-7f3a"  # noqa: S105  # nobody's


class Written(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)

    password: SecretRef
    user: TextOrRef = "me"


def problem_of(values: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as told:
        Written.model_validate(values)
    assert SECRET not in str(told.value)
    return str(told.value.errors()[0]["msg"])


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

    with pytest.raises(UnknownSecret) as told:
        SecretRef.parse("env:SHOP_KEY").check()

    assert told.value.reference == "env:SHOP_KEY"
    assert "SHOP_KEY" in told.value.problem


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

    with pytest.raises(UnknownSecret) as told:
        SecretRef.parse(f"file:{file}").check()

    assert told.value.reference == f"file:{file}"
    assert problem in told.value.problem
    assert SECRET not in str(told.value)
    assert told.value.__cause__ is None


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

    with pytest.raises(UnknownSecret) as told:
        SecretRef.parse("keyring:shop/other").check()

    assert told.value.reference == "keyring:shop/other"
    assert data in told.value.problem
    assert SECRET not in str(told.value)


def test_a_keyring_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)

    with pytest.raises(MissingExtra) as told:
        SecretRef.parse("keyring:shop/api").check()

    assert told.value.extra == "keyring"
    assert "keyring:shop/api" in told.value.what


@pytest.mark.parametrize(
    "written", ["keyring:shop", "keyring:/api", "keyring:shop/", {"keyring": 7}]
)
def test_an_entry_of_a_keyring_has_a_service_and_a_name(written: Any) -> None:
    assert "keyring:shop/api" in problem_of({"password": written})
