"""Run the first items of a source through every layer, without storing anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from longline.core.clock import Clock
from longline.core.errors import DiscoveryFailed
from longline.core.model import Item, Note, OutcomeAction, Quality
from longline.core.redaction import SecretRedactor
from longline.devtools.session import Exchange, SourceSession, find_items
from longline.engine.extractor import Extraction
from longline.sources.base import Source, Visit

_INCOMPLETE = 3


@dataclass(frozen=True, slots=True)
class CheckedField:
    """A field, its value and origin, and notes on why it is empty or unusual."""

    name: str
    value: Any
    origin: str | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckedLayer:
    """How a layer ended, and its duration; None when it did not run."""

    name: str
    end: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one item."""

    item: Item
    action: OutcomeAction
    reason: str | None
    layers: Sequence[CheckedLayer]
    fields: Sequence[CheckedField]
    exchanges: Sequence[Exchange]
    seconds: float
    quality: Quality | None = None
    found: int = 0
    """Number of items that its layers would enqueue."""

    @property
    def exit_code(self) -> int:
        """0 for a record, 3 when its data is invalid, 1 otherwise."""
        if self.action is OutcomeAction.STORE:
            return 0
        return _INCOMPLETE if self.action is OutcomeAction.QUARANTINE else 1

    @property
    def data(self) -> dict[str, Any]:
        """The fields by name."""
        return {one.name: one.value for one in self.fields}

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "key": self.item.key,
            "url": self.item.url,
            "action": self.action.value,
            "reason": self.reason,
            "seconds": round(self.seconds, 3),
            "layers": [asdict(one) for one in self.layers],
            "fields": [asdict(one) for one in self.fields],
            "requests": [one.as_dict() for one in self.exchanges],
            "quality": asdict(self.quality) if self.quality else None,
            "found": self.found,
        }


@dataclass(frozen=True, slots=True)
class Checks:
    """The results of the first items of a source, and of its discovery."""

    source: str
    version: str
    items: Sequence[Check]
    discovery: Sequence[Exchange] = ()
    notes: Sequence[Note] = ()
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """1 when an item failed, else 3 when the data of one is invalid, else 0."""
        codes = {one.exit_code for one in self.items}
        return 1 if 1 in codes else max(codes, default=1)

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {
            "source": self.source,
            "version": self.version,
            "discovery": {
                "requests": [one.as_dict() for one in self.discovery],
                "notes": [asdict(one) for one in self.notes],
                "seconds": round(self.seconds, 3),
            },
            "items": [one.as_dict() for one in self.items],
        }


@dataclass(slots=True)
class _Timing:
    """Measures the duration of each layer of one source object."""

    clock: Clock
    seconds: dict[str, float] = field(default_factory=dict)

    def attach(self, source: Source) -> None:
        for layer in source.layers():
            # On the object, not on its class, which other objects share.
            setattr(source, layer.name, self._timed(layer.name, getattr(source, layer.name)))

    def _timed(
        self, name: str, run: Callable[[Visit], Awaitable[Mapping[str, Any]]]
    ) -> Callable[[Visit], Awaitable[Mapping[str, Any]]]:
        async def timed(visit: Visit) -> Mapping[str, Any]:
            started = self.clock.now()
            try:
                return await run(visit)
            finally:
                self.seconds[name] = self.clock.now() - started

        return timed


async def check_source(
    session: SourceSession, clock: Clock, *, items: int = 1, only: Item | None = None
) -> Checks:
    """Run the first items of a source through every layer; store nothing.

    Args:
        session: the source.
        clock: measures durations.
        items: the number of items.
        only: run this item instead of discovering any.

    Raises:
        LonglineError: discovery failed or found nothing.
    """
    timing = _Timing(clock)
    timing.attach(session.source)
    started, visit = clock.now(), session.collector.visit()
    if only is not None:
        await session.source.prepare(visit)
        found = [only]
    else:
        found = [one async for one in find_items(session, items, visit)]
    if not found:
        raise DiscoveryFailed(session.source.name, "no item was found")
    discovery, seconds = session.log.take(), clock.now() - started
    checked = [await _check_item(session, item, timing) for item in found]
    source = session.source
    checks = Checks(source.name, source.version, checked, discovery, visit.notes, seconds)
    return _redact_checks(checks, session.redactor)


async def _check_item(session: SourceSession, item: Item, timing: _Timing) -> Check:
    timing.seconds.clear()
    extraction = await session.collector.collect(item)
    await extraction.usage.settle()
    visit = session.collector.last
    assert visit is not None  # noqa: S101  # `collect` has set it
    record = extraction.record
    return Check(
        item,
        extraction.outcome.action,
        extraction.outcome.reason,
        _checked_layers(session.source, extraction, timing.seconds),
        _checked_fields(session.source, extraction, visit),
        session.log.take(),
        extraction.seconds,
        record.quality if record else None,
        len(extraction.found),
    )


def _redact_checks(checks: Checks, redactor: SecretRedactor) -> Checks:
    return replace(
        checks,
        items=[_redact_check(one, redactor) for one in checks.items],
        discovery=[one.redacted(redactor) for one in checks.discovery],
        notes=[replace(one, text=redactor.text(one.text)) for one in checks.notes],
    )


def _redact_check(check: Check, redactor: SecretRedactor) -> Check:
    item = check.item
    return replace(
        check,
        item=replace(
            item,
            key=redactor.text(item.key),
            url=redactor.text(item.url),
            data=redactor.data(item.data),
        ),
        reason=redactor.data(check.reason),
        layers=[replace(one, end=redactor.text(one.end)) for one in check.layers],
        fields=[
            replace(one, value=redactor.data(one.value), notes=redactor.data(one.notes))
            for one in check.fields
        ],
        exchanges=[one.redacted(redactor) for one in check.exchanges],
    )


def _checked_layers(
    source: Source, extraction: Extraction, seconds: Mapping[str, float]
) -> list[CheckedLayer]:
    layers = []
    for one in source.layers():
        took = seconds.get(one.name)
        end = extraction.layers.get(one.name)
        if end is None:
            end = "not run" if took is None else f"failed: {extraction.outcome.reason}"
        layers.append(CheckedLayer(one.name, end, took))
    return layers


def _checked_fields(source: Source, extraction: Extraction, visit: Visit) -> list[CheckedField]:
    record = extraction.record
    data = record.data if record else _composed(source, extraction)
    origins = {**(record.provenance if record else {}), **visit.origins}
    notes: dict[str, list[str]] = {}
    for note in visit.notes:
        notes.setdefault(note.field, []).append(note.text)
    return [
        CheckedField(name, value, origins.get(name), tuple(notes.get(name, ())))
        for name, value in data.items()
    ]


def _composed(source: Source, extraction: Extraction) -> Mapping[str, Any]:
    """Return the fields of an item that did not become a record."""
    try:
        return source.compose(extraction.item, extraction.results)
    except Exception:  # noqa: BLE001  # code of the source, which may rely on all layers
        return Source.compose(source, extraction.item, extraction.results)
