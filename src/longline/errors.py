"""Every error longline raises, and what a caller does about it.

LonglineError                  the command line prints its sentence and exits with `exit_code`
├── ConfigError                what the user wrote is wrong: mend it (exit 2)
│   ├── UnknownSource          no such source; the message lists those there are
│   ├── BadOption              a setting of a source or a command is wrong
│   ├── BadFile                a YAML file is broken; says file, line and column
│   ├── BadSource              a Python file holds no usable source
│   ├── SourceIsAddress        a site's address in place of a source: propose a manifest for it
│   ├── MissingExtra           an optional package is not installed: says which command mends it
│   ├── NoBrowser              a browser is needed and none was found: install or name one
│   ├── HomeUnwritable         the data folder cannot be made or written
│   │   └── HomeReadOnly       its file system may only be read: mount it for writing
│   ├── UnknownJob             no such job in this home
│   ├── NothingYet             no job was ever run in this home
│   ├── UnknownRecord          no such record in this home
│   ├── UnknownCheckpoint      no such checkpoint document in this home
│   ├── UnknownSecret          a secret that was referred to is not there: provide it
│   ├── NothingArchived        the job kept no answers: run it with --archive
│   ├── NotResumable           the job has ended; start a new one
│   ├── NotBegun               an interrupt came before its turn; run it again
│   ├── NothingToRetry         no item of the job failed in this way
│   └── DestinationUnwritable  an export cannot be written where it was asked for
├── DestinationFull            no room for an export: make room, run again (exit 4)
├── StoreError                 the database
│   ├── StoreUnreachable       wrong address or no rights: mend it (exit 2)
│   │   ├── StoreDamaged       the file is damaged: restore or delete it (exit 1)
│   │   ├── StoreReadOnly      it has to be written first: mount or copy it so (exit 2)
│   │   ├── StoreGone          its server went away for too long: start it, run again (exit 4)
│   │   └── RedisUnreachable   workers cannot share limits: start Redis or mend it (exit 2)
│   ├── StoreTooNew            a newer longline wrote it: upgrade (exit 2)
│   ├── StoreFull              the disk is full: make room, run again (exit 4)
│   ├── StoreBusy              others held the write lock too long: run again (exit 4)
│   ├── NotCopied              one database cannot be moved into another: says why (exit 2)
│   └── LeaseLost              another worker has the item now: drop what was done
├── BrokerUnreachable          Redis carries no messages: start it or mend the address (exit 2)
│   └── BrokerRefuses          it is there and cannot be used, such as for a wrong password
├── LifecycleError             a part of a cluster on this machine
│   ├── StartFailed            it does not start: read its log
│   ├── StopFailed             it does not end, or belongs to another user
│   ├── NotAnswering           one that runs elsewhere does not answer: start it, mend its address
│   └── LifecycleBusy          another `longline up` or `down` is at work: wait for it
├── FetchError                 one request failed; its `kind` decides what happens next
│   ├── ConnectFailed          network: retried
│   ├── UnknownHost            refused: no host has this name: never retried
│   ├── TimedOut               timeout: retried
│   ├── NeverReady             timeout: a browser waited for something in vain: retried
│   ├── BodyCut                network: the answer ended early: retried
│   ├── BadAnswer              invalid: not HTTP as we can use it: quarantined
│   ├── BadStatus              the status says no
│   │   ├── Throttled          overload (429, 503): the domain waits, then retried
│   │   ├── ServerFailed       server (other 5xx): retried
│   │   ├── Refused            refused (401, 403 and other 4xx): never retried
│   │   └── Gone               gone (404, 410): skipped
│   ├── PrivateAddress         refused: a site led to a private address: never retried
│   ├── BadCertificate         refused: the TLS certificate is not trusted: never retried
│   ├── RobotsDisallowed       refused: asks for an explicit override
│   ├── RobotsUnreachable      the host's robots.txt could not be fetched in several attempts
│   ├── AuthFailed             refused: no token, or the login did not work
│   ├── Rejected               a rule of the source calls the answer a failure
│   ├── Blocked                blocked: a ban or a challenge: the domain is parked
│   ├── BudgetSpent            budget: a limit of the user's is reached: skipped
│   ├── NotArchived            invalid: asked again from an archive that has no such answer
│   ├── CircuitOpen            the domain rests: the item is parked
│   └── Postponed              the wait is too long to sit out: the item is parked
├── ExtractError               the answer came but is not what the source expects
│   ├── UnexpectedShape        invalid: quarantined with the reason
│   │   └── Misfit             the same, with every rule that the data breaks
│   ├── SkipItem               the source decided that this is not an item: skipped
│   └── NothingToStore         the item was only a step on the way, such as a list: skipped
├── StrayCancellation          a source let through a cancellation nobody asked for: bug
├── TookTooLong                a source does not come to its end: given up, and told
├── LayerFailed                a source's own code raised: bug
│   ├── NoFields               it returned something else than fields by name
│   └── StageFailed            the same, in a stage of its pipeline
└── DiscoveryFailed            the source could not list its items
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from enum import StrEnum
from typing import ClassVar
from urllib.parse import urlsplit


class FailureKind(StrEnum):
    """What sort of thing went wrong; decides between retry, park, skip, fail and quarantine."""

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


class LonglineError(Exception):
    """Anything longline raises on purpose."""

    exit_code: ClassVar[int] = 1


# ---------------------------------------------------------------- what the user wrote


class ConfigError(LonglineError):
    """Something the user wrote cannot be used; the sentence says what to change."""

    exit_code = 2


class UnknownSource(ConfigError):
    """There is no source of this name."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(name, known)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        return (
            f"there is no source called {self.name!r}; known sources: {', '.join(self.known)}. "
            "A file (my_source.py, job.yaml) or package.module:Class works too"
        )


