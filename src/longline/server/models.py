"""What the HTTP API sends and receives; the server and the client share these models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import chain
from math import isfinite
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from longline.core.errors import FailureKind
from longline.core.model import ItemState, JobState

T = TypeVar("T")
_LARGEST = 2**63 - 1  # integer of a database
_DEEPEST = 40  # levels of a JSON value in a request
_LATEST = 253_402_300_799.0  # 9999-12-31, the last day of a datetime


def _as_time(value: Any) -> Any:
    if not isinstance(value, (int, float)):
        return value
    return datetime.fromtimestamp(min(max(float(value), 0.0), _LATEST), UTC)


Time = Annotated[datetime, BeforeValidator(_as_time)]
"""A time as ISO 8601 in UTC; seconds since the epoch are converted."""
Name = Annotated[str, StringConstraints(min_length=1, max_length=300)]
Values = dict[str, Any]


def is_storable(value: Any, depth: int = 0) -> bool:
    """Return whether a JSON value can be stored: no NUL, no surrogates, no integer over 64 bits."""
    if depth > _DEEPEST:
        return False
    if isinstance(value, str):
        return "\x00" not in value and not any("\ud800" <= one <= "\udfff" for one in value)
    if isinstance(value, (int, float)):
        return -_LARGEST <= value <= _LARGEST if isinstance(value, int) else isfinite(value)
    parts: Iterable[Any] = ()
    if isinstance(value, Mapping):
        parts = chain(value.keys(), value.values())
    elif isinstance(value, (list, tuple)):
        parts = value
    return all(is_storable(one, depth + 1) for one in parts)


def _example(**values: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [values]}, from_attributes=True)


def _example_of(model: type[BaseModel]) -> dict[str, Any]:
    extra: Any = model.model_config["json_schema_extra"]
    found: dict[str, Any] = extra["examples"][0]
    return found


class RequestBody(BaseModel):
    """The base of request bodies: unknown fields and texts that cannot be stored are refused."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _check_storable(cls, value: Any) -> Any:
        if not is_storable(value):
            problem = (
                "a text has NUL or surrogates, a number is too large, or it is nested too deep"
            )
            raise ValueError(problem)
        return value


def _body(**values: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [values]}, extra="forbid")


class Problem(BaseModel):
    """An error as RFC 9457 describes it."""

    model_config = _example(
        type="about:blank",
        title="Not found",
        status=404,
        detail="there is no job 'shop-1' in this home",
        hint="`longline jobs` lists the jobs.",
        kind="UnknownJob",
    )
    type: str = Field(description="Always about:blank; `kind` names the error.")
    title: str = Field(description="The meaning of the status.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What failed, and why.")
    hint: str | None = Field(default=None, description="What to do about it.")
    kind: str | None = Field(default=None, description="The class of the error in longline.")


class Page(BaseModel, Generic[T]):
    """Some entries of a list, and the cursor of the following ones."""

    items: list[T] = Field(description="The entries of this page.")
    next: str | None = Field(description="The cursor of the next page; null on the last one.")


# ---------------- Sources, jobs, items


class Source(BaseModel):
    """A source that can be run by its name."""

    model_config = _example(
        name="shop", kind="html", about="Products of a shop.", problem=None, last_job="shop-1"
    )
    name: str = Field(description="The name to run it by.")
    kind: str = Field(description="html, api, command, job, python, or invalid.")
    about: str = Field(description="What it collects.")
    problem: str | None = Field(description="Why it cannot be used.")
    last_job: str | None = Field(description="The id of its newest job.")


class JobCreate(RequestBody):
    """A source to run, and the settings that differ from its own."""

    model_config = _body(source="shop", limit=10, rate=2.0, set={"category": "shoes"})
    source: Name = Field(description="The name of a known source; not a path.")
    limit: int | None = Field(
        default=None, ge=1, le=_LARGEST, description="Maximum number of items."
    )
    rate: float | None = Field(
        default=None, gt=0, le=10_000, description="Maximum requests per second and domain."
    )
    concurrency: int | None = Field(
        default=None, ge=1, le=1000, description="Maximum concurrent items."
    )
    set: dict[Name, Any] = Field(
        default_factory=dict, max_length=200, description="Options of the source."
    )
    params: dict[Name, Any] = Field(
        default_factory=dict, max_length=200, description="Values for a Python source."
    )
    priority: int = Field(
        default=0, ge=-1000, le=1000, description="Higher ones are started first."
    )


