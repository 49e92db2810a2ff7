"""What a record looks like outside: the shape every format writes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from longline.core.clock import utc_datetime
from longline.storage.records.records import ENRICHMENTS

OWN_COLUMNS = ("source", "key", "url", "version", "score", "grade", "first_seen_at", "changed_at")


def outward(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored record as people and programs get it: moments as ISO 8601, data as it is."""
    about = row["about"]
    return {
        "source": row["source"],
        "key": row["key"],
        "url": row["url"],
        "version": row["version"],
        "score": row["score"],
        "grade": row["grade"],
        "first_seen_at": utc_datetime(row["first_seen_at"]).isoformat(),
        "changed_at": utc_datetime(row["changed_at"]).isoformat(),
        "data": row["data"],
        "notes": about.get("notes", []),
        "provenance": about.get("provenance", {}),
    }


# ---------------- What machines said about records, beside what was collected and never among it

OUTDATED = "outdated"
"""The state of what was said about another version of the record than the one that is shown."""
_BITS = 2**31 - 1  # below zero, what the column of marks holds in every database


def outward_enrichments(row: Mapping[str, Any], tasks: Sequence[str]) -> dict[str, Any]:
    """Return by task what a record as the store yields it was asked; None: it never was.

    An answer is there only when it is about this very version of the record.
    """
    said = {one["task"]: one for one in row[ENRICHMENTS]}
    return {task: _outward(said[task], row) if task in said else None for task in tasks}


def mark_of(row: Mapping[str, Any], tasks: Sequence[str]) -> int:
    """Return a number that differs when the version does, or any answer about it.

    It is the version itself while there is no answer, and below zero from the first one on.
    """
    # An answer never changes; another one stands under another question.
    answers = [
        f"{one['task']} {one['question']}"
        for one in row.get(ENRICHMENTS, ())
        if one["task"] in tasks and is_answer(one, row["version"])
    ]
    version: int = row["version"]
    if not answers:
        return version
    told = "\n".join([str(version), *sorted(answers)])
    return -1 - (zlib.crc32(told.encode()) & _BITS)


def is_answer(said: Mapping[str, Any], version: int) -> bool:
    """Return whether it is an answer, and about this version of the record."""
    return said["answered_at"] is not None and said["record_version"] == version


def _outward(said: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    is_about_this = said["record_version"] == row["version"]
    is_shown = is_answer(said, row["version"])
    answer = said["answer"]
    fields = answer if isinstance(answer, dict) else {"answer": answer}
    return {
        "state": said["state"] if is_about_this else OUTDATED,
        "answer": fields if is_shown else None,
        "made_by": said["made_by"],
        "model": said["model"],
        "prompt_version": said["prompt_version"],
        "answered_at": utc_datetime(said["answered_at"]).isoformat() if is_shown else None,
    }
