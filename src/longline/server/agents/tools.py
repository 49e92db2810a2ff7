"""What agents can do: functions of the API and the pages, as tools with plain arguments."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from longline.config.job_spec import JobSpec
from longline.core.errors import FailureKind
from longline.core.model import JobState
from longline.devtools.check import check_source
from longline.devtools.plan import MIN_SAMPLES, make_plan
from longline.devtools.session import SourceSession, open_session, session_spec
from longline.server.models import (
    Alert,
    Drift,
    DriftDetails,
    FailedAttempt,
    Job,
    JobCreate,
    JobDetails,
    JobLaunch,
    JobRetry,
    Launch,
    Page,
    Record,
    Source,
)
from longline.server.web.api import jobs, monitoring, quality, records, sources
from longline.server.web.context import Web
from longline.server.web.off_loop import OffLoop
from longline.server.web.source_files import known_source, launch_source, reference_of

T = TypeVar("T")
Tool = Callable[..., Coroutine[Any, Any, Any]]

_MOST = 50  # entries of one result
_CHECK_SECONDS = 60.0
_PLAN_SECONDS = 180.0
_PLAN_REQUESTS = 10  # of discovery

_Limit = Annotated[int, Field(ge=1, le=_MOST, description="Maximum number of entries.")]
_Cursor = Annotated[
    str | None, Field(description="`next` of the result before; without it, the first entries.")
]
_SourceName = Annotated[str, Field(description="Name of a source, as list_sources returns it.")]
_JobId = Annotated[str, Field(description="Id of a job, or a beginning that only one job has.")]
_Kind = Annotated[FailureKind | None, Field(description="Only failures of this kind.")]
_Options = Annotated[
    dict[str, Any] | None, Field(description="Options of the source that differ from its own.")
]


class ReadTools:
    """Tools that change nothing in a home; two of them send requests to a site."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self._off_loop = OffLoop()

    def all(self) -> list[Tool]:
        """Return the tools."""
        return [
            self.list_sources,
            self.list_jobs,
            self.get_job,
            self.get_launch,
            self.get_coverage,
            self.list_failures,
            self.query_records,
            self.get_record,
            self.list_drift,
            self.get_drift,
            self.list_alerts,
            self.check_source,
            self.plan_source,
        ]

    async def list_sources(self, limit: _Limit = 20, cursor: _Cursor = None) -> Page[Source]:
        """List the sources of this home: name, kind, what each collects, and its last job.

        `problem` is the reason why a source cannot be used.
        """
        return await sources.list_sources(self._web, limit=limit, cursor=cursor)

    async def list_jobs(
        self,
        source: Annotated[str | None, Field(description="Only jobs of this source.")] = None,
        state: Annotated[
            JobState | Literal["open"] | None,
            Field(description="Only jobs in this state; open: pending, running or paused."),
        ] = None,
        limit: _Limit = 20,
        cursor: _Cursor = None,
    ) -> Page[Job]:
        """List jobs, newest first, with state, reason and the number of items by state.

        A job is one run of a source.
        """
        return await jobs.list_jobs(
            self._web, source=source, state=state, limit=limit, cursor=cursor
        )

    async def get_job(self, job: _JobId) -> JobDetails:
        """Return a job with its state, reason, settings, items by state and statistics."""
        return await jobs.get_job(self._web, job)

    async def get_launch(
        self, launch: Annotated[int, Field(ge=1, description="Number of a launch.")]
    ) -> Launch:
        """Return a launch: a run that was submitted; `target` is its job, once it has begun."""
        return await jobs.get_launch(self._web, launch)

    async def get_coverage(
        self,
        source: _SourceName,
        runs: Annotated[int, Field(ge=1, le=_MOST, description="Number of runs.")] = 10,
    ) -> dict[str, Any]:
        """Return, for the last runs of a source, the share of records that have each field.

        1 means that all records of the run have the field. Newest run first.
        """
        await known_source(self._web, source)
        store = self._web.store
        last = await store.jobs.list(source=source, limit=runs)
        coverage = await store.run_history.coverage([job.id for job in last])
        rows = [
            {"job": one.id, "state": one.state, "coverage": coverage.get(one.id)} for one in last
        ]
        return {"source": source, "runs": rows}

    async def list_failures(
        self, job: _JobId, kind: _Kind = None, limit: _Limit = 20, cursor: _Cursor = None
    ) -> dict[str, Any]:
        """List failed attempts of a job with kind, HTTP status and reason.

        `kinds` counts all failures of the job by kind: items by state, and attempts.
        """
        found = await self._web.store.jobs.get(job)
        page: Page[FailedAttempt] = await jobs.list_job_failures(
            self._web, found.id, kind=kind, limit=limit, cursor=cursor
        )
        kinds = await self._web.store.failures.by_kind(found.id)
        return {"job": found.id, "kinds": kinds, "items": page.items, "next": page.next}

    async def query_records(
        self,
        *,
        source: Annotated[str | None, Field(description="Only records of this source.")] = None,
        job: Annotated[str | None, Field(description="Only records last seen by this job.")] = None,
        search: Annotated[
            str | None, Field(description="Only records with this text in data, key or address.")
        ] = None,
        where: Annotated[
            list[str] | None,
            Field(
                max_length=10,
                description="Conditions that all have to be met, such as price>100, city~berlin, "
                "photos? (is filled) or @score<60.",
            ),
        ] = None,
        since: Annotated[
            str | None, Field(description="Only records changed since a date or an age, as 3h.")
        ] = None,
        limit: _Limit = 10,
        cursor: _Cursor = None,
    ) -> Page[Record]:
        """Query records: the data that sources have collected, with quality and times.

        A filtered result may have few entries, or none, and still a `next`.
        """
        return await records.list_records(
            self._web,
            source=source,
            job=job,
            search=search,
            where=where,
            since=since,
            limit=limit,
            cursor=cursor,
        )

    async def get_record(
        self,
        record: Annotated[int, Field(ge=1, description="`id` of a record, of query_records.")],
        versions: Annotated[
            int, Field(ge=1, le=_MOST, description="Maximum number of versions.")
        ] = 5,
        cursor: _Cursor = None,
    ) -> dict[str, Any]:
        """Return a record with its history: its versions, newest first, with the data of each."""
        found = await records.get_record(self._web, record)
        history = await records.list_record_versions(
            self._web, record, limit=versions, cursor=cursor
        )
        return {"record": found, "items": history.items, "next": history.next}

    async def list_drift(self, limit: _Limit = 20, cursor: _Cursor = None) -> Page[Drift]:
        """List the last run of each source, compared with earlier ones.

        `drift` says what has changed in its fields, such as one that is empty now.
        """
        return await quality.list_drift(self._web, limit=limit, cursor=cursor)

    async def get_drift(self, source: _SourceName) -> DriftDetails:
        """Compare each field of the last run of a source with earlier runs."""
        return await quality.get_drift(self._web, source)

    async def list_alerts(
        self,
        state: Annotated[
            monitoring.AlertChoice,
            Field(description="Only alerts in this state; open: pending or firing."),
        ] = monitoring.AlertChoice.OPEN,
        limit: _Limit = 20,
        cursor: _Cursor = None,
    ) -> Page[Alert]:
        """List alerts, newest first: what is wrong, since when, the evidence and what to do."""
        return await monitoring.list_alerts(self._web, state=state, limit=limit, cursor=cursor)

    async def check_source(self, source: _SourceName, options: _Options = None) -> dict[str, Any]:
        """Collect the first item of a source, and store nothing.

        Sends a few requests to the site, within its rate limit. Returns each extraction step,
        field, request and problem.
        """

        async def check(session: SourceSession) -> dict[str, Any]:
            return (await check_source(session, self._web.clock, items=1)).as_dict()

        return await self._with_source(source, options, check, seconds=_CHECK_SECONDS)

    async def plan_source(
        self,
        source: _SourceName,
        options: _Options = None,
        limit: Annotated[
            int | None, Field(ge=1, description="Maximum number of items to plan for.")
        ] = None,
    ) -> dict[str, Any]:
        """Estimate the items, requests and seconds of a run of a source, and store nothing.

        Sends some requests to the site, within its rate limit, to count items and fetch a sample.
        """

        async def plan(session: SourceSession) -> dict[str, Any]:
            settings, clock = self._web.settings, self._web.clock
            found = await make_plan(
                session, settings, clock, requests=_PLAN_REQUESTS, samples=MIN_SAMPLES
            )
            return found.as_dict()

        return await self._with_source(source, options, plan, seconds=_PLAN_SECONDS, limit=limit)

    async def _with_source(
        self,
        source: str,
        options: dict[str, Any] | None,
        use: Callable[[SourceSession], Coroutine[Any, Any, T]],
        *,
        seconds: float,
        limit: int | None = None,
    ) -> T:
        given = {"limit": limit, "set": options}
        params = {name: value for name, value in given.items() if value}
        spec: JobSpec = session_spec(reference_of(await known_source(self._web, source)), params)

        async def work() -> T:
            async with open_session(self._web.settings, spec, self._web.clock) as session:
                return await use(session)

        return await self._off_loop.run(work, seconds=seconds)


