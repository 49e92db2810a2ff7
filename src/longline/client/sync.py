"""SyncClient: the Client for code without an event loop.

from longline.client import SyncClient
with SyncClient("http://127.0.0.1:8400", token="ll_…") as client:
    print(client.list_jobs(state="running").items)
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import ExitStack
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from longline.client.client import Client
from longline.core.threads import LoopThread
from longline.server.models import Event, Page

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    """Return a coroutine method as one that returns when it is done."""

    @functools.wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(method(self.client, *args, **kwargs))

    return call


class SyncClient:
    """A `Client` for code without an event loop: the same arguments, blocking methods."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.client = Client(*args, **kwargs)
        self._loop: LoopThread | None = None
        self._ends = ExitStack()

    def __repr__(self) -> str:
        return f"<Sync{repr(self.client)[1:]}"

    def __enter__(self) -> Self:
        with ExitStack() as ends:
            self._loop = ends.enter_context(LoopThread("longline-client"))
            self._call(self.client.__aenter__())
            ends.callback(lambda: self._call(self.client.__aexit__()))
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ends.close()
        self._loop = None

    def each(
        self, listing: Callable[P, Page[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Iterator[T]:
        """Yield the entries of all pages of a list: `client.each(client.list_jobs, source="shop")`.

        `limit` is the size of one page.
        """
        while True:
            page = listing(*args, **kwargs)
            yield from page.items
            if page.next is None:
                return
            kwargs["cursor"] = page.next

    def events(self, **wanted: Any) -> Generator[Event, None, None]:
        """Yield events as they are committed, as `Client.events` does."""
        events = self.client.events(**wanted)
        try:
            while True:
                yield self._call(_next(events))
        finally:
            self._call(_closed(events))

    list_sources = _blocking(Client.list_sources)
    get_source = _blocking(Client.get_source)
    list_jobs = _blocking(Client.list_jobs)
    create_job = _blocking(Client.create_job)
    get_job = _blocking(Client.get_job)
    pause_job = _blocking(Client.pause_job)
    resume_job = _blocking(Client.resume_job)
    cancel_job = _blocking(Client.cancel_job)
    retry_job = _blocking(Client.retry_job)
    list_job_items = _blocking(Client.list_job_items)
    list_job_failures = _blocking(Client.list_job_failures)
    list_launches = _blocking(Client.list_launches)
    get_launch = _blocking(Client.get_launch)
    cancel_launch = _blocking(Client.cancel_launch)
    list_records = _blocking(Client.list_records)
    get_record = _blocking(Client.get_record)
    list_record_versions = _blocking(Client.list_record_versions)
    get_record_diff = _blocking(Client.get_record_diff)
    create_export = _blocking(Client.create_export)
    list_exports = _blocking(Client.list_exports)
    get_export = _blocking(Client.get_export)
    list_tokens = _blocking(Client.list_tokens)
    create_token = _blocking(Client.create_token)
    revoke_token = _blocking(Client.revoke_token)
    list_schedules = _blocking(Client.list_schedules)
    get_schedule = _blocking(Client.get_schedule)
    pause_schedule = _blocking(Client.pause_schedule)
    resume_schedule = _blocking(Client.resume_schedule)
    run_schedule = _blocking(Client.run_schedule)
    list_next_runs = _blocking(Client.list_next_runs)
    list_occurrences = _blocking(Client.list_occurrences)
    list_flows = _blocking(Client.list_flows)
    list_flow_runs = _blocking(Client.list_flow_runs)
    create_flow_run = _blocking(Client.create_flow_run)
    get_flow_run = _blocking(Client.get_flow_run)
    approve_flow_run = _blocking(Client.approve_flow_run)
    cancel_flow_run = _blocking(Client.cancel_flow_run)
    retry_flow_run = _blocking(Client.retry_flow_run)
    undo_flow_run = _blocking(Client.undo_flow_run)
    resume_flow_run = _blocking(Client.resume_flow_run)
    list_events = _blocking(Client.list_events)
    list_logs = _blocking(Client.list_logs)
    list_domains = _blocking(Client.list_domains)
    get_domain = _blocking(Client.get_domain)
    reset_domain = _blocking(Client.reset_domain)
    list_proxies = _blocking(Client.list_proxies)
    get_proxy_refresh = _blocking(Client.get_proxy_refresh)
    refresh_proxies = _blocking(Client.refresh_proxies)
    list_quarantine = _blocking(Client.list_quarantine)
    list_quarantined_items = _blocking(Client.list_quarantined_items)
    list_drift = _blocking(Client.list_drift)
    get_drift = _blocking(Client.get_drift)
    accept_drift = _blocking(Client.accept_drift)
    list_duplicates = _blocking(Client.list_duplicates)
    get_duplicate = _blocking(Client.get_duplicate)
    decide_duplicate = _blocking(Client.decide_duplicate)
    list_alerts = _blocking(Client.list_alerts)
    get_alert = _blocking(Client.get_alert)
    silence_alert = _blocking(Client.silence_alert)
    list_silences = _blocking(Client.list_silences)
    end_silence = _blocking(Client.end_silence)
    list_workers = _blocking(Client.list_workers)
    get_health = _blocking(Client.get_health)
    get_metrics = _blocking(Client.get_metrics)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            message = "use the SyncClient in `with SyncClient(...) as client:`"
            raise RuntimeError(message)
        return self._loop.run(work)


async def _next(events: AsyncGenerator[Event]) -> Event:
    return await anext(events)


async def _closed(events: AsyncGenerator[Event]) -> None:
    await events.aclose()
