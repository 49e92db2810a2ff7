"""`longline doctor`: run every check of an installation, with a time limit."""

from __future__ import annotations

import os
import platform
import resource
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from longline.config.settings import (
    FILE_VARIABLE,
    PROFILE_VARIABLE,
    Settings,
    is_read_only,
    load_settings,
)
from longline.config.settings import settings_file as file_of_settings
from longline.config.validation import nearest
from longline.core.errors import BadFile, ConfigError, LonglineError
from longline.core.files import exposed_in, make_private
from longline.http.browser.manifest import check_browser
from longline.services.doctor.findings import (
    Check,
    CheckContext,
    Finding,
    Verdict,
    ok,
    problem,
    warning,
)
from longline.services.doctor.servers import (
    abandoned_jobs,
    broker,
    clocks,
    database,
    network_files,
    own_services,
    redis,
    workers,
)
from longline.sources.loader import check_secrets, survey

EXTRAS = {  # a module of each extra
    "apprise": "apprise",
    "browser": "playwright",
    "impersonate": "curl_cffi",
    "cluster": "celery",
    "duckdb": "duckdb",
    "excel": "xlsxwriter",
    "keyring": "keyring",
    "language": "py3langid",
    "otlp": "opentelemetry",
    "parquet": "pyarrow",
    "postgres": "psycopg",
    "proxies": "aiohttp_socks",
    "s3": "boto3",
    "scrapy": "scrapy",
}
_LOW_DISK = 1_000_000_000
_FULL_DISK = 100_000_000
_FILES = 1024  # a browser and a thousand connections need more


def packages(context: CheckContext) -> Iterator[Finding]:
    """Report the versions of longline and Python, and the installed extras."""
    del context
    installed = [name for name, module in EXTRAS.items() if find_spec(module) is not None]
    extras = ", ".join(installed) or "none"
    versions = f"longline {version('longline')} on Python {platform.python_version()}"
    yield ok("packages", f"{versions}, extras: {extras}")


def home(context: CheckContext) -> Iterator[Finding]:
    """Check that the home is writable."""
    folder = context.settings.home.absolute()
    existing = _existing(folder)
    if not existing.is_dir() or not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        sentence = f"{existing} is not writable for this user"
        remedy = f"run chown $USER {existing}"
        if is_read_only(existing):
            sentence, remedy = f"{existing} is on a read-only file system", "mount it for writing"
        yield problem("home", sentence, f"{remedy}, or set LONGLINE_HOME to another folder")
    elif existing == folder:
        yield ok("home", f"{folder} is writable")
    else:
        yield ok("home", f"{folder} is created on first use")


def permissions(context: CheckContext) -> Iterator[Finding]:
    """Check that no other user can read the home."""
    folder = context.settings.home.absolute()
    if not folder.is_dir():
        return
    found = list(exposed_in(folder))
    if not found:
        yield ok("permissions", "other users cannot read the home")
        return
    first = found[0]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    sentence = f"other users can access {first.path} (mode {first.mode:04o}){more}"
    remedy = f"run longline doctor --fix; for a home shared by a group, first chmod 2770 {folder}"
    yield warning("permissions", sentence, remedy)


def fix_permissions(folder: Path) -> Iterator[Finding]:
    """Remove the permissions of other users from a home; yield what was done and what failed."""
    found = list(exposed_in(folder.absolute())) if folder.is_dir() else []
    failed = [one for one in found if not make_private(one)]
    if len(found) > len(failed):
        yield ok("permissions", f"{len(found) - len(failed)} files and folders are now private")
    if failed:
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        sentence = f"the mode of {failed[0].path}{more} cannot be changed"
        yield problem("permissions", sentence, "move the home to a file system with permissions")


def disk(context: CheckContext) -> Iterator[Finding]:
    """Check the free disk space."""
    free = context.free_bytes(_existing(context.settings.home.absolute()))
    sentence = f"{free / 1e9:.1f} GB free for the home"
    if free < _FULL_DISK:
        sentence = f"only {free / 1e6:.0f} MB free for the home"
        yield problem("disk", sentence, "free disk space; paused jobs can then be resumed")
    elif free < _LOW_DISK:
        yield warning("disk", sentence, "free disk space, or lower cache_bytes in the settings")
    else:
        yield ok("disk", sentence)


def descriptors(context: CheckContext) -> Iterator[Finding]:
    """Check the limit of open files and connections."""
    del context
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _FILES:
        sentence = f"only {soft} files and connections may be open"
        most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        yield warning("file descriptors", sentence, f"run ulimit -n {_FILES} (maximum {most})")
    else:
        yield ok("file descriptors", f"up to {soft} files and connections may be open")


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(one for one in (folder, *folder.parents) if one.exists())


# ---------------- Settings, variables and sources

_PREFIX = "LONGLINE_"
_OTHERS = (  # variables that are not settings
    FILE_VARIABLE,
    PROFILE_VARIABLE,
    "LONGLINE_TRACEBACK",
    "LONGLINE_UP",
)


def settings_file(context: CheckContext) -> Iterator[Finding]:
    """Report which settings file is used; it was validated when it was read."""
    del context
    path = file_of_settings()
    sentence = "no settings file, defaults are used" if path is None else f"{path} is valid"
    yield ok("settings", sentence)


