"""Checks of this machine: what is installed, and whether there is room for the data."""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path

from longline.config.documents import nearest
from longline.config.settings import FILE_VARIABLE, PROFILE_VARIABLE, Settings, is_read_only
from longline.config.settings import settings_file as file_of_settings
from longline.core.errors import BadFile, ConfigError
from longline.core.files import exposed_in, make_private
from longline.http.transports.browser.options import check_browser
from longline.services.doctor.base import Finding, Ground, ok, problem, warning
from longline.sources.library import check_secrets, survey

_OLDEST = (3, 11)
_NEEDED = ("aiohttp", "alembic", "click", "orjson", "pydantic", "sqlalchemy")
EXTRAS = {  # which module shows that an extra is there
    "browser": "playwright",
    "cluster": "celery",
    "duckdb": "duckdb",
    "excel": "xlsxwriter",
    "keyring": "keyring",
    "language": "py3langid",
    "parquet": "pyarrow",
    "postgres": "psycopg",
    "s3": "boto3",
    "scrapy": "scrapy",
}
_SCARCE = 1_000_000_000
_TOO_FEW = 100_000_000
_FILES = 1024  # a browser and a thousand connections want more


def packages(ground: Ground) -> Iterator[Finding]:
    """See which Python, packages and extras are there."""
    del ground
    if sys.version_info < _OLDEST:
        wanted = ".".join(map(str, _OLDEST))
        sentence = f"this is Python {platform.python_version()}, and {wanted} is the oldest"
        yield problem("python", sentence, f"install Python {wanted} or newer")
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sentence = f"these packages are missing: {', '.join(missing)}"
        yield problem("packages", sentence, "pip install --force-reinstall longline")
        return
    there = [name for name, module in EXTRAS.items() if find_spec(module) is not None]
    yield ok(
        "packages",
        f"longline {_version()} on Python {platform.python_version()}, extras: "
        f"{', '.join(there) or 'none'}",
    )
    yield from _outdated()


def home(ground: Ground) -> Iterator[Finding]:
    """See that the folder of the data can be written."""
    folder = ground.settings.home.absolute()
    there = _existing(folder)
    if not there.is_dir() or not os.access(there, os.R_OK | os.W_OK | os.X_OK):
        yield _closed(there)
    elif there == folder:
        yield ok("home", f"{folder} can be written")
    else:
        yield ok("home", f"{folder} will be made when it is first needed")


def permissions(ground: Ground) -> Iterator[Finding]:
    """Check that no other user can read the home."""
    folder = ground.settings.home.absolute()
    if not folder.is_dir():
        return
    found = list(exposed_in(folder))
    if not found:
        yield ok("permissions", "other users cannot read the home")
        return
    first = found[0]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    sentence = f"other users may read or write {first.path} (mode {first.mode:04o}){more}"
    remedy = f"longline doctor --fix; for a home that a group shares, first: chmod 2770 {folder}"
    yield warning("permissions", sentence, remedy)


def fix_permissions(folder: Path) -> Iterator[Finding]:
    """Take the rights of other users to a home away; yield what was done and what failed."""
    found = list(exposed_in(folder.absolute())) if folder.is_dir() else []
    failed = [one for one in found if not make_private(one)]
    if len(found) > len(failed):
        yield ok("permissions", f"{len(found) - len(failed)} files and folders are private now")
    if failed:
        sentence = f"the mode of {failed[0].path} cannot be changed, nor of {len(failed) - 1} more"
        yield problem("permissions", sentence, "move the home to a file system that keeps modes")


def _closed(folder: Path) -> Finding:
    if is_read_only(folder):
        remedy = "mount it for writing, or name another folder in LONGLINE_HOME"
        return problem("home", f"{folder} is on a file system that may only be read", remedy)
    remedy = f"chown it, or name another folder in LONGLINE_HOME: chown $USER {folder}"
    return problem("home", f"{folder} may not be written by this user", remedy)