class BadOption(ConfigError):
    """An option has a value that cannot be used."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(option, problem)
        self.option = option
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.option}: {self.problem}"


class BadFile(ConfigError):
    """A file the user wrote cannot be read; `line` and `column` count from 1, 0 is unknown."""

    def __init__(self, path: str, problem: str, line: int = 0, column: int = 0) -> None:
        super().__init__(path, problem, line, column)
        self.path = path
        self.problem = problem
        self.line = line
        self.column = column

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}:{self.column}" if self.line else self.path
        return f"{where}: {self.problem}"


class BadSource(ConfigError):
    """A Python file or module holds no source that can be used."""

    def __init__(self, reference: str, problem: str) -> None:
        super().__init__(reference, problem)
        self.reference = reference
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.reference} cannot be used as a source: {self.problem}"


class SourceIsAddress(ConfigError):
    """The address of a site was given where a source is needed."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address

    def __str__(self) -> str:
        return (
            f"{self.address} is the address of a site, not a source. `longline sources new "
            f"{shlex.quote(self.address)}` proposes a manifest for it; then run that file"
        )


class MissingExtra(ConfigError):
    """Something was asked for that needs an optional package."""

    def __init__(self, extra: str, what: str = "this") -> None:
        super().__init__(extra, what)
        self.extra = extra
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} needs the extra {self.extra!r}: pip install 'longline[{self.extra}]'"


class NoBrowser(ConfigError):
    """Pages are to be opened in a browser, and there is none."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return (
            f"no Chromium to open pages with: {self.problem}; install one (apt install chromium, "
            "or playwright install chromium), or set LONGLINE_CHROMIUM to its path or to the "
            "address of one that runs elsewhere"
        )


class HomeUnwritable(ConfigError):
    """The folder for longline's data cannot be made or written."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return (
            f"the data folder {self.path} cannot be written ({self.problem}); "
            "set LONGLINE_HOME or --home to a folder of yours"
        )


class HomeReadOnly(HomeUnwritable):
    """It is on a file system that nobody can write; another folder would not have its data."""

    def __str__(self) -> str:
        return (
            f"the data folder {self.path} cannot be written ({self.problem}); mount it for "
            "writing, or name another folder (LONGLINE_HOME, --home)"
        )


class UnknownJob(ConfigError):
    """There is no such job; an empty name stands for "any", and `fitting` counts those that fit."""

    def __init__(self, job: str = "", fitting: int = 0) -> None:
        super().__init__(job, fitting)
        self.job = job
        self.fitting = fitting

    def __str__(self) -> str:
        if not self.job:
            return "there is no unfinished job here; `longline jobs` lists what there is"
        if self.fitting:
            return f"{self.fitting} jobs begin with {self.job!r}; `longline jobs` lists them"
        return f"there is no job {self.job!r} here; `longline jobs` lists them"


