"""The errors that longline raises.

An error is its fields, a message template and a hint; the base does the rest. Families end in
`Error`, a leaf is named for what happened:

    ConfigError      the user wrote something that cannot be used (exit code 2)
    StoreError       the database
    LifecycleError   a service of a cluster on this machine
    FetchError       one request; its `kind` decides between retry, defer, skip, fail, quarantine
    ExtractError     the response came, but it is not what the source expects
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar, dataclass_transform
from urllib.parse import urlsplit

_REQUIRED = object()


class FailureKind(StrEnum):
    """What sort of thing went wrong; decides between retry, defer, skip, fail and quarantine."""

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

    A subclass declares its fields like a dataclass. `message` and `hint` are templates in which
    every attribute of the error may stand, such as `{url}`. Fields are positional or named
    arguments, and an error can be pickled and built again from its `args`.
    """

    exit_code: ClassVar[int] = 1
    message: ClassVar[str] = ""
    hint: ClassVar[str] = ""
    """What the user can do, as one or more whole sentences."""
    _defaults: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        names = [
            name
            for base in reversed(cls.__mro__)
            for name, kind in inspect.get_annotations(base).items()
            if not str(kind).startswith("ClassVar")
        ]
        cls._defaults = {name: getattr(cls, name, _REQUIRED) for name in names}

    def __init__(self, *args: Any, **named: Any) -> None:
        values = {**self._defaults, **dict(zip(self._defaults, args, strict=False)), **named}
        is_missing = any(value is _REQUIRED for value in values.values())
        is_twice = any(name in named for name in [*self._defaults][: len(args)])
        is_unknown = max(len(args), len(values)) > len(self._defaults)
        if is_missing or is_twice or is_unknown:
            fields = ", ".join(self._defaults)
            message = f"{type(self).__name__} has the fields ({fields}), not {args} and {named}"
            raise TypeError(message)
        super().__init__(*values.values())
        vars(self).update(values)

    def __str__(self) -> str:
        attributes = _Attributes(self)
        message = self.message.format_map(attributes)
        return f"{message}. {self.hint.format_map(attributes)}" if self.hint else message


class _Attributes(dict[str, Any]):
    """The attributes of an error as the values of its templates."""

    def __init__(self, error: LonglineError) -> None:
        self._error = error

    def __missing__(self, name: str) -> Any:
        return getattr(self._error, name)


class Unexpected(LonglineError):
    """An error that is not ours, where only ours can be reported; `problem` is what it said."""

    problem: str
    message = "{problem}"


# ---------------------------------------------------------------- configuration


class ConfigError(LonglineError):
    """Something that the user wrote cannot be used."""

    exit_code = 2


class UnknownSource(ConfigError):
    """There is no source with this name."""

    name: str
    known: tuple[str, ...]
    message = "no source is named {name!r}"
    hint = (
        "Known sources: {known_names}. A file (my_source.py, job.yaml) or package.module:Class "
        "works too."
    )

    @property
    def known_names(self) -> str:
        """The names of all sources."""
        return ", ".join(self.known)


class BadOption(ConfigError):
    """An option has a value that cannot be used."""

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
        """The file, with line and column if they are known."""
        return f"{self.path}:{self.line}:{self.column}" if self.line else self.path


class BadSource(ConfigError):
    """A Python file or module has no source that can be used."""

    reference: str
    problem: str
    message = "{reference} cannot be used as a source: {problem}"


class SourceIsAddress(ConfigError):
    """The address of a site was given in place of a source."""

    address: str
    message = "{address} is the address of a site, not a source"
    hint = "Propose a manifest for it with `longline sources new {quoted}`, then run that file."

    @property
    def quoted(self) -> str:
        """The address as a shell takes it."""
        return shlex.quote(self.address)


class MissingExtra(ConfigError):
    """A feature needs an optional package."""

    extra: str
    what: str = "this"
    message = "{what} needs the extra {extra!r}: pip install 'longline[{extra}]'"


class NoBrowser(ConfigError):
    """Pages are to be opened in a browser, and there is none."""

    problem: str
    message = "no Chromium was found: {problem}"
    hint = (
        "Install one (apt install chromium, or playwright install chromium), or set "
        "LONGLINE_CHROMIUM to its path or to the address of a running one."
    )


