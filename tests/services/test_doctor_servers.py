"""The doctor and real servers: unreachable, locked, too old, evicting, with a clock that is off."""

from __future__ import annotations

import re
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis
from sqlalchemy import create_engine

from longline.config.settings import Settings
from longline.core.model import Item
from longline.distributed.registry import WORKER
from longline.services.cluster import status
from longline.services.doctor.doctor import CHECKS, examine
from longline.services.doctor.findings import CheckContext, Finding, Verdict
from longline.services.doctor.servers import broker, clocks, database, redis, workers
from longline.services.programs import advisories_for
from longline.storage.database import NEWEST
from longline.storage.events.events import wait_for_turn
from longline.storage.jobs import NewJob
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.store import open_store
from tests.servers import PostgresServer, RedisServer, free_port

HOUR = 3600.0


@pytest.fixture(scope="module")
def locked_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis with a password, that evicts keys when its memory is full."""
    options = ("--requirepass", "geheim", "--maxmemory-policy", "allkeys-lru")
    server = RedisServer(tmp_path_factory.mktemp("locked"), options=options)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")  # as long as the server, which keeps the role
def password_user(postgres_server: PostgresServer) -> str:
    """A user of the PostgreSQL who needs a password and may not make tables."""
    postgres_server.execute("CREATE ROLE stranger LOGIN PASSWORD 'geheim'")
    rules = postgres_server.folder / "data" / "pg_hba.conf"
    rules.write_text(f"host all stranger all scram-sha-256\n{rules.read_text()}")
    postgres_server.execute("SELECT pg_reload_conf()")
    return "stranger"


@contextmanager
def registered(server: RedisServer, name: str, **said: str) -> Iterator[None]:
    """Register only a worker of this name in Redis."""
    with Redis.from_url(server.url) as redis:
        for key in list(redis.scan_iter(f"{WORKER}*")):
            redis.delete(key)  # of another test, whose worker has just been killed
        redis.hset(f"{WORKER}{name}", mapping={"name": name, **said})
        yield
        redis.delete(f"{WORKER}{name}")


@pytest.fixture
def both(tmp_path: Path, redis_server: RedisServer, postgres_server: PostgresServer) -> Settings:
    """Settings that name both servers."""
    urls = {"redis_url": redis_server.url, "database_url": postgres_server.url()}
    return Settings(home=tmp_path, **urls)  # type: ignore[arg-type]  # texts only


def context(tmp_path: Path, **settings: Any) -> CheckContext:
    return CheckContext(Settings(home=tmp_path, **settings), {})


def only(check: Any, context: CheckContext) -> Finding:
    (found,) = check(context)
    assert isinstance(found, Finding)
    return found


def words_of(found: Finding) -> set[str]:
    return set(re.findall(r"\w+", f"{found.sentence} {found.remedy}"))


class _Old(socketserver.StreamRequestHandler):
    """Responds like an old Redis."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            words = [self._word() for _ in range(int(line[1:]))]
            text = b"# Server\r\nredis_version:5.0.14\r\nrole:master\r\n"
            refused = b"-ERR unknown command `HELLO`\r\n"
            answers = {b"HELLO": refused, b"INFO": b"$%d\r\n%s\r\n" % (len(text), text)}
            self.wfile.write(answers.get(words[0].upper(), b"+OK\r\n"))

    def _word(self) -> bytes:
        self.rfile.readline()
        return self.rfile.readline().strip()


@contextmanager
def old_redis() -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Old) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"redis://127.0.0.1:{server.server_address[1]}/0"
        server.shutdown()


