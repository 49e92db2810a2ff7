"""Make digests by schedule, and hand them over to channels and files.

A report that is due is stored with its event in one transaction, whose key is the nominal time: of
several servers one makes it. Subscribers of the event send and write it, and retry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from longline.core.clock import Clock, utc_datetime
from longline.core.model import Event
from longline.core.redaction import KNOWN_SECRETS
from longline.engine.subscribers import Subscription
from longline.export.atomic_files import atomic_write
from longline.monitoring.reports.definitions import ReportDefinition, ReportFile
from longline.monitoring.reports.digest import Digest, digest_from, last_days, read_digest
from longline.monitoring.reports.digest_page import digest_page
from longline.monitoring.reports.formats import format_of_file, render
from longline.monitoring.reports.page import ReportPage, in_zone
from longline.monitoring.reports.text import as_plain_text
from longline.scheduling.triggers import next_occurrence, occurrences
from longline.storage.monitoring.reports import REPORT_FILES, NewReport
from longline.storage.store import Store

_LOG = logging.getLogger(__name__)
_OLDEST = timedelta(days=1)  # a report that is later than this is not made
_LONGEST_SUMMARY = 6000  # characters in the event, which a webhook gets


class ReportMaker:
    """Makes the reports of the settings file when they are due."""

    def __init__(self, store: Store, clock: Clock, file: ReportFile) -> None:
        self._store = store
        self._clock = clock
        self._file = file
        self._channels: frozenset[str] | None = None

    async def tick(self) -> float | None:
        """Make what is due; return the seconds until the next report.

        Raises:
            StoreError: the database cannot be used.
        """
        definitions = await self._file.current(self._store)
        await self._keep_channels(definitions)
        waits = [await self._make_due(name, one) for name, one in definitions.items()]
        return min((one for one in waits if one is not None), default=None)

    async def close(self) -> None:
        """Hold nothing."""

    async def _keep_channels(self, definitions: Mapping[str, ReportDefinition]) -> None:
        channels = frozenset(name for one in definitions.values() for name in one.channels)
        if channels != self._channels:
            await self._store.reports.keep_channels(channels)
            self._channels = channels

    async def _make_due(self, name: str, definition: ReportDefinition) -> float | None:
        """Make a report if it is due; of several nominal times, the last one."""
        at = self._clock.now()
        since = await self._store.reports.made_until(name, definition.times)
        if since is None:
            await self._store.reports.begin(name, definition.times, at)
            since = at
        now, trigger = utc_datetime(at), definition.trigger
        after = max(utc_datetime(since), now - _OLDEST)
        due = [*occurrences(trigger, after, now)]
        if due:
            await self._make(name, definition, due[-1].nominal.timestamp())
        coming = next_occurrence(trigger, now)
        return None if coming is None else (coming.nominal - now).total_seconds()

    async def _make(self, name: str, definition: ReportDefinition, nominal_at: float) -> None:
        now = self._clock.now()
        days, zone = definition.covered_days, definition.zone
        period = last_days(nominal_at, days, zone)
        digest = await read_digest(self._store, period, days=days, zone=zone, now=now)
        page = digest_page(digest, name)
        new = NewReport(
            name=name,
            nominal_at=nominal_at,
            content=KNOWN_SECRETS.data(digest.as_dict()),
            title=KNOWN_SECRETS.text(page.state),
            text=KNOWN_SECRETS.text(_shortened(page)),
            channels=definition.channels,
            files=definition.files(in_zone(nominal_at, zone)),
            start=period.start,
            end=period.end,
        )
        if await self._store.reports.add(new, now):
            _LOG.info("made the report %s", name)


def _shortened(page: ReportPage) -> str:
    """Return the beginning of a report as text."""
    text = as_plain_text(page)
    return text if len(text) <= _LONGEST_SUMMARY else f"{text[:_LONGEST_SUMMARY].rstrip()}\n…\n"


async def load_report(store: Store, event: Event) -> tuple[Digest, ReportPage] | None:
    """Return the report of an event `report.made`; None: it is not kept any more."""
    name = event.data["report"]
    content = await store.reports.content(name, event.data["nominal_at"])
    if content is None:
        return None
    digest = digest_from(content)
    return digest, digest_page(digest, name)


class ReportWriter:
    """Writes reports to the files that their definitions name."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def subscription(self) -> Subscription:
        """Return how it gets the events of reports; it is added with the first one."""
        return Subscription(REPORT_FILES, self.handle)

    async def handle(self, event: Event) -> None:
        """Write a report; again after a failure.

        Raises:
            OSError: a file cannot be written.
        """
        files: list[str] = event.data["files"]
        found = await load_report(self._store, event) if files else None
        if found is None:
            return
        digest, page = found
        for name in files:
            text = render(page, digest.as_dict(), format_of_file(name))
            await asyncio.to_thread(_write_file, Path(name), text)


def _write_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as target:
        target.write(text.encode())
