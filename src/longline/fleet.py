"""Many sites: side by side or one by one, here or on a cluster; none holds up or fails another."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from longline.config.library import survey
from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.core.errors import BadFile, BadOption, LonglineError, NotBegun, Unexpected
from longline.core.model import Job
from longline.core.threads import Blocking, is_in_loop
from longline.engine.report import JobReport
from longline.engine.sites import SiteProgress, is_over, progress_of
from longline.storage.store import Store

EngineName = Literal["local", "celery"]
_LOOK = 0.5  # seconds between looks at jobs that run without Redis


@dataclass(frozen=True, slots=True)
class SiteEnd:
    """How the run of one site ended: with a report, or with an error that kept it from running."""

    source: str
    report: JobReport | None = None
    error: LonglineError | None = None

    @property
    def exit_code(self) -> int:
        """What a command line would exit with for this site alone."""
        if self.report is not None:
            return self.report.exit_code
        return self.error.exit_code if self.error is not None else 1


class Fleet(ABC):
    """What an Orchestrator can do with many sites.

    In `with`, it is for code without an event loop: what a cluster needs is brought up first, if
    the engine is celery, and what was started is stopped at the end, in reverse order.
    """

    _settings: Settings
    _clock: Clock
    _is_interrupted = False
    _is_with_many = False
    _ends: AbstractContextManager[object] | None = None
    _blocking: Blocking[Any] | None = None

    @property
    @abstractmethod
    def store(self) -> Store:
        """The database."""

    @abstractmethod
    async def execute(
        self, source: str | None = None, params: Mapping[str, Any] | None = None, **how: Any
    ) -> JobReport:
        """Run a source to its end."""

    @abstractmethod
    async def submit(
        self,
        source: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        fresh: bool = False,
        export: str | None = None,
        **hooks: Any,
    ) -> Job:
        """Have workers run a source, and return at once."""

    # ------------------------------------------------------------ sites

    async def start_site(
        self,
        source: str,
        params: Mapping[str, Any] | None = None,
        *,
        fresh: bool = False,
        **hooks: Any,
    ) -> str:
        """Have workers run a source; return the job's id at once.

        While Redis is away nobody can be told, which `on_trouble` is: a worker finds the job later.

        Raises:
            LonglineError: it cannot be run; nothing was made.
        """
        return (await self.submit(source, params, fresh=fresh, **hooks)).id

    async def get_site_progress(self, job: str) -> SiteProgress:
        """Return how far a job is.

        Raises:
            UnknownJob: there is no such job.
        """
        if self._settings.redis is None:
            return await progress_of(self.store, await self.store.jobs.get(job))
        from longline.distributed.sites import Sites  # noqa: PLC0415  # an optional part

        async with Sites.open(self._settings, self.store, self._clock) as sites:
            return await sites.progress(job)

    async def wait_for_all_sites(
        self, jobs: Iterable[str] | None = None, *, seconds: float | None = None
    ) -> dict[str, SiteProgress]:
        """Wait until nobody works on these jobs any more; return how far each is then.

        Args:
            jobs: their ids; all that are open without it.
            seconds: return then in any case.

        Raises:
            UnknownJob: there is no such job.
        """
        if jobs is None:
            jobs = [job.id for job in await self.store.jobs.list(limit=None, is_open=True)]
        if self._settings.redis is None:
            return await self._watched(list(jobs), seconds)
        from longline.distributed.sites import Sites  # noqa: PLC0415  # an optional part

        async with Sites.open(self._settings, self.store, self._clock) as sites:
            return await sites.wait(jobs, seconds=seconds)

    async def scrape_all_sites(
        self,
        sources: Iterable[str] | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        parallel: bool | None = None,
        engine: EngineName | None = None,
        fresh: bool = False,
        hooks_of: Callable[[str], Mapping[str, Any]] = lambda _source: {},
    ) -> list[SiteEnd]:
        """Run many sources, each to its end; return how each ended, in the same order.

        A source that cannot be loaded is among the ends, with its error; the others run. Broken
        files in the folders of the settings come last.

        Args:
            sources: their names or files; all in the folders of the settings without it.
            params: fields of JobSpec for all of them.
            parallel: side by side or one by one; the settings say it otherwise.
            engine: as for `execute`.
            fresh: start new jobs in any case.
            hooks_of: told a source, returns what `execute` is to call for it.

        Raises:
            BadOption: there is nothing to run.
        """
        names = list(sources) if sources is not None else self.known_sites()
        broken = self.broken_sites() if sources is None else []
        if not names and not broken:
            folders = ", ".join(str(folder) for folder in self._settings.sources)
            raise BadOption("--all", f"there is no manifest or job file in {folders}")
        side_by_side = self._settings.parallel if parallel is None else parallel
        turn = asyncio.Semaphore(max(1, len(names)) if side_by_side else 1)

        async def run(source: str) -> SiteEnd:
            async with turn:
                if self._is_interrupted:
                    return SiteEnd(source, error=NotBegun(source))
                how = {"fresh": fresh, "engine": engine, **hooks_of(source)}
                return await self._run_site(source, params, how)

        self._is_with_many = True
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(run(source)) for source in names]
        finally:
            self._is_with_many = self._is_interrupted = False
        return [*(task.result() for task in tasks), *broken]

    async def _run_site(
        self, source: str, params: Mapping[str, Any] | None, how: Mapping[str, Any]
    ) -> SiteEnd:
        try:
            return SiteEnd(source, await self.execute(source, params, **how))
        except LonglineError as error:
            return SiteEnd(source, error=error)
        except Exception as error:  # noqa: BLE001  # whatever one site's code raises is its own
            return SiteEnd(source, error=Unexpected(repr(error)))

    def known_sites(self) -> list[str]:
        """Return the manifests and job files in the folders of the settings that can be used."""
        found = survey(self._settings).entries.values()
        return [str(entry.document.path) for entry in found]

    def broken_sites(self) -> list[SiteEnd]:
        """Return the files in the folders of the settings that cannot be used, each with why."""
        return [
            SiteEnd(error.path if isinstance(error, BadFile) else "--all", error=error)
            for error in survey(self._settings).problems
        ]

    async def _watched(self, jobs: list[str], seconds: float | None) -> dict[str, SiteProgress]:
        deadline = None if seconds is None else self._clock.now() + seconds
        while True:
            # Their states are enough until the end: counting items may take long.
            found = [await self.store.jobs.get(job) for job in jobs]
            is_late = deadline is not None and self._clock.now() >= deadline
            if is_late or all(is_over(job) for job in found):
                return {job: await self.get_site_progress(job) for job in jobs}
            await self._clock.sleep(_LOOK)

    # ------------------------------------------------------------ without an event loop

    def __getattribute__(self, name: str) -> Any:
        """Return a method; in `with`, those without a loop get it from what `as` would give."""
        found = super().__getattribute__(name)
        if name.startswith("_") or self._blocking is None:
            return found
        return found if is_in_loop() else getattr(self._blocking, name)

    def __enter__(self) -> Any:
        if self._settings.engine == "celery":
            from longline.services.running import cluster_running  # noqa: PLC0415  # optional

            self._ends = cluster_running(self._settings)
            self._ends.__enter__()
        try:
            self._blocking = Blocking(self._as_context())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self._blocking

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        blocking, self._blocking = self._blocking, None
        ends, self._ends = self._ends, None
        try:
            if blocking is not None:
                blocking.close()
        finally:
            if ends is not None:
                ends.__exit__(kind, error, trace)

    @abstractmethod
    def _as_context(self) -> AbstractAsyncContextManager[Any]:
        """Return this object as what `async with` takes."""
