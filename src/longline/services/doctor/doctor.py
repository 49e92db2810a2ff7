"""`longline doctor`: every check of an installation, each bounded in time, none of them fatal."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from longline.config.settings import load_settings
from longline.core.errors import LonglineError
from longline.services.doctor.base import Check, Finding, Ground, Verdict, problem
from longline.services.doctor.cluster import abandoned_jobs, clocks, own_services, workers
from longline.services.doctor.database import database, network_files
from longline.services.doctor.machine import (
    browser,
    descriptors,
    disk,
    fix_permissions,
    home,
    packages,
    permissions,
    secrets,
    settings_file,
    sources,
    variables,
)
from longline.services.doctor.redis import broker, redis

_SECONDS = 8.0  # for all checks together, which run side by side
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
}


def diagnose(
    home_folder: Path | None = None, profile: str | None = None, *, seconds: float = _SECONDS
) -> list[Finding]:
    """Look at everything; what is bad comes last.

    Settings that cannot be read are a finding, and then the only one: all else depends on them.
    """
    try:
        settings = load_settings(home=home_folder, profile=profile)
    except LonglineError as error:
        return [problem("settings", str(error), "mend what it names; `longline config` shows it")]
    return examine(Ground(settings), CHECKS, seconds=seconds)


def fix(home_folder: Path | None = None, profile: str | None = None) -> list[Finding]:
    """Fix what can be fixed without harm: the permissions of the home. Return what was done."""
    try:
        settings = load_settings(home=home_folder, profile=profile)
    except LonglineError:
        return []  # `diagnose` reports it
    return list(fix_permissions(settings.home))


def examine(
    ground: Ground, checks: Mapping[str, Check], *, seconds: float = _SECONDS
) -> list[Finding]:
    """Run checks side by side; one that fails or takes too long is a finding itself."""
    looks = [_Look(name, check, ground) for name, check in checks.items()]
    for look in looks:
        look.start()
    deadline = time.monotonic() + seconds
    for look in looks:
        look.join(max(0.0, deadline - time.monotonic()))
    return sorted(
        (finding for look in looks for finding in look.told(seconds)),
        key=lambda finding: _ORDER.index(finding.verdict),
    )


class _Look(threading.Thread):
    """One check in a thread, which is left behind when it hangs."""

    def __init__(self, name: str, check: Check, ground: Ground) -> None:
        super().__init__(name=f"longline-doctor-{name}", daemon=True)
        self._about = name
        self._check = check
        self._ground = ground
        self._found: Sequence[Finding] | None = None

    def run(self) -> None:
        try:
            self._found = list(self._check(self._ground))
        except Exception as error:  # noqa: BLE001  # whatever a broken installation makes of it
            self._found = [problem(self._about, _told(error), "mend that, and run doctor again")]

    def told(self, seconds: float) -> Sequence[Finding]:
        if self._found is None:
            sentence = f"no answer within {seconds:g} s"
            return [problem(self._about, sentence, "see what keeps it, a network perhaps")]
        return self._found


def _told(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, LonglineError):
        return text
    return f"this could not be looked at ({type(error).__name__}: {text})"
