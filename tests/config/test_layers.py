"""Settings in layers: which one wins, where a value comes from, and what is wrong with one."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from longline.config.settings import Settings, explain_settings, load_settings
from longline.core.errors import BadFile, BadOption
from tests.config.messages import absent

FILE = """# of this folder
home: data
timeout: 5
contact: me@shop.test
profiles:
  production:
    timeout: 60
    concurrency: 20
    database_url: postgresql://me:hunter2@db.test/longline
  small: {concurrency: 1}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [*Settings.model_fields, "config", "profile"]:
        monkeypatch.delenv(f"LONGLINE_{name.upper()}", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def file(folder: Path) -> Path:
    path = folder / "longline.yaml"
    path.write_text(FILE)
    return path


def origins(**given: Any) -> dict[str, tuple[Any, str]]:
    return {one.name: (one.value, one.origin) for one in explain_settings(**given)}


def test_without_a_file_the_defaults_hold() -> None:
    assert load_settings().sources == (Path("sources"),)
    assert origins()["timeout"] == (30.0, "default")


@pytest.mark.usefixtures("file")
def test_a_file_wins_over_the_defaults() -> None:
    settings = load_settings()

    assert (settings.home, settings.timeout, settings.concurrency) == (Path("data"), 5.0, 8)


@pytest.mark.usefixtures("file")
def test_a_profile_wins_over_the_file() -> None:
    settings = load_settings(profile="production")

    assert (settings.timeout, settings.concurrency) == (60.0, 20)
    assert settings.contact == "me@shop.test"


@pytest.mark.usefixtures("file")
def test_the_environment_chooses_a_profile_and_the_command_line_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LONGLINE_PROFILE", "production")

    assert load_settings().concurrency == 20
    assert load_settings(profile="small").concurrency == 1


@pytest.mark.usefixtures("file")
def test_a_variable_wins_over_the_profile_and_the_command_line_over_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LONGLINE_TIMEOUT", "7")
    monkeypatch.setenv("LONGLINE_HOME", "elsewhere")

    settings = load_settings(home=Path("here"), profile="production")

    assert (settings.timeout, settings.home) == (7.0, Path("here"))


@pytest.mark.usefixtures("file")
def test_every_value_has_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGLINE_USER_AGENT", "me/1")

    result = origins(home=Path("here"), profile="production")

    assert result["home"] == ("here", "--home")
    assert result["user_agent"] == ("me/1", "LONGLINE_USER_AGENT")
    assert result["timeout"][0] == 60.0
    assert absent(result["timeout"][1], "longline.yaml:7 production") == []
    assert result["contact"] == ("me@shop.test", "longline.yaml:4")
    assert result["sources"] == (["sources"], "default")
    assert set(result) == set(Settings.model_fields)


@pytest.mark.usefixtures("file")
def test_a_password_is_not_shown() -> None:
    value, origin = origins(profile="production")["database_url"]

    assert value == "postgresql://me:***@db.test/longline"
    assert absent(origin, "longline.yaml:9 production") == []


def test_paths_are_relative_to_the_folder_of_their_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "etc").mkdir()
    (folder / "etc" / "mine.yaml").write_text("home: data\nsources: [shops, /all/of/them]\n")
    monkeypatch.setenv("LONGLINE_CONFIG", "etc/mine.yaml")

    settings = load_settings()

    assert settings.home == Path("etc/data")
    assert settings.sources == (Path("etc/shops"), Path("/all/of/them"))


def test_several_folders_are_written_like_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGLINE_SOURCES", "one:two/three")

    assert load_settings().sources == (Path("one"), Path("two/three"))


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("timeuot: 5\n", ":1:1: timeuot: `timeout`"),
        ("home: a\ntimeout: -5\n", ":2:1: timeout: 0"),
        ("profiles:\n  a: {concurrency: 0}\n", ":2:7: profiles.a.concurrency: 1"),
        ("profiles:\n  a: {profiles: {}}\n", ":2:7: profiles.a.profiles:"),
        ("cache_bytes: large\n", ":1:1: cache_bytes:"),
        ("home: [a\n", ":2:1: YAML ]"),
    ],
)
def test_a_broken_file_is_refused_with_its_place(folder: Path, text: str, data: str) -> None:
    (folder / "longline.yaml").write_text(text)

    with pytest.raises(BadFile) as caught:
        load_settings()

    assert caught.value.path == "longline.yaml"
    assert absent(str(caught.value), data) == []


@pytest.mark.usefixtures("file")
def test_an_unknown_profile_is_reported_with_those_there_are() -> None:
    with pytest.raises(BadOption) as caught:
        load_settings(profile="producton")

    assert caught.value.option == "--profile"
    assert absent(caught.value.problem, "longline.yaml 'producton' production small") == []


def test_a_profile_without_a_file_is_refused() -> None:
    with pytest.raises(BadOption) as caught:
        load_settings(profile="x")

    assert caught.value.option == "--profile"
    assert absent(caught.value.problem, "longline.yaml 'x'") == []


@pytest.mark.usefixtures("file")
def test_a_profile_of_the_environment_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGLINE_PROFILE", "x")

    with pytest.raises(BadOption) as caught:
        load_settings()

    assert caught.value.option == "LONGLINE_PROFILE"
    assert absent(caught.value.problem, "longline.yaml 'x' production small") == []


def test_a_named_file_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGLINE_CONFIG", "nothing.yaml")

    with pytest.raises(BadFile) as caught:
        load_settings()

    assert caught.value.path == "nothing.yaml"
    assert os.strerror(errno.ENOENT) in caught.value.problem


@pytest.mark.usefixtures("file")
def test_a_variable_that_does_not_fit_is_reported_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LONGLINE_CONCURRENCY", "many")

    with pytest.raises(BadOption) as caught:
        load_settings()

    assert caught.value.option == "LONGLINE_CONCURRENCY"
