"""JobSpec: the settings of one run, from the command line, a file or Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ByteSize, Field, ValidationError, field_validator, model_validator

from longline.config.auth import Auth
from longline.config.documents import read_document
from longline.config.identity import Cookies, Headers, PrivateHosts
from longline.config.proxies import Proxies, Sessions
from longline.config.validation import StrictModel, describe_error, invalid
from longline.core.errors import BadFile, BadOption

Rate = float | Literal["unlimited", "auto"]
ScheduleValues = dict[str, Any] | list[dict[str, Any]]
"""One or several schedules; `scheduling` knows what they mean, and validates them."""
RATE_PROBLEM = "must be more than 0 requests per second, 'auto' to learn it, or 'unlimited'"


class BudgetSpec(StrictModel):
    """Limits of a run; None is unlimited. Sizes may be written as 50MB."""

    requests: int | None = Field(default=None, ge=1)
    bytes: ByteSize | None = Field(default=None, ge=1)
    seconds: float | None = Field(default=None, gt=0)


class RetrySpec(StrictModel):
    """Attempts of a request and the waits between them; None is the default."""

    attempts: int | None = Field(default=None, ge=1, le=100)
    base: float | None = Field(default=None, ge=0, le=86_400)
    """Seconds before the second attempt; doubled for each further one."""
    max: float | None = Field(default=None, ge=0, le=86_400)
    """Longest wait in seconds, unless the site asks for a longer one."""

    @model_validator(mode="after")
    def _check_max(self) -> Self:
        if self.base is not None and self.max is not None and self.max < self.base:
            raise invalid(f"max ({self.max:g}) must not be less than base ({self.base:g})")
        return self


class JobSpec(StrictModel):
    """One run of a source; None means the default of the source or the settings."""

    source: str = Field(min_length=1)
    manifest: dict[str, Any] | None = None
    """The values of the manifest, so that a later edit does not change the job."""
    options: dict[str, Any] = Field(default_factory=dict, alias="set")
    params: dict[str, Any] = Field(default_factory=dict)
    limit: int | None = Field(default=None, ge=1)
    rate: Rate | None = None
    burst: int | None = Field(default=None, ge=1)
    max_in_flight: int | None = Field(default=None, ge=1)
    """Maximum concurrent requests per domain, across all processes."""
    concurrency: int | None = Field(default=None, ge=1, le=1000)
    timeout: float | None = Field(default=None, gt=0)
    retry: RetrySpec | None = None
    ignore_robots: tuple[str, ...] = ()
    ca_file: Path | None = None
    """Certificate authorities to trust besides the system's, as PEM."""
    private_hosts: PrivateHosts = ()
    """Hosts at private addresses that may be requested although the job starts at a public one."""
    headers: Headers = Field(default_factory=dict)
    cookies: Cookies | None = None
    auth: Auth | None = None
    proxies: Proxies | None = None
    """Which proxies are used: true, false, tiers, or more; see docs/proxies.md."""
    sessions: Sessions | None = None
    """Sessions of cookies, a proxy and headers: item, login, or a number of uses."""
    cache: bool | None = None
    archive: bool = False
    budget: BudgetSpec = BudgetSpec()
    budget_per_domain: BudgetSpec = BudgetSpec()

    @field_validator("ignore_robots")
    @classmethod
    def _strip_to_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        names = (host.partition("://")[2] or host for host in hosts)
        return tuple(name.partition("/")[0].strip().lower() for name in names)

    def stated(self) -> dict[str, Any]:
        """Return the values that were set, without defaults."""
        return self.model_dump(by_alias=True, mode="json", exclude_unset=True)

    def identity(self) -> dict[str, Any]:
        """Return what identifies a job: what is collected, not how."""
        # The file of a manifest may have several paths, and be moved.
        which = "source" if self.manifest is None else "manifest"
        return self.model_dump(include={which, "options", "params", "limit"}, mode="json")

    def snapshot(self) -> dict[str, Any]:
        """Return everything as JSON, to be stored with the job."""
        return self.model_dump(by_alias=True, mode="json")


class JobFile(JobSpec):
    """A job file: the settings of a run, and when it is run."""

    schedule: ScheduleValues | None = None
    """When to run it automatically: one schedule or a list; see `longline schedule`."""


def make_spec(values: Mapping[str, Any]) -> JobSpec:
    """Validate the values of a job.

    Raises:
        BadOption: a name is unknown or a value invalid.
    """
    try:
        spec = JobSpec.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        loc = [str(part) for part in first["loc"]]
        if first["type"] == "unknown_name":
            loc.append(first["ctx"]["name"])
        elif first["type"] == "union_tag_invalid":
            loc.append("kind")
        if loc[:1] == ["rate"]:  # of a union, pydantic names the member that it tried last
            raise BadOption("rate", RATE_PROBLEM) from None
        # Without the cause, which may show a secret that was written in place of a reference.
        raise BadOption(".".join(loc) or "job", describe_error(first)) from None
    if isinstance(spec.rate, float) and not 0 < spec.rate < float("inf"):
        raise BadOption("rate", RATE_PROBLEM)
    return spec


def read_spec(path: Path) -> dict[str, Any]:
    """Read a job file: YAML with the fields of JobFile; return those of JobSpec.

    Raises:
        BadFile: it cannot be read, or is invalid.
    """
    document = read_document(path)
    values = document.values
    values.pop("schedule", None)
    try:
        make_spec(values)
    except BadOption as error:
        raise BadFile(str(path), str(error), *document.place(error.option.split("."))) from error
    return values
