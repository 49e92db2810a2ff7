"""Settings of this installation: from the environment, with defaults that need none."""

from __future__ import annotations

from pathlib import Path

from pydantic import ByteSize, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from longline.errors import BadOption, HomeUnwritable


class Settings(BaseSettings):
    """Where data lives and how politely work is done; `LONGLINE_…` variables override each."""

    model_config = SettingsConfigDict(
        env_prefix="LONGLINE_", env_ignore_empty=True, frozen=True, extra="ignore"
    )

    home: Path = Path(".longline")
    database_url: str | None = Field(default=None, description="default: SQLite in the home")
    concurrency: int = Field(default=8, ge=1, le=1000, description="items at once")
    timeout: float = Field(default=30.0, gt=0, description="seconds for one whole answer")
    contact: str | None = Field(default=None, description="mail or web address, told to each site")
    user_agent: str | None = Field(default=None, description="replaces ours whole, contact and all")
    cache_bytes: ByteSize = Field(default=ByteSize(1_000_000_000), ge=1, description="HTTP cache")
    archive_file_bytes: ByteSize = Field(
        default=ByteSize(500_000_000), ge=1, description="size at which a new archive file begins"
    )

    @property
    def database(self) -> str:
        """The SQLAlchemy address of the database."""
        file = str(self.home / "longline.sqlite")
        # These two mean something else in an address.
        return self.database_url or f"sqlite:///{file.replace('%', '%25').replace('?', '%3F')}"

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


def load_settings(*, home: Path | None = None) -> Settings:
    """Read the settings; an explicit home wins over the environment.

    Raises:
        BadOption: an environment variable has a value that does not fit.
    """
    try:
        return Settings() if home is None else Settings(home=home)
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        raise BadOption(f"LONGLINE_{name}", first["msg"]) from error


def prepare_home(settings: Settings) -> None:
    """Make the home folder, and see that it can be written.

    Raises:
        HomeUnwritable: it cannot.
    """
    try:
        if not settings.home.exists():
            settings.home.mkdir(parents=True, exist_ok=True)
        probe = settings.home / ".writable"
        probe.touch()
        probe.unlink(missing_ok=True)  # another process may look at the same moment
    except OSError as error:
        raise HomeUnwritable(str(settings.home), error.strerror or str(error)) from error
