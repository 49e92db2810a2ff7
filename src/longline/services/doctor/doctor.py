"""`longline doctor`: run every check of an installation, with a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from longline.config.settings import load_settings
from longline.core.errors import LonglineError
from longline.services.doctor.base import Check, CheckContext, Finding, Verdict, problem
from longline.services.doctor.cluster import abandoned_jobs, clocks, own_services, workers
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
from longline.services.doctor.servers import broker, database, network_files, redis

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
}


def diagnose(
    home_folder: Path | None = None, profile: str | None = None, *, seconds: float = _TIMEOUT
) -> list[Finding]:
    """Run all checks; problems come last.

    Invalid settings are the only finding, since every check depends on them.
    """
    try:
        settings = load_settings(home=home_folder, profile=profile)
    except LonglineError as error:
        return [
            problem("settings", str(error), "fix it; `longline config show` explains the settings")
        ]
    return examine(CheckContext(settings), CHECKS, seconds=seconds)


def fix(home_folder: Path | None = None, profile: str | None = None) -> list[Finding]:
    """Fix the permissions of the home; return what was done."""
    try:
        settings = load_settings(home=home_folder, profile=profile)
    except LonglineError:
        return []  # `diagnose` reports it
    return list(fix_permissions(settings.home))


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
