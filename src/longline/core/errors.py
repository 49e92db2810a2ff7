"""The base of all errors, their families, and the leaves that several packages raise.

An error is its fields, a message template and a hint; the base does the rest. Families end in
`Error`, a leaf is named for what happened. A leaf of one package is in the module
that raises it, or in the package's `errors.py`.

    ConfigError      the user wrote something that cannot be used (exit code 2)
    NotFoundError    of these, what the user named does not exist
    NotAllowedError  of these, the role of the caller does not allow it
    ConflictError    of these, what the user wants does not fit the present state
    StoreError       the database or one of our files
    FetchError       one request; its `kind` decides between retry, defer, skip, fail, quarantine
    ExtractError     the response is not what the source expects
"""

from __future__ import annotations

import inspect
import math
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar, dataclass_transform
from urllib.parse import urlsplit


class FailureKind(StrEnum):
    """The kind of a failure; decides between retry, defer, skip, fail and quarantine."""

    NETWORK = "network"
    TIMEOUT = "timeout"
    OVERLOAD = "overload"
    SERVER = "server"
    REFUSED = "refused"
    GONE = "gone"
    BLOCKED = "blocked"
    INVALID = "invalid"
    BUG = "bug"
    BUDGET = "budget"


@dataclass_transform(eq_default=False)
class LonglineError(Exception):
    """Anything that longline raises on purpose.

    A subclass declares its fields like a dataclass. `message` and `hint` are templates with the
    attributes of the error, such as `{url}`; a tuple is formatted as a list with commas. An error
    can be pickled and built again from its `args`.
    """

    exit_code: ClassVar[int] = 1
    message: ClassVar[str] = ""
    hint: ClassVar[str] = ""
    """What the user can do, as one or more whole sentences."""
    _signature: ClassVar[inspect.Signature] = inspect.Signature()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        names = [
            name
            for base in reversed(cls.__mro__)
            for name, annotation in inspect.get_annotations(base).items()
            if not str(annotation).startswith("ClassVar")
        ]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        missing = inspect.Parameter.empty
        fields = [
            inspect.Parameter(name, kind, default=getattr(cls, name, missing))
            for name in dict.fromkeys(names)
        ]
        cls._signature = inspect.Signature(fields)

    def __init__(self, *args: Any, **named: Any) -> None:
        fields = self._signature.bind(*args, **named)  # TypeError if they do not fit
        fields.apply_defaults()
        super().__init__(*fields.args)
        vars(self).update(fields.arguments)

    def __str__(self) -> str:
        attributes = _Attributes(self)
        message = self.message.format_map(attributes)
        return f"{message}. {self.hint.format_map(attributes)}" if self.hint else message


class _Attributes(dict[str, Any]):
    """The attributes of an error as the values of its templates."""

    def __init__(self, error: LonglineError) -> None:
        self._error = error

    def __missing__(self, name: str) -> Any:
        value = getattr(self._error, name)
        return ", ".join(value) if isinstance(value, tuple) else value


class Unexpected(LonglineError):
    """An error that is not ours, where only ours can be reported."""

    problem: str
    message = "{problem}"


# ---------------------------------------------------------------- configuration


class ConfigError(LonglineError):
    """Something that the user wrote cannot be used."""

    exit_code = 2


class NotFoundError(ConfigError):
    """What the user named does not exist."""


class NotAllowedError(ConfigError):
    """The role of the caller does not allow this."""


class ConflictError(ConfigError):
    """What the user wants does not fit the present state."""


class BadOption(ConfigError):
    option: str
    problem: str
    message = "{option}: {problem}"


class BadFile(ConfigError):
    """A file of the user cannot be read; `line` and `column` count from 1, 0 is unknown."""

    path: str
    problem: str
    line: int = 0
    column: int = 0
    message = "{place}: {problem}"

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}:{self.column}" if self.line else self.path


class BadSource(ConfigError):
    reference: str
    problem: str
    message = "{reference} cannot be used as a source: {problem}"


class MissingExtra(ConfigError):
    extra: str
    what: str = "this"
    message = "{what} needs the extra {extra!r}: pip install 'longline[{extra}]'"


class NoJobsYet(ConfigError):
    message = "no job has been run in this home"
    hint = "Try `longline demo`, or set --home to another folder."


class DestinationUnwritable(ConfigError):
    path: str
    problem: str
    message = "{path} cannot be written ({problem}); nothing was written"


class HomeUnwritable(ConfigError):
    path: str
    problem: str
    message = "the data folder {path} cannot be written ({problem})"
    hint = "Make it writable, or set LONGLINE_HOME or --home to another folder."