class NothingYet(ConfigError):
    """No job was ever run in this home."""

    def __str__(self) -> str:
        return "no job was run here yet; try `longline demo`, or name another --home"


class UnknownRecord(ConfigError):
    """There is no such record."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"there is no record {self.key!r} here; `longline records list` lists them"


class UnknownCheckpoint(ConfigError):
    """There is no such checkpoint."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"there is no checkpoint {self.name!r} here; `longline checkpoints` lists them"


class UnknownSecret(ConfigError):
    """A secret is referred to (`env:NAME`, `file:PATH`) and cannot be read."""

    def __init__(self, reference: str, problem: str) -> None:
        super().__init__(reference, problem)
        self.reference = reference
        self.problem = problem

    def __str__(self) -> str:
        return f"the secret {self.reference} cannot be used: {self.problem}"


class NothingArchived(ConfigError):
    """A job has no archived answers to extract from."""

    def __init__(self, job: str) -> None:
        super().__init__(job)
        self.job = job

    def __str__(self) -> str:
        return f"job {self.job} kept no answers; run it with --archive to be able to extract again"


class NotResumable(ConfigError):
    """The job has ended and has nothing left to do; `wish` is what was to be done with it."""

    def __init__(self, job: str, state: str, wish: str = "resume") -> None:
        super().__init__(job, state, wish)
        self.job = job
        self.state = state
        self.wish = wish

    def __str__(self) -> str:
        told = f"job {self.job} is {self.state}: nothing is left to {self.wish}"
        return f"{told}; start a new one with run" if self.wish == "resume" else told


class StrayCancellation(LonglineError):
    """A source's own code let a cancellation through that nobody had asked for."""

    def __str__(self) -> str:
        return "something that the source awaited was cancelled (asyncio.CancelledError)"


class TookTooLong(LonglineError):
    """A source's own code did not come to its end in the seconds that it had."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        return f"it took longer than {self.seconds:g} s"


class NotBegun(ConfigError):
    """An interrupt came before the turn of this source."""

    exit_code = 130

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.source = source

    def __str__(self) -> str:
        return f"{self.source} was not begun: interrupted; run the same command again to go on"


class NothingToRetry(ConfigError):
    """No item of the job failed in the way that was asked for; an empty kind is any."""

    def __init__(self, job: str, kind: str = "") -> None:
        super().__init__(job, kind)
        self.job = job
        self.kind = kind

    def __str__(self) -> str:
        how = f" by {self.kind}" if self.kind else ""
        return (
            f"no finished item of job {self.job} failed{how}, so there is nothing to try again; "
            f"`longline failures {self.job}` shows what did"
        )


class DestinationUnwritable(ConfigError):
    """An export cannot be written where it was asked for."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path} cannot be written ({self.problem}); nothing was left behind"


# ---------------------------------------------------------------- where exports go


class DestinationFull(LonglineError):
    """There is no room left for an export."""

    exit_code = 4

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return (
            f"no room is left for {self.path} ({self.problem}); what was there before is as it "
            "was. Make room and run the same command again"
        )


# ---------------------------------------------------------------- the database


class StoreError(LonglineError):
    """The database did not do what was asked."""


class StoreUnreachable(StoreError):
    """The database cannot be opened."""

    exit_code = 2

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(address, problem)
        self.address = address
        self.problem = problem

    def __str__(self) -> str:
        return (
            f"the database {self.address} cannot be opened ({self.problem}); "
            "check LONGLINE_DATABASE_URL, for example sqlite:///longline.sqlite"
        )


class StoreDamaged(StoreUnreachable):
    """A database file is damaged; `remedy` says what is lost and what to do."""

    exit_code = 1

    def __init__(self, address: str, problem: str, remedy: str) -> None:
        super().__init__(address, problem)
        self.args = (address, problem, remedy)
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.address} is damaged ({self.problem}). {self.remedy}"


class StoreReadOnly(StoreUnreachable):
    """The database may only be read, and that will not do."""

    def __str__(self) -> str:
        return (
            f"the database {self.address} may only be read here, and {self.problem}; mount it for "
            "writing once, or copy its folder to where it can be written, and run the same command "
            "there"
        )


