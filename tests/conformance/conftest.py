"""One suite for {SQLite, PostgreSQL} x {local, celery}: a test that takes `engine_on` runs on all.

The tests of one kind of database share it, and one worker on it; each has a source of its own. Two
things rightly differ: each worker process may ask for robots.txt itself, so that requests are
compared with what the site has seen and not with a number; and of a job that runs here the whole
process is killed, so that somebody has to run it again, while of a worker it is a child, which
others replace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from longline.config.settings import Settings, prepare_home
from longline.orchestrator import Orchestrator
from tests.conformance.asked_site import AskedSite
from tests.conformance.grounds import EngineOn, Ground, write_source
from tests.servers import RedisServer

_CHUNK = 10  # items: a job of a test has several
_NUMBERS = count()


@pytest.fixture(scope="package")
def sqlite_ground(
    tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer
) -> Iterator[Ground]:
    yield from _ground(tmp_path_factory.mktemp("conformance"), redis_server, None)


@pytest.fixture(scope="package")
def postgres_ground(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    redis_server: RedisServer,
) -> Iterator[Ground]:
    server = request.getfixturevalue("postgres_server")
    home = tmp_path_factory.mktemp("conformance")
    database = home.name  # another one when pytest comes back to this room
    server.execute(f"CREATE DATABASE {database}")
    yield from _ground(home, redis_server, server.url(database))


@pytest.fixture(
    params=[
        pytest.param((database, engine), id=f"{database}-{engine}")
        for database in ("sqlite", "postgres")
        for engine in ("local", "celery")
    ]
)
async def engine_on(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EngineOn]:
    """An engine on a database, and a site of twenty good pages for it."""
    database, engine = request.param
    ground: Ground = request.getfixturevalue(f"{database}_ground")
    async with (
        AskedSite() as site,
        Orchestrator(settings=ground.settings_for(engine)) as orchestrator,
    ):
        if engine == "celery":
            ground.start_worker()
        site.has(20)
        options: dict[str, Any] = {"site": site.url, "count": 20}
        source = write_source(tmp_path)
        one = EngineOn(ground, engine, site, orchestrator, source, options)
        yield one
        site.gate.set()
        one.close()


def _ground(home: Path, redis: RedisServer, database_url: str | None) -> Iterator[Ground]:
    # Of several in one process each has messages and limits of its own.
    redis_url = redis.url.removesuffix("0") + str(next(_NUMBERS))
    settings = Settings(home=home, database_url=database_url, chunk_size=_CHUNK)
    prepare_home(settings)
    ground = Ground(settings, redis_url)
    try:
        yield ground
    finally:
        ground.close()