class Launch(BaseModel):
    """A run that an executor starts; `target` is its job or flow run, once it has begun."""

    model_config = _example(
        id=7,
        kind="source",
        name="shop",
        origin="command",
        priority=0,
        state="queued",
        created_at="2026-11-18T08:00:00Z",
        started_at=None,
        ended_at=None,
        target=None,
        result=None,
        reason=None,
    )
    id: int = Field(description="Its number.")
    kind: str = Field(description="source or flow.")
    name: str = Field(description="The source or flow.")
    origin: str = Field(description="What placed it: command, or schedule/NAME.")
    priority: int = Field(description="Higher ones are started first.")
    state: str = Field(description="queued, running or ended.")
    created_at: Time = Field(description="When it was placed.")
    started_at: Time | None = Field(description="When an executor started it.")
    ended_at: Time | None = Field(description="When it ended.")
    target: str | None = Field(description="The id of its job or flow run, once it has begun.")
    result: str | None = Field(description="The state in which its run ended.")
    reason: str | None = Field(description="Why it ended like this.")


class Job(BaseModel):
    """One run of a source, with its items by state."""

    model_config = _example(
        id="shop-20261118-080000-ab12",
        source="shop",
        state="running",
        reason=None,
        engine="local",
        runs=1,
        is_discovered=False,
        created_at="2026-11-18T08:00:00Z",
        started_at="2026-11-18T08:00:01Z",
        finished_at=None,
        items={"open": 12, "stored": 30},
    )
    id: str = Field(description="Its id; the API also accepts a prefix that only one job has.")
    source: str = Field(description="The name of its source.")
    state: JobState = Field(description="Its state.")
    reason: str | None = Field(description="Why it is in this state.")
    engine: str = Field(description="local or celery.")
    runs: int = Field(description="How often it was started.")
    is_discovered: bool = Field(description="Whether all its items are known.")
    created_at: Time = Field(description="When it was created.")
    started_at: Time | None = Field(description="When it was first started.")
    finished_at: Time | None = Field(description="When it ended.")
    items: dict[str, int] = Field(
        description="The number of its items by state; open: queued or leased."
    )


class JobDetails(Job):
    """A job with its settings and statistics."""

    model_config = _example(
        **_example_of(Job),
        settings={"source": "shop", "limit": 10},
        statistics={"requests": 42.0},
    )
    settings: Values = Field(description="The settings of its creation, without secrets.")
    statistics: dict[str, float] = Field(description="Its counters by name.")


class JobRetry(RequestBody):
    """Which items of a job to attempt again; empty: all that failed."""

    model_config = _body(kind="timeout")
    kind: FailureKind | None = Field(
        default=None, description="Only items that failed with this kind."
    )
    state: Literal["failed", "quarantined", "skipped"] | None = Field(
        default=None, description="Only items in this state."
    )
    key: str | None = Field(
        default=None, min_length=1, max_length=2000, description="Only this item."
    )


class JobLaunch(BaseModel):
    """A job, and the launch that continues it; null: none is needed."""

    model_config = _example(
        job=_example_of(Job),
        launch=_example_of(Launch),
    )
    job: Job = Field(description="The job as it is now.")
    launch: Launch | None = Field(
        description="The launch; null: a process runs the job, or it was paused or cancelled."
    )


class JobItem(BaseModel):
    """One item of a job."""

    model_config = _example(
        id=1,
        key="p-1",
        url="https://shop.example/p/1",
        state="stored",
        kind=None,
        reason=None,
        tries=1,
        finished_at="2026-11-18T08:00:05Z",
    )
    id: int = Field(description="Its number.")
    key: str = Field(description="Its key within the source.")
    url: str = Field(description="Its address.")
    state: ItemState = Field(description="Its state.")
    kind: str | None = Field(description="The kind of its failure.")
    reason: str | None = Field(description="Why it failed, was skipped or is deferred.")
    tries: int = Field(description="The number of attempts.")
    finished_at: Time | None = Field(description="When it got its final state.")


class FailedAttempt(BaseModel):
    """One failed attempt at an item."""

    model_config = _example(
        id=5,
        key="p-1",
        url="https://shop.example/p/1",
        at="2026-11-18T08:00:05Z",
        kind="timeout",
        status=None,
        step="retried",
        seconds=30.0,
        reason="no response within 30 s",
        tries=1,
    )
    id: int = Field(description="Its number.")
    key: str | None = Field(description="The item; null: discovery.")
    url: str = Field(description="The address that failed.")
    at: Time = Field(description="When the attempt ended.")
    kind: FailureKind = Field(description="The kind of the failure.")
    status: int | None = Field(description="The HTTP status; null without a response.")
    step: str = Field(description="What followed: retried, deferred, given up.")
    seconds: float = Field(description="The duration of the attempt.")
    reason: str = Field(description="What failed.")
    tries: int = Field(description="The number of the attempt.")