class StoreGone(StoreUnreachable):
    """The server of the database went away and did not come back while we waited."""

    exit_code = 4

    def __init__(self, address: str, problem: str, seconds: float) -> None:
        super().__init__(address, problem)
        self.args = (address, problem, seconds)  # pickle rebuilds the error from these
        self.seconds = seconds

    def __str__(self) -> str:
        return (
            f"the database {self.address} went away and did not come back in {self.seconds:g} s "
            f"({self.problem}); everything committed is safe. Start its server and run the same "
            "command again to go on"
        )


class RedisUnreachable(StoreUnreachable):
    """What workers share on Redis cannot be asked for; nobody runs free meanwhile."""

    def __str__(self) -> str:
        return (
            f"Redis at {self.address} cannot be asked for what the workers share, so nothing is "
            f"requested: {self.problem}"
        )


class StoreTooNew(StoreError):
    """A newer longline has written this database."""

    exit_code = 2

    def __init__(self, address: str, found: str, known: str) -> None:
        super().__init__(address, found, known)
        self.address = address
        self.found = found
        self.known = known

    def __str__(self) -> str:
        return (
            f"the database {self.address} is at version {self.found}, newer than this longline "
            f"knows ({self.known}); upgrade longline, or use another LONGLINE_HOME. "
            "Nothing was changed"
        )


class StoreFull(StoreError):
    """There is no room left for the database."""

    exit_code = 4

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address

    def __str__(self) -> str:
        return (
            f"no room is left for {self.address}; everything committed is safe. "
            "Make room and run the same command again to go on"
        )


class StoreBusy(StoreError):
    """Other processes held the write lock longer than we are willing to wait."""

    exit_code = 4

    def __init__(self, address: str, seconds: float) -> None:
        super().__init__(address, seconds)
        self.address = address
        self.seconds = seconds

    def __str__(self) -> str:
        return (
            f"another process has kept {self.address} locked for {self.seconds:g} s; "
            "everything committed is safe. Run the same command again to go on"
        )


class NotCopied(StoreError):
    """A database was not copied into another, which is as it was before."""

    exit_code = 2

    def __init__(self, target: str, problem: str) -> None:
        super().__init__(target, problem)
        self.target = target
        self.problem = problem

    def __str__(self) -> str:
        return f"nothing was copied to {self.target}: {self.problem}"


class LeaseLost(StoreError):
    """The item was given to another worker while we worked on it; its commit is refused."""

    def __init__(self, key: str, token: int) -> None:
        super().__init__(key, token)
        self.key = key
        self.token = token

    def __str__(self) -> str:
        return f"the lease {self.token} of item {self.key} was taken over; this try is dropped"


# ---------------------------------------------------------------- messages to workers


class BrokerUnreachable(LonglineError):
    """Messages cannot be sent to workers; all that they would be about is in the database."""

    exit_code = 2

    def __init__(self, address: str, problem: str, setting: str = "LONGLINE_REDIS_URL") -> None:
        super().__init__(address, problem, setting)
        self.address = address
        self.problem = problem
        self.setting = setting

    def __str__(self) -> str:
        return (
            f"Redis at {self.address} cannot be used ({self.problem}); start it with "
            f"`longline up`, or check {self.setting}, for example redis://127.0.0.1:6379/0"
        )


class BrokerRefuses(BrokerUnreachable):
    """A Redis is there and will not do as it is; the problem says what to change."""

    def __str__(self) -> str:
        return f"Redis at {self.address} cannot be used: {self.problem}"


# ---------------------------------------------------------------- a cluster on this machine


class LifecycleError(LonglineError):
    """A part of a cluster could not be started, stopped or reached."""


class StartFailed(LifecycleError):
    """A service did not start; `lines` are the last ones of its log, if it has written one."""

    def __init__(
        self, service: str, problem: str, log: str = "", lines: tuple[str, ...] = ()
    ) -> None:
        super().__init__(service, problem, log, lines)
        self.service = service
        self.problem = problem
        self.log = log
        self.lines = lines

    def __str__(self) -> str:
        if not self.log:
            return f"{self.service} did not start: {self.problem}"
        told = f", which ends with: {' | '.join(self.lines)}" if self.lines else ""
        return f"{self.service} did not start: {self.problem}; read {self.log}{told}"