def disk(ground: Ground) -> Iterator[Finding]:
    """See that there is room for the data."""
    free = ground.free_bytes(_existing(ground.settings.home.absolute()))
    sentence = f"{free / 1e9:.1f} GB are free for the home"
    if free < _TOO_FEW:
        sentence = f"only {free / 1e6:.0f} MB are free for the home"
        yield problem("disk", sentence, "make room; jobs go on where they were afterwards")
    elif free < _SCARCE:
        yield warning("disk", sentence, "make room, or limit cache_bytes in the settings")
    else:
        yield ok("disk", sentence)


def descriptors(ground: Ground) -> Iterator[Finding]:
    """See that enough files and connections can be open at once."""
    del ground
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _FILES:
        sentence = f"this process may have {soft} files and connections open"
        most = "more" if hard == resource.RLIM_INFINITY else str(hard)
        yield warning("file descriptors", sentence, f"ulimit -n {_FILES} (allowed are {most})")
    else:
        yield ok("file descriptors", f"{soft} files and connections may be open")


def _outdated() -> Iterator[Finding]:
    """Yield packages that are older than longline asks for."""
    # An optional part of packaging tools; without it nothing is known, and nothing is said.
    if find_spec("packaging") is None:
        return
    from packaging.requirements import Requirement  # noqa: PLC0415

    for text in distribution("longline").requires or ():
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(wanted.name)
        except PackageNotFoundError:
            continue
        if not wanted.specifier.contains(found, prereleases=True):
            sentence = f"{wanted.name} {found} is there, {wanted.specifier} is needed"
            yield problem("packages", sentence, f"pip install '{wanted.name}{wanted.specifier}'")


def _version() -> str:
    return version("longline")


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest above it that is there."""
    return next(one for one in (folder, *folder.parents) if one.exists())


# ---------------- Checks of what a user wrote: settings, variables, sources, and what those need

_PREFIX = "LONGLINE_"
_OTHERS = (  # variables that are not settings
    FILE_VARIABLE,
    PROFILE_VARIABLE,
    "LONGLINE_TRACEBACK",
    "LONGLINE_UP",
)


def settings_file(ground: Ground) -> Iterator[Finding]:
    """Say which file the settings stand in; that it is sound was seen when they were read."""
    del ground
    path = file_of_settings()
    told = "no settings file, all is as it comes" if path is None else f"{path} is sound"
    yield ok("settings", told)


def variables(ground: Ground) -> Iterator[Finding]:
    """See that every variable of ours means something."""
    known = [*(f"{_PREFIX}{name.upper()}" for name in Settings.model_fields), *_OTHERS]
    ours = sorted(name for name in ground.environment if name.upper().startswith(_PREFIX))
    unknown = [name for name in ours if name.upper() not in known]
    for name in unknown:
        meant = nearest(name.upper(), known)
        remedy = f"did you mean {meant}?" if meant else "`longline config` lists all settings"
        yield warning("variables", f"{name} is set, and is no setting", remedy)
    if not unknown:
        yield ok("variables", f"{', '.join(ours) or 'none'} of ours set")


def sources(ground: Ground) -> Iterator[Finding]:
    """See that every manifest and job file is sound."""
    found = survey(ground.settings)
    for error in found.problems:
        yield problem("sources", str(error), "mend the file; `longline config check` tells more")
    if not found.problems:
        yield ok("sources", f"{len(found.entries)} manifests and job files, all sound")


def secrets(ground: Ground) -> Iterator[Finding]:
    """See that every secret that is referred to is there."""
    entries = survey(ground.settings).entries
    missing = 0
    for entry in entries.values():
        try:
            check_secrets(entry)
        except BadFile as error:
            missing += 1
            yield problem("secrets", str(error), f"provide it, or {entry.name} cannot run")
    if not missing:
        yield ok("secrets", "all that is referred to is there")


def browser(ground: Ground) -> Iterator[Finding]:
    """See that there is a browser when a source needs one."""
    entries = survey(ground.settings).entries.values()
    wanting = [one.name for one in entries if getattr(one.model, "transport", "http") != "http"]
    if not wanting:
        yield ok("browser", "no source here needs one")
        return
    try:
        check_browser(ground.settings.chromium)
    except ConfigError as error:
        sentence = f"{', '.join(wanting)} need a browser: {error}"
        yield problem("browser", sentence, "install Chromium, or name one in LONGLINE_CHROMIUM")
    else:
        yield ok("browser", f"there is one for {', '.join(wanting)}")