# ---------------- Records and exports


class Record(BaseModel):
    """A record as it is now, or was at a time."""

    model_config = _example(
        id=1,
        source="shop",
        key="p-1",
        url="https://shop.example/p/1",
        job_id="shop-20261118-080000-ab12",
        version=2,
        score=92.5,
        grade="A",
        first_seen_at="2026-11-17T08:00:00Z",
        seen_at="2026-11-18T08:00:05Z",
        changed_at="2026-11-18T08:00:05Z",
        gone_at=None,
        data={"title": "Hat", "price": 12.5},
        about={"layers": {"page": "ok"}},
    )
    id: int = Field(description="Its number.")
    source: str = Field(description="The name of its source.")
    key: str = Field(description="Its key within the source.")
    url: str = Field(description="Where it was found.")
    job_id: str | None = Field(description="The job that has seen it last.")
    version: int = Field(description="The number of its version, from 1.")
    score: float | None = Field(description="Its quality from 0 to 100.")
    grade: str | None = Field(description="The grade of its quality.")
    first_seen_at: Time = Field(description="When it was first seen.")
    seen_at: Time = Field(description="When it was last seen.")
    changed_at: Time = Field(description="When its present version was stored.")
    gone_at: Time | None = Field(description="Since when it is gone from the site.")
    data: Values = Field(description="Its fields.")
    about: Values = Field(description="Provenance, notes, layers and quality.")


class RecordVersion(BaseModel):
    """A record from `since` on; `until` is null for the present version."""

    model_config = _example(
        version=1,
        job="shop-20261117-080000-ab12",
        since="2026-11-17T08:00:00Z",
        until="2026-11-18T08:00:05Z",
        data={"title": "Hat", "price": 10},
    )
    version: int = Field(description="Its number, from 1.")
    job: str | None = Field(description="The job that wrote it; null: a manual edit.")
    since: Time = Field(description="When it was stored.")
    until: Time | None = Field(description="When it was replaced.")
    data: Values = Field(description="Its fields.")


class RecordDiff(BaseModel):
    """The difference between two versions of a record."""

    model_config = _example(
        source="shop",
        key="p-1",
        older=1,
        newer=2,
        at="2026-11-18T08:00:05Z",
        job="shop-20261118-080000-ab12",
        differences=[{"field": "price", "old": 10, "new": 12.5}],
    )
    source: str = Field(description="The name of its source.")
    key: str = Field(description="Its key.")
    older: int | None = Field(description="The older version.")
    newer: int = Field(description="The newer version.")
    at: Time = Field(description="When the newer one was stored.")
    job: str | None = Field(description="The job that wrote the newer one.")
    differences: list[Values] = Field(
        description="Each changed field; without `old` it was added, without `new` removed."
    )


ExportFormat = Literal["jsonl", "json", "csv", "parquet", "xlsx", "sqlite"]


class ExportCreate(RequestBody):
    """The records of a job, to be written into the folder `exports` of the home."""

    model_config = _body(job="shop-20261118-080000-ab12", file="shop.csv")
    job: Name = Field(description="The id of the job.")
    file: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,150}$",
        description="A file name whose ending names the format, such as shop.csv; not a path.",
    )
    columns: list[Name] = Field(
        default_factory=list, max_length=500, description="The columns to write; empty: all."
    )


class Export(BaseModel):
    """An export as a durable task of a job."""

    model_config = _example(
        id="shop.csv",
        job="shop-20261118-080000-ab12",
        file="shop.csv",
        state="queued",
        reason=None,
        records=None,
    )
    id: str = Field(description="Its id within the job: a job has one export to a file.")
    job: str = Field(description="The job whose records are written.")
    file: str = Field(description="The name of the file.")
    state: Literal["queued", "running", "written", "failed", "dropped"] = Field(
        description="Its state."
    )
    reason: str | None = Field(description="Why it failed.")
    records: int | None = Field(description="How many records were written.")


# ---------------- Schedules and flows


