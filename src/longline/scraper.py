"""Scraper: one source as an object with setup, scrape and teardown.

async with Scraper("shop.yaml", {"base_url": "https://shop.example"}) as scraper:
result = await scraper.scrape(limit=10)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from longline.core.clock import Clock
from longline.core.errors import LonglineError
from longline.core.model import ItemState, JobState
from longline.engine.report import JobReport
from longline.orchestrator import Orchestrator
from longline.sources.base import Metadata
from longline.storage.query import RecordQuery
from longline.storage.queue.failures import FailureQuery

_BAD = frozenset({ItemState.FAILED, ItemState.QUARANTINED, ItemState.QUEUED})


@dataclass(frozen=True, slots=True)
class ScrapeResult:
    """What a scraper collected: stored records, errors as text, statistics by name."""

    status: JobState
    items: Sequence[Mapping[str, Any]] = ()
    errors: Sequence[str] = ()
    stats: Mapping[str, Any] = field(default_factory=dict)

    @property
    def success(self) -> bool:
        """Whether the run is complete."""
        return self.status is JobState.COMPLETE

    @classmethod
    def succeeded(
        cls, items: Sequence[Mapping[str, Any]], stats: Mapping[str, Any] | None = None
    ) -> Self:
        """Return the result of a run in which nothing went wrong."""
        return cls(JobState.COMPLETE, tuple(items), (), stats or {})

    @classmethod
    def failed(cls, errors: Sequence[str], stats: Mapping[str, Any] | None = None) -> Self:
        """Return the result of a run without records; `errors` say why."""
        return cls(JobState.FAILED, (), tuple(errors), stats or {})

    @classmethod
    def partial(
        cls,
        items: Sequence[Mapping[str, Any]],
        errors: Sequence[str],
        stats: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return the result of a run with records and errors."""
        return cls(JobState.PARTIAL, tuple(items), tuple(errors), stats or {})


class Scraper:
    """A source with its settings, its status and its results.

    `status` is pending before the first run, then running, then complete, partial or failed.

    Args:
        source: a name, a Python file, package.module:Class, a manifest or a job file.
        options: its settings, as with `--set`.
        home: the folder for all data.
        clock: replaces the system clock, in tests.
        spec: rate, limit and the like, by the names of JobSpec.
    """

    def __init__(
        self,
        source: str,
        options: Mapping[str, Any] | None = None,
        *,
        home: Path | str | None = None,
        clock: Clock | None = None,
        **spec: Any,
    ) -> None:
        self._source = source
        self._params = {"set": dict(options or {}), **spec}
        self._longline = Orchestrator(home=home, clock=clock)
        self.status = JobState.PENDING

    @property
    def metadata(self) -> Metadata:
        """Kind, target, name and version of the source."""
        return self._longline.source_of(self._source, self._params).describe_source()

    async def setup(self) -> None:
        """Open the home and check that the source can be used, without a request.

        Raises:
            ConfigError: it cannot be used: a setting, a secret or a package is missing.
        """
        self._longline.source_of(self._source, self._params)
        await self._longline.__aenter__()

    async def scrape(self, **params: Any) -> ScrapeResult:
        """Collect all items; `params` are fields of JobSpec that apply to this call only.

        Raises:
            ConfigError: the source cannot be used; no job was created.
        """
        self.status = JobState.RUNNING
        try:
            report = await self._longline.execute(self._source, {**self._params, **params})
            result = await self._read_result(report)
        except LonglineError:
            self.status = JobState.FAILED
            raise
        self.status = result.status
        return result

    async def teardown(self) -> None:
        """Close the home; everything that was stored is already committed."""
        await self._longline.__aexit__()

    async def __aenter__(self) -> Self:
        await self.setup()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.teardown()

    async def _read_result(self, report: JobReport) -> ScrapeResult:
        store = self._longline.store
        rows = await store.records.list(RecordQuery(job=report.job))
        items = [{"key": row["key"], "url": row["url"], **row["data"]} for row in rows]
        unlucky = await store.failures.failed_items(FailureQuery(report.job))
        errors = [f"{one.key}: {one.reason}" for one in unlucky if one.state in _BAD]
        if report.state is JobState.COMPLETE:
            return ScrapeResult.succeeded(items, report.as_dict())
        if report.reason:
            errors.insert(0, report.reason)
        if items:
            return ScrapeResult.partial(items, errors, report.as_dict())
        return ScrapeResult.failed(errors, report.as_dict())
