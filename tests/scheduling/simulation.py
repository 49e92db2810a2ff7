"""Several schedulers on one database in virtual time, with kills and clocks that are set wrong."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sqlalchemy import create_engine, delete, text

from longline.config.settings import Settings
from longline.scheduling.schedule import make_schedule
from longline.scheduling.scheduler import Scheduler
from longline.storage.events.events import EventFilter
from longline.storage.schema import events, launches, occurrences
from longline.storage.store import Store, open_store
from tests.scheduling.scheduled_home import AdjustedClock
from tests.virtual import EPOCH

ZONES = ("Europe/Sofia", "America/New_York", "Australia/Lord_Howe", "Pacific/Chatham")
_OVERLAPS = ("skip", "queue_one", "queue_all", "cancel_running")
_MISFIRES = ("skip", "latest", "all")
_MINUTE, _HOUR = 60.0, 3600.0
_STEP = (5.0, 90.0)  # seconds between two ticks
_LONGEST_TICK = 0.02  # seconds of real time after which a tick is killed, at most
_KILL = 0.02  # probabilities, per tick
_STALL = 0.02
_JUMP = 0.005


@dataclass
class Slot:
    """The place of one scheduler; a killed one is replaced."""

    store: Store
    clock: AdjustedClock
    scheduler: Scheduler
    stalled_until: float = 0.0


@dataclass
class Result:
    """What was found at the end; `problems` must be empty."""

    occurrences: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    kills: int = 0
    jumps: int = 0


class Simulation:
    """Schedules that are due every minute, and a daily one per zone.

    Args:
        folder: for files of the home.
        address: of an empty database.
        minutely: how many schedules are due every minute.
        start: when it begins.
        daily: cron expressions of further schedules, by zone.
        schedulers: how many there are.
        seed: of kills, jumps and the ends of runs.
    """

    def __init__(
        self,
        folder: Path,
        address: str,
        *,
        minutely: int,
        start: datetime,
        daily: Mapping[str, str] | None = None,
        schedulers: int = 3,
        seed: int = 1,
    ) -> None:
        self._address = address
        self._random = random.Random(seed)  # not a secret
        self._start = start.timestamp()
        self._settings = Settings(home=folder, sources=(folder / "sources",))
        self._minutely = [f"minutely-{number:03}" for number in range(minutely)]
        self._daily = daily or {}
        self._schedulers = schedulers
        self._slots: list[Slot] = []
        self._stack = ExitStack()
        self._engine = create_engine(address)
        self.result = Result()

    def now(self) -> float:
        """Return the right time."""
        return asyncio.get_running_loop().time() + self._start

    async def begin(self) -> None:
        """Add the schedules and start the schedulers."""
        for _ in range(self._schedulers):
            store = self._stack.enter_context(open_store(self._address))
            clock = AdjustedClock()
            self._slots.append(Slot(store, clock, Scheduler(store, clock, self._settings)))
        self._set_clocks_right()
        for name, values in self._definitions():
            definition = make_schedule({"name": name, "source": "n8n", **values}).stated()
            await self._slots[0].store.schedules.save(name, definition, self._start)

    def _definitions(self) -> Iterator[tuple[str, dict[str, object]]]:
        for number, name in enumerate(self._minutely):
            yield (
                name,
                {
                    "cron": "* * * * *",
                    "timezone": ZONES[number % len(ZONES)],
                    "overlap": _OVERLAPS[number // len(ZONES) % len(_OVERLAPS)],
                    "misfire": _MISFIRES[number % len(_MISFIRES)],
                },
            )
        for zone, cron in self._daily.items():
            name = f"daily-{zone.rpartition('/')[2]}"
            yield name, {"cron": cron, "timezone": zone, "misfire": {"policy": "latest"}}

    async def run(self, seconds: float) -> None:
        """Let time pass, with kills, stalls, jumps and runs that end."""
        end = self.now() + seconds
        while self.now() < end:
            await asyncio.gather(*(self._tick(slot) for slot in self._slots))
            self._end_runs(self._random.randrange(5))
            await asyncio.sleep(self._random.uniform(*_STEP))

    async def settle(self) -> None:
        """Set all clocks right, end all runs, and decide what is due or queued."""
        self._set_clocks_right()
        slot = self._slots[0]
        slot.scheduler = Scheduler(slot.store, slot.clock, self._settings)
        await asyncio.sleep(max(_STEP))
        is_first = True
        while is_first or (await slot.store.schedules.poll()).released:
            is_first = False
            await slot.scheduler.tick()
            self._end_runs(None)
            await asyncio.sleep(1)

    def forget(self, before: float) -> None:
        """Delete what was judged, so that the database stays small."""
        old = (
            occurrences.c.nominal_at < before,
            launches.c.ended_at < before,
            events.c.at < before,
        )
        with self._engine.begin() as connection:
            for table, is_old in zip((occurrences, launches, events), old, strict=True):
                connection.execute(delete(table).where(is_old))

    def close(self) -> None:
        """Close the stores."""
        self._stack.close()
        self._engine.dispose()

    async def _tick(self, slot: Slot) -> None:
        chance = self._random.random()
        if chance < _JUMP:
            slot.clock.offset = self._offset() + self._random.choice([-_HOUR, 0.0, _HOUR])
            self.result.jumps += 1
        elif chance < _JUMP + _STALL:
            slot.stalled_until = self.now() + self._random.uniform(0, 600)
        if self.now() < slot.stalled_until:
            return
        task = asyncio.ensure_future(slot.scheduler.tick())
        if self._random.random() < _KILL:
            await self._kill(slot, task)
        else:
            await task

    async def _kill(self, slot: Slot, task: asyncio.Future[float | None]) -> None:
        """End a scheduler in the middle of a tick; a new one begins with what is stored."""
        end = time.perf_counter() + self._random.uniform(0, _LONGEST_TICK)
        while time.perf_counter() < end and not task.done():  # noqa: ASYNC110  # in real time
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        self.result.kills += 1
        slot.scheduler = Scheduler(slot.store, slot.clock, self._settings)

    def _end_runs(self, left: int | None) -> None:
        """End what was launched, but for a part of it, as executors do."""
        with self._engine.begin() as connection:
            connection.execute(
                text(
                    "UPDATE launches SET state = 'ended', result = 'complete', ended_at = :now"
                    " WHERE state IN ('queued', 'running') AND id % 5 <> :left"
                ),
                {"now": self.now(), "left": -1 if left is None else left},
            )

    def _set_clocks_right(self) -> None:
        for slot in self._slots:
            slot.clock.offset = self._offset()
            slot.stalled_until = 0.0

    def _offset(self) -> float:
        return self._start - EPOCH

    # ---------------- What must hold

    def judge(self, since: float, until: float, daily: Sequence[float] = ()) -> None:
        """Check the occurrences after `since` and not after `until`.

        `daily` are the nominal times of the daily schedules together, written by hand.
        """
        with self._engine.connect() as connection:
            rows = connection.execute(
                text(
                    "SELECT schedule, nominal_at, fate, launch_id FROM occurrences"
                    " WHERE nominal_at > :since AND nominal_at <= :until"
                    " ORDER BY schedule, nominal_at"
                ),
                {"since": since, "until": until},
            ).all()
            keys = Counter(
                connection.execute(text("SELECT key FROM launches ORDER BY id")).scalars()
            )
        first = (since // _MINUTE + 1) * _MINUTE
        wanted = [first + number * _MINUTE for number in range(int((until - first) // _MINUTE) + 1)]
        found: dict[str, list[float]] = {}
        for row in rows:
            found.setdefault(row.schedule, []).append(row.nominal_at)
            self.result.occurrences[row.fate] += 1
            is_launched = row.launch_id is not None
            if row.fate == "queued" or (row.fate == "fired") != is_launched:
                self._add(f"{row.schedule} at {row.nominal_at}: {row.fate}, {row.launch_id}")
        for name in self._minutely:
            times = found.get(name, [])
            if times != wanted:
                odd = sorted(set(times) ^ set(wanted))[:3]
                self._add(f"{name}: {len(times)} rows, not {len(wanted)}; differs at {odd}")
        others = sorted(
            at for name, times in found.items() if name.startswith("daily") for at in times
        )
        if self._daily and others != sorted(daily):
            self._add(f"daily: {others}")
        repeated = [key for key, count in keys.items() if count > 1]
        if repeated:
            self._add(f"launched twice: {repeated[:3]}")

    async def judge_events(self) -> None:
        """Check that each occurrence was fired once, by the event log."""
        store = self._slots[0].store
        cursor, fired = 0, Counter[tuple[str, float]]()
        while True:
            found, cursor = await store.events.read(
                cursor, EventFilter(("occurrence.fired",)), limit=5000
            )
            fired.update((one.data["schedule"], one.data["nominal_at"]) for one in found)
            if not found:
                break
        if fired and max(fired.values()) > 1:
            self._add(f"fired twice: {fired.most_common(3)}")

    def _add(self, problem: str) -> None:
        self.result.problems.append(problem)
