"""Scheduled reports: one of several servers makes each, and channels and files get it once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from longline.config.documents import read_document
from longline.core.clock import Clock
from longline.core.errors import BadFile
from longline.core.model import Event
from longline.engine.deliveries import EventDeliveries
from longline.engine.runtime import in_background
from longline.engine.webhooks import WebhookSender
from longline.http.transport import HttpOptions
from longline.monitoring.alerts.channels import Channels
from longline.monitoring.alerts.configuration import AlertFile
from longline.monitoring.reports.definitions import ReportFile, report_definitions_in
from longline.monitoring.reports.maker import ReportMaker
from longline.storage.events.events import EventFilter
from longline.storage.store import Store, open_store
from tests.monitoring.reports.seeded_runs import SeededRun, seed
from tests.smtp_server import Mailbox, mail_server
from tests.virtual import EPOCH, VirtualClock

HOUR = 3600.0
DAY = 24 * HOUR
FILE = """
alerts:
  mail:
    ops: {{host: 127.0.0.1, port: {port}, security: none, from: a@mail.test, to: [b@mail.test]}}
reports:
  morning: {{every: daily, at: "07:00", timezone: {zone}, to: [{to}]}}
"""


class At(Clock):
    """A clock that shows a given time."""

    def __init__(self, text: str) -> None:
        self.at = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with mail_server() as mailbox:
        yield mailbox


def write(folder: Path, to: str = "file:d.json", zone: str = "UTC", port: int = 1) -> None:
    (folder / "longline.yaml").write_text(FILE.format(to=to, zone=zone, port=port))


async def made(store: Store) -> list[Event]:
    found, _ = await store.events.read(0, EventFilter(("report.made",)))
    return found


def nominals(events: list[Event]) -> list[str]:
    times = (datetime.fromtimestamp(one.data["nominal_at"], UTC) for one in events)
    return [f"{at:%Y-%m-%dT%H:%M}" for at in times]


async def test_one_of_several_servers_makes_each_report(
    address: str, folder: Path, clock: VirtualClock
) -> None:
    write(folder)
    with open_store(address) as one, open_store(address) as two, open_store(address) as three:
        makers = [ReportMaker(store, clock, ReportFile()) for store in (one, two, three)]
        end = EPOCH + 4 * DAY
        while clock.now() < end:
            waits = [await maker.tick() for maker in makers]
            await clock.sleep(min(wait or DAY for wait in waits) + 0.5)

        events = await made(one)

    assert len(events) == 4
    assert len(set(nominals(events))) == 4
    assert all(one.data["end"] - one.data["start"] == DAY for one in events)


async def test_a_new_report_is_not_made_for_the_past(sqlite_store: Store, folder: Path) -> None:
    write(folder)
    clock = At("2026-11-18T08:00")
    maker = ReportMaker(sqlite_store, clock, ReportFile())

    wait = await maker.tick()
    clock.at += 22 * HOUR
    before = await made(sqlite_store)
    clock.at += 2 * HOUR
    await maker.tick()

    assert wait == 23 * HOUR
    assert before == []
    assert nominals(await made(sqlite_store)) == ["2026-11-19T07:00"]


async def test_after_a_downtime_only_the_last_report_is_made(
    sqlite_store: Store, folder: Path
) -> None:
    write(folder)
    clock = At("2026-11-18T06:00")
    await ReportMaker(sqlite_store, clock, ReportFile()).tick()

    clock.at += 5 * DAY + 4 * HOUR
    await ReportMaker(sqlite_store, clock, ReportFile()).tick()

    assert nominals(await made(sqlite_store)) == ["2026-11-23T07:00"]


async def test_changed_times_do_not_make_a_report_at_once(
    sqlite_store: Store, folder: Path
) -> None:
    write(folder, zone="UTC")
    clock = At("2026-11-18T06:00")
    await ReportMaker(sqlite_store, clock, ReportFile()).tick()

    write(folder, zone="Asia/Tokyo")  # 07:00 there was at 22:00
    clock.at += HOUR / 2
    await ReportMaker(sqlite_store, clock, ReportFile()).tick()

    assert await made(sqlite_store) == []


@pytest.mark.parametrize(
    ("start", "due", "hours"),
    [  # written by hand
        ("2026-03-28T12:00", "2026-03-29T04:00", 23),
        ("2026-10-24T12:00", "2026-10-25T05:00", 25),
    ],
)
async def test_a_report_follows_the_clock_of_its_zone(
    sqlite_store: Store, folder: Path, start: str, due: str, hours: int
) -> None:
    write(folder, zone="Europe/Sofia")
    clock = At(start)
    maker = ReportMaker(sqlite_store, clock, ReportFile())

    wait = await maker.tick()
    clock.at += wait or 0.0
    await maker.tick()

    (event,) = await made(sqlite_store)
    assert nominals([event]) == [due]
    assert event.data["end"] - event.data["start"] == hours * HOUR


# ---------------- Sending


@pytest.fixture
async def sender(sqlite_store: Store, clock: VirtualClock) -> AsyncIterator[WebhookSender]:
    sender = WebhookSender(sqlite_store, clock, HttpOptions(has_limit=False))
    yield sender
    await sender.close()


async def deliver(store: Store, clock: VirtualClock, sender: WebhookSender) -> None:
    """Make the report of the next day, and deliver it in two servers."""
    await seed(store, SeededRun("shop", EPOCH, bad={"a": "<b>503</b>"}))
    maker = ReportMaker(store, clock, ReportFile())
    await clock.sleep((await maker.tick() or 0.0) + 1)
    await maker.tick()
    first, second = (
        Channels(store, clock, sender, AlertFile(), reports=ReportFile()) for _ in range(2)
    )
    one = EventDeliveries(store, clock, sender, find_more=first.subscriptions)
    other = EventDeliveries(store, clock, sender, find_more=second.subscriptions)
    async with in_background(one.run()), in_background(other.run()):
        await clock.sleep(30)


async def test_a_mail_has_the_state_as_its_subject_and_two_parts(
    sqlite_store: Store,
    folder: Path,
    clock: VirtualClock,
    sender: WebhookSender,
    mailbox: Mailbox,
) -> None:
    write(folder, to="mail:ops", port=mailbox.port)

    await deliver(sqlite_store, clock, sender)

    (mail,) = mailbox.mails
    text, html = mail.get_body(("plain",)), mail.get_body(("html",))
    assert mail["Subject"] == "[longline] 1 problem needs attention: shop failed"
    assert text is not None
    assert html is not None
    assert "NEEDS ATTENTION" in text.get_content()
    assert "<table>" in html.get_content()
    assert "<svg" not in html.get_content()


async def test_a_file_is_written_with_its_date(
    sqlite_store: Store, folder: Path, clock: VirtualClock, sender: WebhookSender
) -> None:
    write(
        folder,
        to='"file:out/d-{date}.json", "file:out/d.html"',
    )

    await deliver(sqlite_store, clock, sender)

    (event,) = await made(sqlite_store)
    end = datetime.fromtimestamp(event.data["end"], UTC)
    written = orjson.loads((folder / "out" / f"d-{end:%Y-%m-%d}.json").read_bytes())
    assert written["totals"]["runs"] == 1
    assert written["needs"][0]["subject"] == "source/shop"
    assert (folder / "out" / "d.html").read_text().startswith("<!doctype html>")


async def test_the_subscriber_of_a_removed_channel_is_removed(
    sqlite_store: Store,
    folder: Path,
    clock: VirtualClock,
    sender: WebhookSender,
    mailbox: Mailbox,
) -> None:
    write(folder, to="mail:ops", port=mailbox.port)
    await deliver(sqlite_store, clock, sender)
    before = [one.name for one in await sqlite_store.subscribers.list()]

    write(folder, to="file:d.json")
    await ReportMaker(sqlite_store, clock, ReportFile()).tick()

    assert before == ["report/mail:ops"]
    assert await sqlite_store.subscribers.list() == []


# ---------------- Definitions


@pytest.mark.parametrize(
    ("definition", "line"),
    [
        ("every: hourly, to: [file:d.md]", 3),
        ("every: '61 * * * *', to: [file:d.md]", 3),
        ("every: '0 7 * * *', at: '07:00', to: [file:d.md]", 3),
        ("at: '25:00', to: [file:d.md]", 3),
        ("timezone: Mars, to: [file:d.md]", 3),
        ("days: 0, to: [file:d.md]", 3),
        ("to: []", 3),
        ("to: [file:d.pdf]", 3),
        ("to: ['file:d-{name}.md']", 3),
        ("to: [mail:ops]", 3),
        ("to: [fax:ops]", 3),
        ("too: [file:d.md]", 3),
    ],
)
def test_an_invalid_report_is_refused_with_its_line(
    folder: Path, definition: str, line: int
) -> None:
    path = folder / "longline.yaml"
    path.write_text(f"concurrency: 2\nreports:\n  morning: {{{definition}}}\n")

    with pytest.raises(BadFile) as caught:
        report_definitions_in(read_document(path))

    assert caught.value.line == line


@pytest.mark.parametrize(
    ("definition", "cron", "days"),
    [
        ("to: file:d.md", "0 7 * * *", 1),
        ("every: weekly, at: '06:30', to: file:d.md", "30 6 * * 1", 7),
        ("every: weekdays, to: file:d.md", "0 7 * * 1-5", 1),
        ("every: '15 5 1 * *', days: 30, to: file:d.md", "15 5 1 * *", 30),
    ],
)
def test_times_of_reports(folder: Path, definition: str, cron: str, days: int) -> None:
    path = folder / "longline.yaml"
    path.write_text(f"reports:\n  one: {{{definition}}}\n")

    one = report_definitions_in(read_document(path))["one"]

    assert (one.cron, one.covered_days) == (cron, days)
    assert one.files(datetime(2026, 11, 18, tzinfo=UTC)) == (str(folder / "d.md"),)