class Schedule(BaseModel):
    """A schedule, and when it is due next."""

    model_config = _example(
        name="shop-daily",
        origin="command",
        is_enabled=True,
        paused_at=None,
        pause_reason=None,
        failures=0,
        next_at="2026-11-19T03:30:00Z",
        problem=None,
        definition={"name": "shop-daily", "source": "shop", "cron": "30 3 * * *"},
    )
    name: str = Field(description="Its name.")
    origin: str = Field(description="The file that defines it, or command.")
    is_enabled: bool = Field(description="Whether its definition enables it.")
    paused_at: Time | None = Field(description="Since when it is paused.")
    pause_reason: str | None = Field(description="Why it is paused.")
    failures: int = Field(description="Failed runs in a row.")
    next_at: Time | None = Field(description="When it starts next; null: not by time.")
    problem: str | None = Field(description="Why its definition cannot be used.")
    definition: Values = Field(description="What it runs, and when.")


class SchedulePause(RequestBody):
    """Why a schedule is paused."""

    model_config = _body(reason="The site is being rebuilt.")
    reason: str = Field(default="", max_length=500, description="Shown with the schedule.")


class NextRun(BaseModel):
    """An occurrence to come."""

    model_config = _example(
        schedule="shop-daily",
        nominal_at="2026-11-19T03:30:00Z",
        starts_at="2026-11-19T03:30:00Z",
        paused=None,
        excluded=None,
        clock_change=None,
    )
    schedule: str = Field(description="The name of its schedule.")
    nominal_at: Time = Field(description="The time of the schedule.")
    starts_at: Time = Field(description="When it starts, with the delay of the schedule.")
    paused: str | None = Field(description="Why the schedule is paused.")
    excluded: str | None = Field(description="Why the schedule skips it; null: it does not.")
    clock_change: str | None = Field(
        description="What a change of the clock does to it: shifted, first or second."
    )


class Occurrence(BaseModel):
    """An occurrence of a schedule with its fate, and the run that it has started."""

    model_config = _example(
        schedule="shop-daily",
        nominal_at="2026-11-18T03:30:00Z",
        kind="scheduled",
        fate="fired",
        reason=None,
        decided_at="2026-11-18T03:30:00Z",
        launch_id=7,
        target="shop-20261118-033001-ab12",
        state="ended",
        result="complete",
    )
    schedule: str = Field(description="The name of its schedule.")
    nominal_at: Time = Field(description="The time of the schedule.")
    kind: str = Field(description="scheduled, manual, backfill, after, event or fresh.")
    fate: str = Field(description="fired, queued, skipped or missed.")
    reason: str | None = Field(description="Why it has this fate.")
    decided_at: Time = Field(description="When its fate was decided.")
    launch_id: int | None = Field(description="The launch that it has placed.")
    target: str | None = Field(description="The job or flow run.")
    state: str | None = Field(description="The state of the launch.")
    result: str | None = Field(description="How the run ended.")


class Flow(BaseModel):
    """A flow in the folders of flows."""

    model_config = _example(
        name="publish",
        about="Collect, check, export.",
        steps=["collect", "check", "export"],
        params={"region": "north"},
        problem=None,
    )
    name: str = Field(description="The name to run it by.")
    about: str = Field(description="What it does.")
    steps: list[str] = Field(description="The names of its steps, each after those it waits for.")
    params: Values = Field(description="Its parameters with their defaults.")
    problem: str | None = Field(description="Why it cannot be used.")


class FlowStep(BaseModel):
    """A step of a flow run."""

    model_config = _example(
        step="check",
        state="waiting",
        attempt=1,
        reason=None,
        started_at="2026-11-18T08:00:00Z",
        ended_at=None,
        output=None,
        undo_state=None,
    )
    step: str = Field(description="Its name.")
    state: str = Field(description="pending, running, waiting, complete, failed or skipped.")
    attempt: int = Field(description="The number of its attempt.")
    reason: str | None = Field(description="Why it failed or was skipped.")
    started_at: Time | None = Field(description="When it began.")
    ended_at: Time | None = Field(description="When it ended.")
    output: Any = Field(description="What it returned.")
    undo_state: str | None = Field(description="undoing, undone or failed.")


