"""Findings of the doctor, and the context of a check."""

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
    """The severity of a finding; only a problem makes the doctor fail."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check; `remedy` says how to fix it."""

    about: str
    verdict: Verdict
    sentence: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The settings to check, and access to this machine.

    `write_timeout` is how many seconds a write may wait; a busy home was seen to wait for 2.
    """

    settings: Settings
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    now: Callable[[], float] = time.time
    free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free
    write_timeout: float = 4.0


Check = Callable[[CheckContext], Iterable[Finding]]
"""One check; an error that it raises becomes a finding."""


def ok(about: str, sentence: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(about, Verdict.OK, sentence)


def warning(about: str, sentence: str, remedy: str) -> Finding:
    """Return that something works, but not as it should."""
    return Finding(about, Verdict.WARNING, sentence, remedy)


def problem(about: str, sentence: str, remedy: str) -> Finding:
    """Return that something does not work."""
    return Finding(about, Verdict.PROBLEM, sentence, remedy)
