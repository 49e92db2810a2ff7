"""Settings of this installation: from a file and the environment, with defaults that need none."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, BeforeValidator, ByteSize, Field, ValidationError, create_model
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    SettingsConfigDict,
    SettingsError,
)

from longline.config.documents import Document, check, read_document
from longline.config.errors import HomeUnwritable
from longline.config.identity import PrivateHosts
from longline.config.strict_model import StrictModel
from longline.config.validation_messages import nearest
from longline.core.errors import BadFile, BadOption, StoreFull
from longline.core.files import make_private_folder
from longline.core.redaction import redact_server_url, redact_url

# ---------------- Settings in layers: defaults, a file, a profile of it, the environment, the

FILE = "longline.yaml"
FILE_VARIABLE = "LONGLINE_CONFIG"
PROFILE_VARIABLE = "LONGLINE_PROFILE"
S = TypeVar("S", bound=BaseSettings)


@dataclass(frozen=True, slots=True)
class Layer:
    """What one place says: values by name, and where each of them stands."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Explained:
    """A setting, its value, and where the value comes from."""

    name: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Layers:
    """Everything that was said, from the weakest to the strongest."""

    layers: tuple[Layer, ...]
    document: Document | None = field(default=None, repr=False)

    def values(self) -> dict[str, Any]:
        """Return what holds in the end; what nobody said is left to the defaults."""
        return {name: value for layer in self.layers for name, value in layer.values.items()}

    def origin(self, name: str) -> str:
        """Return where a value comes from."""
        return next(
            (layer.origins[name] for layer in reversed(self.layers) if name in layer.values),
            "default",
        )


def read_layers(
    kind: type[S], *, given: Mapping[str, Any] | None = None, profile: str | None = None
) -> Layers:
    """Read what the file, the profile, the environment and the command line say.

    Args:
        kind: the settings to read.
        given: what the command line says, by the names of the settings.
        profile: the part of the file to use; LONGLINE_PROFILE without it.

    Raises:
        BadFile: the file is broken.
        BadOption: there is no such profile, or a variable cannot be read.
    """
    document = _document()
    name = profile or os.environ.get(PROFILE_VARIABLE) or None
    try:
        of_file = _file_layers(kind, document, name)
    except BadOption as error:
        said_by = "--profile" if profile else PROFILE_VARIABLE
        raise BadOption(said_by, error.problem) from error
    layers = [*of_file, _environment(kind)]
    said = {name: value for name, value in (given or {}).items() if value is not None}
    layers.append(Layer(said, {name: f"--{name.replace('_', '-')}" for name in said}))
    return Layers(tuple(layers), document)


def explained(settings: BaseSettings, layers: Layers) -> list[Explained]:
    """Say of every setting what it is and where that comes from; passwords are left out."""
    return [
        Explained(name, _explained(name, getattr(settings, name)), layers.origin(name))
        for name in type(settings).model_fields
    ]


def _explained(name: str, value: Any) -> Any:
    is_server = name.endswith("_url") and isinstance(value, str)
    return redact_server_url(value) if is_server else shown(value)


def shown(value: Any) -> Any:
    """Return a value as people may see it: an address without its password."""
    if isinstance(value, tuple):
        return [shown(one) for one in value]
    if isinstance(value, Path):
        return str(value)
    return redact_url(value) if isinstance(value, str) else value


def settings_file() -> Path | None:
    """Return the file that settings stand in; None when there is none."""
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return Path(named).expanduser()
    return Path(FILE) if Path(FILE).exists() else None


def _document() -> Document | None:
    path = settings_file()
    return None if path is None else read_document(path)


def _file_layers(
    kind: type[BaseSettings], document: Document | None, profile: str | None
) -> list[Layer]:
    if document is None:
        if profile is not None:
            raise BadOption("profile", f"there is no {FILE} here in which {profile!r} could stand")
        return []
    said = check(document, file_model(kind))
    layers = [_layer(said, document, ())]
    profiles: dict[str, StrictModel] = getattr(said, "profiles")  # noqa: B009  # made at run time
    if profile is None:
        return layers
    if profile not in profiles:
        raise BadOption("profile", _no_profile(profile, list(profiles), document.path))
    return [*layers, _layer(profiles[profile], document, ("profiles", profile))]


def _layer(said: BaseModel, document: Document, loc: tuple[str, ...]) -> Layer:
    names = said.model_fields_set - {"profiles"}
    folder = document.path.parent
    which = f" (profile {loc[1]})" if loc else ""
    return Layer(
        {name: _below(folder, getattr(said, name)) for name in names},
        {
            name: f"{document.path}:{document.place((*loc, name))[0]}{which}"
            for name in said.model_fields_set
        },
    )


def _below(folder: Path, value: Any) -> Any:
    """Return paths as they are meant: from the folder of the file that names them."""
    if isinstance(value, Path):
        return folder / value.expanduser()
    if isinstance(value, tuple):
        return tuple(_below(folder, one) for one in value)
    return value


def _environment(kind: type[BaseSettings]) -> Layer:
    try:
        said = EnvSettingsSource(kind)()
    except SettingsError as error:
        raise BadOption("LONGLINE_…", " ".join(str(error).split())) from error
    prefix = kind.model_config.get("env_prefix", "")
    values = {name: value for name, value in said.items() if name in kind.model_fields}
    return Layer(values, {name: f"{prefix}{name.upper()}" for name in values})


def _no_profile(profile: str, known: list[str], path: Path) -> str:
    meant = nearest(profile, known)
    hint = f"did you mean {meant!r}? " if meant else ""
    return f"{path} has no profile {profile!r}; {hint}it has {', '.join(known) or 'none at all'}"


@cache
def file_model(kind: type[BaseSettings]) -> type[BaseModel]:
    """Return the model of a file with these settings and profiles of them."""
    fields: dict[str, Any] = {
        name: (one.annotation, one) for name, one in kind.model_fields.items()
    }
    layer = create_model("ProfileFile", __base__=StrictModel, **fields)
    profiles: dict[str, Any] = {"profiles": (dict[str, layer], {})}  # type: ignore[valid-type]  # made at run time
    return create_model("SettingsFile", __base__=layer, **profiles)


# ---------------- What `longline up` has started for a home: the addresses that stand in for

SERVICES_FILE = "services.json"


@dataclass(frozen=True, slots=True)
class Services:
    """Addresses of servers that belong to a home; None: it has none of its own."""

    redis_url: str | None = None
    database_url: str | None = None


def read_services(home: Path) -> Services:
    """Return the servers of a home.

    Raises:
        BadFile: the file that names them is broken.
    """
    path = home / SERVICES_FILE
    try:
        found: Any = orjson.loads(path.read_bytes())
        return Services(found.get("redis_url"), found.get("database_url"))
    except FileNotFoundError:
        return Services()
    except (AttributeError, ValueError, OSError) as error:
        problem = "it does not say which servers run; `longline down` and `longline up` mend it"
        raise BadFile(str(path), problem) from error


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
    return HomeUnwritable(str(path), error.strerror or str(error))