class StopFailed(LifecycleError):
    """A process that was started does not end."""

    def __init__(self, service: str, pid: int, problem: str) -> None:
        super().__init__(service, pid, problem)
        self.service = service
        self.pid = pid
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.service} (process {self.pid}) could not be stopped: {self.problem}"


class NotAnswering(LifecycleError):
    """A server that somebody else runs, and that the settings name, does not answer."""

    def __init__(self, service: str, address: str, problem: str) -> None:
        super().__init__(service, address, problem)
        self.service = service
        self.address = address
        self.problem = problem

    def __str__(self) -> str:
        return (
            f"{self.service} at {self.address} does not answer ({self.problem}); it is not ours to "
            "start: start it, or take its address out of the settings"
        )


class LifecycleBusy(LifecycleError):
    """Another process starts or stops the cluster of the same home."""

    def __init__(self, home: str, seconds: float) -> None:
        super().__init__(home, seconds)
        self.home = home
        self.seconds = seconds

    def __str__(self) -> str:
        return (
            f"another `longline up` or `longline down` has been at work in {self.home} for "
            f"{self.seconds:g} s; wait for it to end and run this again"
        )


# ---------------------------------------------------------------- one request


class FetchError(LonglineError):
    """One request failed."""

    kind: ClassVar[FailureKind] = FailureKind.NETWORK

    def __init__(self, url: str, *rest: object) -> None:
        super().__init__(url, *rest)  # pickle rebuilds the error from these
        self.url = url

    @property
    def host(self) -> str:
        """The host that was asked."""
        return urlsplit(self.url).netloc


