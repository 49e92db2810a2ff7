"""Run the steps of a refresh of proxies: collect candidates, check a chunk of them, merge.

A server runs all steps. A worker of a cluster only checks, since the lists are on the machine that
has the settings file. `longline proxies refresh` runs them like a server, without one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.core.errors import LonglineError, StoreError
from longline.distributed.task_runner import TaskClaims
from longline.engine.runtime import in_background
from longline.http.proxies.candidates import collect
from longline.http.proxies.configuration import (
    CheckOptions,
    ProxySettings,
    read_proxy_settings,
)
from longline.http.proxies.pool import CheckResult, PoolStatistics, ProxyPool, ProxyStatus
from longline.http.proxies.proxy import CredentialFiles, Proxy
from longline.storage.proxy_refresh import PoolSummary, Refresh, Step
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.store import Store
from longline.wiring import open_proxy_checker, open_proxy_http, open_proxy_pool

_LOG = logging.getLogger(__name__)

EVERY_STEP = frozenset(Step)
CHECK_ONLY = frozenset({Step.CHECK})


class ProxyTasks(TaskClaims):
    """Runs steps of refreshes that this process has claimed."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        super().__init__(store, clock)
        self._settings = settings

    async def run_next(
        self, *, steps: Collection[Step] = EVERY_STEP, first: str = "", wait: float = 0.0
    ) -> bool:
        """Run a step that no process has claimed for `wait` seconds; False: there is none.

        Raises:
            StoreError: the database is unavailable; the step stays.
        """
        task = await self.claim(
            TaskKind.PROXIES,
            wait=wait,
            first=first,
            is_wanted=lambda one: one.what["step"] in steps,
        )
        if task is None:
            return False
        run = {Step.COLLECT: self._collect, Step.CHECK: self._check, Step.MERGE: self._merge}
        async with in_background(self.keep(task)):
            await run[Step(task.what["step"])](task)
        return True

    async def _collect(self, task: Task) -> None:
        """Read all lists, and add what is in the pool."""
        proxies: dict[str, Proxy] = {}
        problems: dict[str, str] = {}
        async with open_proxy_pool(self._settings, self._clock, self._store) as pool:
            own = {one.address for one in await pool.all() if not one.proxy.origin}
        try:
            known = read_proxy_settings()
            size = known.check.chunk
            async with open_proxy_http(self._settings, self._clock) as http:
                files = CredentialFiles(self._settings.proxy_credentials)
                found = await collect(known.candidates, http, files, without=own)
            proxies, problems = found.proxies, found.problems
        except StoreError:
            raise
        except (LonglineError, OSError) as error:
            problems["collect"], size = str(error), 100
        async with open_proxy_pool(self._settings, self._clock, self._store) as pool:
            for one in await pool.all():
                proxies.setdefault(one.address, one.proxy)
        for name, problem in problems.items():
            _LOG.warning("no candidates for proxies from %s: %s", name, problem)
        several = [asdict(one) for one in proxies.values()]
        chunks = [several[start : start + size] for start in range(0, len(several), size)]
        at = self._clock.now()
        await self._store.proxy_refreshes.complete_collection(task, at, chunks, problems)

    async def _check(self, task: Task) -> None:
        """Check the proxies of a chunk."""
        candidates = [Proxy(**one) for one in await self._store.proxy_refreshes.chunk(task)]
        refresh = await self._store.proxy_refreshes.last()
        options = CheckOptions.model_validate(dict(refresh.plan) if refresh is not None else {})
        results: list[Mapping[str, Any]] = []
        alive, problem = 0, None
        try:
            async with open_proxy_checker(self._settings, self._clock, options) as checker:
                checked = await checker.check_all(candidates)
        except StoreError:
            raise
        except LonglineError as error:
            problem = str(error)
            _LOG.warning("proxies were not checked: %s", problem)
        else:
            alive = checked.alive
            results = [
                {"proxy": asdict(proxy), "result": asdict(result)}
                for proxy, result in checked.results
            ]
            if checked.unchecked:
                problem = f"{len(checked.unchecked)} proxies were not reached before the deadline"
        at = self._clock.now()
        await self._store.proxy_refreshes.complete_chunk(
            task, at, results, alive=alive, problem=problem
        )

    async def _merge(self, task: Task) -> None:
        """Write the results to the pool; done again, this changes nothing."""
        found = await self._store.proxy_refreshes.results(task.what["refresh"])
        results = [(Proxy(**one["proxy"]), CheckResult(**one["result"])) for one in found]
        known = _settings_or_defaults()
        problem = None
        async with open_proxy_pool(self._settings, self._clock, self._store) as pool:
            replaced = await pool.replace_checked(results)
            if replaced.is_kept:
                problem = "no proxy passed the check, so the pool was not changed"
            else:
                await self._remove_dead(pool, known)
            await self._forget_credentials(pool, [proxy for proxy, _ in results])
            summary = summary_of(await pool.statistics(), known, self._clock.now())
        at = self._clock.now()
        await self._store.proxy_refreshes.complete(task, at, summary, problem)

    async def _remove_dead(self, pool: ProxyPool, known: ProxySettings) -> None:
        """Remove listed proxies that have failed too many checks; added ones are kept."""
        for one in await pool.all():
            if one.proxy.origin and one.failed_checks >= known.forget_after:
                await pool.remove(one.address)

    async def _forget_credentials(self, pool: ProxyPool, candidates: list[Proxy]) -> None:
        """Delete the files of candidates that are not in the pool."""
        kept = {one.address for one in await pool.all()}
        files = CredentialFiles(self._settings.proxy_credentials)
        for proxy in candidates:
            if proxy.address not in kept:
                files.forget(proxy)


async def begin_refresh(store: Store, at: float, reason: str) -> Refresh:
    """Begin a refresh, unless one is open; return it.

    Raises:
        BadFile: the settings of proxies are invalid.
    """
    plan = read_proxy_settings().check.model_dump(mode="json")
    return await store.proxy_refreshes.begin(at, reason, plan)


def state_of(one: ProxyStatus) -> str:
    """Return the state of a proxy: alive, unchecked, quarantined or dead."""
    is_held = one.quarantined_until is not None and one.pooled.state != "dead"
    return "quarantined" if is_held else one.pooled.state


def summary_of(found: PoolStatistics, known: ProxySettings, now: float) -> PoolSummary:
    """Return how many proxies are in each state; each is in one."""
    states: Counter[str] = Counter({"alive": 0, "unchecked": 0, "quarantined": 0, "dead": 0})
    states.update(state_of(one) for one in found.proxies)
    return PoolSummary(now, dict(states), known.minimum if known.has_minimum else None)


def due_reason(
    known: ProxySettings, last: Refresh | None, summary: PoolSummary, now: float
) -> str | None:
    """Return why a refresh is due now; None: none is.

    Without sources of candidates, only a person begins one.
    """
    if not known.candidates or (last is not None and last.is_open):
        return None
    ended_at = None if last is None else last.ended_at
    if summary.is_low and (ended_at is None or now - ended_at >= known.retry):
        return f"{summary.usable} proxies are usable; the minimum is {summary.minimum}"
    is_old = last is None or (known.refresh is not None and now - last.started_at >= known.refresh)
    return "schedule" if is_old else None


def _settings_or_defaults() -> ProxySettings:
    try:
        return read_proxy_settings()
    except LonglineError as error:
        _LOG.warning("the settings of proxies are invalid: %s", error)
        return ProxySettings()
