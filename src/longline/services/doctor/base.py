"""What the doctor finds, and what a check is told."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from longline.config.settings import Settings


class Verdict(StrEnum):
    """How bad a finding is; only a problem is a failure."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look has found; `remedy` says how to mend it."""

    about: str
    verdict: Verdict
    sentence: str
    remedy: str | None = None


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


@dataclass(frozen=True, slots=True)
class Ground:
    """What checks look at; the last three stand for this machine."""

    settings: Settings
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    now: Callable[[], float] = time.time
    free_bytes: Callable[[Path], int] = _free


Check = Callable[[Ground], Iterable[Finding]]
"""One look; what it raises becomes a finding too."""


def ok(about: str, sentence: str) -> Finding:
    """Return that all is well."""
    return Finding(about, Verdict.OK, sentence)


def warning(about: str, sentence: str, remedy: str) -> Finding:
    """Return that something works, but not as it should."""
    return Finding(about, Verdict.WARNING, sentence, remedy)


def problem(about: str, sentence: str, remedy: str) -> Finding:
    """Return that something does not work."""
    return Finding(about, Verdict.PROBLEM, sentence, remedy)
