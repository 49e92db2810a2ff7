"""Settings of an installation: defaults, a file with profiles, environment, command line."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    Field,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    SettingsConfigDict,
    SettingsError,
)

from longline.config.documents import Document, check, read_document
from longline.config.identity import PrivateHosts
from longline.config.secrets import SecretRef, is_loopback
from longline.config.validation import StrictModel, describe_error, invalid
from longline.core.errors import BadFile, BadOption, HomeUnwritable, StoreFull
from longline.core.event_types import match_types
from longline.core.files import make_private_folder
from longline.core.redaction import KNOWN_SECRETS, redact_server_url, redact_url

FILE = "longline.yaml"
FILE_VARIABLE = "LONGLINE_CONFIG"
PROFILE_VARIABLE = "LONGLINE_PROFILE"
_OTHER_KEYS = {"profiles", "schedules", "alerts", "reports", "proxies"}  # that are not settings


@dataclass(frozen=True, slots=True)
class Explained:
    """A setting with its value and the origin of the value."""

    name: str
    value: Any
    origin: str


def load_settings(
    *, home: Path | None = None, profile: str | None = None, web_address: str | None = None
) -> Settings:
    """Read the settings; arguments override the environment, which overrides the file.

    Raises:
        BadFile: the settings file is invalid.
        BadOption: a variable is invalid, or there is no such profile.
    """
    stated = _read_stated(home, profile)
    if web_address is not None:
        stated["web_address"] = Explained("web_address", web_address, "--address")
    return _make_settings(stated)


def explain_settings(*, home: Path | None = None, profile: str | None = None) -> list[Explained]:
    """Return every setting with its value and origin; passwords are redacted.

    Raises:
        BadFile: the settings file is invalid.
        BadOption: a variable is invalid, or there is no such profile.
    """
    stated = _read_stated(home, profile)
    settings = _make_settings(stated)
    explained = []
    for name in Settings.model_fields:
        value = getattr(settings, name)
        is_server = name.endswith("_url") and isinstance(value, str)
        shown = redact_server_url(value) if is_server else redact_value(value)
        origin = stated[name].origin if name in stated else "default"
        explained.append(Explained(name, shown, origin))
    return explained


def redact_value(value: Any) -> Any:
    """Return a value for display: URLs without passwords, and references to secrets."""
    if isinstance(value, tuple):
        return [redact_value(one) for one in value]
    if isinstance(value, Path | SecretRef):
        return str(value)
    return redact_url(value) if isinstance(value, str) else value


def settings_file() -> Path | None:
    """Return the settings file; None when there is none."""
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return Path(named).expanduser()
    return Path(FILE) if Path(FILE).exists() else None


def _read_stated(home: Path | None, profile: str | None) -> dict[str, Explained]:
    """Return the settings that were set: in the file, its profile, the environment, `--home`."""
    stated = {one.name: one for one in _read_file(profile)}
    try:
        variables = EnvSettingsSource(Settings)()
    except SettingsError as error:
        raise BadOption("LONGLINE_…", " ".join(str(error).split())) from error
    for name, value in variables.items():
        if name in Settings.model_fields:
            stated[name] = Explained(name, value, f"LONGLINE_{name.upper()}")
    if home is not None:
        stated["home"] = Explained("home", home, "--home")
    return stated


def _read_file(profile: str | None) -> Iterator[Explained]:
    path = settings_file()
    option = "--profile" if profile else PROFILE_VARIABLE
    profile = profile or os.environ.get(PROFILE_VARIABLE) or None
    if path is None:
        if profile is not None:
            raise BadOption(
                option, f"there is no {FILE} in this folder, so there is no profile {profile!r}"
            )
        return
    document = read_document(path)
    settings = check(document, file_model(Settings))
    yield from _explain_model(settings, document, ())
    profiles: dict[str, StrictModel] = getattr(settings, "profiles")  # noqa: B009  # made at run time
    if profile in profiles:
        yield from _explain_model(profiles[profile], document, ("profiles", profile))
    elif profile is not None:
        known = ", ".join(profiles) or "none"
        raise BadOption(option, f"{path} has no profile {profile!r}; known: {known}")


def _explain_model(
    settings: BaseModel, document: Document, loc: tuple[str, ...]
) -> Iterator[Explained]:
    suffix = f" (profile {loc[1]})" if loc else ""
    for name in settings.model_fields_set - _OTHER_KEYS:
        line, _ = document.place((*loc, name))
        value = _relative_to(document.path.parent, getattr(settings, name))
        yield Explained(name, value, f"{document.path}:{line}{suffix}")


def _relative_to(folder: Path, value: Any) -> Any:
    """Return paths relative to the folder of the file that names them."""
    if isinstance(value, Path):
        return folder / value.expanduser()
    if isinstance(value, tuple):
        return tuple(_relative_to(folder, one) for one in value)
    return value


def _make_settings(stated: Mapping[str, Explained]) -> Settings:
    try:
        return Settings(**{name: one.value for name, one in stated.items()})
    except ValidationError as error:
        first = error.errors()[0]
        # What is wrong with several settings together has no place.
        option = stated[str(first["loc"][0])].origin if first["loc"] else "settings"
        raise BadOption(option, describe_error(first)) from error


@cache
def file_model(kind: type[BaseSettings]) -> type[BaseModel]:
    """Return the model of a settings file with profiles and the keys that other packages read."""
    fields: dict[str, Any] = {
        name: (one.annotation, one) for name, one in kind.model_fields.items()
    }
    layer = create_model("ProfileFile", __base__=StrictModel, **fields)
    profiles: dict[str, Any] = {"profiles": (dict[str, layer], {})}  # type: ignore[valid-type]  # made at run time
    schedules: dict[str, Any] = {
        "schedules": (
            dict[str, dict[str, Any]],
            Field(default={}, description="schedules by name; see `longline schedule`"),
        )
    }
    alerts: dict[str, Any] = {
        "alerts": (
            dict[str, Any],
            Field(default={}, description="rules, channels and times; see `longline alerts`"),
        )
    }
    reports: dict[str, Any] = {
        "reports": (
            dict[str, dict[str, Any]],
            Field(default={}, description="scheduled digests by name"),
        )
    }
    proxies: dict[str, Any] = {
        "proxies": (
            dict[str, Any],
            Field(default={}, description="candidates, checks and refresh; see `longline proxies`"),
        )
    }
    others = {**profiles, **schedules, **alerts, **reports, **proxies}
    return create_model("SettingsFile", __base__=layer, **others)


SERVICES_FILE = "services.json"


@dataclass(frozen=True, slots=True)
class Services:
    """URLs of the servers that `longline up` started for a home; None: not started."""

    redis_url: str | None = None
    database_url: str | None = None

    def __post_init__(self) -> None:
        KNOWN_SECRETS.add_password(self.redis_url)
        KNOWN_SECRETS.add_password(self.database_url)


def read_services(home: Path) -> Services:
    """Return the servers of a home.

    Raises:
        BadFile: the file of the servers is invalid.
    """
    path = home / SERVICES_FILE
    try:
        found: Any = orjson.loads(path.read_bytes())
        return Services(found.get("redis_url"), found.get("database_url"))
    except FileNotFoundError:
        return Services()
    except (AttributeError, ValueError, OSError) as error:
        problem = "it is invalid; run `longline down` and `longline up` to write it again"
        raise BadFile(str(path), problem) from error


def _parse_folders(value: Any) -> Any:
    """Accept one folder, or several separated as in PATH."""
    if isinstance(value, Path):
        return [value]
    return [one for one in value.split(os.pathsep) if one] if isinstance(value, str) else value


Folders = Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_parse_folders)]
"""A list of folders, or one of them."""


def _parse_types(value: Any) -> tuple[str, ...]:
    """Accept a list of event types, or a text with commas."""
    types = value.split(",") if isinstance(value, str) else value
    if not isinstance(types, (list, tuple)) or not all(isinstance(one, str) for one in types):
        raise invalid("it must be a list of event types, such as [job.*]")
    try:
        match_types(types)
    except BadOption as error:
        raise invalid(error.problem) from error
    return tuple(types)


def _parse_names(value: Any) -> Any:
    """Accept a list of texts, or one text with commas."""
    if isinstance(value, str):
        return tuple(one.strip() for one in value.split(",") if one.strip())
    return value


def _parse_file_store(value: Any) -> Any:
    """Accept a folder, or an address such as s3://bucket/prefix."""
    if not isinstance(value, str):
        return value
    if value.startswith("s3://"):
        if not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?", value):
            raise invalid("an S3 address has the form s3://bucket/prefix")
        return value.rstrip("/")
    if "://" in value:
        raise invalid("files are stored in a folder or at an address such as s3://bucket/prefix")
    return Path(value)