class UnknownSecret(ConfigError):
    """A reference to a secret (`env:NAME`, `file:PATH`) cannot be resolved."""

    reference: str
    problem: str
    message = "the secret {reference} cannot be used: {problem}"


# ---------------------------------------------------------------- database and files


class StoreError(LonglineError):
    """The database, or one of the files of longline, failed."""


class StoreUnreachable(StoreError):
    exit_code = 2
    address: str
    problem: str
    message = "the database {address} cannot be opened ({problem})"
    hint = "Check LONGLINE_DATABASE_URL; `longline up` starts the server of a home."


class StoreDamaged(StoreUnreachable):
    """A database file is damaged; `remedy` says what is lost and what to do."""

    exit_code = 1
    remedy: str
    message = "{address} is damaged ({problem})"
    hint = "{remedy}"


class StoreTooNew(StoreError):
    exit_code = 2
    address: str
    found: str
    known: str
    message = (
        "the database {address} has schema version {found}, but this longline supports only "
        "versions up to {known}; nothing was changed"
    )
    hint = "Upgrade longline, or set LONGLINE_HOME to another folder."


class StoreFull(StoreError):
    exit_code = 4
    address: str
    message = "no disk space is left for {address}; committed data is safe"
    hint = "Free some space and run the same command again to continue."


class StoreBusy(StoreError):
    exit_code = 4
    address: str
    seconds: float
    message = "another process has locked {address} for {seconds:g} s; committed data is safe"
    hint = "Run the same command again to continue."


class RedisUnreachable(StoreUnreachable):
    message = "Redis at {address} is not reachable, so no request is sent: {problem}"
    hint = "Processes share rate limits on Redis; without it, no limit can be enforced."


class UnknownJob(NotFoundError):
    """There is no such job; an empty name means any unfinished one.

    `fitting` is the number of jobs that a shortened name fits.
    """

    job: str = ""
    fitting: int = 0
    hint = "`longline jobs` lists the jobs."

    @property
    def message(self) -> str:  # type: ignore[override]  # depends on the fields
        if not self.job:
            return "there is no unfinished job in this home"
        if self.fitting:
            return "{fitting} job ids begin with {job!r}"
        return "there is no job {job!r} in this home"


class UnknownRecord(NotFoundError):
    key: str
    message = "there is no record {key!r} in this home"
    hint = "`longline records list` lists the records."


class StoreReadOnly(StoreUnreachable):
    message = "the database {address} is read-only, and {problem}"
    hint = "Make it writable, or copy its folder to a writable place and run the command there."


class StoreGone(StoreUnreachable):
    exit_code = 4
    seconds: float
    message = (
        "the connection to the database {address} was lost and not restored within {seconds:g} s "
        "({problem}); committed data is safe"
    )
    hint = "Start its server and run the same command again to continue."


class NotCopied(StoreError):
    exit_code = 2
    target: str
    problem: str
    message = "nothing was copied to {target}: {problem}"


class LeaseLost(StoreError):
    key: str
    token: int
    message = "lease {token} of item {key} was reclaimed; this attempt is dropped"


# ---------------------------------------------------------------- one request


class FetchError(LonglineError):
    """One request failed.

    The archive stores these errors as class name and `args`: a renamed class or a changed order
    of fields makes old archives unreadable.
    """

    kind: ClassVar[FailureKind] = FailureKind.NETWORK
    url: str

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc


class ConnectFailed(FetchError):
    """No connection, or it broke before a response came."""

    problem: str
    message = "{url} could not be reached ({problem})"


class BadStatus(FetchError):
    kind = FailureKind.REFUSED
    status: int
    retry_after: float | None = None
    message = "{url} returned {status}{pause}"

    @property
    def pause(self) -> str:
        return "" if self.retry_after is None else f" and asked to wait {self.retry_after:g} s"


class Throttled(BadStatus):
    """The site asks for a pause (429, 503)."""

    kind = FailureKind.OVERLOAD


class ServerFailed(BadStatus):
    """The site failed (5xx other than 503)."""

    kind = FailureKind.SERVER


class Refused(BadStatus):
    """The site refuses this request (401, 403, and the other 4xx)."""

    kind = FailureKind.REFUSED


class Gone(BadStatus):
    """There is nothing at this address (404, 410)."""

    kind = FailureKind.GONE


