"""The catalogue of event types: what each means, whom it is about, and the data it carries.

`longline events types` prints it. An event is stored with the version of its type; when the data of
a type changes, its version grows, and an upcaster converts what older versions have stored.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NotRequired

from typing_extensions import TypedDict

from longline.core.errors import BadOption

CUSTOM = "custom."
"""The prefix of event types that sources and plugins define themselves."""

Data = Mapping[str, Any]
Upcaster = Callable[[Data], Data]


@dataclass(frozen=True, slots=True)
class EventType:
    """One type of event.

    `meaning` is a sentence. `about` is the subject: `job`, or the field of the data that names
    another one, as `domain=host`. `upcasters` has, by version, the function that converts data to
    the next version.
    """

    name: str
    data: type
    meaning: str = ""
    about: str = "job"
    version: int = 1
    upcasters: Mapping[int, Upcaster] = field(default_factory=dict)

    def subject(self, job: str | None, data: Data) -> str:
        """Return whom an event of this type is about, such as `job/ID` or `domain/HOST`."""
        kind, _, name = self.about.partition("=")
        return f"{kind}/{data.get(name)}" if name else f"{kind}/{job}"

    def upcast(self, data: Data, version: int) -> Data:
        """Return the data of an older version as the present one has it."""
        while version < self.version:
            data = self.upcasters[version](data)
            version += 1
        return data

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of its data."""
        from pydantic import TypeAdapter  # noqa: PLC0415  # only the catalogue needs it

        return TypeAdapter(self.data).json_schema()


# ---------------- Jobs


class JobCreated(TypedDict):
    """A job of a source was created with these settings."""

    source: str
    settings: dict[str, Any]


def _without_source(data: Data) -> Data:
    # The migration 0007 adds the source; only events that it has not seen lack it.
    return {"source": "", **data}


class JobStarted(TypedDict):
    """A job was started on an engine, or resumed."""

    engine: str
    concurrency: NotRequired[int]
    ignore_robots: NotRequired[list[str]]


class JobCounted(TypedDict):
    """State and items of a job, from a version of longline that did not append every change."""

    state: str
    reason: str | None
    ended_at: float | None
    items: dict[str, int]


class SourceCounted(TypedDict):
    """How many records a source had when every change began to be an event."""

    source: str
    records: int


class JobContinued(TypedDict):
    """A paused job is running again, since one of its processes still works on it."""


class JobDiscovered(TypedDict):
    """Discovery has ended; `items` is how many items the job has.

    `shortfall` says why not all could be found.
    """

    items: int
    shortfall: NotRequired[str]


class ItemsEnqueued(TypedDict):
    """This many new items of a job were queued; the `key` of the event is the item that has them.

    Without a key, discovery has found them.
    """

    items: int


class ItemsSkipped(TypedDict):
    """This many unfinished items of a job were skipped together."""

    items: int
    reason: str
    failure: NotRequired[str]


class JobEnded(TypedDict):
    """A job has ended, or was paused, for a reason.

    `cuts`, `warnings` and `limited_to` restrict its counts. `found_all` says whether the job has
    found everything that its source lists.
    """

    reason: str | None
    cuts: NotRequired[list[str]]
    warnings: NotRequired[list[str]]
    limited_to: NotRequired[int | None]
    found_all: NotRequired[bool]


class JobReopened(TypedDict):
    """Items of a job were queued again by `retry`, or a replay of its quarantine has begun.

    `states` counts the items that were queued again by the state that they had. With `reason`, the
    job had ended, and is paused for this reason now. With `is_discovering`, discovery continues.
    With `replayed`, no item is queued again.
    """

    items: int
    failure: NotRequired[str | None]
    states: NotRequired[dict[str, int]]
    reason: NotRequired[str]
    is_discovering: NotRequired[bool]
    replayed: NotRequired[bool]


class JobReplayed(TypedDict):
    """Quarantined items of a job were processed again; `ends` counts them by their new state."""

    ends: dict[str, int]
    left: int


class JobReextracted(TypedDict):
    """The items of a job were extracted again from its archive; `written` records changed."""

    written: int


class RunEnded(TypedDict):
    """A process has ended its run of a job."""

    seconds: float
    peak_memory_bytes: int


class CheckpointFailed(TypedDict):
    """The checkpoint document of a job could not be written."""

    reason: str