class ConnectFailed(FetchError):
    """No connection, or it broke before an answer came."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(url, problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.url} could not be reached ({self.problem})"


class UnknownHost(FetchError):
    """No host has this name, and it has not answered before: trying again would not help."""

    kind = FailureKind.REFUSED

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(url, problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"there is no host {self.host}, for {self.url} ({self.problem})"


class PrivateAddress(FetchError):
    """A job that starts at a public host was led to a private address; nothing was sent."""

    kind = FailureKind.REFUSED

    def __init__(self, url: str, address: str) -> None:
        super().__init__(url, address)
        self.address = address

    def __str__(self) -> str:
        return (
            f"{self.url} was not requested: it leads to {self.address}, which is not a public "
            "address. If the source may go there, add the host to its private_hosts"
        )


class BadCertificate(FetchError):
    """The TLS certificate of the host is not trusted: expired, of another host, or self-signed."""

    kind = FailureKind.REFUSED

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(url, problem)
        self.problem = problem

    def __str__(self) -> str:
        return (
            f"{self.url} was not requested: the TLS certificate of {self.host} is not trusted "
            f"({self.problem}). Check the address; if a certificate authority of your own signed "
            "it, set ca_file to the certificate of that authority"
        )


class TimedOut(FetchError):
    """The whole answer did not arrive within the deadline."""

    kind = FailureKind.TIMEOUT

    def __init__(self, url: str, seconds: float) -> None:
        super().__init__(url, seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        return f"{self.url} did not answer in full within {self.seconds:g} s"


class NeverReady(FetchError):
    """A page came, but what the browser was to wait for or to use did not show up on it."""

    kind = FailureKind.TIMEOUT

    def __init__(self, url: str, what: str, seconds: float) -> None:
        super().__init__(url, what, seconds)
        self.what = what
        self.seconds = seconds

    def __str__(self) -> str:
        return f"{self.url} came, but {self.what} did not within {self.seconds:g} s"


class BodyCut(FetchError):
    """The answer ended before its announced end."""

    def __init__(self, url: str, received_bytes: int) -> None:
        super().__init__(url, received_bytes)
        self.received_bytes = received_bytes

    def __str__(self) -> str:
        return f"the answer of {self.url} was cut off after {self.received_bytes} bytes"


class BadAnswer(FetchError):
    """An answer that cannot be used: too large, undecodable, or redirected in circles."""

    kind = FailureKind.INVALID

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(url, problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"the answer of {self.url} cannot be used: {self.problem}"


class BadStatus(FetchError):
    """The status of the answer says no."""

    kind = FailureKind.REFUSED

    def __init__(self, url: str, status: int, retry_after: float | None = None) -> None:
        super().__init__(url, status, retry_after)
        self.status = status
        self.retry_after = retry_after

    def __str__(self) -> str:
        pause = "" if self.retry_after is None else f" and asks for {self.retry_after:g} s of pause"
        return f"{self.url} answered {self.status}{pause}"


class Throttled(BadStatus):
    """The site asks for a pause (429, 503)."""

    kind = FailureKind.OVERLOAD


class ServerFailed(BadStatus):
    """The site failed (5xx other than 503)."""

    kind = FailureKind.SERVER


class Refused(BadStatus):
    """The site does not want this request (401, 403, and the other 4xx)."""

    kind = FailureKind.REFUSED


class Gone(BadStatus):
    """There is nothing at this address (404, 410)."""

    kind = FailureKind.GONE


class RobotsDisallowed(FetchError):
    """robots.txt of the host forbids this address."""

    kind = FailureKind.REFUSED
    exit_code = 4

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"robots.txt of {self.host} does not allow {self.url} ({self.reason}). Point the "
            f"source at a mirror, or, if you have the right to, add --ignore-robots {self.host}; "
            "the override is recorded in the job"
        )


class RobotsUnreachable(FetchError):
    """robots.txt of the host could not be fetched in several attempts, so the item fails.

    `kind` is that of the last failure, and `problem` its reason.
    """

    def __init__(self, url: str, problem: str, kind: FailureKind = FailureKind.NETWORK) -> None:
        super().__init__(url, problem, kind)
        self.problem = problem
        self.kind = kind  # type: ignore[misc]  # as in Postponed: each has its own

    def __str__(self) -> str:
        return f"robots.txt of {self.host} could not be fetched, again and again: {self.problem}"


class AuthFailed(FetchError):
    """The site did not let us in: no token, or the login did not work."""

    kind = FailureKind.REFUSED

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(url, problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.host} did not let us in: {self.problem}"


class Rejected(FetchError):
    """An answer that a rule of the source calls a failure; `kind` is what the rule means by it."""

    def __init__(self, url: str, reason: str, kind: FailureKind = FailureKind.REFUSED) -> None:
        super().__init__(url, reason, kind)
        self.reason = reason
        self.kind = kind  # type: ignore[misc]  # as in Postponed: each has its own

    def __str__(self) -> str:
        return f"the answer of {self.url} is a failure: {self.reason}"


class Blocked(FetchError):
    """The site has banned us or wants a person to answer a challenge; `evidence` says how we know.

    Going slower does not help, so nobody retries this: the domain is parked.
    """

    kind = FailureKind.BLOCKED
    exit_code = 4

    def __init__(self, url: str, evidence: str) -> None:
        super().__init__(url, evidence)
        self.evidence = evidence

    def __str__(self) -> str:
        return f"{self.host} blocks us at {self.url} ({self.evidence})"


class BudgetSpent(FetchError):
    """A limit that the user set on requests, bytes or time is reached; nothing was asked."""

    kind = FailureKind.BUDGET

    def __init__(self, url: str, limit: str) -> None:
        super().__init__(url, limit)
        self.limit = limit

    def __str__(self) -> str:
        return f"not asked: {self.limit} is spent"


class NotArchived(FetchError):
    """Extraction from an archive asked for something that was never fetched."""

    kind = FailureKind.INVALID

    def __init__(self, url: str, method: str = "GET") -> None:
        super().__init__(url, method)
        self.method = method

    def __str__(self) -> str:
        return f"the archive holds no answer to {self.method} {self.url}"


class CircuitOpen(FetchError):
    """The domain rests until `until`, in seconds since the epoch: it failed too often, or bans us.

    `kind` is blocked for a ban, and `reason` its evidence.
    """

    def __init__(
        self, url: str, until: float, reason: str = "", kind: FailureKind = FailureKind.NETWORK
    ) -> None:
        super().__init__(url, until, reason, kind)
        self.until = until
        self.reason = reason
        self.kind = kind  # type: ignore[misc]  # as in Postponed: that of what is behind it

    def __str__(self) -> str:
        host = self.host or self.url
        why = f" ({self.reason})" if self.reason else ""
        moment = datetime.fromtimestamp(self.until, UTC).isoformat(timespec="seconds")
        if self.kind is FailureKind.BLOCKED:
            return f"{host} blocks us{why} and is left alone until {moment}"
        return f"{host} has failed too often{why} and rests until {moment}"


class Postponed(FetchError):
    """The next try lies so far ahead (`until`, seconds since the epoch) that nobody waits for it.

    `kind` is that of the failure behind it; `is_for_domain` says that any other request to this
    host would fare the same until then.
    """

    def __init__(
        self,
        url: str,
        until: float,
        problem: str,
        kind: FailureKind,
        is_for_domain: bool = False,  # noqa: FBT001, FBT002  # pickle rebuilds it by position
    ) -> None:
        super().__init__(url, until, problem, kind, is_for_domain)
        self.until = until
        self.problem = problem
        self.is_for_domain = is_for_domain
        self.kind = kind  # type: ignore[misc]  # the kind is that of another error

    def __str__(self) -> str:
        moment = datetime.fromtimestamp(self.until, UTC).isoformat(timespec="seconds")
        return f"{self.problem}; tried again after {moment}"


# ---------------------------------------------------------------- extraction


class ExtractError(LonglineError):
    """The answer came, but the source cannot make a record of it."""

    kind: ClassVar[FailureKind] = FailureKind.INVALID


class UnexpectedShape(ExtractError):
    """The answer does not have the shape the source knows."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(where, problem)
        self.where = where
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}"