class Blocked(FetchError):
    """The site banned us or shows a challenge; `evidence` says how we know.

    A lower rate does not help, so this is never retried: the domain is deferred.
    """

    kind = FailureKind.BLOCKED
    exit_code = 4
    evidence: str
    message = "{host} blocks longline at {url} ({evidence})"


class RobotsUnreachable(FetchError):
    """robots.txt could not be fetched, so the item fails; `kind` is that of the last attempt."""

    problem: str
    kind: FailureKind = FailureKind.NETWORK  # type: ignore[misc]  # each error has its own
    message = "the robots.txt of {host} could not be fetched after several attempts: {problem}"


class BudgetSpent(FetchError):
    kind = FailureKind.BUDGET
    limit: str
    message = "not requested: {limit} is exhausted"


class NotBefore(FetchError):
    """No request can succeed before `until`, in seconds since the epoch."""

    until: float
    message = "{host} is not requested before {until_utc}"

    @property
    def until_utc(self) -> str:
        return f"{datetime.fromtimestamp(self.until, UTC):%Y-%m-%d %H:%M:%S} UTC"


class CircuitOpen(NotBefore):
    """The circuit breaker of the domain is open.

    `kind` is blocked for a ban, and `reason` its evidence.
    """

    reason: str = ""
    kind: FailureKind = FailureKind.NETWORK  # type: ignore[misc]  # each error has its own
    message = "{domain} {problem}; its circuit breaker is open until {until_utc}"

    @property
    def domain(self) -> str:
        return self.host or self.url

    @property
    def problem(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        is_ban = self.kind is FailureKind.BLOCKED
        return f"{'blocks longline' if is_ban else 'failed too often'}{reason}"


class Deferred(NotBefore):
    """The item is deferred.

    `kind` is that of the failure behind it; `is_for_domain` says that every other request to
    this host would fail until then, too.
    """

    problem: str
    kind: FailureKind  # type: ignore[misc]  # each error has its own
    is_for_domain: bool = False
    message = "{problem}; the next attempt is at {until_utc} or later"


class NotNow(Deferred):
    """The same where there is no job that could fetch the page later."""

    message = "{problem}; try again later"


# ---------------------------------------------------------------- extraction


class ExtractError(LonglineError):
    """The response came, but the source cannot make a record of it."""

    kind: ClassVar[FailureKind] = FailureKind.INVALID


class UnexpectedShape(ExtractError):
    """The response does not have the shape that the source expects."""

    where: str
    problem: str
    message = "{where}: {problem}"


class SkipItem(ExtractError):
    """The source has nothing to collect here; not a failure."""

    kind = FailureKind.GONE
    reason: str
    message = "{reason}"


class NothingToStore(ExtractError):
    """The item is done and not a record itself: a page that only leads to others."""

    reason: str
    message = "{reason}"


class LayerFailed(LonglineError):
    kind: ClassVar[FailureKind] = FailureKind.BUG
    layer: str
    problem: str
    message = "layer {layer} raised {problem}"


class DiscoveryFailed(LonglineError):
    """The source could not list its items, so their number is unknown."""

    source: str
    problem: str
    message = "{source} could not list its items: {problem}"


# ---------------------------------------------------------------- which error, which kind


def error_text(error: BaseException) -> str:
    """Return the message of an error; of one whose `__str__` raises, what it raised."""
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001  # the code of a source, which may do anything
        return f"it has no message: its __str__ raised {type(second).__name__}"


def kind_of(error: BaseException) -> FailureKind:
    """Return the kind of any error; an unknown error is a bug."""
    if isinstance(error, (FetchError, ExtractError, LayerFailed)):
        return error.kind
    if isinstance(error, TimeoutError):
        return FailureKind.TIMEOUT
    return FailureKind.NETWORK if isinstance(error, OSError) else FailureKind.BUG


def check_range(
    option: str,
    value: float,
    wanted: str,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    is_whole: bool = False,
) -> None:
    """Check a number; `wanted` describes the range.

    Raises:
        BadOption: it is out of range.
    """
    is_other = is_whole and isinstance(value, bool | float)
    if is_other or not (above < value < math.inf and at_least <= value <= at_most):
        raise BadOption(option, f"must be {wanted}, not {value!r}")


def bad_status(url: str, status: int, retry_after: float | None = None) -> BadStatus:
    """Return the error for a status of 400 or more."""
    if status in {404, 410}:
        return Gone(url, status)
    if status in {429, 503}:
        return Throttled(url, status, retry_after)
    if status >= 500:  # noqa: PLR2004  # the statuses of RFC 9110
        return ServerFailed(url, status, retry_after)
    return Refused(url, status)