class FlowRun(BaseModel):
    """A run of a flow."""

    model_config = _example(
        id="publish-20261118-080000-ab12",
        flow="publish",
        state="waiting",
        reason=None,
        origin="command",
        params={},
        created_at="2026-11-18T08:00:00Z",
        started_at="2026-11-18T08:00:01Z",
        ended_at=None,
    )
    id: str = Field(description="Its id; the API also accepts a prefix that only one run has.")
    flow: str = Field(description="The name of the flow.")
    state: str = Field(description="Its state.")
    reason: str | None = Field(description="Why it is in this state.")
    origin: str = Field(description="What started it.")
    params: Values = Field(description="Its parameters.")
    created_at: Time = Field(description="When it was created.")
    started_at: Time | None = Field(description="When it began.")
    ended_at: Time | None = Field(description="When it ended.")


class FlowRunDetails(FlowRun):
    """A run of a flow with its steps."""

    model_config = _example(
        **_example_of(FlowRun),
        steps=[_example_of(FlowStep)],
    )
    steps: list[FlowStep] = Field(description="Its steps.")


class FlowRunCreate(RequestBody):
    """A flow to run, with its parameters."""

    model_config = _body(flow="publish", params={"region": "north"})
    flow: Name = Field(description="The name of a flow in the folders of flows; not a path.")
    params: dict[Name, Any] = Field(
        default_factory=dict, max_length=200, description="Values of its parameters."
    )


class FlowApproval(RequestBody):
    """The decision about a step that waits for a person."""

    model_config = _body(step="check", is_approved=True, comment="Looks right.")
    step: Name | None = Field(default=None, description="The step; null: the only one that waits.")
    is_approved: bool = Field(default=True, description="False rejects the step, which then fails.")
    comment: str | None = Field(default=None, max_length=1000, description="The reason.")


class FlowCancel(RequestBody):
    """Why a flow run is cancelled."""

    model_config = _body(comment="Started by mistake.")
    comment: str | None = Field(default=None, max_length=1000, description="The reason.")


class FlowResume(RequestBody):
    """From which step on a run continues with its changed file."""

    model_config = _body(upgrade_from="check")
    upgrade_from: Name | None = Field(
        default=None,
        description="Read the file of the flow again, and run this step and all after it; "
        "null: continue with the definition that the run has.",
    )


# ---------------- Events, sites, quality


class Event(BaseModel):
    """A committed change; ids grow in the order of the commits."""

    model_config = _example(
        id=42,
        at="2026-11-18T08:00:00Z",
        type="job.started",
        job="shop-20261118-080000-ab12",
        key=None,
        subject="job/shop-20261118-080000-ab12",
        version=1,
        data={"engine": "local"},
    )
    id: int = Field(description="Its number; the id of its message in the stream.")
    at: Time = Field(description="When it happened.")
    type: str = Field(description="Its type, such as job.started.")
    job: str | None = Field(description="Its job.")
    key: str | None = Field(description="Its item or record.")
    subject: str = Field(description="What it is about, such as domain/HOST.")
    version: int = Field(description="The version of its type.")
    data: Values = Field(description="Its data.")


class RateLimit(BaseModel):
    """The rate limit of a domain."""

    model_config = _example(
        rate=2.0, burst=1, origin="learned", refusals=0, changed_at="2026-11-18T08:00:00Z"
    )
    rate: float | None = Field(description="Maximum requests per second.")
    burst: float = Field(description="Maximum requests in a burst.")
    origin: str = Field(description="Where it comes from, such as learned or pinned.")
    refusals: int = Field(description="How often the site asked for fewer requests.")
    changed_at: Time | None = Field(description="When it last changed.")


class Breaker(BaseModel):
    """The circuit breaker of a domain."""

    model_config = _example(
        phase="open",
        failures=12,
        trips=2,
        opened_at="2026-11-18T08:00:00Z",
        until="2026-11-18T08:10:00Z",
        rate=0.9,
        reason="12 failures in a row",
        is_ban=False,
    )
    phase: str = Field(description="closed, open, half-open or ramping.")
    failures: int = Field(description="Failures in a row.")
    trips: int = Field(description="How often it has opened in a row.")
    opened_at: Time | None = Field(description="When it opened.")
    until: Time | None = Field(description="When the next probe is sent.")
    rate: float | None = Field(description="The share of recent requests that failed.")
    reason: str = Field(description="Why it opened.")
    is_ban: bool = Field(description="Whether the site bans longline.")


class Domain(BaseModel):
    """A domain with its rate limit and its circuit breaker; null: not known."""

    model_config = _example(
        domain="shop.example",
        limit=_example_of(RateLimit),
        breaker=None,
        problems=[],
    )
    domain: str = Field(description="Host and port.")
    limit: RateLimit | None = Field(description="Its rate limit.")
    breaker: Breaker | None = Field(description="Its circuit breaker.")
    problems: list[str] = Field(description="What is wrong with it now.")


