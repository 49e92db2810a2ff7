"""The words everyone shares: item, record, outcome, job, event. No I/O, no behaviour."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from longline.core.clock import WaitTimer
from longline.core.errors import FailureKind


class ItemState(StrEnum):
    """Where an item stands in its job; the last five are final."""

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
    """Where a chunk of a cluster's work stands."""

    OFFERED = "offered"
    TAKEN = "taken"
    DONE = "done"
    LOST = "lost"


class JobState(StrEnum):
    """Where a job stands; the last four are final."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETE = "complete"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN_STATES = (JobState.PENDING, JobState.RUNNING, JobState.PAUSED)


class QuestionState(StrEnum):
    """What became of a question; a skipped one lacks what it would be about, and is not asked."""

    QUEUED = "queued"
    LEASED = "leased"
    ANSWERED = "answered"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Item:
    """One unit of work of a source. `data` is what discovery already knows, as JSON."""

    key: str
    url: str
    priority: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far discovery has come; given back to the source when it goes on after a crash."""

    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Note:
    """Why a field is empty, or what was odd about it: nothing is left unexplained."""

    field: str
    text: str


@dataclass(frozen=True, slots=True)
class QualityPart:
    """One part of a score: how much of its weight was earned, and why not all."""

    name: str
    weight: float
    earned: float
    reasons: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Quality:
    """A score from 0 to 100, its class, its parts and the cross-checks that failed."""

    score: float
    grade: str
    parts: Sequence[QualityPart] = ()
    conflicts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """What an item became.

    `provenance` names the layer and address each field came from; `layers` says how each
    layer ended ("ok", or why not).
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
    """How one try at an item ended."""

    STORE = "store"
    SKIP = "skip"
    FAIL = "fail"
    QUARANTINE = "quarantine"
    DEFER = "defer"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one try at an item.

    Whether a stored record is new, changed or unchanged is known only to the transaction that
    commits it. `due` is the moment (seconds since the epoch) of the next try, for DEFER;
    `is_for_domain` says that every item of its domain would fare the same until then.
    """

    action: OutcomeAction
    record: Record | None = None
    kind: FailureKind | None = None
    reason: str | None = None
    due: float | None = None
    raw: Mapping[str, Any] | None = None
    is_for_domain: bool = False


BANNED = "banned"
"""The step of a failure that is a ban which the item itself met."""
OVERRAN = "overran"
"""The step of a failure that is a try which took longer than it may."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that failed, and what was done about it (retried, parked, given up …).

    `at` is when it ended, `seconds` how long it took; `status` is None when no answer came.
    """

    at: float
    url: str
    kind: FailureKind
    reason: str
    step: str
    seconds: float
    status: int | None = None


CUT = "discovery.cut"
"""The event that discovery ended before it had found everything, with its reason."""
WARNING = "discovery.warning"
"""The event that discovery met something doubtful, which does not change the job's state."""


@dataclass(frozen=True, slots=True)
class Caveats:
    """What a reader of a job's counts has to know.

    `cuts` are the reasons why discovery did not find everything; each of them makes the job
    partial. `warnings` change no state. `limit` is the limit that the user set and the job reached.
    """

    cuts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    limit: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "cuts": list(self.cuts),
            "warnings": list(self.warnings),
            "limited_to": self.limit,
        }


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """Something a link of the request chain wants to be remembered; becomes an event of the job."""

    kind: str
    data: Mapping[str, Any]


_COUNTED = (
    *("requests", "retries", "rate_limited", "received_bytes", "waits", "waited"),
    *("cached", "revalidated", "joined"),
)


@dataclass(slots=True)
class Usage:
    """What one try at an item cost and met with; filled by the request chain, committed with it.

    `cached` answers came without a request, `revalidated` ones after a short one, `joined` ones
    with somebody else's. `status` is that of the last answer to the item's own last request, not to
    one for robots.txt or a login; None when none came. `promises` are kept before any of this is
    committed: what a link does beside the work, such as writing an archive.

    `waits` and `waited` are those of requests, which may overlap; `waiting` is that of the try.
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
    status: int | None = None
    failures: list[Failure] = field(default_factory=list)
    events: list[PendingEvent] = field(default_factory=list)
    promises: list[Awaitable[None]] = field(default_factory=list)
    waiting: WaitTimer = field(default_factory=WaitTimer, init=False, compare=False)

    async def settle(self) -> None:
        """Wait until every promise is kept.

        Raises:
            StoreError: one could not be.
        """
        while self.promises:
            await self.promises.pop()

    def add_event(self, kind: str, **data: Any) -> None:
        """Add an event of the job."""
        self.events.append(PendingEvent(kind, data))

    def as_counts(self) -> dict[str, float]:
        """Return the figures that are not zero, by name."""
        return {name: value for name in _COUNTED if (value := getattr(self, name))}

    def take(self) -> Usage:
        """Return all that has come together, and begin anew."""
        taken = Usage(
            status=self.status,
            failures=self.failures,
            events=self.events,
            promises=self.promises,
            **{name: getattr(self, name) for name in _COUNTED},
        )
        self.failures, self.events, self.promises = [], [], []
        for name in _COUNTED:
            setattr(self, name, 0)
        return taken


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on an item until it expires; `token` fences off earlier holders.

    `domain` is the host of the item's address.
    """

    id: int
    job: str
    item: Item
    token: int
    tries: int
    domain: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a source. `settings` is the frozen snapshot it was created with.

    `engine` is what has worked on it last: "local" or "celery".
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
    """How often work on it has begun."""


@dataclass(frozen=True, slots=True)
class Event:
    """A fact that happened; appended, never changed."""

    id: int
    job: str
    at: float
    kind: str
    key: str | None
    data: Mapping[str, Any]
