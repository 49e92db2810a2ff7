"""SyncOrchestrator: the Orchestrator for code without an event loop.

from longline import SyncOrchestrator
with SyncOrchestrator("shop.yaml") as longline:
report = longline.execute(params={"limit": 10})
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from longline.core.threads import LoopThread
from longline.orchestrator import Orchestrator

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[Orchestrator, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncOrchestrator, P], T]:
    """Return a coroutine method as one that returns when it is done."""

    @functools.wraps(method)
    def call(self: SyncOrchestrator, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(method(self.orchestrator, *args, **kwargs))

    return call


class SyncOrchestrator:
    """An `Orchestrator` for code without an event loop: the same arguments, blocking methods.

    With the engine celery, entering the `with` block starts the servers and workers that are
    missing on this machine; leaving it stops what it started, in reverse order. Ctrl-C interrupts
    the current run, as on the command line.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.orchestrator = Orchestrator(*args, **kwargs)
        self._loop: LoopThread | None = None
        self._ends = ExitStack()

    def __repr__(self) -> str:
        return f"<Sync{repr(self.orchestrator)[1:]}"

    def __enter__(self) -> Self:
        with ExitStack() as ends:
            if self.orchestrator.settings.engine == "celery":
                from longline.services.cluster import cluster_running  # noqa: PLC0415  # optional

                ends.enter_context(cluster_running(self.orchestrator.settings))
            self._loop = ends.enter_context(LoopThread("longline-loop"))
            self._call(self.orchestrator.__aenter__())
            ends.callback(lambda: self._call(self.orchestrator.__aexit__()))
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ends.close()
        self._loop = None

    execute = _blocking(Orchestrator.execute)
    submit = _blocking(Orchestrator.submit)
    resume = _blocking(Orchestrator.resume)
    retry = _blocking(Orchestrator.retry)
    pause = _blocking(Orchestrator.pause)
    cancel = _blocking(Orchestrator.cancel)
    extract = _blocking(Orchestrator.extract)
    process_item = _blocking(Orchestrator.process_item)
    process_batch = _blocking(Orchestrator.process_batch)
    records = _blocking(Orchestrator.records)
    jobs = _blocking(Orchestrator.jobs)
    start_site = _blocking(Orchestrator.start_site)
    get_site_progress = _blocking(Orchestrator.get_site_progress)
    wait_for_all_sites = _blocking(Orchestrator.wait_for_all_sites)
    scrape_all_sites = _blocking(Orchestrator.scrape_all_sites)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            message = "use the SyncOrchestrator in `with SyncOrchestrator() as …:`"
            raise RuntimeError(message)
        return self._loop.run(work, on_interrupt=self.orchestrator.interrupt)