class ProxyInfo(BaseModel):
    """A proxy of the pool, its last check and its score; credentials are never shown."""

    model_config = _example(
        address="socks5://203.0.113.7:1080",
        state="alive",
        tier="default",
        country="BG",
        origin="list",
        is_rotating=False,
        has_credentials=False,
        latency=0.42,
        anonymity="elite",
        exit_address="203.0.113.7",
        problem=None,
        checked_at="2026-11-18T08:00:00+00:00",
        requests=12,
        failed=1,
        bans=0,
        quarantined_until=None,
        reason=None,
    )
    address: str = Field(description="Scheme, host and port.")
    state: str = Field(description="alive, unchecked, quarantined or dead.")
    tier: str = Field(description="Its tier.")
    country: str | None = Field(description="Its country, as a code of two letters.")
    origin: str | None = Field(description="The source of candidates that listed it.")
    is_rotating: bool = Field(description="Whether it is a gateway that changes its exit itself.")
    has_credentials: bool = Field(description="Whether it needs a user name and a password.")
    latency: float | None = Field(description="Seconds that the judge took through it.")
    anonymity: str | None = Field(description="transparent, anonymous or elite.")
    exit_address: str | None = Field(description="The address that sites see.")
    problem: str | None = Field(description="Why the last check failed.")
    checked_at: Time | None = Field(description="When it was checked last.")
    requests: int = Field(description="Requests through it.")
    failed: int = Field(description="Requests that failed because of it.")
    bans: int = Field(description="Bans by sites.")
    quarantined_until: Time | None = Field(description="When its quarantine ends.")
    reason: str | None = Field(description="Why it is in quarantine.")


class ProxyRefresh(BaseModel):
    """A refresh of the pool of proxies."""

    model_config = _example(
        number=3,
        reason="manual",
        step="check",
        started_at="2026-11-18T08:00:00+00:00",
        ended_at=None,
        candidates=250,
        chunks=3,
        checked=1,
        alive=12,
        problems={},
    )
    number: int = Field(description="Its number.")
    reason: str = Field(description="Why it began.")
    step: str | None = Field(description="collect, check or merge; null once it has ended.")
    started_at: Time = Field(description="When it began.")
    ended_at: Time | None = Field(description="When it ended.")
    candidates: int = Field(description="Proxies that are checked.")
    chunks: int = Field(description="Chunks of candidates.")
    checked: int = Field(description="Chunks that were checked.")
    alive: int = Field(description="Proxies that passed.")
    problems: dict[str, str] = Field(
        description="Problems of sources of candidates by name, and of steps."
    )


class BreakerReset(BaseModel):
    """A domain after its breaker was closed."""

    model_config = _example(
        domain={"domain": "shop.example", "limit": None, "breaker": None, "problems": []},
        due_items=3,
    )
    domain: Domain = Field(description="The domain.")
    due_items: int = Field(description="Deferred items that are due now.")


class QuarantineGroup(BaseModel):
    """Items of a job in quarantine for the same reason."""

    model_config = _example(
        job="shop-20261118-080000-ab12",
        kind="invalid",
        reason="price: must be a number",
        count=3,
        keys=["p-1", "p-2", "p-3"],
    )
    job: str = Field(description="The job.")
    kind: str | None = Field(description="The kind of the failure.")
    reason: str = Field(description="The reason, without the item.")
    count: int = Field(description="The number of items.")
    keys: list[str] = Field(description="The first of them.")


class QuarantinedItem(BaseModel):
    """An item in quarantine, with what it was made of."""

    model_config = _example(
        id=3,
        job="shop-20261118-080000-ab12",
        key="p-1",
        url="https://shop.example/p/1",
        state="quarantined",
        kind="invalid",
        reason="price: must be a number",
        tries=1,
        problems=["price: must be a number"],
        layers={"page": "ok"},
        raw={"page": {"price": "ask"}},
        finished_at="2026-11-18T08:00:05Z",
    )
    id: int = Field(description="Its number.")
    job: str = Field(description="Its job.")
    key: str = Field(description="Its key.")
    url: str = Field(description="Its address.")
    state: ItemState = Field(description="quarantined, or failed with its material.")
    kind: str | None = Field(description="The kind of the failure.")
    reason: str = Field(description="Why it is in quarantine.")
    tries: int = Field(description="The number of attempts.")
    problems: list[str] = Field(description="What is wrong with it.")
    layers: dict[str, str] = Field(description="How each extraction step ended.")
    raw: Values = Field(description="The fields that each extraction step has found.")
    finished_at: Time = Field(description="Since when.")