class ChangeTools:
    """Tools that start and control jobs."""

    def __init__(self, web: Web) -> None:
        self._web = web

    def all(self) -> list[Tool]:
        """Return the tools."""
        return [
            self.run_source,
            self.pause_job,
            self.resume_job,
            self.cancel_job,
            self.retry_job,
        ]

    async def run_source(
        self,
        source: _SourceName,
        limit: Annotated[int | None, Field(ge=1, description="Maximum number of items.")] = None,
        rate: Annotated[
            float | None, Field(gt=0, description="Maximum requests per second and domain.")
        ] = None,
        options: _Options = None,
    ) -> Launch:
        """Submit a run of a source to `longline serve`, and return its launch without waiting.

        get_launch returns the id of its job once it has begun.
        """
        given = {"limit": limit, "rate": rate, "set": options}
        values = {name: value for name, value in given.items() if value is not None}
        body = JobCreate.model_validate({"source": source, **values})
        params = body.model_dump(exclude_unset=True, exclude={"source"})
        known = await known_source(self._web, body.source)
        return Launch.model_validate(await launch_source(self._web, known, params))

    async def pause_job(self, job: _JobId) -> JobLaunch:
        """Pause a job in all processes; resume_job continues it."""
        return await jobs.pause_job(self._web, job)

    async def resume_job(self, job: _JobId) -> JobLaunch:
        """Have `longline serve` resume an unfinished job."""
        return await jobs.resume_job(self._web, job)

    async def cancel_job(self, job: _JobId) -> JobLaunch:
        """End a job for good before its work is done; its records stay."""
        return await jobs.cancel_job(self._web, job)

    async def retry_job(
        self,
        job: _JobId,
        kind: _Kind = None,
        state: Annotated[
            Literal["failed", "quarantined", "skipped"] | None,
            Field(description="Only items in this state."),
        ] = None,
        key: Annotated[str | None, Field(description="Only the item with this key.")] = None,
    ) -> JobLaunch:
        """Queue failed items of a job again, and have `longline serve` run it.

        Without `kind`, `state` and `key`: all that failed.
        """
        body = JobRetry.model_validate({"kind": kind, "state": state, "key": key})
        return await jobs.retry_job(self._web, job, body)