def test_a_server_whose_writers_wait_is_a_problem(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    postgres_server.execute("CREATE DATABASE locked")
    url = postgres_server.url("locked")
    given = replace(context(tmp_path, database_url=url), write_timeout=0.01)
    with open_store(url):
        free = only(database, given)
    engine = create_engine(url)
    with engine.begin() as other:
        wait_for_turn(other)
        waiting = only(database, given)
    postgres_server.execute("ALTER DATABASE locked SET default_transaction_read_only = on")
    read_only = only(database, given)
    engine.dispose()

    assert free.verdict is Verdict.OK
    assert (waiting.verdict, read_only.verdict) == (Verdict.PROBLEM, Verdict.PROBLEM)
    assert "pg_stat_activity" in str(waiting.remedy)
    assert "default_transaction_read_only" in str(read_only.remedy)


def test_a_usable_redis_is_ok(tmp_path: Path, redis_server: RedisServer) -> None:
    *_, found = redis(context(tmp_path, redis_url=redis_server.url))

    assert found.verdict is Verdict.OK
    assert redis_server.url in found.sentence
    assert found.remedy is None


def test_known_advisories_of_a_redis_are_warnings(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with Redis.from_url(redis_server.url, decode_responses=True) as server:
        version = dict(server.info("server"))["redis_version"]

    *warnings, _ok = redis(context(tmp_path, redis_url=redis_server.url))

    assert len(warnings) == len(advisories_for("redis", version)) > 0
    assert {one.verdict for one in warnings} == {Verdict.WARNING}
    assert all(one.remedy for one in warnings)


def test_an_unreachable_redis_is_a_problem(tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"

    found = only(redis, context(tmp_path, redis_url=url))

    assert found.verdict is Verdict.PROBLEM
    assert url in found.sentence
    assert "password" not in found.sentence
    assert "`longline up`" in (found.remedy or "")
    assert "LONGLINE_REDIS_URL" in (found.remedy or "")


def test_a_wrong_password_of_redis_is_reported_and_not_shown(
    tmp_path: Path, locked_redis: RedisServer
) -> None:
    url = locked_redis.url.replace("//", "//:falsch@")

    found = only(redis, context(tmp_path, redis_url=url))

    assert found.verdict is Verdict.PROBLEM
    assert "password" in found.sentence
    assert "falsch" not in str(found)


def test_an_evicting_redis_is_a_warning(tmp_path: Path, locked_redis: RedisServer) -> None:
    url = locked_redis.url.replace("//", "//:geheim@")

    first, *others = redis(context(tmp_path, redis_url=url))

    assert (first.verdict, others[-1].verdict) == (Verdict.WARNING, Verdict.OK)
    assert "allkeys-lru" in first.sentence
    assert "geheim" not in f"{first}{others}"


def test_a_redis_that_is_too_old_is_a_problem(tmp_path: Path) -> None:
    with old_redis() as url:
        found = only(redis, context(tmp_path, redis_url=url))

    assert found.verdict is Verdict.PROBLEM
    assert "5.0.14" in found.sentence


def test_a_separate_broker_is_checked(tmp_path: Path, redis_server: RedisServer) -> None:
    urls = {"redis_url": redis_server.url, "broker_url": f"redis://127.0.0.1:{free_port()}/0"}

    found = only(broker, context(tmp_path, **urls))

    assert (found.about, found.verdict) == ("broker", Verdict.PROBLEM)
    assert "LONGLINE_BROKER_URL" in (found.remedy or "")
    assert list(broker(context(tmp_path, redis_url=redis_server.url))) == []


def test_an_unreachable_database_is_a_problem(tmp_path: Path) -> None:
    port = free_port()
    url = f"postgresql://me:geheim@127.0.0.1:{port}/longline"

    found = only(database, context(tmp_path, database_url=url))

    assert found.verdict is Verdict.PROBLEM
    assert f"127.0.0.1:{port}" in found.sentence
    assert "LONGLINE_DATABASE_URL" in (found.remedy or "")
    assert "geheim" not in str(found)


@pytest.mark.parametrize(
    ("password", "cause"),
    [("falsch", "password"), ("geheim", "GRANT CREATE")],
)
def test_a_database_user_without_access_is_a_problem(
    tmp_path: Path, postgres_server: PostgresServer, password_user: str, password: str, cause: str
) -> None:
    url = postgres_server.url().replace("longline@", f"{password_user}:{password}@")

    found = only(database, context(tmp_path, database_url=url))

    assert found.verdict is Verdict.PROBLEM
    assert "stranger" in found.sentence
    assert cause in f"{found.sentence} {found.remedy}"
    assert password not in str(found)


def test_no_password_in_a_query_is_shown(tmp_path: Path, postgres_server: PostgresServer) -> None:
    url = f"{postgres_server.url()}?password=geheim"
    settings = Settings(home=tmp_path, database_url=url)

    (found,) = database(CheckContext(settings, {}))
    parts = status(settings)

    assert found.verdict is Verdict.OK
    assert "password=***" in found.sentence
    assert "password=***" in parts[-1].address
    assert "geheim" not in f"{found}{parts}"


def test_an_empty_database_on_a_server_is_ok(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    found = only(database, context(tmp_path, database_url=postgres_server.url()))

    assert found.verdict is Verdict.OK
    assert NEWEST not in re.findall(r"\d+", found.sentence)


@pytest.mark.parametrize(
    ("ahead", "verdict", "offset", "direction"),
    [
        (0.0, Verdict.OK, "", ""),
        (5.0, Verdict.WARNING, "5.0 s", "ahead"),
        (-HOUR, Verdict.PROBLEM, " s ", "behind"),
    ],
)
def test_clock_skew_is_reported_with_its_effect(
    both: Settings,
    ahead: float,
    verdict: Verdict,
    offset: str,
    direction: str,
) -> None:
    first, second = clocks(CheckContext(both, {}, now=lambda: time.time() + ahead))

    assert first.verdict is second.verdict is verdict
    assert offset in first.sentence
    assert direction in first.sentence
    assert {"database", "leases"} <= words_of(first)
    assert {"Redis", "limits"} <= words_of(second)


@pytest.mark.real_time
async def test_a_job_without_workers_is_a_problem(
    tmp_path: Path, locked_redis: RedisServer
) -> None:
    at = context(tmp_path, redis_url=locked_redis.url.replace("//", "//:geheim@"))
    with open_store(at.settings.database) as store:
        job = await store.jobs.create(NewJob("shop", {}, {}, 0.0))
        await store.jobs.start(job.id, 0.0, engine="celery")

    found = examine(at, {"workers": workers})[0]

    assert found.verdict is Verdict.PROBLEM
    assert "1" in found.sentence
    assert "`longline up`" in (found.remedy or "")
    assert "`longline worker`" in (found.remedy or "")


@pytest.mark.real_time
async def test_workers_are_unknown_while_redis_is_unreachable(tmp_path: Path) -> None:
    at = context(tmp_path, redis_url=f"redis://127.0.0.1:{free_port()}/0")
    with open_store(at.settings.database) as store:
        job = await store.jobs.create(NewJob("shop", {}, {}, 0.0))
        await store.jobs.start(job.id, 0.0, engine="celery")

    (found,) = examine(at, {"workers": workers})

    assert found.verdict is Verdict.WARNING
    assert "Redis" in found.sentence


@pytest.mark.real_time
async def test_idle_workers_with_waiting_chunks_are_a_problem(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    at = context(tmp_path, redis_url=redis_server.url)
    with open_store(at.settings.database) as store:
        long_ago = await store.now() - HOUR
        job = await store.jobs.create(NewJob("shop", {}, {}, long_ago))
        await store.jobs.start(job.id, long_ago, engine="celery")
        await store.queue.enqueue(Discovered(job.id, [Item("a", "https://shop.test")], long_ago))
        await store.chunks.publish(job.id, long_ago, size=5)

    with registered(redis_server, "idle-worker"):
        first, second = examine(at, {"workers": workers})

    assert first.verdict is Verdict.OK
    assert {"1", "idle", "worker"} <= words_of(first)
    assert second.verdict is Verdict.PROBLEM
    assert {"1", "chunks", "60", "fetch"} <= words_of(second)


async def test_exports_without_a_worker_for_their_queue_are_a_problem(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    at = context(tmp_path, redis_url=redis_server.url)
    with open_store(at.settings.database) as store:
        for name in ("a.csv", "b.csv"):
            await store.tasks.place(Task("j", TaskKind.EXPORT, time.time(), {"output": name}))

    with registered(redis_server, "fetcher", queues="fetch,process"):
        _, found = examine(at, {"workers": workers})
    with registered(redis_server, "writer", queues="output"):
        others = examine(at, {"workers": workers})

    assert found.verdict is Verdict.PROBLEM
    assert {"2", "exports", "output"} <= words_of(found)
    assert "`longline worker --queues output`" in (found.remedy or "")
    assert [one.verdict for one in others] == [Verdict.OK]


def test_a_read_only_database_user_is_a_problem(
    tmp_path: Path, postgres_server: PostgresServer, password_user: str
) -> None:
    postgres_server.execute("CREATE DATABASE readable")
    url = postgres_server.url("readable")
    open_store(url).close()
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO stranger")
    theirs = url.replace("longline@", f"{password_user}:geheim@")

    found = only(database, context(tmp_path, database_url=theirs))

    assert found.verdict is Verdict.PROBLEM
    assert "stranger" in found.sentence
    assert "GRANT ALL" in (found.remedy or "")
    assert only(database, context(tmp_path, database_url=url)).verdict is Verdict.OK


def test_checks_of_dead_servers_end_in_time(tmp_path: Path) -> None:
    urls = {
        "redis_url": f"redis://127.0.0.1:{free_port()}/0",
        "database_url": f"postgresql://127.0.0.1:{free_port()}/longline",
    }
    begun = time.monotonic()

    found = examine(context(tmp_path, **urls), CHECKS)

    problems = {one.about for one in found if one.verdict is Verdict.PROBLEM}
    assert problems == {"redis", "database"}
    assert time.monotonic() - begun < 10
