"""The part of the server that keeps alerts, in virtual time on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from longline.core.clock import Clock
from longline.core.model import Event
from longline.core.redaction import KNOWN_SECRETS
from longline.monitoring.alerts.alerting import Alerting, Findings, read_evaluation
from longline.monitoring.alerts.conditions import AlertCondition
from longline.monitoring.alerts.configuration import AlertFile, AlertSettings
from longline.storage.events.events import EventFilter, event_row
from longline.storage.events.webhooks import Webhook
from longline.storage.monitoring.alerts import Silence
from longline.storage.store import Store, open_store
from tests.virtual import EPOCH, VirtualClock

MINUTE = 60.0
_DATABASES = count(1)
FAILED = AlertCondition("failed", "source/shop", "warning", "it failed", {"job": 1}, "look")
BANNED = AlertCondition("banned", "source/shop", "critical", "it is banned", {}, "wait")
NOTIFY = """
alerts:
  mail: {ops: {host: 127.0.0.1, from: a@mail.test, to: b@mail.test}}
  notify: [mail:ops]
"""


class Rules:
    """Stands for the rules: finds what a test says, and counts its calls."""

    def __init__(self) -> None:
        self.conditions: Sequence[AlertCondition] = ()
        self.waits: dict[str, float] = {}
        self.error: Exception | None = None
        self.calls: list[float] = []

    async def evaluate(self, _settings: AlertSettings, now: float) -> Findings:
        self.calls.append(now - EPOCH)
        if self.error is not None:
            raise self.error
        return Findings(self.conditions, self.waits)


class Home:
    """A home whose alerts are kept by one server, or by several."""

    def __init__(self, store: Store, clock: VirtualClock, file: Path) -> None:
        self.store = store
        self.clock = clock
        self.file = file
        self.rules = Rules()
        self.alerting = self.server(store)

    def server(self, store: Store, clock: Clock | None = None) -> Alerting:
        return Alerting(store, clock or self.clock, AlertFile(), self.rules.evaluate)

    async def add_webhook(self, name: str) -> None:
        webhook = Webhook(name, "https://a.test/", (), created_at=EPOCH)
        await self.store.webhooks.add(webhook, EventFilter(("custom.*",)))

    async def run_for(self, seconds: float) -> None:
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            await self.clock.sleep(await self.alerting.tick())

    async def events(self, *types: str) -> Sequence[Event]:
        return await self.store.events.last(EventFilter(types or ("alert.*",)), limit=1000)

    async def notified(self) -> list[tuple[float, str, int]]:
        """Return when what was sent, and how many alerts it had."""
        found = await self.events("alert.notified")
        return [(one.at - EPOCH, one.data["reason"], len(one.data["alerts"])) for one in found]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'longline.sqlite'}"
    postgres = request.getfixturevalue("postgres_server")
    name = f"alerting_{next(_DATABASES)}"
    postgres.execute(f"CREATE DATABASE {name}")
    url: str = postgres.url(name)
    return url


@pytest.fixture
async def home(
    database: str, clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Home]:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "longline.yaml"
    file.write_text(NOTIFY)
    with open_store(database) as store:
        yield Home(store, clock, file)


@pytest.fixture
async def local(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Home]:
    """A home on SQLite, for what does not depend on the database."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "longline.yaml"
    file.write_text(NOTIFY)
    with open_store(f"sqlite:///{tmp_path / 'longline.sqlite'}") as store:
        yield Home(store, clock, file)


async def test_an_alert_fires_is_grouped_notified_once_and_resolves(home: Home) -> None:
    home.rules.conditions = [FAILED, BANNED]
    await home.run_for(MINUTE)
    (first, second) = await home.store.alerts.list()

    home.rules.conditions = ()
    await home.run_for(7 * MINUTE)

    events = [one.type for one in await home.events()]
    assert (first.rule, second.rule) == ("banned", "failed")
    assert sorted(events) == [
        *["alert.firing"] * 2,
        *["alert.notified"] * 2,
        *["alert.resolved"] * 2,
    ]
    assert await home.notified() == [
        (30.0, "new", 2),
        (pytest.approx(6 * MINUTE, abs=31), "new", 2),
    ]
    assert not await home.store.alerts.list()


async def test_two_servers_fire_and_notify_once(home: Home, database: str) -> None:
    home.rules.conditions = [FAILED]

    with open_store(database) as store:
        other = home.server(store)
        for _ in range(60):
            await home.alerting.tick()
            await other.tick()
            await home.clock.sleep(5.0)

    assert [one.type for one in await home.events()] == ["alert.firing", "alert.notified"]
    assert len(home.rules.calls) == 10


async def test_another_server_continues_when_the_first_is_gone(home: Home, database: str) -> None:
    home.rules.conditions = [FAILED]
    await home.run_for(MINUTE)

    with open_store(database) as store:
        home.alerting = home.server(store)
        await home.run_for(2 * MINUTE)

    assert [one.type for one in await home.events()] == ["alert.firing", "alert.notified"]
    assert home.rules.calls[-1] > 2 * MINUTE


async def test_a_silenced_alert_is_sent_when_the_silence_ends(home: Home) -> None:
    now = home.clock.now()
    await home.store.alerts.silence(Silence("failed", None, now + 4 * MINUTE, "repair", now))
    home.rules.conditions = [FAILED]

    await home.run_for(4 * MINUTE - 10)
    silent = await home.notified()
    await home.run_for(20)

    assert not silent
    assert await home.notified() == [(4 * MINUTE, "new", 1)]


