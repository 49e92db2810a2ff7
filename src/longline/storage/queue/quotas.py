"""Quotas: how many items of a job may be enqueued under one name, counted with the items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, select

from longline.core.model import CUT, WARNING, Item, Quota
from longline.storage.backends import BulkUpsert, sanitize_key
from longline.storage.events.events import EventRow, event_row
from longline.storage.schema import quotas

_MAX_LOOKUP = 10_000  # names per statement; SQLite allows 32,766 variables
_REPORT = BulkUpsert(quotas, ("job_id", "name", "used", "is_reported"), key=("job_id", "name"))


class QuotaCounter:
    """The quotas of one job that a transaction reads and writes.

    Args:
        found: new items by key; `admit` removes those that are left out.
        spent: names of quotas that the finding item uses up by one, unless an admitted item
            refills them.
    """

    def __init__(
        self, connection: Connection, job: str, found: dict[str, Item], spent: Sequence[str]
    ) -> None:
        self._connection = connection
        self._job = job
        self._found = found
        self._spent = {sanitize_key(name) for name in spent}
        names = {sanitize_key(q.name) for item in found.values() for q in item.quotas}
        names |= {sanitize_key(name) for item in found.values() for name in item.refills}
        named = sorted(names | self._spent)
        self._rows: dict[str, tuple[int, bool]] = {}
        for start in range(0, len(named), _MAX_LOOKUP):
            query = select(quotas.c.name, quotas.c.used, quotas.c.is_reported).where(
                quotas.c.job_id == job, quotas.c.name.in_(named[start : start + _MAX_LOOKUP])
            )
            for row in connection.execute(query):
                self._rows[row.name] = row.used, bool(row.is_reported)
        self._changed: set[str] = set()

    def admit(self) -> list[Quota]:
        """Count the items; return the quotas that leave out an item for the first time."""
        exhausted: list[Quota] = []
        refilled: set[str] = set()
        for key, item in list(self._found.items()):
            full = next((one for one in item.quotas if self._used(one.name) >= one.most), None)
            if full is not None:
                del self._found[key]
                if self._mark_reported(full.name):
                    exhausted.append(full)
                continue
            for quota in item.quotas:
                if quota.counts_items:
                    self._set_used(quota.name, self._used(quota.name) + 1)
            for name in item.refills:
                refilled.add(sanitize_key(name))
                self._set_used(name, 0)
        for name in self._spent - refilled:
            self._set_used(name, self._used(name) + 1)
        rows = [
            {"job_id": self._job, "name": name, "used": used, "is_reported": is_reported}
            for name, (used, is_reported) in sorted(self._rows.items())
            if name in self._changed
        ]
        _REPORT.run(self._connection, rows)
        return exhausted

    def _used(self, name: str) -> int:
        return self._rows.get(sanitize_key(name), (0, False))[0]

    def _set_used(self, name: str, used: int) -> None:
        name = sanitize_key(name)
        before, is_reported = self._rows.get(name, (0, False))
        if used != before:
            self._rows[name] = used, is_reported
            self._changed.add(name)

    def _mark_reported(self, name: str) -> bool:
        name = sanitize_key(name)
        used, is_reported = self._rows.get(name, (0, False))
        self._rows[name] = used, True
        self._changed.add(name)
        return not is_reported


def have_quotas(found: Mapping[str, Item], spent: Sequence[str]) -> bool:
    """Return whether any quota is concerned."""
    return bool(spent) or any(item.quotas or item.refills for item in found.values())


def exhausted_event(job: str, at: float, quota: Quota, key: str | None) -> EventRow:
    """Return the event that a quota leaves items out."""
    kind = CUT if quota.is_cut else WARNING
    return event_row(job, at, kind, key=key, reason=quota.reason)
