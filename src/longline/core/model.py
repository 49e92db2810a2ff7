"""The data model: item, record, outcome, job, event. No I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from longline.core.clock import WaitTimer
from longline.core.errors import FailureKind
from longline.core.event_types import event_type


class ItemState(StrEnum):
    """The state of an item in its job; the last five are final."""

    QUEUED = "queued"
    LEASED = "leased"
    STORED = "stored"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    FAILED = "failed"
    QUARANTINED = "quarantined"


FINAL_STATES = (
    ItemState.STORED,
    ItemState.UNCHANGED,
    ItemState.SKIPPED,
    ItemState.FAILED,
    ItemState.QUARANTINED,
)


class ChunkState(StrEnum):
    """The state of a chunk of work in a cluster."""

    OFFERED = "offered"
    TAKEN = "taken"
    DONE = "done"
    LOST = "lost"


class JobState(StrEnum):
    """The state of a job; the last four are final."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETE = "complete"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN_STATES = (JobState.PENDING, JobState.RUNNING, JobState.PAUSED)


class QuestionState(StrEnum):
    """The state of a question; a skipped one lacks its input and is not asked."""

    QUEUED = "queued"
    LEASED = "leased"
    ANSWERED = "answered"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit on the items of a job that name it.

    An item is left out when `most` is used up; the first time, `reason` is reported as a cut
    (`is_cut`), which makes the job partial, or as a warning. With `counts_items` each enqueued item
    uses one; otherwise `Visit.spend` does.
    """

    name: str
    most: int
    reason: str
    is_cut: bool = True
    counts_items: bool = True


@dataclass(frozen=True, slots=True)
class Item:
    """One unit of work of a source. `data` is what discovery found about it, as JSON.

    It is enqueued if none of its `quotas` is used up; then the quotas named in `refills` are
    refilled.
    """

    key: str
    url: str
    priority: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    quotas: tuple[Quota, ...] = ()
    refills: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of discovery, from which the source continues after a crash."""

    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Note:
    """Why a field is empty or unusual."""

    field: str
    text: str


@dataclass(frozen=True, slots=True)
class QualityPart:
    """One part of a score: the earned part of its weight, and the reasons for the rest."""

    name: str
    weight: float
    earned: float
    reasons: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Quality:
    """A score from 0 to 100, its grade, its parts and the failed cross-checks."""

    score: float
    grade: str
    parts: Sequence[QualityPart] = ()
    conflicts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """The result of an item.

    `provenance` names the layer and address of each field; `layers` says how each layer ended
    ("ok", or why not).
    """

    source: str
    key: str
    url: str
    data: Mapping[str, Any]
    fingerprint: str
    provenance: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[Note] = ()
    layers: Mapping[str, str] = field(default_factory=dict)
    quality: Quality | None = None


class OutcomeAction(StrEnum):
    """How one attempt at an item ended."""

    STORE = "store"
    SKIP = "skip"
    FAIL = "fail"
    QUARANTINE = "quarantine"
    DEFER = "defer"


BANNED = "banned"
"""The step of a failure that is a ban of the item's own request."""
OVERRAN = "overran"
"""The step of a failure that is an attempt over its time limit."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, and the `step` that followed (retried, deferred, given up …).

    `at` is when it ended, `seconds` its duration; `status` is None without a response.
    """

    at: float
    url: str
    kind: FailureKind
    reason: str
    step: str
    seconds: float
    status: int | None = None


CUT = "discovery.cut"
"""The event that discovery ended early, with its reason."""
WARNING = "discovery.warning"
"""The event of a problem in discovery that does not change the state of the job."""


@dataclass(frozen=True, slots=True)
class Caveats:
    """Restrictions on the counts of a job.

    `cuts` are the reasons why discovery ended early; each makes the job partial. `warnings` change
    no state. `limit` is the limit of the user that the job reached.
    """

    cuts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    limit: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "cuts": list(self.cuts),
            "warnings": list(self.warnings),
            "limited_to": self.limit,
        }


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """An event of the request chain that is committed with the item."""

    type: str
    data: Mapping[str, Any]