class LeasesReclaimed(TypedDict):
    """Items of dead workers were queued again; `suspects` of them may have killed a worker."""

    items: int
    suspects: NotRequired[int]


# ---------------- Items and records


class ItemOutcome(TypedDict):
    """An attempt at an item has ended with this outcome.

    `before` is the state of an item that was processed again without a request: quarantined or
    failed. Without it, the item was in the queue.
    """

    before: NotRequired[str]
    seconds: NotRequired[float]
    requests: NotRequired[int]
    failure: NotRequired[str]
    reason: NotRequired[str]
    due: NotRequired[float]
    deaths: NotRequired[int]


class RecordWritten(TypedDict):
    """A record was created, has changed or is there again; `version` is its present one."""

    source: str
    version: int


class RecordGone(TypedDict):
    """A record is gone: a job that has found everything does not have its item any more.

    With `status`, the job has the item, and its page does not exist (404, 410).
    """

    source: str
    version: int
    status: NotRequired[int]


# ---------------- Discovery and sources


class SourceProfiled(TypedDict):
    """The records of a job that has ended were compared with those of earlier runs of its source.

    `records` and `invalid` count the items that were examined, which is a sample of a large job.
    `coverage` is, by top-level field, the share of these records that have it. Only a job that
    `is_sound` is a baseline of later runs; `drift` says what differs.
    """

    source: str
    records: int
    invalid: int
    coverage: dict[str, float]
    is_sound: bool
    drift: list[str]


class RecordDiff(TypedDict):
    """What happened to one record: `change` is new, changed, gone or returned.

    `fields` are those that differ from before, each with `old`, `new` or both. Long
    values are cut off after 300 characters.
    """

    key: str
    url: str
    change: str
    fields: list[dict[str, Any]]


class SourceChanged(TypedDict):
    """A job that has ended in `state` has changed records of its source.

    `new`, `changed`, `gone` and `returned` count all of them. `records` lists the first 20 of each,
    `unlisted` is how many it leaves out. The first run of a source has no such event.
    """

    source: str
    state: str
    new: int
    changed: int
    gone: int
    returned: int
    records: list[RecordDiff]
    unlisted: int


class DiscoveryReason(TypedDict):
    """Why discovery ended early, or which problem it met."""

    reason: str


class DiscoveryNote(TypedDict):
    """What is unusual about the items that discovery found."""

    field: str
    text: str


class DiscoveryFailed(TypedDict):
    """Discovery has failed; `host` is the one whose robots.txt refused it."""

    reason: str
    is_fatal: bool
    host: str | None


class DiscoveryKilled(TypedDict):
    """The process that ran the discovery of a job has died."""

    owner: str


class SourceFailed(TypedDict):
    """A source could not be notified of the end of its job, or could not be torn down."""

    reason: NotRequired[str]


# ---------------- Exports


class ExportWritten(TypedDict):
    """The records of a job were exported."""

    output: str
    records: int


class ExportFailed(TypedDict):
    """The records of a job could not be exported, or the export was dropped."""

    output: NotRequired[str]
    reason: NotRequired[str]


# ---------------- Drift


class DriftNoticed(TypedDict):
    """A field of the records has changed since item number `item`, compared with before."""

    field: str
    before: str
    now: str
    item: int
    text: str


class DriftUnjudged(TypedDict):
    """Drift could not be checked."""

    error: str


class DriftAccepted(TypedDict):
    """A person has accepted the records of a job as the new normal."""


# ---------------- Domains


class LimitLearned(TypedDict):
    """The learned rate limit of a domain has changed by at least a fifth."""

    domain: str
    rate: float


class LimitPinned(TypedDict):
    """A person has set the rate limit of a domain: requests per second, and in a burst."""

    domain: str
    rate: float
    burst: int


class LimitForgotten(TypedDict):
    """A person has deleted the rate limit of a domain, pinned or learned."""

    domain: str


class LimitPublished(TypedDict):
    """A site declares a rate limit: `limit` requests in `window` seconds."""

    domain: str
    limit: float | None
    window: float | None


class LimitRefused(TypedDict):
    """A site refused a request, so requests to its domain are stopped; `rate` is the limit now."""

    domain: str
    status: int
    pause: float
    rate: float | None


