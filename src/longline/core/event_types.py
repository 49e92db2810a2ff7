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
    """A job was created with these settings."""

    settings: dict[str, Any]


class JobStarted(TypedDict):
    """A job was started on an engine, or resumed."""

    engine: str
    concurrency: NotRequired[int]
    ignore_robots: NotRequired[list[str]]


class JobDiscovered(TypedDict):
    """Discovery is complete; `items` is how many items the job has."""

    items: int


class JobEnded(TypedDict):
    """A job has ended, or was paused, for a reason.

    `cuts`, `warnings` and `limited_to` restrict its counts.
    """

    reason: str | None
    cuts: NotRequired[list[str]]
    warnings: NotRequired[list[str]]
    limited_to: NotRequired[int | None]


class JobReopened(TypedDict):
    """Items of a job were queued again: by `retry`, or by a replay of its quarantine."""

    items: int
    failure: NotRequired[str | None]
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
    """An attempt at an item has ended with this outcome."""

    seconds: NotRequired[float]
    failure: NotRequired[str]
    reason: NotRequired[str]
    due: NotRequired[float]
    deaths: NotRequired[int]


class RecordWritten(TypedDict):
    """A record was created, or has changed; `version` is its present one."""

    source: str
    version: int


# ---------------- Discovery and sources


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


class LimitPublished(TypedDict):
    """A site declares a rate limit: `limit` requests in `window` seconds."""

    domain: str
    limit: float | None
    window: float | None


class LimitRefused(TypedDict):
    """A site refused a request, so its domain pauses; `rate` is the present limit."""

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
    """A site has banned us, or asks for a challenge."""

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
    """Credentials were not sent to a host that may not see them."""

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


_Entries = Mapping[str, tuple[type, str]]


def _typed(about: str, entries: _Entries) -> dict[str, EventType]:
    return {
        name: EventType(name, data, meaning, about) for name, (data, meaning) in entries.items()
    }


EVENT_TYPES: Mapping[str, EventType] = {
    **_typed(
        "job",
        {
            "job.created": (JobCreated, "A job was created."),
            "job.started": (JobStarted, "A job was started for the first time."),
            "job.resumed": (JobStarted, "A job was started again."),
            "job.discovered": (JobDiscovered, "All items of a job are discovered."),
            "job.paused": (JobEnded, "A job was paused; it can be resumed."),
            "job.complete": (JobEnded, "A job has ended, and nothing is missing."),
            "job.partial": (JobEnded, "A job has ended, and something is missing."),
            "job.failed": (JobEnded, "A job has ended without a result."),
            "job.cancelled": (JobEnded, "A job was cancelled."),
            "job.reopened": (JobReopened, "Items of a job that had ended were queued again."),
            "job.replayed": (JobReplayed, "Quarantined items were processed again."),
            "job.reextracted": (JobReextracted, "Items were extracted again from the archive."),
            "run.ended": (RunEnded, "A process has ended its run of a job."),
            "checkpoint.failed": (CheckpointFailed, "A checkpoint document was not written."),
            "leases.reclaimed": (LeasesReclaimed, "Items of dead workers were queued again."),
            "item.stored": (ItemOutcome, "An item became a new or changed record."),
            "item.unchanged": (ItemOutcome, "An item is the same as its record."),
            "item.skipped": (ItemOutcome, "An item was skipped."),
            "item.deferred": (ItemOutcome, "An item was deferred until `due`."),
            "item.failed": (ItemOutcome, "An item has failed."),
            "item.quarantined": (ItemOutcome, "An item was quarantined."),
            "discovery.cut": (DiscoveryReason, "Discovery ended early; the job is partial."),
            "discovery.warning": (DiscoveryReason, "Discovery met a problem."),
            "discovery.note": (DiscoveryNote, "Something is unusual about the found items."),
            "discovery.failed": (DiscoveryFailed, "Discovery has failed."),
            "discovery.killed": (DiscoveryKilled, "The process that ran discovery has died."),
            "source.finished.failed": (
                SourceFailed,
                "A source could not be notified that its job is complete.",
            ),
            "source.finished.dropped": (SourceFailed, "That notification was dropped."),
            "source.teardown.failed": (SourceFailed, "A source could not be torn down."),
            "export.written": (ExportWritten, "The records of a job were exported."),
            "export.failed": (ExportFailed, "The records of a job could not be exported."),
            "export.dropped": (ExportFailed, "The export of a job was dropped."),
            "drift.noticed": (DriftNoticed, "A field of the records has changed."),
            "drift.unjudged": (DriftUnjudged, "Drift could not be checked."),
            "drift.accepted": (DriftAccepted, "A person has accepted a job as the new normal."),
            "address.refused": (AddressRefused, "A page requested a private address."),
            "archive.missing": (ArchiveMissing, "The archive lacks a replayed response."),
            "browser.kept": (BrowserKept, "A page that was not rendered was kept in a file."),
            "budget.spent": (BudgetSpent, "A budget of the job is exhausted."),
            "cache.stale_if_error": (CacheStale, "A stale response was used; the site failed."),
            "cache.unavailable": (CacheUnavailable, "The HTTP cache cannot be used."),
        },
    ),
    **_typed(
        "source=source",
        {
            "record.created": (RecordWritten, "A record was created."),
            "record.changed": (RecordWritten, "A record has a new version."),
        },
    ),
    **_typed(
        "domain=domain",
        {
            "limit.learned": (LimitLearned, "The learned rate limit of a domain has changed."),
            "limit.published": (LimitPublished, "A site declares a rate limit."),
            "limit.refused": (LimitRefused, "A site refused a request; its domain pauses."),
            "limit.refused_address": (UrlRefused, "A site refuses one URL while others succeed."),
            "breaker.opened": (BreakerOpened, "The circuit breaker of a domain has opened."),
            "breaker.closed": (BreakerClosed, "The breaker of a domain admits requests again."),
            "domain.blocked": (DomainBlocked, "A site has banned us, or asks for a challenge."),
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
            "auth.withheld": (AuthWithheld, "Credentials were not sent to a foreign host."),
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