class HomeUnwritable(ConfigError):
    """The data folder cannot be created or written."""

    path: str
    problem: str
    message = "the data folder {path} cannot be written ({problem})"
    hint = "Set LONGLINE_HOME or --home to a folder that you can write."


class HomeReadOnly(HomeUnwritable):
    """The data folder is on a read-only file system."""

    hint = "Mount it for writing, or set LONGLINE_HOME or --home to another folder."


class UnknownJob(ConfigError):
    """There is no such job; an empty name means any unfinished one.

    `fitting` is the number of jobs that a shortened name fits.
    """

    job: str = ""
    fitting: int = 0
    hint = "`longline jobs` lists the jobs."

    @property
    def message(self) -> str:  # type: ignore[override]  # depends on the fields
        """What was looked for in vain."""
        if not self.job:
            return "there is no unfinished job in this home"
        if self.fitting:
            return "{fitting} jobs begin with {job!r}"
        return "there is no job {job!r} in this home"


class NothingYet(ConfigError):
    """No job was ever run in this home."""

    message = "no job has been run in this home"
    hint = "Try `longline demo`, or set --home to another folder."


class UnknownRecord(ConfigError):
    """There is no such record."""

    key: str
    message = "there is no record {key!r} in this home"
    hint = "`longline records list` lists the records."


class UnknownCheckpoint(ConfigError):
    """There is no such checkpoint."""

    name: str
    message = "there is no checkpoint {name!r} in this home"
    hint = "`longline checkpoints` lists the checkpoints."


class UnknownSecret(ConfigError):
    """A reference to a secret (`env:NAME`, `file:PATH`) cannot be resolved."""

    reference: str
    problem: str
    message = "the secret {reference} cannot be used: {problem}"


class NothingArchived(ConfigError):
    """A job has no archived responses to extract from."""

    job: str
    message = "job {job} has no archived responses"
    hint = "Run it with --archive to be able to extract again."


class NotResumable(ConfigError):
    """The job has ended; `wish` is what was to be done with it."""

    job: str
    state: str
    wish: str = "resume"
    message = "job {job} is {state}: there is nothing to {wish}"

    @property
    def hint(self) -> str:  # type: ignore[override]  # depends on the fields
        """What to do in place of resuming it."""
        return "Start a new one with `longline run`." if self.wish == "resume" else ""


class NotBegun(ConfigError):
    """An interrupt came before this source was started."""

    exit_code = 130
    source: str
    message = "{source} was not started: interrupted"
    hint = "Run the same command again to continue."


class NothingToRetry(ConfigError):
    """No item of the job failed in this way; an empty kind is any."""

    job: str
    kind: str = ""
    message = "no finished item of job {job} failed{by_kind}, so there is nothing to retry"
    hint = "`longline failures {job}` lists the failures."

    @property
    def by_kind(self) -> str:
        """The kind of failure that was asked for."""
        return f" with kind {self.kind}" if self.kind else ""


class DestinationUnwritable(ConfigError):
    """An export cannot be written to its destination."""

    path: str
    problem: str
    message = "{path} cannot be written ({problem}); nothing was written"


class DestinationFull(LonglineError):
    """There is no room left for an export."""

    exit_code = 4
    path: str
    problem: str
    message = "no room is left for {path} ({problem}); what was there before is unchanged"
    hint = "Free some space and run the same command again."


# ---------------------------------------------------------------- database


class StoreError(LonglineError):
    """The database failed."""


class StoreUnreachable(StoreError):
    """The database cannot be opened."""

    exit_code = 2
    address: str
    problem: str
    message = "the database {address} cannot be opened ({problem})"
    hint = "Check LONGLINE_DATABASE_URL, for example sqlite:///longline.sqlite."


class StoreDamaged(StoreUnreachable):
    """A database file is damaged; `remedy` says what is lost and what to do."""

    exit_code = 1
    remedy: str
    message = "{address} is damaged ({problem})"
    hint = "{remedy}"


class StoreReadOnly(StoreUnreachable):
    """The database is read-only, and has to be written."""

    message = "the database {address} is read-only, and {problem}"
    hint = (
        "Mount it for writing, or copy its folder to a place that can be written, and run the "
        "same command there."
    )