class UrlRefused(TypedDict):
    """A site refuses one URL again and again while others succeed."""

    domain: str
    status: int
    pause: float


class BreakerOpened(TypedDict):
    """The circuit breaker of a domain has opened."""

    domain: str
    reason: str
    until: float | None


class BreakerClosed(TypedDict):
    """The circuit breaker of a domain admits requests again."""

    domain: str
    reason: str


class DomainBlocked(TypedDict):
    """A site has banned us, or presents a challenge."""

    domain: str
    evidence: str
    until: float | None


class RobotsIgnored(TypedDict):
    """A request was sent although robots.txt may forbid it, as the operator allowed."""

    host: str
    url: str


class RobotsUnreachable(TypedDict):
    """robots.txt of a host cannot be fetched."""

    host: str
    reason: str
    until: float


class RobotsRate(TypedDict):
    """robots.txt of a host lowers the rate limit."""

    host: str
    rate: float


# ---------------- Workers


class WorkerChanged(TypedDict):
    """A worker of a cluster has started, has shut down cleanly, or is lost for a reason.

    Several workers may have the same name; `host` and `pid` identify the process.
    """

    worker: str
    host: str
    pid: int
    reason: NotRequired[str]


# ---------------- Requests


class AddressRefused(TypedDict):
    """A page requested a private address, which was refused."""

    url: str
    address: str


class ArchiveMissing(TypedDict):
    """The archive has no response to a request that is replayed."""

    url: str
    method: str


class AuthHost(TypedDict):
    """A login succeeded, or a session has ended."""

    host: str
    reason: NotRequired[str]


class AuthFailed(TypedDict):
    """Authentication at a host failed."""

    host: str
    problem: str


class AuthToken(TypedDict):
    """A token was obtained that is valid for this many seconds."""

    host: str
    seconds: float


class AuthWithheld(TypedDict):
    """Credentials were withheld from another host."""

    host: str
    hosts: list[str]


class BrowserKept(TypedDict):
    """A page that could not be rendered was kept in a file."""

    url: str
    file: str


class BudgetSpent(TypedDict):
    """A budget of the job is exhausted."""

    limit: str


class CacheStale(TypedDict):
    """A stale response of the cache was used, since the site failed."""

    url: str
    reason: str


class CacheUnavailable(TypedDict):
    """The HTTP cache cannot be used."""

    reason: str


# ---------------- Webhooks


class WebhookDisabled(TypedDict):
    """A webhook gets no more events until it is enabled again."""

    webhook: str
    reason: str


# ---------------- Schedules


class ScheduleDefined(TypedDict):
    """A schedule was added or has changed; `origin` is the file that defines it, or `command`."""

    schedule: str
    origin: str
    definition: dict[str, Any]


class ScheduleRemoved(TypedDict):
    """A schedule was removed; its occurrences stay."""

    schedule: str
    origin: str


class SchedulePaused(TypedDict):
    """A schedule was paused; its occurrences are skipped until it is resumed.

    `failures` is how many runs in a row have failed, if that is why.
    """

    schedule: str
    reason: str
    failures: NotRequired[int]


class ScheduleResumed(TypedDict):
    """A schedule was resumed."""

    schedule: str


class OccurrenceDecided(TypedDict):
    """The fate of an occurrence was decided.

    `nominal_at` is when it was due, in seconds since the epoch, and identifies the occurrence.
    `kind` is scheduled, after, event, fresh, manual or backfill. `launch` is what it started.
    """

    schedule: str
    nominal_at: float
    kind: str
    reason: NotRequired[str]
    launch: NotRequired[int]


class SourceFreshness(TypedDict):
    """The data of a source has become older than its limit, or is fresh again.

    `limit` is the maximum age in seconds. `data_at` is when the last job with data has ended; None:
    there was none.
    """

    source: str
    limit: float
    data_at: float | None


class ConfigInvalid(TypedDict):
    """A file could not be used; the definitions that it had before stay in use."""

    path: str
    problem: str


# ---------------- Access to the server


class TokenChanged(TypedDict):
    """A token of the server was created or revoked; `token` is its id, `label` its name."""

    token: str
    label: str
    role: str


class LoginEnded(TypedDict):
    """A person has opened the web interface, or an attempt was refused.

    `client` is the address that the request came from.
    """

    caller: str
    client: str


