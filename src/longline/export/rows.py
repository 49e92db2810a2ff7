"""Records as every export format writes them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from longline.core.clock import utc_datetime
from longline.storage.records.records import ENRICHMENTS

Row = dict[str, Any]
Rows = Callable[[], Iterable[Row]]
"""Reads the records from the start on each call; a format may need two passes."""

OWN_COLUMNS = ("source", "key", "url", "version", "score", "grade", "first_seen_at", "changed_at")
OUTDATED = "outdated"
"""The state of an answer about an earlier version of the record."""
_BITS = 2**31 - 1  # negative marks fit the integer column of every database


def export_row(row: Mapping[str, Any]) -> Row:
    """Return a stored record as users get it, with times in ISO 8601."""
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


def export_enrichments(row: Mapping[str, Any], tasks: Sequence[str]) -> dict[str, Any]:
    """Return the enrichment of a record by task; None for a task without a question.

    The answer is null unless it is about this version of the record.
    """
    by_task = {one["task"]: one for one in row[ENRICHMENTS]}
    return {task: _export_answer(by_task[task], row) if task in by_task else None for task in tasks}


def version_mark(row: Mapping[str, Any], tasks: Sequence[str]) -> int:
    """Return a number that changes with the version of a record and with any answer about it.

    It is the version itself without an answer, and negative with one.
    """
    # An answer never changes; another one has another question.
    answers = [
        f"{one['task']} {one['question']}"
        for one in row.get(ENRICHMENTS, ())
        if one["task"] in tasks and is_answer(one, row["version"])
    ]
    version: int = row["version"]
    if not answers:
        return version
    identity = "\n".join([str(version), *sorted(answers)])
    return -1 - (zlib.crc32(identity.encode()) & _BITS)


def is_answer(enrichment: Mapping[str, Any], version: int) -> bool:
    """Return whether there is an answer about this version of the record."""
    return enrichment["answered_at"] is not None and enrichment["record_version"] == version


def _export_answer(enrichment: Mapping[str, Any], row: Mapping[str, Any]) -> Row:
    is_current = enrichment["record_version"] == row["version"]
    has_answer = is_answer(enrichment, row["version"])
    answer = enrichment["answer"]
    fields = answer if isinstance(answer, dict) else {"answer": answer}
    answered_at = utc_datetime(enrichment["answered_at"]).isoformat() if has_answer else None
    return {
        "state": enrichment["state"] if is_current else OUTDATED,
        "answer": fields if has_answer else None,
        "made_by": enrichment["made_by"],
        "model": enrichment["model"],
        "prompt_version": enrichment["prompt_version"],
        "answered_at": answered_at,
    }
