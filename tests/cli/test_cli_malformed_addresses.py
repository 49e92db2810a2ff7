"""Addresses of servers that cannot be parsed: no command prints the password in them."""

from __future__ import annotations

import traceback

import pytest

from longline.config.settings import Settings
from longline.core.errors import LonglineError
from longline.core.redaction import redact_server_url
from longline.services.cluster import ClusterOptions, up
from longline.storage.database import open_database
from tests.cli.terminal import Terminal

SECRET = "Gehe-im"  # noqa: S105  # what may not be seen
DATABASES = [
    f"postgresql://user:{SECRET}@host:port/db",
    f"postgresql://user:{SECRET}@[::1/db",
    f"postgresql:/user:{SECRET}@host/db",
    f"postgresql+psycopg://user:x/{SECRET}@host:1/db",
    f"user:{SECRET}@host/db",
    f"mysql://user:{SECRET}@host/db",
    f"://{SECRET}",
    SECRET,
]
REDISES = [
    f"redis://user:{SECRET}@host:port/0",
    f"redis://:{SECRET}@[::1/0",
    f"redis://:{SECRET}/x@127.0.0.1:1/0",
    f"redis://:x/{SECRET}@127.0.0.1:1/0",
    f":{SECRET}@host:6379",
    f"http://:{SECRET}@host/",
]
COMMANDS = [
    ("jobs",),
    ("status",),
    ("doctor",),
    ("config", "show"),
    ("config", "show", "--json"),
    ("limits", "list"),
    ("up", "--workers", "1"),
    ("run", "n8n", "--limit", "1", "--engine", "celery"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("url", DATABASES)
def test_a_malformed_address_of_a_database_is_not_printed(
    longline: Terminal, monkeypatch: pytest.MonkeyPatch, url: str, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("LONGLINE_DATABASE_URL", url)
    monkeypatch.setenv("LONGLINE_REDIS_URL", "redis://127.0.0.1:9/0")

    answer = longline(*words)

    assert SECRET not in answer.out + answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("url", REDISES)
def test_a_malformed_address_of_redis_is_not_printed(
    longline: Terminal, monkeypatch: pytest.MonkeyPatch, url: str, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("LONGLINE_REDIS_URL", url)

    answer = longline(*words)

    assert SECRET not in answer.out + answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("url", DATABASES)
def test_a_traceback_does_not_show_it_either(url: str) -> None:
    with pytest.raises(LonglineError) as caught:
        open_database(url)

    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("url", REDISES)
def test_starting_a_cluster_does_not_show_it_either(
    url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = Settings(home=tmp_path_factory.mktemp("home"), redis_url=url)

    with pytest.raises(LonglineError) as caught:
        up(settings, ClusterOptions(0, 1), lambda *_step: None)

    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://user:geheim@host:5432/db", "postgresql://user:***@host:5432/db"),
        ("redis://:geheim@127.0.0.1:6379/0", "redis://:***@127.0.0.1:6379/0"),
        ("sqlite:////data/me@home/x.sqlite", "sqlite:////data/me@home/x.sqlite"),
        ("sqlite:///x.sqlite", "sqlite:///x.sqlite"),
        ("postgresql://user:geheim@host:x/db", "postgresql://…"),
        ("geheim", "…"),
        ("geheim://host", "…"),
    ],
)
def test_addresses_are_shown_without_secrets(address: str, shown: str) -> None:
    assert redact_server_url(address) == shown