def variables(context: CheckContext) -> Iterator[Finding]:
    """Check that every LONGLINE_ variable is a setting."""
    known = [*(f"{_PREFIX}{name.upper()}" for name in Settings.model_fields), *_OTHERS]
    ours = sorted(name for name in context.environment if name.upper().startswith(_PREFIX))
    unknown = [name for name in ours if name.upper() not in known]
    for name in unknown:
        meant = nearest(name.upper(), known)
        remedy = f"did you mean {meant}?" if meant else "`longline config show` lists all settings"
        yield warning("variables", f"{name} is not a setting", remedy)
    if not unknown:
        yield ok("variables", f"set: {', '.join(ours) or 'none'}")


def sources(context: CheckContext) -> Iterator[Finding]:
    """Check that every manifest and job file is valid."""
    found = survey(context.settings)
    for error in found.problems:
        yield problem("sources", str(error), "fix the file; `longline config validate` checks it")
    if not found.problems:
        yield ok("sources", f"manifests and job files: {len(found.entries)}, all valid")


def secrets(context: CheckContext) -> Iterator[Finding]:
    """Check that every referenced secret exists."""
    entries = survey(context.settings).entries
    missing = 0
    for entry in entries.values():
        try:
            check_secrets(entry)
        except BadFile as error:
            missing += 1
            yield problem("secrets", str(error), f"provide it; {entry.name} needs it")
    if not missing:
        yield ok("secrets", "all referenced secrets exist")


def browser(context: CheckContext) -> Iterator[Finding]:
    """Check that a browser is installed if a source needs one."""
    entries = survey(context.settings).entries.values()
    kinds = {"browser", "auto"}
    wanting = [one.name for one in entries if getattr(one.model, "transport", "http") in kinds]
    if not wanting:
        yield ok("browser", "no source needs one")
        return
    try:
        check_browser(context.settings.chromium)
    except ConfigError as error:
        sentence = f"{', '.join(wanting)} need a browser: {error}"
        yield problem("browser", sentence, "install Chromium, or set LONGLINE_CHROMIUM")
    else:
        yield ok("browser", f"found for {', '.join(wanting)}")


def proxies(context: CheckContext) -> Iterator[Finding]:
    """Report which sources use proxies, and what that changes."""
    using = {
        one.name: spec
        for one in survey(context.settings).entries.values()
        if (spec := getattr(one.model, "proxies", None)) is not None and spec.enabled
    }
    multiplied = [name for name, spec in using.items() if spec.per_proxy]
    if multiplied:
        sentence = f"{', '.join(multiplied)}: each proxy has the whole rate limit of a domain"
        yield warning("proxies", sentence, "remove per_proxy unless the site allows it")
    elif using:
        sentence = f"used by {', '.join(using)}; the rate limit of a domain stays the same"
        yield ok("proxies", sentence)
    else:
        yield ok("proxies", "no manifest or job file uses them")


_TIMEOUT = 8.0  # seconds for all checks, which run in parallel
_ORDER = [Verdict.OK, Verdict.WARNING, Verdict.PROBLEM]

CHECKS: Mapping[str, Check] = {
    "packages": packages,
    "settings": settings_file,
    "variables": variables,
    "home": home,
    "permissions": permissions,
    "disk": disk,
    "file descriptors": descriptors,
    "file system": network_files,
    "database": database,
    "redis": redis,
    "broker": broker,
    "clocks": clocks,
    "services": own_services,
    "workers": workers,
    "jobs": abandoned_jobs,
    "sources": sources,
    "secrets": secrets,
    "browser": browser,
    "proxies": proxies,
}


def diagnose(
    home_folder: Path | None = None, profile: str | None = None, *, is_fixing: bool = False
) -> list[Finding]:
    """Run all checks; problems come last. With `is_fixing`, fix the permissions of the home first.

    Invalid settings are the only finding, since every check depends on them.
    """
    try:
        settings = load_settings(home=home_folder, profile=profile)
    except LonglineError as error:
        remedy = "fix it; `longline config show` explains the settings"
        return [problem("settings", str(error), remedy)]
    done = fix_permissions(settings.home) if is_fixing else ()
    return [*done, *examine(CheckContext(settings), CHECKS)]


def examine(
    context: CheckContext, checks: Mapping[str, Check], *, seconds: float = _TIMEOUT
) -> list[Finding]:
    """Run checks in parallel; one that fails or takes too long becomes a finding."""
    threads = [_CheckThread(name, check, context) for name, check in checks.items()]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return sorted(
        (finding for thread in threads for finding in thread.findings(seconds)),
        key=lambda finding: _ORDER.index(finding.verdict),
    )


class _CheckThread(threading.Thread):
    """One check in a thread, which is abandoned when it hangs."""

    def __init__(self, name: str, check: Check, context: CheckContext) -> None:
        super().__init__(name=f"longline-doctor-{name}", daemon=True)
        self._about = name
        self._check = check
        self._check_context = context
        self._found: Sequence[Finding] | None = None

    def run(self) -> None:
        try:
            self._found = list(self._check(self._check_context))
        except Exception as error:  # noqa: BLE001  # a broken installation may raise anything
            text = " ".join(str(error).split())
            if not isinstance(error, LonglineError):
                text = f"this could not be checked ({type(error).__name__}: {text})"
            self._found = [problem(self._about, text, "fix that, and run doctor again")]

    def findings(self, seconds: float) -> Sequence[Finding]:
        if self._found is None:
            sentence = f"no result within {seconds:g} s"
            return [problem(self._about, sentence, "check the network")]
        return self._found