class Drift(BaseModel):
    """The last run of a source compared with earlier ones."""

    model_config = _example(
        source="shop",
        job="shop-20261118-080000-ab12",
        at="2026-11-18T08:10:00Z",
        records=120,
        is_sound=False,
        is_accepted=False,
        drift=["price is empty in 40 % of the records"],
        reason=None,
    )
    source: str = Field(description="The source.")
    job: str = Field(description="Its last job that ended.")
    at: Time = Field(description="When the job ended.")
    records: int = Field(description="The records of the job.")
    is_sound: bool = Field(description="Whether later runs are compared with it.")
    is_accepted: bool = Field(description="Whether a person has accepted it.")
    drift: list[str] = Field(description="What has changed.")
    reason: str | None = Field(description="Why it is not compared.")


class DriftDetails(Drift):
    """The drift of a source with its fields before and now."""

    model_config = _example(
        **_example_of(Drift),
        baseline={"runs": 5, "records": 600},
        fields=[{"field": "price", "before": {"filled": 1.0}, "now": {"filled": 0.6}}],
    )
    baseline: Values = Field(description="Runs and records that it is compared with.")
    fields: list[Values] = Field(description="Each field before and now.")


class DriftAccepted(BaseModel):
    """The run that is now the baseline of its source."""

    model_config = _example(source="shop", job="shop-20261118-080000-ab12")
    source: str = Field(description="The source.")
    job: str = Field(description="The job.")


class DuplicateGroup(BaseModel):
    """Records that describe the same thing."""

    model_config = _example(
        kind="products",
        records=["shop/p-1", "market/88"],
        sources=["market", "shop"],
        score=12.0,
        title="Hat",
    )
    kind: str = Field(description="The name of the rules.")
    records: list[str] = Field(description="The records as source/key.")
    sources: list[str] = Field(description="Their sources.")
    score: float = Field(description="The best score of the pairs that join them.")
    title: str | None = Field(description="A title of one of them, or an address.")


class DuplicateDetails(BaseModel):
    """A group with its records, their merged view and the evidence of its pairs."""

    model_config = _example(
        kind="products", records=[{"record": "shop/p-1"}], merged=[], pairs=[], parted=[]
    )
    kind: str = Field(description="The name of the rules.")
    records: list[Values] = Field(description="The records.")
    merged: list[Values] = Field(description="One view of all, with the origin of each value.")
    pairs: list[Values] = Field(description="The pairs with their evidence.")
    parted: list[Values] = Field(description="Confirmed pairs that rejected ones separate.")


class DuplicateDecision(RequestBody):
    """Whether two records, as source/key, are the same thing."""

    model_config = _body(kind="products", left="shop/p-1", right="market/88", decision="confirmed")
    kind: Name = Field(description="The name of the rules.")
    left: str = Field(min_length=3, max_length=2000, description="A record as source/key.")
    right: str = Field(min_length=3, max_length=2000, description="Another one.")
    decision: Literal["confirmed", "rejected"] = Field(description="confirmed: the same thing.")


# ---------------- Monitoring and access


class Alert(BaseModel):
    """What a rule has found wrong with a subject."""

    model_config = _example(
        id=3,
        rule="late",
        subject="source/shop",
        state="firing",
        severity="warning",
        summary="shop has no data since 2 days",
        evidence={"hours": 48},
        action="Check why its schedule does not run.",
        since="2026-11-16T08:00:00Z",
        seen_at="2026-11-18T08:00:00Z",
        fired_at="2026-11-16T08:05:00Z",
        resolved_at=None,
        is_silenced=False,
    )
    id: int = Field(description="Its number.")
    rule: str = Field(description="The rule.")
    subject: str = Field(description="What it is about, such as source/NAME.")
    state: str = Field(description="pending, firing or resolved.")
    severity: str = Field(description="warning or critical.")
    summary: str = Field(description="What is wrong.")
    evidence: Values = Field(description="The values behind it.")
    action: str = Field(description="What to do.")
    since: Time = Field(description="When the problem began.")
    seen_at: Time = Field(description="When it was last found.")
    fired_at: Time | None = Field(description="When the alert began to fire.")
    resolved_at: Time | None = Field(description="When it was resolved.")
    is_silenced: bool = Field(description="Whether a silence applies to it.")