_COUNTED = (
    *("requests", "retries", "rate_limited", "received_bytes", "waits", "waited"),
    *("cached", "revalidated", "joined"),
    *("proxied", "proxy_failures", "proxy_bans"),
)
RESPONSE_TIMES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds, in seconds, of the classes by which response times are counted."""
STATUS_CLASSES = ("other", "1xx", "2xx", "3xx", "4xx", "5xx")
_STATUS_NAMES = [f"status/{one}" for one in (*STATUS_CLASSES, *["other"] * 4)]  # by first digit
_TIME_NAMES = [f"time/{bound:g}" for bound in (*RESPONSE_TIMES, float("inf"))]


@dataclass(slots=True)
class Usage:
    """The statistics and events of one attempt at an item; committed with its outcome.

    `cached` responses needed no request, `revalidated` ones a conditional one, and `joined` ones
    were those of an identical request in flight. Of `proxied` requests, `proxy_failures` did not
    bring a response, and `proxy_bans` got a ban page. `responses` counts responses as
    `status/CLASS` and `time/BOUND`; `time/sum` is their time in seconds. `status` is that of the
    item's own last request, not of robots.txt or a login; None without a response. `promises` are
    awaited before the commit, such as writes to the archive.

    `waits` and `waited` are those of requests, which may overlap; `waiting` is that of the attempt.
    """

    requests: int = 0
    retries: int = 0
    rate_limited: int = 0
    received_bytes: int = 0
    waits: int = 0
    waited: float = 0.0
    cached: int = 0
    revalidated: int = 0
    joined: int = 0
    proxied: int = 0
    proxy_failures: int = 0
    proxy_bans: int = 0
    responses: dict[str, float] = field(default_factory=dict)
    status: int | None = None
    failures: list[Failure] = field(default_factory=list)
    events: list[PendingEvent] = field(default_factory=list)
    promises: list[Awaitable[None]] = field(default_factory=list)
    waiting: WaitTimer = field(default_factory=WaitTimer, init=False, compare=False)
    slot_waits: int = field(default=0, init=False, compare=False)
    """Requests that wait for a slot of the rate limit now."""

    async def settle(self) -> None:
        """Await all promises.

        Raises:
            StoreError: one failed.
        """
        while self.promises:
            await self.promises.pop()

    def add_response(self, status: int, size_bytes: int, seconds: float) -> None:
        """Count a response with its status, the size of its body and the time that it took."""
        self.status = status
        self.received_bytes += size_bytes
        self.rate_limited += status == HTTPStatus.TOO_MANY_REQUESTS
        counts = self.responses
        kind = _STATUS_NAMES[status // 100]
        bound = _TIME_NAMES[bisect_left(RESPONSE_TIMES, seconds)]
        counts[kind] = counts.get(kind, 0) + 1
        counts[bound] = counts.get(bound, 0) + 1
        counts["time/sum"] = counts.get("time/sum", 0.0) + seconds

    def add_event(self, name: str, **data: Any) -> None:
        """Add an event of a type of the catalogue, or of your own: `custom.NAME`.

        Raises:
            BadOption: there is no such type.
        """
        event_type(name)
        self.events.append(PendingEvent(name, data))

    def as_counts(self) -> dict[str, float]:
        """Return the counters that are not zero, by name."""
        counts = {name: value for name in _COUNTED if (value := getattr(self, name))}
        return {**counts, **self.responses}

    def take(self) -> Usage:
        """Return the collected values and reset them."""
        taken = Usage(
            status=self.status,
            failures=self.failures,
            events=self.events,
            promises=self.promises,
            responses=self.responses,
            **{name: getattr(self, name) for name in _COUNTED},
        )
        self.failures, self.events, self.promises, self.responses = [], [], [], {}
        for name in _COUNTED:
            setattr(self, name, 0)
        return taken


@dataclass(frozen=True, slots=True)
class Outcome:
    """The whole result of one attempt at an item.

    Whether a stored record is new, changed or unchanged is decided by the transaction that commits
    it. `due` is the time (seconds since the epoch) of the next attempt, for DEFER; `is_for_domain`
    says that every item of its domain would fail the same way until then. `layers` says how each
    layer ended ("ok", or why not) and `results` has their fields; `found` are new items of the job,
    and `spent` names the quotas that the item uses. `at` is when the attempt ended, `seconds` how
    long it took.
    """

    action: OutcomeAction
    record: Record | None = None
    kind: FailureKind | None = None
    reason: str | None = None
    due: float | None = None
    raw: Mapping[str, Any] | None = None
    is_for_domain: bool = False
    at: float = 0.0
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    found: Sequence[Item] = ()
    spent: Sequence[str] = ()
    layers: Mapping[str, str] = field(default_factory=dict)
    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def is_success(self) -> bool:
        """Whether there is a record."""
        return self.record is not None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on an item until it expires; `token` fences off earlier owners.

    `domain` is the host of the item's address, `owner` the name that the lease is renewed under.
    """

    id: int
    job: str
    item: Item
    token: int
    tries: int
    domain: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a source. `settings` is the snapshot of its creation.

    `engine` is the one that ran it last: "local" or "celery".
    """

    id: str
    source: str
    state: JobState
    settings: Mapping[str, Any]
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    reason: str | None = None
    cursor: Mapping[str, Any] | None = None
    is_discovered: bool = False
    shortfall: str | None = None
    engine: str = "local"
    runs: int = 0
    """How often it was started."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """What a listener is called with, after it was committed: an outcome, or the end of a job.

    `type` is `item.` or `job.` and the new state, such as `item.stored` or `job.partial`. `key`,
    `url` and `record` are those of the item.
    """

    type: str
    at: float
    job: str
    source: str
    reason: str | None = None
    key: str | None = None
    url: str | None = None
    record: Record | None = None


Listener = Callable[[RunEvent], object]


@dataclass(frozen=True, slots=True)
class Event:
    """A change that was committed; never changed itself.

    `id` grows in the order of the commits. `version` is that of the type; older data is converted
    when it is read. `subject` is what it is about, such as `job/ID` or `domain/HOST`.
    """

    id: int
    job: str | None
    at: float
    type: str
    key: str | None
    data: Mapping[str, Any]
    version: int = 1
    subject: str = ""
