"""longline events: the log as it is read by people and programs, and its subscribers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from longline.core.event_types import EVENT_TYPES
from longline.storage.events.events import EventFilter
from longline.storage.store import Store, open_store
from tests.cli.terminal import Terminal
from tests.virtual import EPOCH


@pytest.fixture
def collected(longline: Terminal, shop: Path) -> str:
    """A job of three things, one of which failed; its id."""
    job = longline("run", shop, "--set", "bad=1", "--json").last["job"]
    assert isinstance(job, str)
    return job


def types_of(rows: list[dict[str, str]]) -> list[str]:
    return [row["type"] for row in rows]


def test_events_are_listed_in_order_with_job_and_subject(
    longline: Terminal, collected: str
) -> None:
    rows = longline("events", "list", "--json").last
    jobs = longline("events", "list", "--type", "job.*", "--job", collected[:8], "--json").last

    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    assert types_of(rows).count("record.created") == types_of(rows).count("item.stored") == 2
    assert types_of(jobs) == ["job.created", "job.started", "job.discovered", "job.partial"]
    assert {row["subject"] for row in jobs} == {f"job/{collected}"}
    assert "job.partial" in longline("events", "list").out


@pytest.mark.usefixtures("collected")
def test_a_list_continues_after_a_cursor(longline: Terminal) -> None:
    every = longline("events", "list", "--json").last
    third = every[2]["id"]

    rows = longline("events", "list", "--after", str(third), "--limit", "2", "--json").last

    assert rows == every[3:5]
    assert longline("events", "list", "--since", "1h", "--json").last == every


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize(
    "words",
    [
        ["list", "--type", "jobs.*"],
        ["list", "--after", "99999"],
        ["list", "--after", "1", "--since", "1h"],
        ["list", "--after", "-1"],
        ["types", "job.compete"],
    ],
)
def test_bad_input_is_one_sentence(longline: Terminal, words: list[str]) -> None:
    answer = longline("events", *words)

    assert answer.code == 2
    assert "Traceback" not in answer.err
    assert answer.out == ""


def test_types_are_listed_and_explained(longline: Terminal) -> None:
    rows = longline("events", "types", "--json").last
    one = longline("events", "types", "limit.learned", "--json").last

    assert types_of(rows) == list(EVENT_TYPES)
    assert set(one["schema"]["properties"]) == {"domain", "rate"}
    assert "limit.learned" in longline("events", "types").out


@pytest.mark.usefixtures("collected")
def test_subscribers_are_listed_replayed_and_removed(longline: Terminal, home: Path) -> None:
    async def add(store: Store) -> None:
        await store.subscribers.add("mail", EventFilter(("job.*",)), EPOCH, None)

    with open_store(f"sqlite:///{home / 'longline.sqlite'}") as store:
        asyncio.run(add(store))

    before = longline("events", "subscribers", "--json").last
    longline("events", "replay", "mail", "--after", "0")
    after = longline("events", "subscribers", "--json").last
    shown = longline("events", "subscribers").out
    removed = longline("events", "unsubscribe", "mail")

    assert [(one["name"], one["lag"]) for one in before] == [("mail", 0)]
    assert after[0]["cursor"] == 0
    assert after[0]["lag"] > 0
    assert "mail" in shown
    assert removed.code == 0
    assert longline("events", "subscribers", "--json").last == []
    assert longline("events", "unsubscribe", "mail").code == 1


def test_pruned_events_are_not_claimed_by_the_report(longline: Terminal, collected: str) -> None:
    before = longline("report", collected, "--json").last["checks"]

    deleted = longline("events", "prune", "--before", "2999-01-01", "--json").last["deleted"]

    after = longline("report", collected, "--json").last["checks"]
    assert deleted == 5
    assert len(after) == len(before) - 1
    assert longline("events", "list", "--type", "job.*", "--json").last
    assert longline("events", "prune").code == 2


@pytest.mark.usefixtures("collected")
def test_pruning_names_the_subscriber_that_holds_it_back(longline: Terminal, home: Path) -> None:
    async def add(store: Store) -> None:
        await store.subscribers.add("mail", EventFilter(("custom.a",)), EPOCH, 1)
        await store.subscribers.add("other", EventFilter(), EPOCH, 3)

    with open_store(f"sqlite:///{home / 'longline.sqlite'}") as store:
        asyncio.run(add(store))

    held = longline("events", "prune", "--before", "2999-01-01", "--json").last
    shown = longline("events", "prune", "--before", "2999-01-01").out
    early = longline("events", "prune", "--before", "2000-01-01", "--json").last
    longline("events", "unsubscribe", "mail")
    longline("events", "unsubscribe", "other")
    free = longline("events", "prune", "--before", "2999-01-01", "--json").last

    assert held == {"deleted": 0, "kept_for": "mail"}
    assert "mail" in shown
    assert early["kept_for"] is None
    assert free == {"deleted": 5, "kept_for": None}