class SilenceCreate(RequestBody):
    """How long an alert is not notified."""

    model_config = _body(seconds=86400, reason="The site is being rebuilt.")
    seconds: float = Field(gt=0, le=366 * 86_400, description="The duration in seconds.")
    reason: str = Field(default="", max_length=500, description="Shown with the silence.")


class Silence(BaseModel):
    """Alerts that are not notified until a time."""

    model_config = _example(
        id=1,
        rule="late",
        subject="source/shop",
        until="2026-11-19T08:00:00Z",
        reason="The site is being rebuilt.",
        created_at="2026-11-18T08:00:00Z",
    )
    id: int = Field(description="Its number.")
    rule: str | None = Field(description="The rule; null: any.")
    subject: str | None = Field(description="The subject, as a pattern; null: any.")
    until: Time = Field(description="When it ends.")
    reason: str = Field(description="Why.")
    created_at: Time = Field(description="When it was added.")


class LogLine(BaseModel):
    """A stored warning or error of a process."""

    model_config = _example(
        id=9,
        at="2026-11-18T08:00:00Z",
        level="warning",
        logger="longline.engine",
        message="lease lost",
        exception=None,
        job="shop-20261118-080000-ab12",
        source="shop",
        domain=None,
        item="p-1",
        flow=None,
        worker=None,
        fields={},
    )
    id: int = Field(description="Its number.")
    at: Time = Field(description="When it was written.")
    level: str = Field(description="warning, error or critical.")
    logger: str = Field(description="The module that wrote it.")
    message: str = Field(description="What happened.")
    exception: str | None = Field(description="The traceback.")
    job: str | None = Field(description="Its job.")
    source: str | None = Field(description="Its source.")
    domain: str | None = Field(description="Its domain.")
    item: str | None = Field(description="Its item.")
    flow: str | None = Field(description="Its flow run.")
    worker: str | None = Field(description="Its worker.")
    fields: Values = Field(description="All other fields.")


class Worker(BaseModel):
    """A registered worker of a cluster."""

    model_config = _example(
        name="worker-1",
        owner="host-1:4711:1a2b",
        host="host-1",
        pid=4711,
        until="2026-11-18T08:01:00Z",
    )
    name: str = Field(description="Its name.")
    owner: str = Field(description="Its process.")
    host: str = Field(description="The machine.")
    pid: int | None = Field(description="The id of its process.")
    until: Time = Field(description="When it counts as lost, unless it renews its registration.")


class HealthCheck(BaseModel):
    """The finding of one check."""

    model_config = _example(check="database", state="ok", sentence="It responds.", remedy=None)
    check: str = Field(description="What was checked.")
    state: str = Field(description="ok, degraded or failed.")
    sentence: str = Field(description="The finding.")
    remedy: str | None = Field(description="What to do.")


class Health(BaseModel):
    """Whether the home works, with the finding of each check."""

    model_config = _example(
        state="ok",
        checks=[_example_of(HealthCheck)],
    )
    state: str = Field(description="The worst state of all checks.")
    checks: list[HealthCheck] = Field(description="The checks.")


class Token(BaseModel):
    """A token without its secret."""

    model_config = _example(
        id="1a2b3c4d",
        name="ci",
        role="operate",
        created_at="2026-11-18T08:00:00Z",
        expires_at=None,
        revoked_at=None,
    )
    id: str = Field(description="Its id.")
    name: str = Field(description="Its name.")
    role: str = Field(description="read, operate or admin.")
    created_at: Time = Field(description="When it was created.")
    expires_at: Time | None = Field(description="When it expires.")
    revoked_at: Time | None = Field(description="When it was revoked.")


class TokenCreate(RequestBody):
    """A token to create."""

    model_config = _body(name="ci", role="operate", seconds=7_776_000)
    name: str = Field(min_length=1, max_length=100, description="Its name.")
    role: Literal["read", "operate", "admin"] = Field(default="read", description="What it may do.")
    seconds: float | None = Field(
        default=None,
        gt=0,
        le=10 * 366 * 86_400,
        description="Its validity; null: until it is revoked.",
    )


class CreatedToken(Token):
    """A new token with its secret, which cannot be read again."""

    model_config = _example(
        **_example_of(Token),
        secret="ll_…",  # noqa: S106  # an example
    )
    secret: str = Field(description="The token itself.")
