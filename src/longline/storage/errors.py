"""Errors of the database: unknown names, lost connections and leases."""

from __future__ import annotations

from longline.core.errors import ConfigError, StoreError, StoreUnreachable

NOT_A_URL = "it is not a database URL"


class UnknownJob(ConfigError):
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
            return "{fitting} jobs begin with {job!r}"
        return "there is no job {job!r} in this home"


class UnknownRecord(ConfigError):
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
        "({problem}); everything committed is safe"
    )
    hint = "Start its server and run the same command again to continue."


class NotCopied(StoreError):
    exit_code = 2
    target: str
    problem: str
    message = "nothing was copied to {target}: {problem}"


class NotADatabase(NotCopied):
    message = "'{target}' is not a database URL; nothing was copied"


class LeaseLost(StoreError):
    key: str
    token: int
    message = "lease {token} of item {key} was reclaimed; this attempt is dropped"
