"""The proof that a flow killed at any point ends with each effect made once, or undone.

A flow of seven steps has effects in the database, in a file, in a table, in the ledger of a
command and at the receiver of a webhook. One process of it is killed with SIGKILL at each point
that `flow_points` and the receiver know; `longline flow run` then continues it.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import NullPool, create_engine, func, select

from children import BENCH, LONGLINE, Child, Ended, environment
from longline.storage.schema import events, flow_runs, flow_steps, jobs, launches, records
from proofs import Figure, Proof, Sizes, at_least, at_most, none, nothing_wrong, unjudged

sys.path.append(str(BENCH.parent))
from tests.servers import PostgresServer

NAME = "flows"
DATABASES = ("SQLite", "PostgreSQL")
ENDS = ("complete", "compensated")
STEPS = ("collect", "enough", "publish", "load", "apply", "tell", "settle")
_UNDOS = tuple(name for name in STEPS if name != "enough")
_ENTRIES = ("apply", "settle")  # the steps that write to the ledger
_RECEIVER = ("request lost", "response lost")  # points at the receiver, for each action
_CHILD = str(BENCH / "flow_points.py")
_NO_POINT = "-"
_AFTER_ALL = "after all trials"
_SECRET = "whsec_" + "c2VjcmV0" * 4
_THINGS = 3
_PATIENCE = 60.0  # seconds for one process
_MOST_LIVES = 5  # processes of one trial, the killed one included
_LEFTOVER = 6.0  # seconds after which an export removes the temporary files of a killed one
_BAR_TRIALS = 100

_SOURCE = '''
"""Things without a web."""
import sys
from longline import Item, Options, Source, layer

pass_by = getattr(sys.modules["__main__"], "pass_by", lambda point: None)


class ShopOptions(Options):
    price: int = 5


class Shop(Source):
    """Three things with a price."""

    name = "shop"
    Options = ShopOptions

    async def discover(self, visit):
        pass_by("in the discovery")
        for number in range(3):
            yield Item(str(number), f"https://shop.test/{number}")

    @layer()
    async def page(self, visit):
        pass_by(f"in the layer of item {visit.item.key}")
        return {"title": f"Thing {visit.item.key}", "price": self.options.price}


def look(given):
    """A check."""
    pass_by("in the check")
    return given["steps"]["collect"]["output"]["stored"] == 3
'''
# The ledger drops repeated keys, in the transaction that makes the entry.
_LEDGER = '''
"""Makes an entry in a ledger; the arguments are the step, the amount and the exit code."""
import os, sqlite3, sys, time

step, amount, ends = sys.argv[1:]
print("begun", flush=True)
time.sleep(0.1)
with sqlite3.connect("ledger.sqlite", timeout=30) as ledger:
    entry = (os.environ["LONGLINE_IDEMPOTENCY_KEY"], os.environ["LONGLINE_FLOW_RUN"], step, amount)
    ledger.execute("INSERT INTO calls VALUES (?, ?, ?, ?)", entry)
    ledger.execute("INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?)", entry)
print("entered", flush=True)
time.sleep(0.1)
sys.exit(ends == "compensated")
'''
Point = tuple[str, str]
"""How the flow ends, and the name of a point."""
_COLUMNS = "run TEXT, step TEXT, amount INTEGER"


@dataclass(frozen=True, slots=True)
class Trial:
    """One kill and its result; `lives` is the number of processes."""

    database: str
    ends: str
    point: str
    is_hit: bool
    lives: int
    problems: Sequence[str]


def prove(sizes: Sizes) -> Proof:
    """Kill a flow at each point on both databases, and check its effects."""
    started = time.monotonic()
    most = -(-sizes.flow_trials // len(DATABASES))
    stop = threading.Event()
    with _open_postgres() as postgres, ThreadPoolExecutor(len(DATABASES)) as pool:
        lanes = [pool.submit(_besiege, one, postgres, most, stop) for one in DATABASES]
        try:
            trials = [trial for lane in lanes for trial in lane.result()]
        finally:
            stop.set()  # the pool waits for both
    about = (
        f"A flow of {len(STEPS)} steps (run a source, check, export to a file, export to a table, "
        "command, webhook, command), performed by `longline flow run` and killed with SIGKILL at "
        "one point: before, in and after each write of the flow to its database, and in the middle "
        "of each step and each undo (of jobs, exports, commands, checks and requests). New "
        "processes then continue it until it ends. In one variant it ends complete; in the other "
        "its last step makes its effect and fails, so that all is undone. Records, files, tables, "
        "a ledger that drops repeated LONGLINE_IDEMPOTENCY_KEYs, a receiver that drops repeated "
        "Idempotency-Keys, and the event log are compared with what they were before. "
        f"The database of longline is {' or '.join(DATABASES)}; both run at the same time. With "
        "fewer trials than points, each database takes other points first."
    )
    return Proof(NAME, about, _figures(trials, time.monotonic() - started, sizes))


def _figures(trials: Sequence[Trial], seconds: float, sizes: Sizes) -> list[Figure]:
    hit = [trial for trial in trials if trial.is_hit]
    missed = [trial for trial in trials if not trial.is_hit and trial.point != _AFTER_ALL]
    cells = [(base, ends) for base in DATABASES for ends in ENDS]
    distinct = {(trial.ends, trial.point) for trial in hit}
    by_cell = Counter((trial.database, trial.ends) for trial in hit)
    wrong = [
        f"{trial.database}, {trial.ends}, {trial.point}: {', '.join(trial.problems)}"
        for trial in trials
        if trial.problems
    ]
    return [
        at_least("kills", len(hit), min(_BAR_TRIALS, sizes.flow_trials)),
        *(unjudged(f"kills: {base}, {ends}", by_cell[base, ends]) for base, ends in cells),
        unjudged("distinct points of kills", len(distinct)),
        # How often a job commits depends on time.
        at_most("trials whose process did not reach its point", len(missed), len(trials) // 20),
        none("trials with a wrong end, or an effect doubled, missing or not undone", len(wrong)),
        nothing_wrong("every effect was there once, or undone", wrong),
        unjudged("most processes of one trial", max(trial.lives for trial in trials)),
        unjudged("real time", f"{seconds / 60:.1f} min"),
    ]


@contextmanager
def _open_postgres() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="longline-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # started by root, PostgreSQL runs as another user
        server = PostgresServer(folder)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def _besiege(
    database: str, postgres: PostgresServer, most: int, stop: threading.Event
) -> list[Trial]:
    """Try all points on one database, or `most` of them."""
    plan: list[Point] = []
    trials: list[Trial] = []
    number = 0
    while not stop.is_set() and (
        not trials or len(trials) < len(plan)
    ):  # a stage that failed a trial is not used again
        number += 1
        with _open_stage(database, postgres, number) as stage:
            if not plan:
                points = [(ends, one) for ends in ENDS for one in stage.points(ends)]
                print(f"  {database}: {len(points)} points", flush=True)
                plan = _chosen(points, most, DATABASES.index(database))
            else:
                stage.points(ENDS[0])
            is_well = True
            while is_well and len(trials) < len(plan) and not stop.is_set():
                trials.append(stage.run(*plan[len(trials)]))
                is_well = not trials[-1].problems
                if not (is_well and trials[-1].is_hit):
                    print(f"  failed: {trials[-1]}", file=sys.stderr)
                if len(trials) % 20 == 0:
                    print(f"  {database}: {len(trials)} of {len(plan)} trials", flush=True)
            if is_well:
                trials.append(stage.tidy())
                plan.append((trials[-1].ends, trials[-1].point))
    return trials


def _chosen(points: Sequence[Point], most: int, turn: int) -> list[Point]:
    """Return at most so many points: first those that the other database leaves to this one."""
    # By their names, since the two databases do not pass exactly the same points.
    own = [one for one in points if zlib.crc32(" ".join(one).encode()) % len(DATABASES) == turn]
    others = [one for one in points if one not in own]
    chosen = {*_spread(own, most), *_spread(others, most - len(own))}
    return [one for one in points if one in chosen]


def _spread(points: Sequence[Point], most: int) -> list[Point]:
    count = max(0, min(most, len(points)))
    return [points[place * len(points) // count] for place in range(count)]


# ---------------- What is outside


@dataclass
class _Receiver:
    """Counts messages by their ids; at its points it kills the process that sends."""

    server: ThreadingHTTPServer
    messages: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    target: str = _NO_POINT
    sender: subprocess.Popen[bytes] | None = None
    is_hit: bool = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/hook"

    def receive(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Count a message; return whether to respond."""
        message = json.loads(body)
        action, key = message["data"]["action"], headers["idempotency-key"]
        if not key == headers["webhook-id"] == message["id"]:
            self.problems.append("the ids of a message differ")
        if self._kills(f"{_RECEIVER[0]}: {action}"):
            return False
        if self.messages.setdefault(key, action) != action:
            self.problems.append(f"the id {key} was used twice")
        return not self._kills(f"{_RECEIVER[1]}: {action}")

    def _kills(self, point: str) -> bool:
        if point != self.target or self.sender is None:
            return False
        os.kill(self.sender.pid, signal.SIGKILL)
        self.is_hit, self.target = True, _NO_POINT
        return True