def _check_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    is_host = bool(re.fullmatch(r"\[[0-9a-fA-F:.]+\]|[^:/\s\[\]]+", host))
    if not is_host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:  # noqa: PLR2004  # the last port
        raise invalid("must be HOST:PORT, such as 127.0.0.1:8400")
    return value


Address = Annotated[str, AfterValidator(_check_address)]
"""Host and port to listen at; an IPv6 address is in brackets."""
EventTypes = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_parse_types)]
"""Event types or patterns; empty: all."""


class Settings(BaseSettings):
    """Settings of an installation, in `longline.yaml`; `LONGLINE_…` variables override the file."""

    model_config = SettingsConfigDict(
        env_prefix="LONGLINE_", env_ignore_empty=True, frozen=True, extra="ignore"
    )

    home: Path = Path(".longline")
    database_url: str | None = Field(default=None, description="default: SQLite in the home")
    concurrency: int = Field(
        default=8, ge=1, le=1000, description="maximum concurrent items per domain"
    )
    timeout: float = Field(default=30.0, gt=0, description="response timeout in seconds")
    contact: str | None = Field(
        default=None, description="e-mail address or URL, sent to every site in the user agent"
    )
    user_agent: str | None = Field(
        default=None, description="replaces the default user agent, including the contact"
    )
    chromium: str | None = Field(
        default=None, description="path of a browser, or the URL of a running one"
    )
    cache_bytes: ByteSize = Field(
        default=ByteSize(1_000_000_000), ge=1, description="maximum size of the HTTP cache"
    )
    archive_file_bytes: ByteSize = Field(
        default=ByteSize(500_000_000), ge=1, description="maximum size of an archive file"
    )
    files: Annotated[str | Path | None, BeforeValidator(_parse_file_store)] = Field(
        default=None,
        description="folder or s3://bucket/prefix of the files of records; default: in the home",
    )
    largest_file: ByteSize = Field(
        default=ByteSize(1_000_000_000), ge=1, description="maximum size of a file of a record"
    )
    sources: Folders = Field(
        default=(Path("sources"),), description="folders of manifests and job files"
    )
    flows: Folders = Field(default=(Path("flows"),), description="folders of flows")
    engine: Literal["local", "celery"] = Field(default="local", description="where jobs run")
    redis_url: str | None = Field(
        default=None, description="Redis server that shares limits and progress between machines"
    )
    event_stream: bool = Field(
        default=True, description="copy events to a Redis stream, if Redis is used"
    )
    event_stream_name: str = Field(
        default="longline:events", min_length=1, description="key of the stream of events"
    )
    event_stream_length: int = Field(
        default=100_000, ge=1, description="events in the stream, approximately"
    )
    event_stream_types: EventTypes = Field(
        default=(), description="event types or patterns in the stream; default: all"
    )
    state_backend: str | None = Field(
        default=None,
        description="plugin that shares limits between processes, instead of a file or Redis",
    )
    broker_url: str | None = Field(
        default=None, description="broker of the workers; default: redis_url"
    )
    chunk_size: int = Field(default=50, ge=1, le=1000, description="items per chunk")
    soft_limit: float = Field(
        default=600.0,
        gt=0,
        description="seconds until a worker releases items of a chunk that it has not started",
    )
    hard_limit: float = Field(
        default=720.0, gt=0, description="seconds until a blocked worker process is killed"
    )
    ca_file: Path | None = Field(
        default=None, description="certificate authorities to trust besides the system's (PEM)"
    )
    private_hosts: Annotated[PrivateHosts, NoDecode] = Field(
        default=(), description="hosts at private addresses that a site may link to"
    )
    parallel: bool = Field(
        default=True, description="run several sources in parallel, or one after another"
    )
    executor_jobs: int = Field(
        default=4, ge=1, le=1000, description="maximum jobs that executors run at the same time"
    )
    executor_jobs_per_source: int = Field(
        default=1, ge=1, description="maximum jobs of one source that executors run"
    )
    executor_jobs_per_domain: int | None = Field(
        default=None, ge=1, description="maximum jobs of one domain that executors run; null: any"
    )
    ollama_url: str | None = Field(
        default=None, description="Ollama server that `longline up` starts if none responds"
    )
    proxy_rotator: Literal["mubeng"] | None = Field(
        default=None,
        description="rotator that `longline up` starts with the proxies of the pool",
    )
    proxy_command: str | None = Field(
        default=None, min_length=1, description="other proxy rotator that `longline up` starts"
    )
    proxy_address: str | None = Field(
        default=None,
        pattern=r"^[^:/\s]+:[0-9]{1,5}$",
        description="host and port at which the proxy rotator responds; default of mubeng: "
        "127.0.0.1:8089",
    )
    event_max_days: float | None = Field(
        default=90.0,
        gt=0,
        description="days to keep events of items, records and occurrences; null: forever",
    )
    event_max_count: int | None = Field(
        default=5_000_000,
        ge=1,
        description="number of newest events to keep; older events of items, records and "
        "occurrences are deleted; null: keep all",
    )
    log_max_days: float | None = Field(
        default=30.0, gt=0, description="days to keep stored log lines; null: forever"
    )
    log_max_count: int | None = Field(
        default=200_000, ge=1, description="maximum stored log lines; null: any number"
    )
    log_max_per_job: int | None = Field(
        default=1000, ge=1, description="maximum stored log lines of one job; null: any number"
    )

    monitoring_address: Address | None = Field(
        default=None,
        description="host and port at which `longline serve` serves /metrics, /livez and /readyz",
    )
    monitoring_token: Annotated[SecretRef | None, NoDecode] = Field(
        default=None, description="reference to the token that /metrics and /readyz require"
    )
    metrics_sources: int = Field(
        default=80, ge=1, description="maximum number of sources with their own metrics"
    )
    otlp_url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="OTLP receiver of metrics, such as http://127.0.0.1:4318/v1/metrics",
    )
    otlp_interval: float = Field(
        default=60.0, ge=1, description="seconds between two exports of metrics to otlp_url"
    )

    web_address: Address = Field(
        default="127.0.0.1:8400",
        description="host and port of the web interface of `longline serve`",
    )
    web_hosts: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_parse_names)] = Field(
        default=(), description="further host names under which browsers reach the web interface"
    )
    web_user_header: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9-]+$",
        description="header in which a proxy names the user that it has authenticated",
    )
    web_user_role: Literal["read", "operate", "admin"] = Field(
        default="operate", description="role of users that the proxy names"
    )
    web_judge: bool = Field(
        default=False,
        description="serve /judge, which echoes requests to check proxies, without a login",
    )
    web_trusted_proxies: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_parse_names)] = (
        Field(
            default=("127.0.0.1", "::1"),
            description="addresses or networks of proxies whose web_user_header is believed",
        )
    )

    @model_validator(mode="after")
    def _check_web(self) -> Self:
        for one in self.web_trusted_proxies:
            try:
                ipaddress.ip_network(one, strict=False)
            except ValueError as error:
                raise invalid(f"web_trusted_proxies: {one!r} is not an address") from error
        return self

    @model_validator(mode="after")
    def _check_monitoring_address(self) -> Self:
        host, _, _ = (self.monitoring_address or "localhost:0").rpartition(":")
        if not is_loopback(host.strip("[]")) and self.monitoring_token is None:
            raise invalid(
                "other machines can reach monitoring_address, so it needs monitoring_token: a "
                "reference such as env:NAME"
            )
        return self

    @model_validator(mode="after")
    def _require_proxy_address(self) -> Self:
        if self.proxy_command is not None and self.proxy_address is None:
            raise invalid("proxy_command needs proxy_address, for example 127.0.0.1:8888")
        if self.proxy_command is not None and self.proxy_rotator is not None:
            raise invalid("proxy_command and proxy_rotator are two rotators; remove one of them")
        return self

    @model_validator(mode="after")
    def _keep_passwords_out_of_logs(self) -> Self:
        urls = (self.database_url, self.redis_url, self.broker_url, self.chromium, self.otlp_url)
        for url in urls:
            KNOWN_SECRETS.add_password(url)
        return self

    @property
    def database(self) -> str:
        """The SQLAlchemy URL of the database."""
        file = str(self.home / "longline.sqlite")
        own = self.database_url or read_services(self.home).database_url
        # Both are special in a URL.
        return own or f"sqlite:///{file.replace('%', '%25').replace('?', '%3F')}"

    @property
    def redis(self) -> str | None:
        """URL of the Redis server for shared limits; None: limits are in a file."""
        return self.redis_url or read_services(self.home).redis_url

    @property
    def broker(self) -> str | None:
        """URL of the broker of the workers."""
        return self.broker_url or self.redis

    @property
    def pace_file(self) -> Path:
        """The SQLite file with the shared limits of this home."""
        return self.home / "pace.sqlite"

    @property
    def proxy_credentials(self) -> Path:
        """The folder of the user names and passwords of proxies, each in a private file."""
        return self.home / "proxy-credentials"

    @property
    def cache_file(self) -> Path:
        """The SQLite file of the HTTP cache."""
        return self.home / "cache.sqlite"

    @property
    def archive(self) -> Path:
        """The folder of archived responses."""
        return self.home / "archive"

    @property
    def files_folder(self) -> Path:
        """The folder of files of records, and of those that are being received."""
        return self.files.expanduser() if isinstance(self.files, Path) else self.home / "files"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.home / "checkpoints"


def prepare_home(settings: Settings) -> None:
    """Create the home folder, and check that it is writable.

    Raises:
        HomeUnwritable: it is not.
        StoreFull: the disk is full.
    """
    try:
        make_private_folder(settings.home, is_home=True)
        probe = settings.home / ".writable"
        probe.touch(0o600)
        probe.unlink(missing_ok=True)  # another process may check at the same time
    except OSError as error:
        raise home_error(settings.home, error) from error


def is_read_only(path: Path) -> bool:
    """Return whether a path exists on a read-only file system."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except (OSError, ValueError):  # it does not exist, is not accessible, or is not a path
        return False


def home_error(path: Path, error: OSError) -> HomeUnwritable | StoreFull:
    """Return the error for a failed write to a home: no permission, or a full disk."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(str(path))
    return HomeUnwritable(str(path), error.strerror or str(error))
