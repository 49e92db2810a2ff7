"""`longline breakers`, against a home whose breakers a test has set."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from longline.cli.breakers import command
from longline.clock import SystemClock
from longline.config.settings import load_settings, prepare_home
from longline.errors import BadOption
from longline.resilience.breaker import BreakerPolicy, Health
from longline.wiring import open_keepers


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which a.test has banned us and b.test has failed once."""
    settings = load_settings(home=tmp_path)
    prepare_home(settings)

    async def fill() -> None:
        async with open_keepers(settings, SystemClock()) as keepers:
            policy, breakers = BreakerPolicy(), keepers.breakers
            await breakers.record("a.test", policy, Health.BANNED, reason="a challenge form [x]")
            await breakers.record("b.test", policy, Health.DOWN, reason="reset")

    asyncio.run(fill())
    return tmp_path


def ask(home: Path, *words: str) -> Result:
    assert isinstance(command, click.Group)
    runner = CliRunner(env={"COLUMNS": "200"})
    answer = runner.invoke(command, [*words, "--home", str(home)], standalone_mode=False)
    if answer.exception is not None:
        raise answer.exception
    return answer


def test_all_are_listed_with_what_there_is_to_know(home: Path) -> None:
    banned, failed = ask(home).output.splitlines()[1:]

    assert banned.split()[:3] == ["a.test", "open", "(banned)"]
    assert banned.rstrip().endswith("a challenge form [x]")
    assert failed.split() == ["b.test", "closed", "1", "0"]


def test_a_home_without_failures_says_so(tmp_path: Path) -> None:
    assert ask(tmp_path).output == "no site has failed so far\n"


def test_one_is_shown_with_its_history(home: Path) -> None:
    text = ask(home, "show", "a.test").output

    assert "reason     a challenge form [x]" in text
    assert "closed -> open  a challenge form [x]" in text


def test_one_that_is_reset_is_asked_again(home: Path) -> None:
    ask(home, "reset", "a.test")

    text = ask(home, "show", "a.test").output

    assert "phase      closed" in text
    assert "open -> closed  closed by hand" in text


@pytest.mark.parametrize("words", [("show", "c.test"), ("reset", "c.test")])
def test_an_unknown_one_is_refused_with_those_there_are(home: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(BadOption, match=r"'c\.test'; known are: a\.test, b\.test"):
        ask(home, *words)


@pytest.mark.parametrize("words", [(), ("show", "a.test"), ("reset", "a.test")])
def test_programs_are_answered_in_json(home: Path, words: tuple[str, ...]) -> None:
    text = ask(home, *words, "--json").output

    assert text.startswith(("[{", "{"))
    assert '"domain":"a.test"' in text
    assert '"history":[{' in text
