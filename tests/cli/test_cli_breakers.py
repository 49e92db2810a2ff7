"""`longline breakers`, against a home whose breakers a test has set."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from longline.cli.commands.sites import breakers_command
from longline.config.settings import load_settings, prepare_home
from longline.core.clock import SystemClock
from longline.core.errors import Blocked, ConnectFailed
from longline.core.model import Event
from longline.limits.breaker import CircuitBreaker
from longline.services.domains import NoBreaker
from longline.storage.events.events import EventFilter
from longline.storage.store import open_store
from longline.wiring import open_limit_backends


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which a.test has banned us and b.test has failed once."""
    settings = load_settings(home=tmp_path)
    prepare_home(settings)

    async def fill() -> None:
        async with open_limit_backends(settings, SystemClock()) as backends:
            breaker = CircuitBreaker(backend=backends.breakers)
            await breaker.record("a.test", Blocked("http://a.test/", "a challenge form [x]"))
            await breaker.record("b.test", ConnectFailed("http://b.test/", "reset"))

    asyncio.run(fill())
    return tmp_path


def ask(home: Path, *words: str) -> Result:
    assert isinstance(breakers_command, click.Group)
    runner = CliRunner(env={"COLUMNS": "200"})
    answer = runner.invoke(breakers_command, [*words, "--home", str(home)], standalone_mode=False)
    if answer.exception is not None:
        raise answer.exception
    return answer


def changes(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [(change["old"], change["new"]) for change in row["history"]]


def test_all_breakers_are_listed_with_state_and_reason(home: Path) -> None:
    banned, failed = ask(home).output.splitlines()[1:]
    rows = json.loads(ask(home, "--json").output)

    assert banned.split()[:2] == ["a.test", "open"]
    assert banned.rstrip().endswith("a challenge form [x]")
    assert failed.split() == ["b.test", "closed", "1", "0"]
    assert [(row["domain"], row["is_ban"]) for row in rows] == [("a.test", True), ("b.test", False)]


def test_a_home_without_failures_has_no_breakers(tmp_path: Path) -> None:
    assert len(ask(tmp_path).output.splitlines()) == 1
    assert json.loads(ask(tmp_path, "--json").output) == []


def test_a_breaker_is_shown_with_its_history(home: Path) -> None:
    text = ask(home, "show", "a.test").output
    row = json.loads(ask(home, "show", "a.test", "--json").output)

    assert text.count("a challenge form [x]") == 2
    assert (row["phase"], row["reason"]) == ("open", "a challenge form [x]")
    assert changes(row) == [("closed", "open")]


def test_a_breaker_that_is_reset_is_closed(home: Path) -> None:
    ask(home, "reset", "a.test")

    text = ask(home, "show", "a.test").output
    row = json.loads(ask(home, "show", "a.test", "--json").output)

    assert ["phase", "closed"] in [line.split() for line in text.splitlines()]
    assert row["phase"] == "closed"
    assert changes(row) == [("closed", "open"), ("open", "closed")]
    assert row["history"][-1]["reason"] in text


def test_a_breaker_that_is_reset_is_an_event(home: Path) -> None:
    for domain in ("a.test", "a.test", "b.test"):
        ask(home, "reset", domain)

    (event,) = events_of(home)

    row = json.loads(ask(home, "show", "a.test", "--json").output)
    assert (event.type, event.subject, event.job) == ("breaker.closed", "domain/a.test", None)
    assert event.data == {"domain": "a.test", "reason": row["history"][-1]["reason"]}


def events_of(home: Path) -> list[Event]:
    async def read() -> list[Event]:
        with open_store(load_settings(home=home).database) as store:
            return (await store.events.read(0, EventFilter()))[0]

    return asyncio.run(read())


@pytest.mark.parametrize("words", [("show", "c.test"), ("reset", "c.test")])
def test_an_unknown_domain_is_refused_with_the_known_ones(
    home: Path, words: tuple[str, ...]
) -> None:
    with pytest.raises(NoBreaker) as error:
        ask(home, *words)

    assert (error.value.domain, error.value.known) == ("c.test", ("a.test", "b.test"))


@pytest.mark.parametrize("words", [(), ("show", "a.test"), ("reset", "a.test")])
def test_duplicates_are_available_as_json(home: Path, words: tuple[str, ...]) -> None:
    text = ask(home, *words, "--json").output

    assert text.startswith(("[{", "{"))
    assert '"domain":"a.test"' in text
    assert '"history":[{' in text