_TOLD = 3  # of the problems of one record; the others are kept with it


class Misfit(UnexpectedShape):
    """The data of a record breaks rules of its source; `problems` names each with its place."""

    def __init__(self, where: str, problems: tuple[str, ...]) -> None:
        rest = len(problems) - _TOLD
        more = f" and {rest} more" if rest > 0 else ""
        super().__init__(where, "; ".join(problems[:_TOLD]) + more)
        self.args = (where, problems)  # pickle rebuilds the error from these
        self.problems = problems


class SkipItem(ExtractError):
    """The source says that there is nothing to collect here; not a failure."""

    kind = FailureKind.GONE

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class NothingToStore(ExtractError):
    """The item did its work and is no record itself: a page that only leads to others."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class LayerFailed(LonglineError):
    """The code of a layer raised something of its own."""

    kind: ClassVar[FailureKind] = FailureKind.BUG

    def __init__(self, layer: str, problem: str) -> None:
        super().__init__(layer, problem)
        self.layer = layer
        self.problem = problem

    def __str__(self) -> str:
        return f"layer {self.layer} raised {self.problem}"


class NoFields(LayerFailed):
    """The code of a layer returned something else than fields by name; `problem` is its type."""

    def __str__(self) -> str:
        article = "an" if self.problem[0] in "aeiou" else "a"
        found = "nothing" if self.problem == "NoneType" else f"{article} {self.problem}"
        return f"layer {self.layer} returned {found}, not fields by name"


class StageFailed(LayerFailed):
    """The code of a stage of the pipeline raised something of its own."""

    def __str__(self) -> str:
        return f"stage {self.layer} raised {self.problem}"


class DiscoveryFailed(LonglineError):
    """The source could not list its items, so nobody knows how many there are."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(source, problem)
        self.source = source
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.source} could not list its items: {self.problem}"


def discovery_failure(source: str, error: BaseException) -> DiscoveryFailed:
    """Return the failure of a discovery that raised `error`, which is its cause.

    A `DiscoveryFailed` is returned as it is: wrapping it would say the same sentence twice.
    """
    if isinstance(error, DiscoveryFailed):
        return error
    problem = str(error) if isinstance(error, LonglineError) else repr(error)
    failure = DiscoveryFailed(source, problem)
    failure.__cause__ = error
    return failure


def text_of(error: BaseException) -> str:
    """Return what an error says of itself; of one whose own code fails at that, how."""
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001  # the code of a source, which may do anything
        return f"it has no text, since its __str__ raised {type(second).__name__}"


def kind_of(error: BaseException) -> FailureKind:
    """Return the kind of any error; what we do not know is a bug."""
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
    """Return the error that fits a status of 400 or more."""
    if status in _GONE:
        return Gone(url, status)
    if status in _OVERLOAD:
        return Throttled(url, status, retry_after)
    if status >= _SERVER_FLOOR:
        return ServerFailed(url, status, retry_after)
    return Refused(url, status)
