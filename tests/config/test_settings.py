"""Settings come from the environment, need none of it, and a home is seen to be writable."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from longline.config.settings import Settings, load_settings, prepare_home
from longline.core.errors import BadFile, BadOption, HomeUnwritable
from longline.storage.store import open_store


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"LONGLINE_{name.upper()}", raising=False)


def test_without_any_setting_data_lives_here() -> None:
    settings = load_settings()

    assert settings.home == Path(".longline")
    assert settings.database == "sqlite:///.longline/longline.sqlite"
    assert settings.pace_file == Path(".longline/pace.sqlite")
    assert settings.checkpoints == Path(".longline/checkpoints")


def test_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGLINE_HOME", "/data")
    monkeypatch.setenv("LONGLINE_DATABASE_URL", "sqlite:////other/x.sqlite")
    monkeypatch.setenv("LONGLINE_CONCURRENCY", "32")
    monkeypatch.setenv("LONGLINE_TIMEOUT", "2.5")
    monkeypatch.setenv("LONGLINE_USER_AGENT", "me (me@shop.test)")
    monkeypatch.setenv("LONGLINE_UNHEARD_OF", "is ignored")

    settings = load_settings()

    assert (settings.home, settings.database) == (Path("/data"), "sqlite:////other/x.sqlite")
    assert (settings.concurrency, settings.timeout) == (32, 2.5)
    assert settings.user_agent == "me (me@shop.test)"


def test_an_explicit_home_overrides_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGLINE_HOME", "/data")

    assert load_settings(home=Path("here")).home == Path("here")


@pytest.mark.parametrize("name", ["HOME", "CONCURRENCY", "DATABASE_URL"])
def test_an_empty_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"LONGLINE_{name}", "")

    assert load_settings() == Settings()
    assert load_settings().home == Path(".longline")


def test_event_types_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGLINE_EVENT_STREAM_TYPES", "job.*,record.created")

    assert load_settings().event_stream_types == ("job.*", "record.created")


@pytest.mark.parametrize("value", ["job.unknown", "5", "[5]", "{job: 1}"])
def test_event_types_of_a_file_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    (tmp_path / "longline.yaml").write_text(f"event_stream_types: {value}\n")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(BadFile) as caught:
        load_settings()

    assert "longline.yaml:1:" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CONCURRENCY", "many"),
        ("CONCURRENCY", "0"),
        ("CONCURRENCY", "1001"),
        ("TIMEOUT", "-1"),
        ("TIMEOUT", "nan"),
    ],
)
def test_a_variable_that_does_not_fit_is_reported_by_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"LONGLINE_{name}", value)

    with pytest.raises(BadOption) as caught:
        load_settings()

    assert caught.value.option == f"LONGLINE_{name}"


def test_settings_that_do_not_fit_together_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGLINE_PROXY_COMMAND", "rotate")

    with pytest.raises(BadOption) as refused:
        load_settings()

    assert "proxy_address" in refused.value.problem


@pytest.mark.parametrize("value", ["big", "-1", "5 apples"])
def test_a_size_has_an_example(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("LONGLINE_LARGEST_FILE", value)

    with pytest.raises(BadOption, match=r"LONGLINE_LARGEST_FILE: it must be a size such as"):
        load_settings()


@pytest.mark.parametrize("address", ["127.0.0.1:9464", "localhost:9464", "[::1]:9464"])
def test_monitoring_on_this_machine_needs_no_token(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("LONGLINE_MONITORING_ADDRESS", address)

    assert load_settings().monitoring_address == address


@pytest.mark.parametrize("address", ["9464", "127.0.0.1", "127.0.0.1:65536", "http://a.test:1"])
def test_monitoring_needs_a_host_and_a_port(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("LONGLINE_MONITORING_ADDRESS", address)

    with pytest.raises(BadOption):
        load_settings()


@pytest.mark.parametrize("address", ["0.0.0.0:9464", "[::]:9464", "metrics.test:9464"])
def test_monitoring_on_other_addresses_needs_a_token(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("LONGLINE_MONITORING_ADDRESS", address)
    with pytest.raises(BadOption):
        load_settings()

    monkeypatch.setenv("LONGLINE_MONITORING_TOKEN", "env:METRICS_TOKEN")

    assert str(load_settings().monitoring_token) == "env:METRICS_TOKEN"


def test_a_home_is_made_and_left_clean(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "a" / "b")

    prepare_home(settings)
    prepare_home(settings)

    assert list(settings.home.iterdir()) == []


def test_concurrent_checks_all_find_a_home_writable(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")

    with ThreadPoolExecutor(8) as threads:
        looks = [threads.submit(prepare_home, settings) for _ in range(400)]

    assert [look.exception() for look in looks] == [None] * 400


@pytest.mark.parametrize("place", ["file", "file/home", "file/deeper/home"])
def test_a_home_that_cannot_be_written_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(HomeUnwritable) as caught:
        prepare_home(Settings(home=tmp_path / place))

    assert caught.value.path == str(tmp_path / place)
    assert caught.value.problem == os.strerror(errno.ENOTDIR)
    assert "LONGLINE_HOME" in str(caught.value)
    assert "--home" in str(caught.value)


def test_the_database_of_a_home_with_an_odd_name_is_in_that_home(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "50%20 off? #1 ü")
    prepare_home(settings)

    open_store(settings.database).close()

    assert (settings.home / "longline.sqlite").exists()