class StoreGone(StoreUnreachable):
    """The database server went away and did not come back in time."""

    exit_code = 4
    seconds: float
    message = (
        "the database {address} went away and did not come back in {seconds:g} s ({problem}); "
        "everything committed is safe"
    )
    hint = "Start its server and run the same command again to continue."


class RedisUnreachable(StoreUnreachable):
    """The shared limits on Redis cannot be read, so no request is sent."""

    message = (
        "Redis at {address} cannot be asked for the limits that workers share, so nothing is "
        "requested: {problem}"
    )
    hint = ""


class StoreTooNew(StoreError):
    """A newer longline wrote this database."""

    exit_code = 2
    address: str
    found: str
    known: str
    message = (
        "the database {address} has version {found}, newer than this longline knows ({known}); "
        "nothing was changed"
    )
    hint = "Upgrade longline, or set LONGLINE_HOME to another folder."


class StoreFull(StoreError):
    """There is no room left for the database."""

    exit_code = 4
    address: str
    message = "no room is left for {address}; everything committed is safe"
    hint = "Free some space and run the same command again to continue."


class StoreBusy(StoreError):
    """Other processes held the write lock for too long."""

    exit_code = 4
    address: str
    seconds: float
    message = "another process has locked {address} for {seconds:g} s; everything committed is safe"
    hint = "Run the same command again to continue."


class NotCopied(StoreError):
    """A database was not copied into another, which is unchanged."""

    exit_code = 2
    target: str
    problem: str
    message = "nothing was copied to {target}: {problem}"


class LeaseLost(StoreError):
    """Another worker leased the item meanwhile, so this outcome is not committed."""

    key: str
    token: int
    message = "lease {token} of item {key} was reclaimed; this attempt is dropped"


# ---------------------------------------------------------------- cluster


class BrokerUnreachable(LonglineError):
    """No message can be sent to workers; the work itself is in the database."""

    exit_code = 2
    address: str
    problem: str
    setting: str = "LONGLINE_REDIS_URL"
    message = "Redis at {address} cannot be used ({problem})"
    hint = "Start it with `longline up`, or check {setting}, for example redis://127.0.0.1:6379/0."


class BrokerRefuses(BrokerUnreachable):
    """Redis answers, but cannot be used as it is; `problem` says what to change."""

    message = "Redis at {address} cannot be used: {problem}"
    hint = ""


class LifecycleError(LonglineError):
    """A service of a cluster could not be started, stopped or reached."""


class StartFailed(LifecycleError):
    """A service did not start; `lines` are the last ones of its log, if there is one."""

    service: str
    problem: str
    log: str = ""
    lines: tuple[str, ...] = ()
    message = "{service} did not start: {problem}{in_log}"

    @property
    def in_log(self) -> str:
        """Where its log is, and how it ends."""
        if not self.log:
            return ""
        end = f", which ends with: {' | '.join(self.lines)}" if self.lines else ""
        return f"; see {self.log}{end}"


class StopFailed(LifecycleError):
    """A process of a service does not end."""

    service: str
    pid: int
    problem: str
    message = "{service} (process {pid}) could not be stopped: {problem}"


class NotAnswering(LifecycleError):
    """A server that the settings name, and longline did not start, does not answer."""

    service: str
    address: str
    problem: str
    message = "{service} at {address} does not answer ({problem})"
    hint = "longline did not start it: start it, or remove its address from the settings."


class LifecycleBusy(LifecycleError):
    """Another process starts or stops the cluster of the same home."""

    home: str
    seconds: float
    message = (
        "another `longline up` or `longline down` has been running in {home} for {seconds:g} s"
    )
    hint = "Wait for it to end and run this command again."


# ---------------------------------------------------------------- one request


class FetchError(LonglineError):
    """One request failed."""

    kind: ClassVar[FailureKind] = FailureKind.NETWORK
    url: str

    @property
    def host(self) -> str:
        """The host of the request."""
        return urlsplit(self.url).netloc


class ConnectFailed(FetchError):
    """No connection, or it broke before a response came."""

    problem: str
    message = "{url} could not be reached ({problem})"


class UnknownHost(FetchError):
    """No host has this name, and it has not answered before: a retry would not help."""

    kind = FailureKind.REFUSED
    problem: str
    message = "there is no host {host}, for {url} ({problem})"