class ActionTaken(TypedDict):
    """A caller has changed something through the server.

    `action` is the method and path of the request, `status` the HTTP status of its response.
    """

    caller: str
    role: str
    action: str
    status: int


# ---------------- Flows


class FlowCreated(TypedDict):
    """A run of a flow was created; `hash` is that of its frozen definition."""

    run: str
    flow: str
    hash: str
    params: dict[str, Any]
    origin: str


class FlowChanged(TypedDict):
    """A run of a flow is in the state that the type of the event names, for a reason."""

    run: str
    flow: str
    reason: NotRequired[str | None]


class FlowReopened(TypedDict):
    """A run of a flow that had ended or waited goes on.

    `action` is approve, retry, undo, cancel or upgrade; `hash` is that of a new definition, and
    `steps` are those that are run again.
    """

    run: str
    flow: str
    action: str
    hash: NotRequired[str]
    steps: NotRequired[list[str]]


class StepChanged(TypedDict):
    """A step of a flow has the state that the type of the event names.

    `attempt` counts from 1. After a failed attempt, `retry_at` is the time of the next one.
    """

    run: str
    flow: str
    step: str
    attempt: int
    reason: NotRequired[str | None]
    retry_at: NotRequired[float]


# ---------------- Alerts


class ProxyAdded(TypedDict):
    """A proxy, with the name of its tier and of the source of candidates that lists it."""

    address: str
    tier: str
    origin: str


class ProxyRemoved(TypedDict):
    """A proxy, with the name of the source of candidates that listed it."""

    address: str
    origin: str


class ProxyDied(TypedDict):
    """A proxy that a check found dead, and why."""

    address: str
    problem: str


class ProxyRevived(TypedDict):
    """A proxy that was dead and is alive in a check."""

    address: str


class ProxyQuarantined(TypedDict):
    """A proxy that failed; `domain` is None if requests to every domain avoid it."""

    address: str
    domain: str | None
    reason: str
    until: float


class ProxyReturned(TypedDict):
    """A proxy that works again after a quarantine; `domain` is None as above."""

    address: str
    domain: str | None


class AlertChanged(TypedDict):
    """An alert fires, is worse than before, or is resolved; `alert` is its number.

    `subject` is such as `source/NAME`, `since` when the problem began, `evidence` the numbers, and
    `action` what to do.
    """

    alert: int
    rule: str
    subject: str
    severity: str
    summary: str
    evidence: dict[str, Any]
    action: str
    since: float


class NotifiedAlert(TypedDict):
    """An alert as a notification has it; long values are cut."""

    alert: int
    rule: str
    subject: str
    state: str
    severity: str
    summary: str
    evidence: dict[str, Any]
    action: str
    since: float
    resolved_at: float | None


class AlertsNotified(TypedDict):
    """People are notified of the alerts of a group, through these channels.

    `reason` is new, reminder or escalation. `alerts` lists the first 20, and `unlisted` is how many
    it leaves out.
    """

    group: str
    reason: str
    channels: list[str]
    title: str
    text: str
    alerts: list[NotifiedAlert]
    unlisted: int


class SilenceChanged(TypedDict):
    """Alerts of a rule and subject are not notified `until` a time, or are again.

    `rule` and `subject` may be patterns; null: any.
    """

    silence: int
    rule: str | None
    subject: str | None
    until: float
    reason: str


class ProxyRefreshStarted(TypedDict):
    """A refresh of the proxies, with its number."""

    refresh: int
    reason: str


class ProxiesChecked(TypedDict):
    """A chunk of candidates; `alive` of the `checked` proxies passed."""

    refresh: int
    chunk: int
    chunks: int
    checked: int
    alive: int


class ProxiesRefreshed(TypedDict):
    """A refresh; `problems` are those of sources of candidates, by name."""

    refresh: int
    candidates: int
    chunks: int
    checked: int
    alive: int
    seconds: float
    problems: dict[str, str]


class ProxyTaskFailed(TypedDict):
    """A step of a refresh whose processes were killed while they worked on it."""

    refresh: int
    step: str
    chunk: NotRequired[int]
    reason: str


class ReportMade(TypedDict):
    """A scheduled report was made, and is sent through these channels and written to these files.

    `nominal_at` is when it was due, `start` and `end` are its period, in seconds since the epoch.
    `title` is its state in a sentence, `text` the beginning of the report.
    """

    report: str
    nominal_at: float
    start: float
    end: float
    title: str
    text: str
    channels: list[str]
    files: list[str]


