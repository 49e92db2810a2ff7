"""The logging handler that stores warnings and errors: context, limits, outages, several homes."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.core.logging import LogContext, LogOptions, configure_logging, reset_logging
from longline.monitoring.log_store import (
    LogStoreHandler,
    follow_logs,
    pass_on_logs,
    prune_logs,
    storing_logs,
)
from longline.storage.monitoring.logs import LogFilter, LogLine
from longline.storage.store import Store, open_store
from tests.virtual import VirtualClock

LOG = logging.getLogger("longline.test")
ALL = LogFilter()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path)


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with open_store(settings.database) as store:
        yield store


@pytest.fixture
def handler(store: Store, settings: Settings, clock: VirtualClock) -> Iterator[LogStoreHandler]:
    reset_logging()  # of tests that ran a command
    with storing_logs(store, settings, clock, worker="host-1") as handler:
        yield handler


async def stored(store: Store) -> list[LogLine]:
    pass_on_logs()
    await store.events.append()  # the writer has then done all that was passed to it before
    return (await store.logs.search(ALL, limit=10_000))[0]


async def test_a_line_has_its_context_and_fields(
    store: Store, handler: LogStoreHandler, clock: VirtualClock
) -> None:
    with LogContext(job="shop-1", source="shop", domain="a.test", item="7", flow="f-1"):
        LOG.warning("lease of %s lost", "7", extra={"status": 503})
    LOG.info("not stored")

    (line,) = await stored(store)
    assert (line.job, line.source, line.domain, line.item, line.flow, line.worker) == (
        *("shop-1", "shop", "a.test", "7"),
        *("f-1", "host-1"),
    )
    assert (line.logger, line.level, line.message) == (
        *("longline.test", logging.WARNING),
        "lease of 7 lost",
    )
    assert line.fields == {"status": 503}
    assert line.at == pytest.approx(clock.now(), abs=5)
    assert handler.dropped == 0


async def test_an_exception_is_stored_with_its_traceback(
    store: Store, handler: LogStoreHandler
) -> None:
    LOG.error("failed", exc_info=ZeroDivisionError())

    (line,) = await stored(store)
    assert line.level == logging.ERROR
    assert line.exception is not None
    assert line.exception.endswith("ZeroDivisionError")
    assert handler.dropped == 0


@pytest.mark.usefixtures("handler")
async def test_lines_of_threads_are_stored(store: Store) -> None:
    thread = threading.Thread(target=LOG.warning, args=("from a thread",))
    thread.start()
    thread.join()

    (line,) = await stored(store)
    assert (line.message, line.worker) == ("from a thread", "host-1")


@pytest.mark.usefixtures("handler")
async def test_lines_are_stored_without_being_asked_for(store: Store) -> None:
    LOG.warning("one")

    async with asyncio.timeout(3600):  # of virtual time, while a thread works in real time
        async for line in follow_logs(store.logs, SystemClock(), ALL, 0):
            assert line.message == "one"
            break


@pytest.mark.usefixtures("handler")
async def test_a_long_line_is_shortened(store: Store) -> None:
    LOG.warning("x" * 100_000, extra={"body": "y" * 100_000, "list": ["z"] * 100_000})

    (line,) = await stored(store)
    assert len(line.message) + len(str(line.fields)) < 10_000


@pytest.mark.usefixtures("handler")
async def test_odd_values_become_text(store: Store) -> None:
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]

    LOG.warning(
        "odd", extra={"path": Path("a"), "big": 10**30, "bad": "\ud800", "set": {1}, "deep": deep}
    )

    (line,) = await stored(store)
    assert line.fields["path"] == "a"
    assert line.fields["set"] == [1]


@pytest.mark.usefixtures("handler")
async def test_more_lines_than_fit_are_counted(store: Store) -> None:
    with stuck_writer(store):
        for _ in range(3000):
            LOG.warning("one of many")

    lines = await stored(store)
    dropped = [one.fields["dropped"] for one in lines if one.fields]
    assert sum(dropped) >= 1000
    assert len(lines) - len(dropped) + sum(dropped) == 3000


async def test_a_line_that_cannot_be_made_is_counted(
    store: Store, handler: LogStoreHandler
) -> None:
    LOG.warning("unprintable", extra={"object": Unprintable()})

    assert handler.dropped == 1

    LOG.warning("next")
    assert [one.fields for one in await stored(store)] == [{}, {"dropped": 1}]


async def test_lines_that_cannot_be_written_are_counted(
    settings: Settings, clock: VirtualClock
) -> None:
    store = open_store(settings.database)
    with storing_logs(store, settings, clock) as handler:
        store.close()
        LOG.warning("lost")

        assert handler.pass_on() is None

        assert handler.dropped == 1


async def test_a_job_has_a_limited_number_of_lines(
    store: Store, settings: Settings, clock: VirtualClock
) -> None:
    limited = settings.model_copy(update={"log_max_per_job": 2})
    with storing_logs(store, limited, clock), LogContext(job="shop-1"):
        for number in range(5):
            LOG.warning("line %d", number)

        lines = await stored(store)

    assert [one.fields for one in lines] == [{}, {}, {"not_stored": 3}]


async def test_what_is_left_is_written_when_the_store_is_closed(
    settings: Settings, clock: VirtualClock
) -> None:
    with open_store(settings.database) as store, storing_logs(store, settings, clock):
        LOG.warning("last words")

    with open_store(settings.database) as store:
        assert len(await stored(store)) == 1


async def test_lines_go_to_the_home_that_they_belong_to(
    tmp_path: Path, clock: VirtualClock
) -> None:
    both = asyncio.Barrier(2)

    async def use(name: str) -> list[str]:
        settings = Settings(home=tmp_path, database_url=f"sqlite:///{tmp_path / name}")
        with open_store(settings.database) as store, storing_logs(store, settings, clock):
            await both.wait()
            LOG.warning(name)
            return [one.message for one in await stored(store)]

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(use(name)) for name in ("a", "b")]

    assert [task.result() for task in tasks] == [["a"], ["b"]]


@pytest.mark.usefixtures("handler")
async def test_a_line_about_writing_causes_no_other(store: Store) -> None:
    def warn() -> None:
        LOG.warning("while writing")

    thread = threading.Thread(target=warn, name="longline-writer")
    thread.start()
    thread.join()

    assert await stored(store) == []


async def test_a_program_without_logging_still_sees_its_warnings(
    handler: LogStoreHandler, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("longline"), "propagate", False)

    LOG.warning("seen")

    assert capsys.readouterr().err == "seen\n"
    assert handler.dropped == 0


@pytest.mark.usefixtures("handler")
async def test_lines_are_stored_whatever_stderr_shows(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(LogOptions())
    LOG.warning("both")
    reset_logging()

    assert capsys.readouterr().err.count("both") == 1
    assert len(await stored(store)) == 1


@pytest.mark.usefixtures("handler")
async def test_lines_beyond_the_retention_are_deleted(
    store: Store, settings: Settings, clock: VirtualClock
) -> None:
    LOG.warning("old")
    await stored(store)
    await clock.sleep(31 * 86400)
    LOG.warning("new")
    await stored(store)

    assert await prune_logs(store, settings, clock.now()) == 1
    assert [one.message for one in await stored(store)] == ["new"]


class Unprintable:
    """Fails where a line is made of it."""

    def __str__(self) -> str:
        raise ValueError


@contextmanager
def stuck_writer(store: Store) -> Iterator[None]:
    """Keep the writer busy in the block."""
    release = threading.Event()
    store._database.write_soon(lambda _connection: release.wait())  # as a long write
    yield
    release.set()
