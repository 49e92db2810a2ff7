"""Projections after random actions: equal to a replay of the events, and to the rows."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from sqlalchemy import Connection, Text, cast, select

from longline.analysis.reextract import NothingArchived, reextract
from longline.analysis.replay import replay
from longline.core.errors import LonglineError
from longline.core.model import Item, Job, JobState
from longline.orchestrator import Orchestrator
from longline.sources.base import Visit, layer
from longline.sources.loader import load_source
from longline.storage.database import open_database
from longline.storage.events.events import update_projections
from longline.storage.events.projections import PROJECTIONS
from longline.storage.queue.queue import PAUSED_BY_USER, Claim, Reclaim
from longline.storage.schema import projection_rows
from longline.storage.store import Store
from longline.wiring import open_archive
from tests.projected import assert_projections_equal_the_rows
from tests.sample_sources import PageSource
from tests.scripted_site import ScriptedSite
from tests.servers import PostgresServer
from tests.virtual import VirtualClock

ACTIONS = 70
SEEDS = (1, 2, 3)
ANSWERS = ("same", "other {n}", "[1, 2]", "raise", "killed", "missing", "broken")
WEIGHTS = (12, 6, 5, 2, 2, 2, 2)


class Killed(BaseException):
    """Ends a process without a chance to clean up, as SIGKILL does."""


class ChaoticSource(PageSource):
    """Pages of which some are invalid, some raise an error, and some kill the process."""

    name = "chaotic"

    @layer()
    async def page(self, visit: Visit) -> dict[str, Any]:
        found = await super().page(visit)
        if found["text"] == "killed":
            raise Killed
        return found


class RepairedSource(ChaoticSource):
    """Accepts the pages that the other one quarantines."""

    def compose(self, item: Item, layers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        return {name: str(value) for name, value in super().compose(item, layers).items()}


class Actor:
    """Does random things to the jobs of a home, as users, crashes and sites do."""

    def __init__(self, home: Path, site: ScriptedSite, clock: VirtualClock, seed: int) -> None:
        self._home = home
        self._site = site
        self._clock = clock
        self._random = random.Random(seed)
        self.done: list[str] = []
        site.answers |= {f"/item/{n}": self._answer for n in range(10)}

    async def act(self, store: Store) -> None:
        """Do one random thing."""
        names = ("run", "run", "paused", "paused", "cancelled", "resume", "retry", "replay")
        name = self._random.choice(
            (*names, "reextract", "dead_worker", "dead_worker", "skip", "prune", "defer", "accept")
        )
        await self._clock.sleep(self._random.uniform(1, 4000))
        await getattr(self, f"_{name}")(store)
        self.done.append(name)

    async def _answer(self, _request: web.Request) -> web.StreamResponse:
        await self._clock.sleep(self._random.uniform(0, 2))
        text = self._random.choices(ANSWERS, WEIGHTS)[0]
        status = {"missing": 404, "broken": 500}.get(text, 200)
        return web.Response(text=text.format(n=self._random.randrange(3)), status=status)

    @contextlib.asynccontextmanager
    async def _orchestrator(self) -> AsyncIterator[Orchestrator]:
        source = f"{__name__}:{ChaoticSource.__name__}"
        options = {"site": self._site.url, "count": self._random.randint(1, 8)}
        async with Orchestrator(
            source,
            options,
            home=self._home,
            clock=self._clock,
            rate="unlimited",
            concurrency=2,
            archive=True,
            ignore_robots=["127.0.0.1"],
        ) as longline:
            yield longline

    async def _run(self, _store: Store) -> None:
        with contextlib.suppress(Killed, BaseExceptionGroup, LonglineError):
            async with self._orchestrator() as longline:
                await longline.execute(fresh=self._random.random() < 0.5)

    async def _paused(self, store: Store) -> None:
        await self._interrupted(store, JobState.PAUSED)

    async def _cancelled(self, store: Store) -> None:
        await self._interrupted(store, JobState.CANCELLED)

    async def _interrupted(self, store: Store, state: JobState) -> None:
        running = asyncio.create_task(self._run(store))
        await self._clock.sleep(self._random.uniform(0.2, 4))
        if job := await self._pick(store, is_open=True):
            end = store.jobs.pause if state is JobState.PAUSED else store.jobs.cancel
            await end(job.id, self._clock.now(), PAUSED_BY_USER)
        await asyncio.wait([running])

    async def _resume(self, store: Store) -> None:
        if job := await self._pick(store, is_open=True):
            with contextlib.suppress(Killed, BaseExceptionGroup, LonglineError):
                async with self._orchestrator() as longline:
                    await longline.resume(job.id)

    async def _retry(self, store: Store) -> None:
        if job := await self._pick(store):
            with contextlib.suppress(Killed, BaseExceptionGroup, LonglineError):
                async with self._orchestrator() as longline:
                    await longline.retry(job.id)

    async def _replay(self, store: Store) -> None:
        if job := await self._pick(store):
            kind = self._random.choice((ChaoticSource, RepairedSource))
            source = kind.with_options(job.settings["set"])
            with contextlib.suppress(LonglineError):
                await replay(store, job, source, self._clock)

    async def _reextract(self, store: Store) -> None:
        if job := await self._pick(store):
            source = load_source(job.settings["source"]).with_options(job.settings["set"])
            async with self._orchestrator() as longline, open_archive(longline.settings) as archive:
                with contextlib.suppress(NothingArchived, Killed, BaseExceptionGroup):
                    await reextract(store, archive, job, source, self._clock, write=True)

    async def _dead_worker(self, store: Store) -> None:
        if job := await self._pick(store, is_open=True):
            now = self._clock.now()
            await store.queue.lease(Claim(job.id, "dead", 5, now, now + 20))
            killed = ("dead",) if self._random.random() < 0.7 else ()
            await store.queue.reclaim(Reclaim(job.id, now, dead=("dead",), killed=killed))

    async def _skip(self, store: Store) -> None:
        if job := await self._pick(store, is_open=True):
            await store.queue.skip_before(job.id, "3", "resumed from 3", self._clock.now())

    async def _defer(self, store: Store) -> None:
        if job := await self._pick(store, is_open=True):
            until = self._clock.now() + 50
            domain = f"127.0.0.1:{self._site.port}"
            await store.queue.defer_domain(job.id, domain, until, kind="network", reason="test")

    async def _prune(self, store: Store) -> None:
        await store.events.prune(before=self._clock.now() - 9000, most=self._random.randint(1, 60))

    async def _accept(self, store: Store) -> None:
        if (job := await self._pick(store)) and (found := await store.profiles.find(job.id)):
            await store.profiles.accept(job.id, found.profile, self._clock.now())

    async def _pick(self, store: Store, *, is_open: bool = False) -> Job | None:
        found = await store.jobs.list(limit=8, is_open=is_open)
        return self._random.choice(found) if found else None


def stored_rows(connection: Connection) -> list[tuple[Any, ...]]:
    """Return the live rows of all projections as they are stored, byte for byte."""
    columns = projection_rows.c
    query = select(columns.projection, columns.key, columns.sort, cast(columns.data, Text))
    query = query.where(columns.stage == "live").order_by(columns.projection, columns.key)
    return [tuple(row) for row in connection.execute(query)]


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'longline.sqlite'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    server.execute("CREATE DATABASE projections")
    yield server.url("projections")
    server.execute("DROP DATABASE projections WITH (FORCE)")


@pytest.mark.parametrize("seed", SEEDS)
async def test_rebuilt_projections_equal_the_live_ones(  # noqa: PLR0917  # fixtures
    seed: int,
    database_url: str,
    site: ScriptedSite,
    clock: VirtualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LONGLINE_DATABASE_URL", database_url)
    actor = Actor(tmp_path, site, clock, seed)
    database = open_database(database_url, prepare=update_projections)
    with Store(database) as store:
        for _ in range(ACTIONS):
            await actor.act(store)
            with database.snapshot() as connection:
                assert_projections_equal_the_rows(connection)
        with database.snapshot() as connection:
            live = stored_rows(connection)

        await store.projections.rebuild([*PROJECTIONS], clock.now())

        with database.snapshot() as connection:
            rebuilt = stored_rows(connection)
    assert rebuilt == live
    assert len(actor.done) * len(SEEDS) >= 200
    assert {row[0] for row in live} >= {"runs", "sources", "hours", "failures"}