_Entries = Mapping[str, tuple[type, str]]


def _typed(about: str, entries: _Entries) -> dict[str, EventType]:
    return {
        name: EventType(name, data, meaning, about) for name, (data, meaning) in entries.items()
    }


EVENT_TYPES: Mapping[str, EventType] = {
    "job.created": EventType(
        "job.created",
        JobCreated,
        "A job was created.",
        version=2,
        upcasters={1: _without_source},
    ),
    **_typed(
        "job",
        {
            "job.started": (JobStarted, "A job was started for the first time."),
            "job.resumed": (JobStarted, "A job was started again."),
            "job.counted": (JobCounted, "A migration recorded the state and items of a job."),
            "job.continued": (JobContinued, "A job that one process paused continues in another."),
            "job.discovered": (JobDiscovered, "All items of a job are discovered."),
            "job.paused": (JobEnded, "A job was paused; it can be resumed."),
            "job.complete": (JobEnded, "A job has ended, and nothing is missing."),
            "job.partial": (JobEnded, "A job has ended, and something is missing."),
            "job.failed": (JobEnded, "A job has ended without a result."),
            "job.cancelled": (JobEnded, "A job was cancelled."),
            "job.reopened": (JobReopened, "Items of a job that had ended were queued again."),
            "job.replayed": (JobReplayed, "Quarantined items were processed again."),
            "job.reextracted": (JobReextracted, "Items were extracted again from the archive."),
            "run.ended": (RunEnded, "A process has stopped working on a job."),
            "checkpoint.failed": (CheckpointFailed, "A checkpoint document was not written."),
            "leases.reclaimed": (LeasesReclaimed, "Items of dead workers were queued again."),
            "items.enqueued": (ItemsEnqueued, "New items of a job were queued."),
            "items.skipped": (ItemsSkipped, "Unfinished items of a job were skipped together."),
            "item.stored": (ItemOutcome, "An item became a new or changed record."),
            "item.unchanged": (ItemOutcome, "An item produced the same data as its record."),
            "item.skipped": (ItemOutcome, "An item was skipped."),
            "item.deferred": (ItemOutcome, "An item was deferred until `due`."),
            "item.failed": (ItemOutcome, "An item has failed."),
            "item.quarantined": (ItemOutcome, "An item was quarantined."),
            "discovery.cut": (DiscoveryReason, "Discovery ended early; the job is partial."),
            "discovery.warning": (DiscoveryReason, "Discovery reported a problem."),
            "discovery.note": (DiscoveryNote, "Something is unusual about the discovered items."),
            "discovery.failed": (DiscoveryFailed, "Discovery has failed."),
            "discovery.killed": (DiscoveryKilled, "The process that ran discovery has died."),
            "source.finished.failed": (
                SourceFailed,
                "A source could not be notified that its job is complete.",
            ),
            "source.finished.dropped": (SourceFailed, "The notification of a source was dropped."),
            "source.teardown.failed": (SourceFailed, "The teardown of a source failed."),
            "export.written": (ExportWritten, "The records of a job were exported."),
            "export.failed": (ExportFailed, "The records of a job could not be exported."),
            "export.dropped": (ExportFailed, "The export of a job was dropped."),
            "drift.noticed": (DriftNoticed, "A field of the records has changed."),
            "drift.unjudged": (DriftUnjudged, "Drift could not be checked."),
            "drift.accepted": (DriftAccepted, "A person has accepted a job as the baseline."),
            "address.refused": (AddressRefused, "A page requested a private address."),
            "archive.missing": (
                ArchiveMissing,
                "The archive lacks a response that a replay needs.",
            ),
            "browser.kept": (BrowserKept, "A page that failed to render was saved to a file."),
            "budget.spent": (BudgetSpent, "A budget of the job is exhausted."),
            "cache.stale_if_error": (
                CacheStale,
                "A stale response was used because the site failed.",
            ),
            "cache.unavailable": (CacheUnavailable, "The HTTP cache cannot be used."),
        },
    ),
    **_typed(
        "source=source",
        {
            "record.created": (RecordWritten, "A record was created."),
            "record.changed": (RecordWritten, "A record has a new version."),
            "record.gone": (RecordGone, "A record is gone from its source."),
            "record.returned": (RecordWritten, "A record that was gone has returned."),
            "source.changed": (SourceChanged, "A run has changed records of its source."),
            "source.profiled": (
                SourceProfiled,
                "The records of a job were compared with earlier jobs.",
            ),
            "source.counted": (
                SourceCounted,
                "A migration recorded the number of records of a source.",
            ),
            "source.late": (SourceFreshness, "The data of a source is older than its limit."),
            "source.fresh": (SourceFreshness, "The data of a source is fresh again."),
        },
    ),
    **_typed(
        "schedule=schedule",
        {
            "schedule.added": (ScheduleDefined, "A schedule was added."),
            "schedule.changed": (ScheduleDefined, "The definition of a schedule has changed."),
            "schedule.removed": (ScheduleRemoved, "A schedule was removed."),
            "schedule.paused": (SchedulePaused, "A schedule was paused."),
            "schedule.resumed": (ScheduleResumed, "A schedule was resumed."),
            "occurrence.fired": (OccurrenceDecided, "An occurrence of a schedule was started."),
            "occurrence.queued": (OccurrenceDecided, "An occurrence waits for an earlier run."),
            "occurrence.skipped": (OccurrenceDecided, "An occurrence was skipped."),
            "occurrence.missed": (OccurrenceDecided, "An occurrence could not start in time."),
        },
    ),
    **_typed(
        "domain=domain",
        {
            "limit.learned": (LimitLearned, "The learned rate limit of a domain has changed."),
            "limit.pinned": (LimitPinned, "A person has set the rate limit of a domain."),
            "limit.forgotten": (LimitForgotten, "A person has deleted the rate limit of a domain."),
            "limit.published": (LimitPublished, "A site declares a rate limit."),
            "limit.refused": (
                LimitRefused,
                "A site refused a request; requests to its domain are stopped for a while.",
            ),
            "limit.refused_address": (UrlRefused, "A site refuses one URL while others succeed."),
            "breaker.opened": (BreakerOpened, "The circuit breaker of a domain has opened."),
            "breaker.closed": (
                BreakerClosed,
                "The circuit breaker of a domain admits requests again.",
            ),
            "domain.blocked": (DomainBlocked, "A site has banned us, or presents a challenge."),
        },
    ),
    **_typed(
        "worker=worker",
        {
            "worker.started": (WorkerChanged, "A worker of a cluster has started."),
            "worker.stopped": (WorkerChanged, "A worker of a cluster has shut down cleanly."),
            "worker.lost": (WorkerChanged, "A worker of a cluster was killed, or is unreachable."),
        },
    ),
    **_typed(
        "domain=host",
        {
            "robots.ignored": (RobotsIgnored, "robots.txt was ignored, as the operator allowed."),
            "robots.unreachable": (RobotsUnreachable, "robots.txt cannot be fetched."),
            "robots.rate": (RobotsRate, "robots.txt lowers the rate limit of a host."),
            "auth.login": (AuthHost, "A login succeeded."),
            "auth.ended": (AuthHost, "A session has ended."),
            "auth.failed": (AuthFailed, "Authentication failed."),
            "auth.token": (AuthToken, "A token was obtained."),
            "auth.withheld": (AuthWithheld, "Credentials were withheld from another host."),
        },
    ),
    **_typed(
        "flow=run",
        {
            "flow.created": (FlowCreated, "A run of a flow was created."),
            "flow.running": (FlowChanged, "A run of a flow has begun."),
            "flow.waiting": (FlowChanged, "A run of a flow waits for a person."),
            "flow.reopened": (
                FlowReopened,
                "A run of a flow was approved, retried, undone, upgraded or cancelled.",
            ),
            "flow.complete": (FlowChanged, "All steps of a flow are complete or skipped."),
            "flow.partial": (FlowChanged, "A flow has ended, and some of its steps failed."),
            "flow.failed": (FlowChanged, "A flow has failed."),
            "flow.compensating": (FlowChanged, "The steps of a flow are being undone."),
            "flow.compensated": (FlowChanged, "The steps of a flow were undone."),
            "flow.needs_attention": (FlowChanged, "A flow can neither continue nor be undone."),
            "step.running": (StepChanged, "A step of a flow was started."),
            "step.waiting": (StepChanged, "A step of a flow waits for a person."),
            "step.complete": (StepChanged, "A step of a flow is complete."),
            "step.failed": (StepChanged, "An attempt at a step of a flow has failed."),
            "step.skipped": (StepChanged, "A step of a flow was skipped."),
            "step.undoing": (StepChanged, "A step of a flow is being undone."),
            "step.undone": (StepChanged, "A step of a flow was undone."),
            "step.undo_failed": (StepChanged, "A step of a flow could not be undone."),
        },
    ),
    **_typed(
        "webhook=webhook",
        {"webhook.disabled": (WebhookDisabled, "A webhook was disabled and gets no more events.")},
    ),
    **_typed(
        "alert=alert",
        {
            "alert.firing": (AlertChanged, "An alert has started to fire."),
            "alert.worsened": (AlertChanged, "A firing alert has become critical."),
            "alert.resolved": (
                AlertChanged,
                "An alert is resolved: its condition no longer holds.",
            ),
        },
    ),
    **_typed(
        "alert_group=group",
        {"alert.notified": (AlertsNotified, "The alerts of a group are sent to channels.")},
    ),
    **_typed(
        "silence=silence",
        {
            "alert.silenced": (SilenceChanged, "Alerts were silenced until a given time."),
            "alert.unsilenced": (SilenceChanged, "A silence was ended early."),
        },
    ),
    **_typed(
        "proxy=address",
        {
            "proxy.added": (ProxyAdded, "A proxy was added to the pool."),
            "proxy.removed": (ProxyRemoved, "A proxy was removed from the pool."),
            "proxy.died": (ProxyDied, "A check found a proxy dead; requests no longer use it."),
            "proxy.revived": (ProxyRevived, "A check found a dead proxy alive again."),
            "proxy.quarantined": (
                ProxyQuarantined,
                "A proxy has failed; requests avoid it for a while.",
            ),
            "proxy.banned": (ProxyQuarantined, "A site has banned a proxy."),
            "proxy.returned": (ProxyReturned, "A proxy works again after a quarantine."),
        },
    ),
    **_typed(
        "proxies=refresh",
        {
            "proxies.refresh_started": (ProxyRefreshStarted, "A refresh of proxies has begun."),
            "proxies.checked": (ProxiesChecked, "A chunk of candidates for proxies was checked."),
            "proxies.refreshed": (ProxiesRefreshed, "A refresh of proxies has ended."),
            "proxies.task_failed": (ProxyTaskFailed, "A step of a refresh was given up."),
        },
    ),
    **_typed(
        "report=report",
        {"report.made": (ReportMade, "A scheduled report was made and is sent.")},
    ),
    **_typed(
        "token=token",
        {
            "token.created": (TokenChanged, "A token of the server was created."),
            "token.revoked": (TokenChanged, "A token of the server was revoked."),
        },
    ),
    **_typed(
        "caller=caller",
        {
            "access.opened": (LoginEnded, "A person has opened the web interface."),
            "access.refused": (LoginEnded, "A login to the web interface was refused."),
            "access.used": (ActionTaken, "A person or a program has changed something."),
        },
    ),
    **_typed(
        "config=path",
        {
            "config.invalid": (
                ConfigInvalid,
                "A file with definitions, such as schedules, is invalid.",
            )
        },
    ),
}


def event_type(name: str) -> EventType:
    """Return a type by its name; a custom one may carry any data.

    Raises:
        BadOption: there is no such type, and it does not begin with `custom.`.
    """
    found = EVENT_TYPES.get(name)
    if found is not None:
        return found
    if name.startswith(CUSTOM):
        return EventType(name, dict)
    near = difflib.get_close_matches(name, EVENT_TYPES, n=1)
    advice = f"did you mean {near[0]}?" if near else "`longline events types` lists them"
    raise BadOption("event type", f"there is no type {name!r}; {advice}")


def match_types(patterns: Iterable[str]) -> list[str]:
    """Return the names that these names or patterns (`job.*`) select.

    Raises:
        BadOption: one of them selects none.
    """
    names: dict[str, None] = {}
    for pattern in patterns:
        found = fnmatch.filter(EVENT_TYPES, pattern) or [event_type(pattern).name]
        names.update(dict.fromkeys(found))
    return list(names)
