"""What a record looks like outside: the shape every format writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longline.clock import moment

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
        "first_seen_at": moment(row["first_seen_at"]).isoformat(),
        "changed_at": moment(row["changed_at"]).isoformat(),
        "data": row["data"],
        "notes": about.get("notes", []),
        "provenance": about.get("provenance", {}),
    }