class PrivateAddress(FetchError):
    """A site on a public host led to a private address; nothing was sent."""

    kind = FailureKind.REFUSED
    address: str
    message = "{url} was not requested: it leads to {address}, which is not a public address"
    hint = "If the source may request it, add the host to its private_hosts."


class BadCertificate(FetchError):
    """The TLS certificate of the host is not trusted: expired, self-signed or of another host."""

    kind = FailureKind.REFUSED
    problem: str
    message = "{url} was not requested: the TLS certificate of {host} is not trusted ({problem})"
    hint = (
        "Check the address; if your own certificate authority signed it, set ca_file to the "
        "certificate of that authority."
    )


class TimedOut(FetchError):
    """The whole response did not arrive before the deadline."""

    kind = FailureKind.TIMEOUT
    seconds: float
    message = "{url} did not respond in full within {seconds:g} s"


class NeverReady(FetchError):
    """A page loaded, but what the browser waited for did not appear on it."""

    kind = FailureKind.TIMEOUT
    what: str
    seconds: float
    message = "{url} loaded, but {what} did not appear within {seconds:g} s"


class BodyCut(FetchError):
    """The response ended before its announced end."""

    received_bytes: int
    message = "the response of {url} was cut off after {received_bytes} bytes"


class BadAnswer(FetchError):
    """A response that cannot be used: too large, undecodable, or a redirect loop."""

    kind = FailureKind.INVALID
    problem: str
    message = "the response of {url} cannot be used: {problem}"


class BadStatus(FetchError):
    """The response has an error status."""

    kind = FailureKind.REFUSED
    status: int
    retry_after: float | None = None
    message = "{url} returned {status}{pause}"

    @property
    def pause(self) -> str:
        """The pause that the site asks for."""
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


class RobotsDisallowed(FetchError):
    """robots.txt of the host disallows this address."""

    kind = FailureKind.REFUSED
    exit_code = 4
    reason: str
    message = "robots.txt of {host} does not allow {url} ({reason})"
    hint = (
        "Use a mirror, or, if you have the right to, add --ignore-robots {host}; the override is "
        "recorded in the job."
    )


class RobotsUnreachable(FetchError):
    """robots.txt of the host could not be fetched in several attempts, so the item fails.

    `kind` and `problem` are those of the last failure.
    """

    problem: str
    kind: FailureKind = FailureKind.NETWORK  # type: ignore[misc]  # each error has its own
    message = "robots.txt of {host} could not be fetched in several attempts: {problem}"


class AuthFailed(FetchError):
    """No token, or the login did not work."""

    kind = FailureKind.REFUSED
    problem: str
    message = "{host} refused the credentials: {problem}"


class Rejected(FetchError):
    """A response that a rule of the source calls a failure; `kind` is given by the rule."""

    reason: str
    kind: FailureKind = FailureKind.REFUSED  # type: ignore[misc]  # each error has its own
    message = "the response of {url} is a failure: {reason}"


class Blocked(FetchError):
    """The site banned us or shows a challenge; `evidence` says how we know.

    A lower rate does not help, so this is never retried: the domain is parked.
    """

    kind = FailureKind.BLOCKED
    exit_code = 4
    evidence: str
    message = "{host} blocks us at {url} ({evidence})"


class BudgetSpent(FetchError):
    """A limit of the user on requests, bytes or time is reached; nothing was requested."""

    kind = FailureKind.BUDGET
    limit: str
    message = "not requested: {limit} is reached"


class NotArchived(FetchError):
    """Extraction from an archive needs a response that was never fetched."""

    kind = FailureKind.INVALID
    method: str = "GET"
    message = "the archive has no response to {method} {url}"


class CircuitOpen(FetchError):
    """The circuit breaker of the domain is open until `until`, in seconds since the epoch.

    `kind` is blocked for a ban, and `reason` its evidence.
    """

    until: float
    reason: str = ""
    kind: FailureKind = FailureKind.NETWORK  # type: ignore[misc]  # each error has its own

    @property
    def message(self) -> str:  # type: ignore[override]  # depends on the fields
        """Why the breaker is open, and until when."""
        why = " ({reason})" if self.reason else ""
        is_ban = self.kind is FailureKind.BLOCKED
        problem = "blocks us" if is_ban else "failed too often"
        return f"{{domain}} {problem}{why}; its circuit breaker is open until {{until_utc}}"

    @property
    def domain(self) -> str:
        """The domain, as far as the URL has one."""
        return self.host or self.url

    @property
    def until_utc(self) -> str:
        """When the breaker half-opens, as text."""
        return _utc(self.until)


