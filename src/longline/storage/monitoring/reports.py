"""Scheduled reports that were made: one for each report and nominal time.

The primary key makes sure that of several servers one makes a report. The row and the event that
channels get are stored in one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, select

from longline.storage.backends import sanitize_text, sanitize_value, upsert
from longline.storage.database import Repository, reads, writes
from longline.storage.events.events import EventFilter, append_events, event_row
from longline.storage.events.subscribers import save_subscriber
from longline.storage.schema import cells, reports, subscribers

REPORT_CHANNEL = "report/"
"""The prefix of the subscribers of reports, followed by a channel, or by `file`."""
REPORT_FILES = f"{REPORT_CHANNEL}file"
"""The subscriber that writes reports to files."""
REPORT_MADE = "report.made"
"""The type of the events that channels get."""
_ROOM = "reports"  # of the cells with the time from which on each report is made
_KEPT = 90 * 86_400.0  # seconds that reports are kept


@dataclass(frozen=True, slots=True)
class NewReport:
    """A report that was made for a nominal time.

    `content` is its data, `title` its state in a sentence, `text` a summary. `channels` and `files`
    are where it is sent.
    """

    name: str
    nominal_at: float
    content: Mapping[str, Any]
    title: str
    text: str
    channels: tuple[str, ...]
    files: tuple[str, ...]
    start: float
    end: float


class Reports(Repository):
    """The reports of a home."""

    @reads
    def made_until(self, connection: Connection, name: str, times: str) -> float | None:
        """Return the nominal time up to which a report was made; None: it is not known yet.

        `times` describes when it is due; after a change it is not known.
        """
        state = connection.scalar(select(cells.c.state).where(_cell(name)))
        if state is None or state["times"] != times:
            return None
        last = connection.scalar(
            select(func.max(reports.c.nominal_at)).where(reports.c.name == name)
        )
        return max(float(state["since"]), last or 0.0)

    @writes
    def begin(self, connection: Connection, name: str, times: str, at: float) -> None:
        """Make a report for the nominal times after `at`."""
        state = {"times": times, "since": at}
        statement = upsert(connection, cells).values(room=_ROOM, name=name, state=state)
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=["room", "name"], set_={"state": statement.excluded.state}
            )
        )

    @writes
    def add(self, connection: Connection, new: NewReport, at: float) -> bool:
        """Store a report and its event; False when it was made before."""
        row = {
            "name": new.name,
            "nominal_at": new.nominal_at,
            "made_at": at,
            "content": sanitize_value(dict(new.content)),
        }
        added = upsert(connection, reports).values(row).on_conflict_do_nothing()
        if connection.scalar(added.returning(reports.c.name)) is None:
            return False
        for channel in new.channels:
            wanted = EventFilter((REPORT_MADE,))
            save_subscriber(connection, f"{REPORT_CHANNEL}{channel}", wanted, at, None)
        if new.files:
            save_subscriber(connection, REPORT_FILES, EventFilter((REPORT_MADE,)), at, None)
        data: dict[str, Any] = {
            "report": new.name,
            "nominal_at": new.nominal_at,
            "start": new.start,
            "end": new.end,
            "title": sanitize_text(new.title),
            "text": sanitize_text(new.text),
            "channels": [*new.channels],
            "files": [*new.files],
        }
        append_events(connection, [event_row(None, at, REPORT_MADE, **data)])
        connection.execute(delete(reports).where(reports.c.made_at < at - _KEPT))
        return True

    @reads
    def content(
        self, connection: Connection, name: str, nominal_at: float
    ) -> Mapping[str, Any] | None:
        """Return the data of a report; None: it is not kept any more."""
        query = select(reports.c.content).where(
            reports.c.name == name, reports.c.nominal_at == nominal_at
        )
        found: Mapping[str, Any] | None = connection.scalar(query)
        return found

    @writes
    def keep_channels(self, connection: Connection, channels: Collection[str]) -> int:
        """Remove the subscribers of channels that are not among these; return how many."""
        names = [REPORT_FILES, *(f"{REPORT_CHANNEL}{one}" for one in channels)]
        is_channel = subscribers.c.name.startswith(REPORT_CHANNEL, autoescape=True)
        gone = is_channel & subscribers.c.name.not_in(names)
        return connection.execute(delete(subscribers).where(gone)).rowcount


def _cell(name: str) -> Any:
    return (cells.c.room == _ROOM) & (cells.c.name == name)
