"""The proof that `longline up` and `down` leave nothing behind and do not touch other servers."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from redis import Redis

from children import LONGLINE, Child, Ended, environment
from cluster_parts import PostgresServer, RedisServer, kill_server
from judge import Judge
from nginx import serving
from pages import write_pages
from proofs import Figure, Proof, Sizes, none, nothing_wrong, unjudged

NAME = "cluster-lifecycle"
_ITEMS = 60
_SLOW = 10  # requests per second of the cycle in which a worker is killed during the run
_UP, _RUN, _DOWN = 120.0, 180.0, 90.0
_WORD = "not yours"


@dataclass(slots=True)
class _Life:
    """One `up`, run and `down`, and the problems found afterwards."""

    number: int
    deed: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    held: list[int] = field(default_factory=list)


def prove(sizes: Sizes) -> Proof:
    """Run several cycles in one home, next to foreign servers."""
    with tempfile.TemporaryDirectory(prefix="longline-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        write_pages(folder / "site", _ITEMS)
        with _foreigners(folder) as foreign, serving(folder / "site", folder / "nginx") as server:
            town = _Town(folder, server.url, random.Random(sizes.seed))
            try:
                lives = [town.live(number, sizes.lives) for number in range(1, sizes.lives + 1)]
            finally:
                town.clear()
            problems = foreign.problems()
    about = (
        f"`longline up --workers 1 --processes 2 --postgres`, a job of {_ITEMS} pages with "
        f"`--engine celery`, and `longline down`, {sizes.lives} times in one home, next to a "
        "foreign redis-server and a foreign PostgreSQL. In one cycle, the supervisor of the "
        "worker is killed with SIGKILL during the run, and `longline up` restarts it; in "
        "another, `longline up` itself is killed with SIGKILL and run again. Processes of the "
        f"trial are found by an environment variable that they inherit. Seed {sizes.seed}."
    )
    return Proof(NAME, about, _figures(lives, problems))


class _Town:
    """A home and the commands that are run in it."""

    def __init__(self, folder: Path, url: str, draw: random.Random) -> None:
        self._home = folder / "home"
        self._url = url
        self._draw = draw
        self._mark = uuid.uuid4().hex
        self._own = {**environment(), "PROOF_MARK": self._mark, "LONGLINE_HOME": str(self._home)}

    def live(self, number: int, lives: int) -> _Life:
        life = _Life(number)
        try:
            self._live(life, lives)
        except Exception as error:  # noqa: BLE001  # the edge of a life: the next one begins
            life.problems.append(f"{type(error).__name__}: {error}")
            self._command(life, "down", _DOWN)
        life.left = self._left()
        life.problems += [f"left: {one}" for one in life.left]
        print(f"life {number} {life.deed}: {life.problems or 'well'}")
        return life

    def _live(self, life: _Life, lives: int) -> None:
        if life.number == lives - 3 or lives == 1:
            life.deed = "kill -9 of `longline up`"
            self._kill_up()
        self._command(life, "up", _UP, "--workers", "1", "--processes", "2", "--postgres")
        ports = [one["port"] for one in self._record()["processes"] if one["port"]]
        if life.number == lives - 6 or lives == 1:
            life.deed = f"{life.deed} kill -9 of the worker".strip()
            self._run_with_a_kill(life)
        else:
            self._check_run(life, self._start_run(life).wait(_RUN))
        self._command(life, "down", _DOWN)
        life.held = [port for port in ports if _answers(port)]

    def clear(self) -> None:
        """Kill all remaining processes, also after a failed proof."""
        for one in self._ours():
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()

    def _kill_up(self) -> None:
        words = [LONGLINE, "up", "--workers", "1", "--processes", "2", "--postgres"]
        child = Child(words, self._own)
        until = time.monotonic() + self._draw.uniform(1.0, 6.0)
        while child.is_running and time.monotonic() < until:
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            child.process.kill()
        child.process.wait()

    def _run_with_a_kill(self, life: _Life) -> None:
        child = self._start_run(life, "--rate", str(_SLOW))
        self._until_stored(life, 10)
        for one in self._record()["processes"]:
            if one["name"].startswith("worker"):
                os.kill(one["pid"], signal.SIGKILL)
        time.sleep(1)
        self._command(life, "up", _UP, "--workers", "1", "--processes", "2")
        self._check_run(life, child.wait(_RUN))

    def _until_stored(self, life: _Life, count: int) -> None:
        judge = Judge(self._record()["database_url"] or self._home / "longline.sqlite")
        until = time.monotonic() + _RUN
        # From the second life on the same pages are `unchanged`.
        sql = "SELECT count(*) FROM items JOIN jobs ON jobs.id = items.job_id WHERE "
        sql += "items.state IN ('stored', 'unchanged') AND jobs.state = 'running'"
        while judge.number(sql) < count:
            if time.monotonic() > until:
                message = f"life {life.number} stores nothing"
                raise TimeoutError(message)
            time.sleep(0.05)
        judge.close()

    def _start_run(self, life: _Life, *more: str) -> Child:
        del life
        words = [LONGLINE, "run", "page_source:Pages", "--engine", "celery", "--fresh", "--json"]
        words += ["--set", f"base_url={self._url}", "--set", f"count={_ITEMS}"]
        return Child([*words, *(more or ("--rate", "unlimited"))], self._own)

    def _check_run(self, life: _Life, ended: Ended) -> None:
        life.seconds["run"] = ended.seconds
        if ended.code != 0:
            life.problems.append(f"run ended with {ended.code}: {ended.errors.strip()[-300:]}")
            return
        report = ended.json()
        if report["state"] != "complete":
            life.problems.append(f"the job is {report['state']}")

    def _command(self, life: _Life, name: str, patience: float, *options: str) -> None:
        child = Child([LONGLINE, name, *options], self._own)
        try:
            ended = child.wait(patience)
        finally:
            child.end()
        life.seconds[name] = ended.seconds
        if ended.code != 0:
            life.problems.append(f"{name} ended with {ended.code}: {ended.errors.strip()[-300:]}")

    def _record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self._home / "services.json").read_text("utf-8"))
        return found

    def _left(self) -> list[str]:
        time.sleep(0.5)
        return [" ".join(one.cmdline())[:80] for one in self._ours()]

    def _ours(self) -> list[psutil.Process]:
        found = []
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                is_ours = one.environ().get("PROOF_MARK") == self._mark
                if is_ours and one.status() != psutil.STATUS_ZOMBIE:
                    found.append(one)
        return found


class _Foreign:
    """Foreign servers, each with a stored value."""

    def __init__(self, redis: RedisServer, postgres: PostgresServer) -> None:
        self._redis = redis
        self._postgres = postgres
        with Redis.from_url(redis.url) as client:
            client.set("somebody", _WORD)
        postgres.execute("CREATE TABLE somebody AS SELECT 'not yours' AS word")
        self._were = self._are()

    def problems(self) -> list[str]:
        """Return what has changed in them."""
        found = [] if self._are() == self._were else ["a process is another one"]
        with Redis.from_url(self._redis.url, decode_responses=True) as client:
            keys = sorted(client.keys())
            if keys != ["somebody"] or client.get("somebody") != _WORD:
                found.append(f"the keys in Redis are {keys}")
        judge = Judge(self._postgres.url())
        tables = judge.query("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        if tables != [("somebody",)] or judge.query("SELECT word FROM somebody") != [(_WORD,)]:
            found.append(f"the tables in PostgreSQL are {tables}")
        judge.close()
        return found

    def _are(self) -> list[tuple[int, float]]:
        processes = [self._redis.process, self._postgres.process]
        return [(one.pid, psutil.Process(one.pid).create_time()) for one in processes if one]


@contextlib.contextmanager
def _foreigners(folder: Path) -> Any:
    for name in ("foreign-redis", "foreign-postgres"):
        (folder / name).mkdir()
    redis = RedisServer(folder / "foreign-redis")
    postgres = PostgresServer(folder / "foreign-postgres")
    try:
        redis.start()
        postgres.start()
        yield _Foreign(redis, postgres)
    finally:
        redis.kill()
        kill_server(postgres)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _figures(lives: list[_Life], foreign: list[str]) -> list[Figure]:
    problems = [f"cycle {one.number}: {text}" for one in lives for text in one.problems]
    spans = {
        name: [one.seconds[name] for one in lives if name in one.seconds]
        for name in ("up", "run", "down")
    }
    return [
        unjudged("cycles", len(lives)),
        unjudged("injected failures", ", ".join(one.deed for one in lives if one.deed) or "none"),
        nothing_wrong("every command succeeded, and every job is complete", problems),
        none("processes left after a cycle", sum(len(one.left) for one in lives)),
        none("ports still in use after a cycle", sum(len(one.held) for one in lives)),
        nothing_wrong("foreign servers are untouched", foreign),
        *(
            unjudged(f"{name}, longest", f"{max(seconds):.1f} s")
            for name, seconds in spans.items()
            if seconds
        ),
    ]
