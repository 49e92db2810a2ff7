"""The outcomes of fetching a transcript, for modules that do without the YouTube library."""

from __future__ import annotations

from enum import StrEnum


class TranscriptOutcome(StrEnum):
    """How the quest for one transcript ended; the last three may end otherwise another day."""

    OK = "ok"
    DISABLED = "disabled"
    NOT_FOUND = "not_found"
    UNAVAILABLE = "unavailable"
    UNPLAYABLE = "unplayable"
    AGE_RESTRICTED = "age_restricted"
    INVALID_ID = "invalid_id"
    TOKEN_REQUIRED = "token_required"  # noqa: S105  # a word for an outcome, not a secret
    DISALLOWED = "disallowed"
    BLOCKED = "blocked"
    FAILED = "failed"


TRANSIENT = frozenset(
    {TranscriptOutcome.DISALLOWED, TranscriptOutcome.BLOCKED, TranscriptOutcome.FAILED}
)
