"""A database with rows in each of its tables, and the content of one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, insert, select

from longline.core.clock import SystemClock
from longline.core.errors import FailureKind
from longline.core.model import Failure, OutcomeAction, QuestionState, Usage
from longline.limits.learning import Learned
from longline.storage.access import CredentialKind, NewCredential, Role
from longline.storage.database import Database
from longline.storage.enrichment import Question, QuestionOutcome, QuestionRequest
from longline.storage.events.events import EventFilter
from longline.storage.events.webhooks import Webhook, WebhookDelivery
from longline.storage.matches import BlockedRecord, MatchBatch, RecordPair
from longline.storage.profiles import DriftResult
from longline.storage.queue.chunks import ChunkClaim
from longline.storage.queue.enqueue import Discovered
from longline.storage.scheduling.launches import NewLaunch
from longline.storage.schema import (
    alerts,
    flow_runs,
    flow_steps,
    logs,
    metadata,
    occurrences,
    reports,
    schedules,
    silences,
    source_statistics,
)
from longline.storage.store import Store
from tests.limit_backends import SqliteStates
from tests.storage.given import complete, ended, leased, queued, stored
from tests.virtual import EPOCH

ODD = {"price": 1.50, "z": 1, "a": [None, True, 1e-7, 10**18, "ü😀"], "q": "\\u0000"}


async def fill(store: Store) -> None:
    """Put rows into every table, through the doors of the store."""
    await _run(store)
    await _match(store)
    await _ask(store)
    await store.export_cursors.add("daily", [(1, 2), (2, 1)])
    await store.subscribers.add("mail", EventFilter(("job.*",), source="shop"), EPOCH, None)
    hook = Webhook("chat", "https://chat.test/hook", ("env:NEW", "env:OLD"), created_at=EPOCH)
    await store.webhooks.add(hook, EventFilter(("job.*",)))
    made = WebhookDelivery("chat", 1, "evt_1", EPOCH, 503, 0.25, "it responded 503")
    await store.webhooks.log_delivery(made)
    await store.events.log_id()
    await store.launches.place(NewLaunch("source", "shop", {"limit": 5}, "command", EPOCH))
    await store._database.write(_plan)
    await store._database.write(_monitor)
    await store.leaders.acquire("sweeping", "me", 0.0, 9.0)  # long ago
    token = NewCredential(CredentialKind.TOKEN, "ci", Role.READ, None)
    await store.credentials.create(token, EPOCH)
    await store.idempotency_keys.begin("ci", "key-1", "hash", EPOCH)
    await store.idempotency_keys.finish("ci", "key-1", 202, {"id": 1})
    limits = store.state_backend("limits", Learned, SystemClock())
    await limits.change("shop.test", lambda _old, _now: (Learned(rate=0.5), None))


def _monitor(connection: Connection) -> None:
    """Put a row into each table of monitoring."""
    line = {"at": EPOCH, "level": 30, "logger": "longline.shop", "message": "slow", "fields": {}}
    connection.execute(insert(logs), line)
    about = {"rule": "few-records", "subject": "source/shop"}
    alert: dict[str, Any] = {
        **about,
        "state": "firing",
        "severity": "warning",
        "summary": "5 of 50 records",
    }
    alert |= {"action": "look", "since": EPOCH, "seen_at": EPOCH}
    connection.execute(insert(alerts), {**alert, "evidence": {"stored": 5}})
    silence = {**about, "until": EPOCH, "reason": "known", "created_at": EPOCH}
    connection.execute(insert(silences), silence)
    made = {"name": "daily", "nominal_at": EPOCH, "made_at": EPOCH, "content": {"needs": []}}
    connection.execute(insert(reports), made)
    sums = {"source": "other", "name": "requests", "value": 5.0}
    connection.execute(insert(source_statistics), sums)


def _plan(connection: Connection) -> None:
    """Put a row into each table of schedules and flows."""
    times = {"created_at": EPOCH, "decided_until": EPOCH}
    definition = {"source": "shop", "every": "1h"}
    daily = {"name": "daily", "definition": definition, "origin": "command", **times}
    connection.execute(insert(schedules), daily)
    fired = {"schedule": "daily", "nominal_at": EPOCH, "kind": "scheduled", "fate": "fired"}
    connection.execute(insert(occurrences), {**fired, "decided_at": EPOCH, "launch_id": 1})
    run: dict[str, Any] = {
        "id": "refresh-1",
        "root": "refresh-1",
        "is_undoable": True,
        "flow": "refresh",
        "definition": {},
        "hash": "x",
        "params": {},
    }
    run |= {"origin": "command", "state": "running", "created_at": EPOCH}
    connection.execute(insert(flow_runs), run)
    step = {"run_id": "refresh-1", "step": "shop", "state": "pending", "attempt": 0, "due_at": 0}
    connection.execute(insert(flow_steps), {**step, "starts": 0})


async def _run(store: Store) -> None:
    job = await queued(store, "a", "b", "c", "d", is_last=True)
    await store.queue.enqueue(Discovered(job.id, [], EPOCH, spent=("pages",)))
    first, second, third = await leased(store, job, 3)
    failure = Failure(
        EPOCH, "https://shop.test/a", FailureKind.SERVER, "oops", "retried", 0.25, 503
    )
    await complete(store, stored(first, usage=Usage(requests=2, failures=[failure])))
    await complete(store, stored(second))
    why: dict[str, Any] = {"kind": FailureKind.INVALID, "reason": "no price", "raw": {"seen": "ü"}}
    await complete(store, ended(third, OutcomeAction.QUARANTINE, **why))
    (chunk,) = await store.chunks.publish(job.id, EPOCH, size=2)
    taken = await store.chunks.claim(chunk, ChunkClaim("me", EPOCH, EPOCH + 20, 2))
    assert taken is not None
    await complete(store, ended(taken.leases[0], OutcomeAction.SKIP, reason="sold"))
    await store.chunks.complete([(chunk, "me")], EPOCH + 3)
    await store.records.update("a", ODD, at=EPOCH + 9)
    await store.jobs.finish(job.id, EPOCH + 5, DriftResult({"records": 2}))


async def _match(store: Store) -> None:
    entries = [BlockedRecord(1, 2, {"red", "round"}, 3), BlockedRecord(2, 1, {"red"}, 3)]
    pair = RecordPair(1, 2, (2, 1), 9.0, is_match=True, evidence=[{"field": "colour"}])
    await store.matches.save_rules("thing", "rules: of things", at=EPOCH)
    await store.matches.assign_blocks("thing", "rules-1", entries)
    deposit = MatchBatch("thing", "rules-1", entries, [pair], lambda _one, _other: None, EPOCH)
    await store.matches.save_pairs(deposit)
    await store.matches.decide("thing", (1, 2), "confirmed", at=EPOCH + 1)


async def _ask(store: Store) -> None:
    question = Question("an id", "rooms", "1", "practice", "a text", schema={"type": "object"})
    await store.questions.enqueue("rooms", [QuestionRequest(1, 2, question)], EPOCH)
    asked = await store.questions.lease("rooms", "me", at=EPOCH, until=EPOCH + 20)
    assert asked is not None
    settled = QuestionOutcome(asked, "me", EPOCH + 5, QuestionState.ANSWERED, answer={"rooms": 2})
    await store.questions.complete(settled)


async def counts(database: Database) -> dict[str, int]:
    """Return how many rows each table has."""
    return await database.read(
        lambda connection: {
            table.name: connection.scalar(select(func.count()).select_from(table)) or 0
            for table in metadata.sorted_tables
        }
    )


def content(path: Path) -> dict[str, list[Any]]:
    """Return every value of a file of SQLite with its type, by table, in the order of its keys."""
    with closing(sqlite3.connect(path)) as connection:
        return {table.name: _rows(connection, table) for table in metadata.sorted_tables}


def _rows(connection: sqlite3.Connection, table: Any) -> list[Any]:
    keys = ", ".join(f'"{column.name}"' for column in table.primary_key)
    return connection.execute(f'SELECT * FROM "{table.name}" ORDER BY {keys}').fetchall()  # noqa: S608


async def put_beside(path: Path, room: str, name: str, value: Learned) -> None:
    """Put a value into the file that a home has next to its database."""
    cells = SqliteStates(path, room, Learned, SystemClock())
    await cells.change(name, lambda _old, _now: (value, None))
    await cells.close()