@contextmanager
def _open_receiver() -> Iterator[_Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            if receiver.receive(headers, body):
                self.send_response(204)
                self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = _Receiver(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield receiver
        server.shutdown()


@dataclass(frozen=True, slots=True)
class _World:
    """Everything that a flow may change, at one time."""

    files: Mapping[str, bytes]
    tables: frozenset[str]
    records: Mapping[str, tuple[Any, int, Any]]
    """By key: the data, the version, and when it was gone."""
    runs: int
    jobs: int
    last_event: int


# ---------------- One home with one flow


@contextmanager
def _open_stage(database: str, postgres: PostgresServer, number: int) -> Iterator[_Stage]:
    mark = f"{database.lower()}_{number}"
    with tempfile.TemporaryDirectory(prefix="longline-") as name, _open_receiver() as receiver:
        folder = Path(name)
        home = f"sqlite:///{folder / 'home' / 'longline.sqlite'}"
        if database != DATABASES[0]:
            postgres.execute(f"CREATE DATABASE home_{mark}")
            home = postgres.url(f"home_{mark}")
        postgres.execute(f"CREATE DATABASE warehouse_{mark}")
        warehouse = postgres.url(f"warehouse_{mark}").replace("+psycopg", "")
        yield _Stage(database, folder, home, warehouse, receiver)


class _Stage:
    """A home, the file of a flow, and what its steps change."""

    def __init__(
        self, database: str, folder: Path, home: str, warehouse: str, receiver: _Receiver
    ) -> None:
        self._database = database
        self._folder = folder
        self._home = home
        self._warehouse = warehouse
        self._receiver = receiver
        self._engine = create_engine(home, poolclass=NullPool)
        self._price = 100
        for one in ("home", "out"):
            (folder / one).mkdir()
        (folder / "shop.py").write_text(_SOURCE)
        (folder / "ledger.py").write_text(_LEDGER)
        with sqlite3.connect(folder / "ledger.sqlite") as ledger:
            ledger.execute(f"CREATE TABLE entries (key TEXT PRIMARY KEY, {_COLUMNS})")
            ledger.execute(f"CREATE TABLE calls (key TEXT, {_COLUMNS})")
        definition = flow(warehouse, receiver.url)
        (folder / "saga.yaml").write_text(json.dumps(definition))

    def points(self, ends: str) -> list[str]:
        """Run the flow without a kill; return the points that it passes.

        Raises:
            RuntimeError: it ends in another way than it should.
        """
        report = self._folder / "points"
        trial = self.run(ends, _NO_POINT)
        if trial.problems:
            message = f"{self._database}, {ends}, without a kill: {'; '.join(trial.problems)}"
            raise RuntimeError(message)
        actions = ("do", "undo") if ends == "compensated" else ("do",)
        at_receiver = [f"{point}: {action}" for action in actions for point in _RECEIVER]
        return [*report.read_text().splitlines(), *at_receiver]

    def run(self, ends: str, point: str) -> Trial:
        """Run the flow, kill its first process at a point, and let others continue it."""
        before = self._look()
        self._price += 1
        report = self._folder / "points"
        report.unlink(missing_ok=True)
        options = ["flow", "run", "saga.yaml", "--param", f"ends={ends}"]
        options += ["--param", f"price={self._price}"]
        self._receiver.target, self._receiver.is_hit = point, False
        first = self._live([sys.executable, _CHILD, str(report), point, *options])
        self._receiver.target = _NO_POINT
        lives = [first]
        while (run := self._run_after(before)) is None or run.ended_at is None:
            if len(lives) == _MOST_LIVES or (run is not None and run.state == "waiting"):
                break
            lives.append(self._live([LONGLINE, *options]))
        last = report.read_text().splitlines()[-1:] if report.exists() else []
        is_hit = first.code == -signal.SIGKILL and (self._receiver.is_hit or last == [point])
        problems = self._problems(run, ends, before)
        if problems:
            print("\n".join(one.errors.strip()[-2000:] for one in lives), file=sys.stderr)
        return Trial(self._database, ends, point, is_hit, len(lives), problems)

    def tidy(self) -> Trial:
        """Run the flow once more; the temporary files of killed exports have to be gone then."""
        time.sleep(_LEFTOVER)
        trial = self.run(ENDS[0], _NO_POINT)
        parts = [path.name for path in (self._folder / "out").iterdir() if path.suffix == ".part"]
        problems = [*trial.problems, *(f"it is still there: {name}" for name in parts)]
        return replace(trial, point=_AFTER_ALL, problems=problems)

    def _live(self, command: Sequence[str]) -> Ended:
        own = {"LONGLINE_HOME": str(self._folder / "home"), "HOOK_SECRET": _SECRET}
        if self._database != DATABASES[0]:
            own["LONGLINE_DATABASE_URL"] = self._home
        child = Child(command, {**environment(), **own}, folder=self._folder)
        self._receiver.sender = child.process
        try:
            return child.wait(_PATIENCE)
        finally:
            child.end()

    # ------------------------------------------------------------ what was done

    def _look(self) -> _World:
        out = self._folder / "out"
        files = {one.name: one.read_bytes() for one in out.iterdir() if one.suffix != ".part"}
        with psycopg.connect(self._warehouse) as connection:
            query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            tables = frozenset(name for (name,) in connection.execute(query))
        if self._database == DATABASES[0] and not (self._folder / "home/longline.sqlite").exists():
            return _World(files, tables, {}, 0, 0, 0)
        with self._engine.connect() as connection:
            if not self._engine.dialect.has_table(connection, "records"):
                return _World(files, tables, {}, 0, 0, 0)
            columns = records.c.key, records.c.data, records.c.version, records.c.gone_at
            rows = {
                key: (data, version, gone)
                for key, data, version, gone in connection.execute(select(*columns))
            }
            return _World(
                files,
                tables,
                rows,
                connection.scalar(select(func.count()).select_from(flow_runs)) or 0,
                connection.scalar(select(func.count()).select_from(jobs)) or 0,
                connection.scalar(select(func.max(events.c.id))) or 0,
            )

    def _run_after(self, before: _World) -> Any:
        """Return the newest run of the flow if it was created since; None: there is none."""
        if self._look().runs == before.runs:
            return None
        query = select(flow_runs).order_by(flow_runs.c.created_at.desc()).limit(1)
        with self._engine.connect() as connection:
            return connection.execute(query).one()

    def _problems(self, run: Any, ends: str, before: _World) -> list[str]:
        if run is None:
            return ["there is no run"]
        now = self._look()
        found = [] if run.state == ends else [f"the run is {run.state}: {run.reason}"]
        found += [] if now.runs == before.runs + 1 else [f"{now.runs - before.runs} runs"]
        found += self._record_problems(now, before, ends)
        found += self._file_problems(now, before, ends)
        found += self._table_problems(now, before, ends, run.id)
        found += self._ledger_problems(ends, run.id)
        found += self._message_problems(ends, run.id)
        return found + self._event_problems(before, ends, run.id)

    def _record_problems(self, now: _World, before: _World, ends: str) -> list[str]:
        is_complete = ends == "complete"
        new = {str(key): {"title": f"Thing {key}", "price": self._price} for key in range(_THINGS)}
        old = {key: data for key, (data, _, _) in before.records.items()}
        found = {key: data for key, (data, _, gone) in now.records.items() if gone is None}
        problems = [] if found == (new if is_complete else old) else [f"records: {found}"]
        # An undo does not delete history: the old content is a further version.
        grown = {
            version - (before.records[key][1] if key in before.records else 0)
            for key, (_, version, _) in now.records.items()
        }
        wanted = {1} if is_complete else {2}
        problems += [] if grown == wanted else [f"new versions of records: {sorted(grown)}"]
        added = now.jobs - before.jobs
        return problems + ([] if added == 1 else [f"{added} jobs"])

    def _file_problems(self, now: _World, before: _World, ends: str) -> list[str]:
        if ends == "compensated":
            names = {*now.files, *before.files}
            changed = [one for one in names if now.files.get(one) != before.files.get(one)]
            return [f"the file was not undone: {name}" for name in sorted(changed)]
        export, schema = "first.csv", "first.csv.schema.json"
        rows = list(csv.DictReader(now.files.get(export, b"").decode().splitlines()))
        prices = [row["price"] for row in rows]
        problems = [] if prices == [str(self._price)] * _THINGS else [f"{export}: {prices}"]
        kept = {name: data for name, data in now.files.items() if name not in (export, schema)}
        wanted = [before.files[name] for name in (export, schema) if name in before.files]
        if sorted(kept.values()) != sorted(wanted) or schema not in now.files:
            problems.append(f"files: {sorted(now.files)}")
        return problems

    def _table_problems(self, now: _World, before: _World, ends: str, run: str) -> list[str]:
        table = f"saga_{run}"
        wanted = before.tables | {table} if ends == "complete" else before.tables
        if now.tables != wanted:
            return [f"unexpected or missing tables: {sorted(now.tables ^ wanted)}"]
        if ends == "compensated":
            return []
        with psycopg.connect(self._warehouse) as connection:
            query = psycopg.sql.SQL("SELECT price FROM {}").format(psycopg.sql.Identifier(table))
            prices = [price for (price,) in connection.execute(query)]
        return [] if prices == [self._price] * _THINGS else [f"{table}: {prices}"]

    def _ledger_problems(self, ends: str, run: str) -> list[str]:
        with sqlite3.connect(self._folder / "ledger.sqlite") as ledger:
            query = "SELECT step, amount FROM entries WHERE run = ?"
            entries = sorted(ledger.execute(query, [run]))
        amounts = (1,) if ends == "complete" else (-1, 1)
        wanted = [(step, amount) for step in _ENTRIES for amount in amounts]
        return [] if entries == wanted else [f"ledger: {entries}"]

    def _message_problems(self, ends: str, run: str) -> list[str]:
        messages = self._receiver.messages.items()
        actions = sorted(action for key, action in messages if key.startswith(f"{run}/"))
        wanted = ["do"] if ends == "complete" else ["do", "undo"]
        problems = [] if actions == wanted else [f"messages: {actions}"]
        problems += self._receiver.problems
        self._receiver.problems.clear()
        return problems

    def _event_problems(self, before: _World, ends: str, run: str) -> list[str]:
        """Compare the log, the steps and the launches of a run with one that was not killed."""
        is_of_flow = events.c.type.like("flow.%") | events.c.type.like("step.%")
        of_run = (launches.c.origin == f"flow/{run}/collect",)
        with self._engine.connect() as connection:
            rows = connection.execute(
                select(events.c.type, events.c.data).where(
                    events.c.id > before.last_event, is_of_flow
                )
            )
            logged = Counter((kind, data.get("step")) for kind, data in rows if data["run"] == run)
            steps = connection.execute(select(flow_steps).where(flow_steps.c.run_id == run)).all()
            placed = connection.scalar(select(func.count()).select_from(launches).where(*of_run))
        wanted = _expected_events(ends)
        problems = [] if placed == 1 else [f"{placed} launches"]
        bad = [one.step for one in steps if one.attempt != 1 or one.undo_attempt > 1]
        problems += [f"several attempts: {', '.join(bad)}"] if bad else []
        differing = {*(logged - wanted), *(wanted - logged)}
        return problems + ([f"events: {sorted(map(str, differing))}"] if differing else [])


def _expected_events(ends: str) -> Counter[tuple[str, str | None]]:
    """Return how often each event is in the log: each one once."""
    found: list[tuple[str, str | None]] = [("flow.created", None), ("flow.running", None)]
    found += [("step.running", name) for name in STEPS]
    found += [("step.complete", name) for name in STEPS[:-1]]
    if ends == "complete":
        return Counter([*found, ("step.complete", STEPS[-1]), ("flow.complete", None)])
    found += [("step.failed", STEPS[-1]), ("flow.compensating", None), ("flow.compensated", None)]
    found += [(kind, name) for name in _UNDOS for kind in ("step.undoing", "step.undone")]
    return Counter(found)


def flow(warehouse: str, hook: str) -> dict[str, Any]:
    """Return the definition of the flow, which ends as its parameter `ends` says."""
    target = {"url": hook, "secret": "env:HOOK_SECRET", "allow_private": True}

    def entry(step: str, amount: int, ends: str = "complete") -> list[str]:
        return [sys.executable, "-IS", "ledger.py", step, str(amount), ends]

    return {
        "flow": "saga",
        "params": {"ends": "complete", "price": 5},
        "on_failure": "compensate",
        "undo_retry": {"attempts": 3, "base": 1},
        "steps": [
            {
                "name": "collect",
                "run": {"source": "shop.py", "set": {"price": "{params.price}"}},
                "undo": "restore",
            },
            {
                "name": "enough",
                "check": {
                    "source": "shop",
                    "records": {"min": _THINGS, "max": _THINGS},
                    "function": "shop.py:look",
                },
            },
            {
                "name": "publish",
                "export": {"to": "out/first.csv", "source": "shop"},
                "undo": "restore",
            },
            {
                "name": "load",
                "export": {"to": warehouse, "table": "saga_{run}", "source": "shop"},
                "undo": "delete",
            },
            {
                "name": "apply",
                "command": entry("apply", 1),
                "undo": {"command": entry("apply", -1)},
            },
            {
                "name": "tell",
                "webhook": {**target, "data": {"action": "do"}},
                "undo": {"webhook": {**target, "data": {"action": "undo"}}},
            },
            {
                "name": "settle",
                "command": entry("settle", 1, "{params.ends}"),
                "undo": {"command": entry("settle", -1)},
            },
        ],
    }
