"""A run that cannot be started is refused before a job is made or touched: no job is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longline.config.settings import Settings
from longline.core.errors import BadOption, ConfigError, LonglineError, RedisUnreachable
from longline.core.model import JobState
from longline.distributed.registry import BrokerUnusable
from longline.orchestrator import Orchestrator
from tests.servers import RedisServer, free_port

pytestmark = pytest.mark.real_time  # Redis takes its time

SOURCE = """
from longline import Source, Item, layer

class Found(Source):
    name = "found"

    async def discover(self, visit):
        yield Item("a", "http://127.0.0.1:1/")

    @layer()
    async def all(self, visit):
        return {"a": 1}
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A source that asks nobody."""
    path = tmp_path / "found.py"
    path.write_text(SOURCE)
    return str(path)


@pytest.fixture(scope="module")
def full_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis that answers, and has no memory left."""
    server = RedisServer(tmp_path_factory.mktemp("full"), options=("--maxmemory", "1"))
    server.start()
    yield server
    server.kill()


def wrong(server: RedisServer) -> str:
    return server.url.replace("redis://", "redis://:wrong@")


async def jobs_after(
    home: Path, source: str, error: type[LonglineError], **how: Any
) -> list[JobState]:
    """Return the states of all jobs after a run that cannot be."""
    engine = how.pop("engine", "local")
    async with Orchestrator(settings=Settings(home=home, **how)) as longline:
        with pytest.raises(error):
            await longline.execute(source, engine=engine)
        return [job.state for job in await longline.store.jobs.list()]


async def test_workers_without_any_redis_leave_no_job(tmp_path: Path, source: str) -> None:
    assert await jobs_after(tmp_path / "home", source, BadOption, engine="celery") == []


@pytest.mark.parametrize(
    ("engine", "error"), [("celery", BrokerUnusable), ("local", RedisUnreachable)]
)
async def test_a_refused_password_leaves_no_job(
    tmp_path: Path,
    source: str,
    closed_redis: RedisServer,
    engine: str,
    error: type[LonglineError],
) -> None:
    home, url = tmp_path / "home", wrong(closed_redis)

    assert await jobs_after(home, source, error, engine=engine, redis_url=url) == []


async def test_a_full_redis_leaves_no_job(
    tmp_path: Path, source: str, full_redis: RedisServer
) -> None:
    home, url = tmp_path / "home", full_redis.url

    assert await jobs_after(home, source, BrokerUnusable, engine="celery", broker_url=url) == []


async def test_an_unreachable_redis_leaves_a_job_for_a_worker(
    tmp_path: Path, source: str, logged: list[str]
) -> None:
    settings = Settings(
        home=tmp_path / "home", redis_url=f"redis://:word@127.0.0.1:{free_port()}/0"
    )

    async with Orchestrator(settings=settings) as longline:
        job = await longline.start_site(source)
        (found,) = await longline.store.jobs.list()

    assert (found.id, found.state, found.engine) == (job, JobState.RUNNING, "celery")
    (sentence,) = logged
    assert job in sentence
    assert ":word@" not in sentence


async def test_an_invalid_contact_leaves_no_job(tmp_path: Path, source: str) -> None:
    assert await jobs_after(tmp_path / "home", source, ConfigError, contact="nobody") == []


async def test_a_refused_password_leaves_a_paused_job_as_it_is(
    tmp_path: Path, source: str, closed_redis: RedisServer
) -> None:
    home = tmp_path / "home"
    async with Orchestrator(settings=Settings(home=home)) as longline:
        longline.interrupt()
        report = await longline.execute(source)
    assert report.state is JobState.PAUSED

    settings = Settings(home=home, redis_url=wrong(closed_redis))
    async with Orchestrator(settings=settings) as longline:
        for call in (
            longline.execute(source, engine="celery"),
            longline.submit(source),
            longline.resume(report.job, engine="celery"),
        ):
            with pytest.raises(BrokerUnusable, match="password"):
                await call
        (job,) = await longline.store.jobs.list()
    assert (job.state, job.engine) == (JobState.PAUSED, "local")