async def test_quiet_hours_hold_warnings_back(home: Home) -> None:
    home.file.write_text(NOTIFY + "  quiet_hours: {from: 07:00, to: 08:10}\n")  # it is 08:00
    home.rules.conditions = [FAILED]
    await home.run_for(MINUTE)
    home.rules.conditions = [FAILED, BANNED]
    await home.run_for(9 * MINUTE + 10)

    assert await home.notified() == [
        (pytest.approx(90, abs=31), "new", 1),
        (10 * MINUTE, "new", 2),
    ]


async def test_a_critical_alert_is_escalated_and_its_end_reported(home: Home) -> None:
    await home.add_webhook("phone")
    home.file.write_text(NOTIFY + "  escalate: {after: 2m, to: 'webhook:phone'}\n")
    home.rules.conditions = [BANNED]
    await home.run_for(3 * MINUTE)
    home.rules.conditions = ()
    await home.run_for(7 * MINUTE + 10)

    sent = [
        (one.data["reason"], one.data["channels"]) for one in await home.events("alert.notified")
    ]
    assert sent == [
        ("new", ["mail:ops"]),
        ("escalation", ["webhook:phone"]),
        ("new", ["mail:ops", "webhook:phone"]),
    ]


async def test_a_flapping_condition_is_notified_once(local: Home) -> None:
    for _ in range(6):
        local.rules.conditions = [FAILED]
        await local.run_for(MINUTE)
        local.rules.conditions = ()
        await local.run_for(4 * MINUTE)

    assert [one.type for one in await local.events()] == ["alert.firing", "alert.notified"]


async def test_a_problem_must_last_as_long_as_its_rule_says(local: Home) -> None:
    local.rules.waits = {"failed": 90.0}
    local.rules.conditions = [FAILED]

    await local.run_for(MINUTE)
    (pending,) = await local.store.alerts.list()
    await local.run_for(MINUTE)
    (firing,) = await local.store.alerts.list()

    assert (pending.state, firing.state) == ("pending", "firing")


async def test_without_channels_alerts_are_kept_and_nothing_is_sent(local: Home) -> None:
    local.file.unlink()
    local.rules.conditions = [FAILED]

    await local.run_for(2 * MINUTE)

    assert [one.type for one in await local.events()] == ["alert.firing"]
    assert not await local.store.subscribers.list()


@pytest.mark.rows_without_events
async def test_rules_are_evaluated_soon_after_a_job_has_ended(local: Home) -> None:
    await local.run_for(31)
    before = len(local.rules.calls)

    await local.store.events.append(event_row("j1", EPOCH, "job.failed", reason="x"))
    await local.run_for(5)

    assert (before, len(local.rules.calls)) == (2, 3)


async def test_an_evaluation_that_fails_is_visible_and_changes_nothing(
    local: Home, logged: list[str]
) -> None:
    local.rules.conditions = [FAILED]
    await local.run_for(MINUTE)
    local.rules.error = ValueError("broken rule")
    await local.run_for(2 * MINUTE)

    state = await read_evaluation(local.store, local.clock)
    (alert,) = await local.store.alerts.list()
    local.rules.error = None
    await local.run_for(MINUTE)

    fine = await read_evaluation(local.store, local.clock)
    assert alert.state == "firing"
    assert state.evaluated_at == pytest.approx(EPOCH + 30, abs=31)
    assert state.failed_at == pytest.approx(EPOCH + 60, abs=31)
    assert "broken rule" in (state.error or "")
    assert sum("broken rule" in text for text in logged) == 1
    assert (fine.error, fine.failed_at) == (None, None)


@pytest.mark.parametrize("invalid", ["alerts: {notify: 5}\n", f"{NOTIFY}\nexecutor_jobs: two\n"])
async def test_a_changed_file_is_applied_and_an_invalid_one_is_not(
    local: Home, logged: list[str], invalid: str
) -> None:
    local.rules.conditions = [FAILED]
    local.file.write_text(invalid)
    await local.run_for(MINUTE)
    nothing = await local.notified()
    local.file.write_text(NOTIFY)
    await local.run_for(MINUTE)
    local.file.write_text("alerts: {}\n# the channel is gone\n")
    await local.run_for(MINUTE)

    assert not nothing
    assert len(await local.notified()) == 1
    assert len(logged) == 1
    assert not await local.store.subscribers.list()


async def test_a_file_is_applied_once_its_webhooks_exist(local: Home, logged: list[str]) -> None:
    await local.run_for(10)
    local.file.write_text("alerts: {notify: ['webhook:chat']}\n")
    await local.run_for(20)
    local.rules.conditions = [FAILED]
    await local.run_for(2 * MINUTE)
    before = [one.data["channels"] for one in await local.events("alert.notified")]
    local.rules.conditions = [FAILED, replace(BANNED, subject="domain/shop.test")]
    await local.add_webhook("chat")
    await local.run_for(2 * MINUTE)

    sent = [one.data["channels"] for one in await local.events("alert.notified")]
    assert (before, sent[1:]) == ([["mail:ops"]], [["webhook:chat"]])
    assert len([text for text in logged if "webhook chat" in text]) == 1


async def test_known_secrets_reach_no_alert(local: Home) -> None:
    KNOWN_SECRETS.add("planted-secret-1")
    local.rules.conditions = [
        replace(
            FAILED,
            summary="planted-secret-1",
            evidence={"url": "https://x.test/?k=planted-secret-1"},
            action="planted-secret-1",
        )
    ]

    await local.run_for(MINUTE)

    alerts = repr(await local.store.alerts.list())
    events = repr(await local.events())
    assert "alert.notified" in events
    assert "planted-secret-1" not in alerts + events
