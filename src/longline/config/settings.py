"""Settings of this installation: from a file and the environment, with defaults that need none."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ByteSize, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from longline.config.layers import Explained, Layers, explained, read_layers
from longline.config.private_hosts import PrivateHosts
from longline.config.services import read_services
from longline.errors import BadOption, HomeReadOnly, HomeUnwritable, StoreFull
from longline.private import make_private_folder


def _folders(value: Any) -> Any:
    """Take one folder for a list of one; a variable holds several as PATH does."""
    if isinstance(value, Path):
        return [value]
    return [one for one in value.split(os.pathsep) if one] if isinstance(value, str) else value


Folders = Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_folders)]
"""Folders as a user writes them; a single one needs no list."""


class Settings(BaseSettings):
    """Where data lives and how politely work is done.

    Each stands in `longline.yaml` by its name; `LONGLINE_…` variables override the file.
    """

    model_config = SettingsConfigDict(
        env_prefix="LONGLINE_", env_ignore_empty=True, frozen=True, extra="ignore"
    )

    home: Path = Path(".longline")
    database_url: str | None = Field(default=None, description="default: SQLite in the home")
    concurrency: int = Field(default=8, ge=1, le=1000, description="items at once")
    timeout: float = Field(default=30.0, gt=0, description="seconds for one whole answer")
    contact: str | None = Field(default=None, description="mail or web address, told to each site")
    user_agent: str | None = Field(default=None, description="replaces ours whole, contact and all")
    chromium: str | None = Field(
        default=None, description="a browser's path, or the address of one that runs elsewhere"
    )
    cache_bytes: ByteSize = Field(default=ByteSize(1_000_000_000), ge=1, description="HTTP cache")
    archive_file_bytes: ByteSize = Field(
        default=ByteSize(500_000_000), ge=1, description="size at which a new archive file begins"
    )
    sources: Folders = Field(
        default=(Path("sources"),), description="folders of manifests and job files"
    )
    engine: Literal["local", "celery"] = Field(default="local", description="what runs jobs")
    redis_url: str | None = Field(
        default=None, description="shares limits and progress with other machines"
    )
    broker_url: str | None = Field(
        default=None, description="carries messages to workers; default: redis_url"
    )
    chunk_size: int = Field(default=50, ge=1, le=1000, description="items in one message's work")
    soft_limit: float = Field(
        default=600.0, gt=0, description="seconds until a worker hands back what it has not begun"
    )
    hard_limit: float = Field(
        default=720.0, gt=0, description="seconds until a worker process that hangs is killed"
    )
    ca_file: Path | None = Field(
        default=None, description="certificate authorities to trust beside the system's (PEM)"
    )
    private_hosts: Annotated[PrivateHosts, NoDecode] = Field(
        default=(), description="hosts that a site may lead to at private addresses"
    )
    parallel: bool = Field(default=True, description="many sites side by side, or one by one")

    @property
    def database(self) -> str:
        """The SQLAlchemy address of the database."""
        file = str(self.home / "longline.sqlite")
        own = self.database_url or read_services(self.home).database_url
        # These two mean something else in an address.
        return own or f"sqlite:///{file.replace('%', '%25').replace('?', '%3F')}"

    @property
    def redis(self) -> str | None:
        """The address of the Redis that processes share limits in; None: they share a file."""
        return self.redis_url or read_services(self.home).redis_url

    @property
    def broker(self) -> str | None:
        """The address of the Redis that carries messages to workers."""
        return self.broker_url or self.redis

    @property
    def pace_file(self) -> Path:
        """The small database that the processes of this home share a site's limits in."""
        return self.home / "pace.sqlite"

    @property
    def cache_file(self) -> Path:
        """The database of the HTTP cache."""
        return self.home / "cache.sqlite"

    @property
    def archive(self) -> Path:
        """The folder of the archived answers."""
        return self.home / "archive"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoint documents."""
        return self.home / "checkpoints"


def load_settings(*, home: Path | None = None, profile: str | None = None) -> Settings:
    """Read the settings; what is given here wins over the environment, and that over the file.

    Raises:
        BadFile: the settings file is broken.
        BadOption: a variable has a value that does not fit, or there is no such profile.
    """
    return _settings_in(read_layers(Settings, given={"home": home}, profile=profile))


def explain_settings(*, home: Path | None = None, profile: str | None = None) -> list[Explained]:
    """Return every setting with its value and where that comes from.

    Raises:
        BadFile: the settings file is broken.
        BadOption: a variable has a value that does not fit, or there is no such profile.
    """
    layers = read_layers(Settings, given={"home": home}, profile=profile)
    return explained(_settings_in(layers), layers)


def _settings_in(layers: Layers) -> Settings:
    try:
        return Settings(**layers.values())
    except ValidationError as error:
        first = error.errors()[0]
        raise BadOption(layers.origin(str(first["loc"][0])), first["msg"]) from error


def prepare_home(settings: Settings) -> None:
    """Make the home folder, and see that it can be written.

    Raises:
        HomeUnwritable: it cannot.
        StoreFull: there is no room for anything.
    """
    try:
        make_private_folder(settings.home, is_home=True)
        probe = settings.home / ".writable"
        probe.touch(0o600)
        probe.unlink(missing_ok=True)  # another process may look at the same moment
    except OSError as error:
        raise unwritable(settings.home, error) from error


def is_read_only(path: Path) -> bool:
    """Say whether a path is there, on a file system that nobody can write."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except (OSError, ValueError):  # it is not there, out of sight, or no path
        return False


def unwritable(path: Path, error: OSError) -> HomeUnwritable | StoreFull:
    """Return why something in a home cannot be written: there is no right to, or no room."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(str(path))
    kind = HomeReadOnly if error.errno == errno.EROFS else HomeUnwritable
    return kind(str(path), error.strerror or str(error))
