"""What a rule has found wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AlertCondition:
    """Something that is wrong now, found by a rule.

    `subject` is `source/NAME`, `domain/HOST`, `schedule/NAME`, `flow/RUN`, `worker/NAME`,
    `subscriber/NAME` or `home`. `evidence` has the numbers: observed, expected, runs compared, the
    id of the job. `action` says what to do, with a command. `since` is when it began, if known.
    """

    rule: str
    subject: str
    severity: str
    summary: str
    evidence: Mapping[str, Any]
    action: str
    since: float | None = None
