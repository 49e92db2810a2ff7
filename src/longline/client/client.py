"""Client: the operations of the HTTP API as typed methods, named as in its OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Literal, ParamSpec, Self, TypeVar

from longline.client.connection import Connection, path_part
from longline.core.clock import Clock
from longline.core.errors import FailureKind
from longline.core.model import ItemState, JobState
from longline.server.models import (
    Alert,
    BreakerReset,
    CreatedToken,
    Domain,
    Drift,
    DriftAccepted,
    DriftDetails,
    DuplicateDecision,
    DuplicateDetails,
    DuplicateGroup,
    Event,
    Export,
    ExportCreate,
    FailedAttempt,
    Flow,
    FlowApproval,
    FlowCancel,
    FlowResume,
    FlowRun,
    FlowRunCreate,
    FlowRunDetails,
    Health,
    Job,
    JobCreate,
    JobDetails,
    JobItem,
    JobLaunch,
    JobRetry,
    Launch,
    LogLine,
    NextRun,
    Occurrence,
    Page,
    ProxyInfo,
    ProxyRefresh,
    QuarantinedItem,
    QuarantineGroup,
    Record,
    RecordDiff,
    RecordVersion,
    Schedule,
    SchedulePause,
    Silence,
    SilenceCreate,
    Source,
    Token,
    TokenCreate,
    Worker,
)

P = ParamSpec("P")
T = TypeVar("T")


class Client:
    """A server of longline: `async with Client(url, token=...) as client:`.

    Lists return a page; `each` iterates over the entries of all pages. Requests are repeated after
    a broken connection; those that create something have an Idempotency-Key, so that the server
    does it once.

    Args:
        url: of the server, such as http://127.0.0.1:8400.
        token: of `longline tokens add`.
        timeout: seconds for a whole response.
        clock: waits between two attempts.

    Raises:
        BadOption: the URL or the token is not one.
        ServerUnreachable: by each method: there is no connection.
        NotAuthenticated: the server does not accept the token.
        NotPermitted: its role does not allow this.
        ServerError: the server refuses the request, or failed; a subclass says which.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 60.0,
        clock: Clock | None = None,
    ) -> None:
        self._connection = Connection(url, token=token, timeout=timeout, clock=clock)

    def __repr__(self) -> str:
        return f"<Client of {self._connection.server}>"

    async def __aenter__(self) -> Self:
        await self._connection.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._connection.__aexit__(*error)

    async def each(
        self, listing: Callable[P, Awaitable[Page[T]]], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T]:
        """Yield the entries of all pages of a list: `client.each(client.list_jobs, source="shop")`.

        `limit` is the size of one page.
        """
        while True:
            page = await listing(*args, **kwargs)
            for one in page.items:
                yield one
            if page.next is None:
                return
            kwargs["cursor"] = page.next

    # ---------------- Sources

    async def list_sources(
        self, *, cursor: str | None = None, limit: int | None = None
    ) -> Page[Source]:
        """List the sources that can be run by name."""
        return await self._connection.get("/sources", Page[Source], cursor=cursor, limit=limit)

    async def get_source(self, name: str) -> Source:
        """Return a source."""
        return await self._connection.get(f"/sources/{path_part(name)}", Source)

    # ---------------- Jobs

    async def list_jobs(
        self,
        *,
        source: str | None = None,
        state: JobState | Literal["open"] | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[Job]:
        """List jobs, newest first."""
        return await self._connection.get(
            "/jobs", Page[Job], source=source, state=state, cursor=cursor, limit=limit
        )

    async def create_job(self, body: JobCreate, *, idempotency_key: str | None = None) -> Launch:
        """Submit a source; the launch names its job once it has begun."""
        return await self._connection.post("/jobs", Launch, body, key=idempotency_key)

    async def get_job(self, job: str) -> JobDetails:
        """Return a job with its settings and statistics."""
        return await self._connection.get(f"/jobs/{path_part(job)}", JobDetails)

    async def pause_job(self, job: str) -> JobLaunch:
        """Pause a job."""
        return await self._connection.post(f"/jobs/{path_part(job)}/pause", JobLaunch)

    async def resume_job(self, job: str) -> JobLaunch:
        """Resume an unfinished job."""
        return await self._connection.post(f"/jobs/{path_part(job)}/resume", JobLaunch)

    async def cancel_job(self, job: str) -> JobLaunch:
        """Cancel a job; its records stay."""
        return await self._connection.post(f"/jobs/{path_part(job)}/cancel", JobLaunch)

    async def retry_job(self, job: str, body: JobRetry | None = None) -> JobLaunch:
        """Attempt failed items of a job again."""
        path = f"/jobs/{path_part(job)}/retry"
        return await self._connection.post(path, JobLaunch, body or JobRetry())

    async def list_job_items(
        self,
        job: str,
        *,
        state: ItemState | None = None,
        kind: FailureKind | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[JobItem]:
        """List the items of a job."""
        path = f"/jobs/{path_part(job)}/items"
        return await self._connection.get(
            path, Page[JobItem], state=state, kind=kind, cursor=cursor, limit=limit
        )

    async def list_job_failures(
        self,
        job: str,
        *,
        kind: FailureKind | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[FailedAttempt]:
        """List the failed attempts of a job."""
        path = f"/jobs/{path_part(job)}/failures"
        return await self._connection.get(
            path, Page[FailedAttempt], kind=kind, cursor=cursor, limit=limit
        )

    # ---------------- Launches

    async def list_launches(
        self,
        *,
        origin: str | None = None,
        is_open: bool | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[Launch]:
        """List launches, newest first."""
        query = {"origin": origin, "open": is_open, "cursor": cursor, "limit": limit}
        return await self._connection.get("/launches", Page[Launch], **query)

    async def get_launch(self, launch: int) -> Launch:
        """Return a launch."""
        return await self._connection.get(f"/launches/{launch}", Launch)

    async def cancel_launch(self, launch: int) -> Launch:
        """Cancel a launch, and its job if it is running."""
        return await self._connection.post(f"/launches/{launch}/cancel", Launch)

    # ---------------- Records and exports

    async def list_records(
        self,
        *,
        source: str | None = None,
        key: str | None = None,
        job: str | None = None,
        search: str | None = None,
        min_score: float | None = None,
        grade: str | None = None,
        since: str | None = None,
        state: Literal["present", "gone", "any"] | None = None,
        where: Sequence[str] = (),
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[Record]:
        """Query records.

        Args:
            source: only records of this source.
            key: only the record with this key; needs `source`.
            job: only records last seen by this job.
            search: only records with this text.
            min_score: the lowest quality, 0 to 100.
            grade: only records of this quality grade.
            since: only records changed since a time (2026-11-01T08:30) or an age (3h).
            state: whether records that are gone from the site are wanted; by default not.
            where: conditions such as price>100.
            cursor: `next` of the page before.
            limit: the size of the page.
        """
        return await self._connection.get(
            "/records",
            Page[Record],
            source=source,
            key=key,
            job=job,
            search=search,
            min_score=min_score,
            grade=grade,
            since=since,
            state=state,
            where=where,
            cursor=cursor,
            limit=limit,
        )

    async def get_record(self, record: int) -> Record:
        """Return a record by its number."""
        return await self._connection.get(f"/records/{record}", Record)

    async def list_record_versions(
        self, record: int, *, cursor: str | None = None, limit: int | None = None
    ) -> Page[RecordVersion]:
        """List the versions of a record."""
        path = f"/records/{record}/history"
        return await self._connection.get(path, Page[RecordVersion], cursor=cursor, limit=limit)

    async def get_record_diff(
        self, record: int, *, older: int | None = None, newer: int | None = None
    ) -> RecordDiff:
        """Return the difference between two versions of a record."""
        path = f"/records/{record}/diff"
        return await self._connection.get(path, RecordDiff, older=older, newer=newer)

    async def create_export(
        self, body: ExportCreate, *, idempotency_key: str | None = None
    ) -> Export:
        """Export the records of a job to a file on the server."""
        return await self._connection.post("/exports", Export, body, key=idempotency_key)

    async def list_exports(
        self, *, job: str, cursor: str | None = None, limit: int | None = None
    ) -> Page[Export]:
        """List the exports of a job."""
        query = {"job": job, "cursor": cursor, "limit": limit}
        return await self._connection.get("/exports", Page[Export], **query)

    async def get_export(self, job: str, export: str) -> Export:
        """Return an export."""
        path = f"/exports/{path_part(job)}/{path_part(export)}"
        return await self._connection.get(path, Export)

    # ---------------- Tokens

    async def list_tokens(
        self, *, cursor: str | None = None, limit: int | None = None
    ) -> Page[Token]:
        """List tokens; needs the role admin, as all operations on tokens do."""
        return await self._connection.get("/tokens", Page[Token], cursor=cursor, limit=limit)

    async def create_token(self, body: TokenCreate) -> CreatedToken:
        """Create a token; the request is not repeated after a broken connection."""
        return await self._connection.post("/tokens", CreatedToken, body, is_repeatable=False)

    async def revoke_token(self, token: str) -> Token:
        """Revoke a token by its id."""
        return await self._connection.delete(f"/tokens/{path_part(token)}", Token)

    # ---------------- Schedules

    async def list_schedules(
        self, *, cursor: str | None = None, limit: int | None = None
    ) -> Page[Schedule]:
        """List schedules."""
        return await self._connection.get("/schedules", Page[Schedule], cursor=cursor, limit=limit)

    async def get_schedule(self, schedule: str) -> Schedule:
        """Return a schedule."""
        return await self._connection.get(f"/schedules/{path_part(schedule)}", Schedule)

    async def pause_schedule(self, schedule: str, body: SchedulePause | None = None) -> Schedule:
        """Pause a schedule: its occurrences are skipped."""
        path = f"/schedules/{path_part(schedule)}/pause"
        return await self._connection.post(path, Schedule, body or SchedulePause())

    async def resume_schedule(self, schedule: str) -> Schedule:
        """Resume a schedule."""
        return await self._connection.post(f"/schedules/{path_part(schedule)}/resume", Schedule)

    async def run_schedule(
        self, schedule: str, *, idempotency_key: str | None = None
    ) -> Occurrence:
        """Run a schedule now, in addition to its times."""
        path = f"/schedules/{path_part(schedule)}/run"
        return await self._connection.post(path, Occurrence, key=idempotency_key)

    async def list_next_runs(
        self, *, days: float | None = None, cursor: str | None = None, limit: int | None = None
    ) -> Page[NextRun]:
        """List the next occurrences of all schedules."""
        query = {"days": days, "cursor": cursor, "limit": limit}
        return await self._connection.get("/next-runs", Page[NextRun], **query)

    async def list_occurrences(
        self,
        *,
        schedule: str | None = None,
        fate: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[Occurrence]:
        """List past occurrences with their fate, newest first."""
        return await self._connection.get(
            "/occurrences",
            Page[Occurrence],
            schedule=schedule,
            fate=fate,
            cursor=cursor,
            limit=limit,
        )

    # ---------------- Flows

    async def list_flows(
        self, *, cursor: str | None = None, limit: int | None = None
    ) -> Page[Flow]:
        """List the flows in the folders of flows by name."""
        return await self._connection.get("/flows", Page[Flow], cursor=cursor, limit=limit)

    async def list_flow_runs(
        self,
        *,
        flow: str | None = None,
        state: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[FlowRun]:
        """List runs of flows, newest first."""
        return await self._connection.get(
            "/flow-runs", Page[FlowRun], flow=flow, state=state, cursor=cursor, limit=limit
        )

    async def create_flow_run(
        self, body: FlowRunCreate, *, idempotency_key: str | None = None
    ) -> FlowRunDetails:
        """Start a run of a flow."""
        return await self._connection.post("/flow-runs", FlowRunDetails, body, key=idempotency_key)

    async def get_flow_run(self, run: str) -> FlowRunDetails:
        """Return a run of a flow with its steps."""
        return await self._connection.get(f"/flow-runs/{path_part(run)}", FlowRunDetails)

    async def approve_flow_run(self, run: str, body: FlowApproval | None = None) -> FlowRunDetails:
        """Approve or reject a step that waits for a person."""
        path = f"/flow-runs/{path_part(run)}/approve"
        return await self._connection.post(path, FlowRunDetails, body or FlowApproval())

    async def cancel_flow_run(self, run: str, body: FlowCancel | None = None) -> FlowRunDetails:
        """Cancel a run of a flow."""
        path = f"/flow-runs/{path_part(run)}/cancel"
        return await self._connection.post(path, FlowRunDetails, body or FlowCancel())

    async def retry_flow_run(self, run: str) -> FlowRunDetails:
        """Run the failed steps of a flow run again."""
        return await self._connection.post(f"/flow-runs/{path_part(run)}/retry", FlowRunDetails)

    async def undo_flow_run(self, run: str) -> FlowRunDetails:
        """Undo the completed steps of a flow run."""
        return await self._connection.post(f"/flow-runs/{path_part(run)}/undo", FlowRunDetails)

    async def resume_flow_run(self, run: str, body: FlowResume | None = None) -> FlowRunDetails:
        """Continue a run of a flow."""
        path = f"/flow-runs/{path_part(run)}/resume"
        return await self._connection.post(path, FlowRunDetails, body or FlowResume())

    # ---------------- Events and logs

    async def list_events(
        self,
        *,
        after: int | None = None,
        types: Sequence[str] = (),
        job: str | None = None,
        source: str | None = None,
        subject: str | None = None,
        since: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[Event]:
        """List events, oldest first."""
        return await self._connection.get(
            "/events",
            Page[Event],
            after=after,
            types=types,
            job=job,
            source=source,
            subject=subject,
            since=since,
            cursor=cursor,
            limit=limit,
        )

    async def events(
        self,
        *,
        after: int | None = None,
        types: Sequence[str] = (),
        job: str | None = None,
        source: str | None = None,
        subject: str | None = None,
    ) -> AsyncGenerator[Event]:
        """Yield events as they are committed; after a broken connection, without a gap.

        Args:
            after: the id of the last event that is known; by default the newest one.
            types: types or patterns such as job.*; by default all.
            job: only events of this job.
            source: only events of this source.
            subject: only events about this subject, such as domain/HOST.
        """
        params = {"types": types, "job": job, "source": source, "subject": subject}
        last_id = None if after is None else str(after)
        messages = self._connection.stream("/events/stream", params, last_id)
        async with aclosing(messages):
            async for message in messages:
                yield Event.model_validate_json(message.data)

    async def list_logs(
        self,
        *,
        job: str | None = None,
        source: str | None = None,
        domain: str | None = None,
        level: Literal["warning", "error"] | None = None,
        search: str | None = None,
        since: str | None = None,
        until: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[LogLine]:
        """List warnings and errors of all processes."""
        return await self._connection.get(
            "/logs",
            Page[LogLine],
            job=job,
            source=source,
            domain=domain,
            level=level,
            search=search,
            since=since,
            until=until,
            cursor=cursor,
            limit=limit,
        )

    # ---------------- Sites and quality

    async def list_domains(
        self, *, cursor: str | None = None, limit: int | None = None
    ) -> Page[Domain]:
        """List domains with their rate limits and circuit breakers."""
        return await self._connection.get("/domains", Page[Domain], cursor=cursor, limit=limit)

    async def get_domain(self, domain: str) -> Domain:
        """Return a domain."""
        return await self._connection.get(f"/domains/{path_part(domain)}", Domain)

    async def reset_domain(self, domain: str) -> BreakerReset:
        """Close the circuit breaker of a domain; its deferred items are due now."""
        return await self._connection.post(f"/domains/{path_part(domain)}/reset", BreakerReset)

    async def list_proxies(
        self, *, cursor: str | None = None, limit: int | None = None
    ) -> Page[ProxyInfo]:
        """List the proxies of the pool by address."""
        return await self._connection.get("/proxies", Page[ProxyInfo], cursor=cursor, limit=limit)

    async def get_proxy_refresh(self) -> ProxyRefresh:
        """Return the open refresh of the proxies, or the last one."""
        return await self._connection.get("/proxies/refresh", ProxyRefresh)

    async def refresh_proxies(self) -> ProxyRefresh:
        """Begin a refresh of the proxies, unless one is open."""
        return await self._connection.post("/proxies/refresh", ProxyRefresh)

    async def list_quarantine(
        self,
        *,
        source: str | None = None,
        job: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[QuarantineGroup]:
        """List items in quarantine, grouped by job and reason."""
        return await self._connection.get(
            "/quarantine", Page[QuarantineGroup], source=source, job=job, cursor=cursor, limit=limit
        )

    async def list_quarantined_items(
        self,
        *,
        job: str,
        reason: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[QuarantinedItem]:
        """List the items of a job in quarantine with what they were made of."""
        query = {"job": job, "reason": reason, "cursor": cursor, "limit": limit}
        return await self._connection.get("/quarantine/items", Page[QuarantinedItem], **query)

    async def list_drift(
        self, *, cursor: str | None = None, limit: int | None = None
    ) -> Page[Drift]:
        """List the last run of each source, compared with earlier ones."""
        return await self._connection.get("/drift", Page[Drift], cursor=cursor, limit=limit)

    async def get_drift(self, source: str) -> DriftDetails:
        """Return the fields of a source before and now."""
        return await self._connection.get(f"/drift/{path_part(source)}", DriftDetails)

    async def accept_drift(self, source: str) -> DriftAccepted:
        """Make the last run of a source the baseline of later ones."""
        return await self._connection.post(f"/drift/{path_part(source)}/accept", DriftAccepted)

    async def list_duplicates(
        self, *, kind: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> Page[DuplicateGroup]:
        """List groups of records that describe the same thing."""
        query = {"kind": kind, "cursor": cursor, "limit": limit}
        return await self._connection.get("/duplicates", Page[DuplicateGroup], **query)

    async def get_duplicate(self, *, kind: str, record: str) -> DuplicateDetails:
        """Return the group of a record, given as source/key, with its evidence."""
        return await self._connection.get(
            "/duplicates/one", DuplicateDetails, kind=kind, record=record
        )

    async def decide_duplicate(self, body: DuplicateDecision) -> DuplicateDecision:
        """Confirm or reject that two records are the same thing."""
        return await self._connection.post("/duplicates/decisions", DuplicateDecision, body)

    # ---------------- Monitoring

    async def list_alerts(
        self,
        *,
        state: str | None = None,
        rule: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[Alert]:
        """List alerts."""
        return await self._connection.get(
            "/alerts", Page[Alert], state=state, rule=rule, cursor=cursor, limit=limit
        )

    async def get_alert(self, alert: int) -> Alert:
        """Return an alert with its evidence."""
        return await self._connection.get(f"/alerts/{alert}", Alert)

    async def silence_alert(self, alert: int, body: SilenceCreate) -> Silence:
        """Silence the notifications of an alert for a while."""
        return await self._connection.post(f"/alerts/{alert}/silence", Silence, body)

    async def list_silences(
        self, *, cursor: str | None = None, limit: int | None = None
    ) -> Page[Silence]:
        """List silences that have not ended."""
        return await self._connection.get("/silences", Page[Silence], cursor=cursor, limit=limit)

    async def end_silence(self, silence: int) -> Silence:
        """End a silence."""
        return await self._connection.delete(f"/silences/{silence}", Silence)

    async def list_workers(
        self, *, cursor: str | None = None, limit: int | None = None
    ) -> Page[Worker]:
        """List the workers of a cluster."""
        return await self._connection.get("/workers", Page[Worker], cursor=cursor, limit=limit)

    async def get_health(self) -> Health:
        """Check that the home of the server works."""
        return await self._connection.get("/health", Health)

    async def get_metrics(self) -> str:
        """Return the metrics of the home in the text format of Prometheus."""
        return await self._connection.get_text("/metrics")