class Postponed(FetchError):
    """The item is deferred until `until`, in seconds since the epoch.

    `kind` is that of the failure behind it; `is_for_domain` says that every other request to
    this host would fail until then, too.
    """

    until: float
    problem: str
    kind: FailureKind  # type: ignore[misc]  # each error has its own
    is_for_domain: bool = False
    message = "{problem}; deferred until {until_utc}"

    @property
    def until_utc(self) -> str:
        """When the item is due again, as text."""
        return _utc(self.until)


# ---------------------------------------------------------------- extraction


class ExtractError(LonglineError):
    """The response came, but the source cannot make a record of it."""

    kind: ClassVar[FailureKind] = FailureKind.INVALID


class UnexpectedShape(ExtractError):
    """The response does not have the shape that the source expects."""

    where: str
    problem: str
    message = "{where}: {problem}"


_MOST_SHOWN = 3  # of the problems of one record; all of them are kept with it


class ValidationFailed(UnexpectedShape):
    """The data of a record breaks rules of its source; `problems` lists each with its place."""

    problems: tuple[str, ...]

    def __init__(self, where: str, problems: tuple[str, ...]) -> None:
        rest = len(problems) - _MOST_SHOWN
        more = f" and {rest} more" if rest > 0 else ""
        shown = "; ".join(problems[:_MOST_SHOWN]) + more
        LonglineError.__init__(self, where, shown, problems)
        self.args = (where, problems)  # pickle calls this __init__ with them


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
    """The code of a layer raised an exception."""

    kind: ClassVar[FailureKind] = FailureKind.BUG
    layer: str
    problem: str
    message = "layer {layer} raised {problem}"


class NoFields(LayerFailed):
    """The code of a layer did not return fields by name; `problem` is the type it returned."""

    message = "layer {layer} returned {returned}, not fields by name"

    @property
    def returned(self) -> str:
        """What the layer returned."""
        if self.problem == "NoneType":
            return "nothing"
        return f"{'an' if self.problem[0] in 'aeiou' else 'a'} {self.problem}"


class StageFailed(LayerFailed):
    """The code of a pipeline stage raised an exception."""

    message = "stage {layer} raised {problem}"


class StrayCancellation(LonglineError):
    """The code of a source raised a cancellation that nothing asked for."""

    message = "something that the source awaited was cancelled (asyncio.CancelledError)"


class TookTooLong(LonglineError):
    """The code of a source did not end in time."""

    seconds: float
    message = "it took longer than {seconds:g} s"


class DiscoveryFailed(LonglineError):
    """The source could not list its items, so their number is unknown."""

    source: str
    problem: str
    message = "{source} could not list its items: {problem}"


# ---------------------------------------------------------------- which error, which kind


def discovery_failure(source: str, error: BaseException) -> DiscoveryFailed:
    """Return the failure of a discovery that raised `error`, which is its cause.

    A `DiscoveryFailed` is returned unchanged: wrapping it would repeat the sentence.
    """
    if isinstance(error, DiscoveryFailed):
        return error
    problem = str(error) if isinstance(error, LonglineError) else repr(error)
    failure = DiscoveryFailed(source, problem)
    failure.__cause__ = error
    return failure


def text_of(error: BaseException) -> str:
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
    if isinstance(error, (ConnectionError, OSError)):
        return FailureKind.NETWORK
    return FailureKind.BUG


_SERVER_FLOOR = 500
_GONE = frozenset({404, 410})
_OVERLOAD = frozenset({429, 503})


def bad_status(url: str, status: int, retry_after: float | None = None) -> BadStatus:
    """Return the error for a status of 400 or more."""
    if status in _GONE:
        return Gone(url, status)
    if status in _OVERLOAD:
        return Throttled(url, status, retry_after)
    if status >= _SERVER_FLOOR:
        return ServerFailed(url, status, retry_after)
    return Refused(url, status)


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
