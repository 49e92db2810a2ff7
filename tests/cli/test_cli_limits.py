from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from longline.config.settings import load_settings, prepare_home
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.limits import learning
from longline.limits.learning import Learned
from longline.wiring import open_limit_backends
from tests.cli.terminal import Terminal


def learn(home: Path, domain: str, state: Learned) -> None:
    """Store learned limits in a home."""
    settings = load_settings(home=home)
    prepare_home(settings)

    async def write() -> None:
        async with open_limit_backends(settings, SystemClock()) as backends:
            await backends.limits.change(domain, lambda _state, _now: (state, None))

    asyncio.run(write())


def refused() -> Learned:
    begun = replace(learning.start_run(None, 1_800_000_000.0), is_burst_proven=True)
    return learning.count_refused(begun, 1_800_000_005.0, 1_800_000_005.0)


def test_nothing_is_known_at_first(longline: Terminal) -> None:
    answer = longline("limits")

    assert (answer.code, len(answer.out.splitlines())) == (0, 1)
    assert longline("limits", "--json").last == []


def test_learned_limits_are_listed(longline: Terminal, home: Path) -> None:
    learn(home, "a.test:8080", refused())

    shown = longline("limits")
    (row,) = longline("limits", "--json").last

    assert "a.test:8080" in shown.out
    assert "1.2/s" in shown.out
    assert row == {
        "domain": "a.test:8080",
        "rate": pytest.approx(1.2),
        "burst": 2,
        "known": "learned",
        "proven": None,
        "refusals": 1,
        "ceiling": 2.0,
        "published": None,
        "robots": None,
        "changed_at": "2027-01-15T08:00:05+00:00",
    }


@pytest.mark.parametrize(
    ("state", "known", "rate"),
    [
        (learning.set_published(Learned(), 5.0, 1.0), "published", 5.0),
        (learning.set_restraint(Learned(), 0.5, 1.0), "robots", 0.5),
        (learning.pin(None, 7.0, 1, 1.0), "pinned", 7.0),
    ],
)
def test_the_origin_of_a_limit_is_shown(
    longline: Terminal, home: Path, state: Learned, known: str, rate: float
) -> None:
    learn(home, "a.test", state)

    (row,) = longline("limits", "--json").last

    assert (row["known"], row["rate"]) == (known, rate)


def test_a_pin_is_kept_and_can_be_forgotten(longline: Terminal, home: Path) -> None:
    learn(home, "a.test", refused())

    pinned = longline("limits", "pin", "https://A.test/page", "--rate", "4", "--burst", "3")
    (row,) = longline("limits", "--json").last
    forgotten = longline("limits", "forget", "a.test")

    assert (pinned.code, forgotten.code) == (0, 0)
    assert "pinned" in pinned.out
    assert (row["domain"], row["rate"], row["burst"]) == ("a.test", 4.0, 3)
    assert (row["known"], row["refusals"]) == ("pinned", 1)
    assert longline("limits", "--json").last == []


def test_commands_print_json(longline: Terminal) -> None:
    pinned = longline("limits", "pin", "a.test", "--rate", "4", "--json")
    forgotten = longline("limits", "forget", "a.test", "--json")

    assert pinned.last[0]["domain"] == "a.test"
    assert forgotten.last == {"forgotten": "a.test"}


def test_a_home_may_be_named_before_or_after_the_command(
    longline: Terminal, tmp_path: Path
) -> None:
    other = tmp_path / "other"

    longline("limits", "--home", other, "pin", "a.test", "--rate", "1")
    longline("limits", "pin", "b.test", "--rate", "1", "--home", other)

    assert len(longline("limits", "--home", other, "--json").last) == 2
    assert longline("limits", "--json").last == []


def test_pinning_and_forgetting_are_events_of_the_domain(longline: Terminal) -> None:
    longline("limits", "pin", "a.test", "--rate", "0.5", "--burst", "3")
    longline("limits", "forget", "a.test")
    longline("limits", "forget", "a.test")

    pinned, forgotten = longline("events", "list", "--subject", "domain/a.test", "--json").last

    assert (pinned["type"], pinned["job"]) == ("limit.pinned", None)
    assert pinned["data"] == {"domain": "a.test", "rate": 0.5, "burst": 3}
    assert (forgotten["type"], forgotten["data"]) == ("limit.forgotten", {"domain": "a.test"})


def test_forgetting_an_unknown_limit_is_refused(longline: Terminal) -> None:
    answer = longline("limits", "forget", "a.test")

    assert answer.code == 2
    assert isinstance(answer.error, BadOption)
    assert answer.error.option == "DOMAIN"
    assert "a.test" in answer.error.problem


@pytest.mark.parametrize(
    ("rate", "burst", "wrong"),
    [
        ("0", "1", "0.0"),
        ("-1", "1", "-1.0"),
        ("nan", "1", "nan"),
        ("1e-9", "1", "1e-09"),
        ("1001", "1", "1001.0"),
        ("1", "0", "0"),
    ],
)
def test_a_pin_out_of_range_is_refused(
    longline: Terminal, rate: str, burst: str, wrong: str
) -> None:
    answer = longline("limits", "pin", "a.test", "--rate", rate, "--burst", burst)

    assert answer.code == 2
    assert isinstance(answer.error, BadOption)
    assert answer.error.option != "DOMAIN"
    assert wrong in answer.error.problem
    assert longline("limits", "--json").last == []


@pytest.mark.parametrize(
    "domain", ["", " ", "https://", "/page", ":80", "a b.test", "*.test", "a.test:port", "..."]
)
def test_a_pin_of_an_invalid_domain_is_refused(longline: Terminal, domain: str) -> None:
    answer = longline("limits", "pin", domain, "--rate", "1")

    assert answer.code == 2
    assert isinstance(answer.error, BadOption)
    assert answer.error.option == "DOMAIN"
    assert repr(domain) in answer.error.problem
    assert longline("limits", "--json").last == []


@pytest.mark.parametrize(
    "domain",
    ["localhost:8000", "127.0.0.1", "[::1]:8080", "my_shop.example", "b\u00fccher.example"],
)
def test_any_real_domain_can_be_pinned(longline: Terminal, domain: str) -> None:
    assert longline("limits", "pin", domain, "--rate", "1", "--json").last[0]["domain"] == domain
