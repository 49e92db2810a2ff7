"""One page through every layer: each field, where it comes from, what was asked for, how long."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from longline.core.clock import Clock
from longline.core.errors import DiscoveryFailed
from longline.core.model import Item, Note, OutcomeAction, Quality
from longline.devtools.bench import Bench, find_items
from longline.devtools.exchanges import Exchange, Mask
from longline.engine.extractor import Extraction
from longline.sources.base import Source
from longline.sources.visit import Visit

_INCOMPLETE = 3


@dataclass(frozen=True, slots=True)
class CheckedField:
    """A field, its value, where it comes from, and why it is empty or odd."""

    name: str
    value: Any
    origin: str | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckedLayer:
    """How a layer ended, and how long it took; None when it was not run."""

    name: str
    end: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """What one item came to; nothing of it is stored."""

    item: Item
    action: OutcomeAction
    reason: str | None
    layers: Sequence[CheckedLayer]
    fields: Sequence[CheckedField]
    exchanges: Sequence[Exchange]
    seconds: float
    quality: Quality | None = None
    found: int = 0
    """How many more items its layers would queue."""

    @property
    def exit_code(self) -> int:
        """0 for a record, 3 when its data is not what is asked of it, 1 for any other end."""
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
    """What the first items of a source came to, and what it took to find them."""

    source: str
    version: str
    items: Sequence[Check]
    discovery: Sequence[Exchange] = ()
    notes: Sequence[Note] = ()
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """1 when one failed, else 3 when one lacks something, else 0."""
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
    """Has the layers of one source object timed."""

    clock: Clock
    seconds: dict[str, float] = field(default_factory=dict)

    def attach(self, source: Source) -> None:
        for layer in source.layers():
            # On the object, not its class: others of the same kind are not timed.
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
    bench: Bench, clock: Clock, *, items: int = 1, only: Item | None = None
) -> Checks:
    """Take the first items of a source through every layer; store nothing.

    Args:
        bench: the source.
        clock: what durations are measured by.
        items: how many items.
        only: this item, and none is looked for.

    Raises:
        LonglineError: the items cannot be found.
    """
    timing = _Timing(clock)
    timing.attach(bench.source)
    started, visit = clock.now(), bench.collector.visit()
    if only is not None:
        await bench.source.prepare(visit)
        found = [only]
    else:
        found = [one async for one in find_items(bench, items, visit)]
    if not found:
        raise DiscoveryFailed(bench.source.name, "no item was found")
    discovery, seconds = bench.link.take(), clock.now() - started
    checked = [await _check(bench, item, timing) for item in found]
    source = bench.source
    checks = Checks(source.name, source.version, checked, discovery, visit.notes, seconds)
    return _masked(checks, bench.mask)


async def _check(bench: Bench, item: Item, timing: _Timing) -> Check:
    timing.seconds.clear()
    extraction = await bench.collector.collect(item)
    await extraction.usage.settle()
    visit = bench.collector.last
    assert visit is not None  # noqa: S101  # collecting has just made one
    record = extraction.record
    return Check(
        item,
        extraction.outcome.action,
        extraction.outcome.reason,
        _layers(bench.source, extraction, timing.seconds),
        _fields(bench.source, extraction, visit),
        bench.link.take(),
        extraction.seconds,
        record.quality if record else None,
        len(extraction.found),
    )


def _masked(checks: Checks, mask: Mask) -> Checks:
    return replace(
        checks,
        items=[_masked_item(one, mask) for one in checks.items],
        discovery=[mask.exchange(one) for one in checks.discovery],
        notes=[replace(one, text=mask.text(one.text)) for one in checks.notes],
    )


def _masked_item(check: Check, mask: Mask) -> Check:
    item = check.item
    return replace(
        check,
        item=replace(
            item, key=mask.text(item.key), url=mask.text(item.url), data=mask.data(item.data)
        ),
        reason=mask.data(check.reason),
        layers=[replace(one, end=mask.text(one.end)) for one in check.layers],
        fields=[
            replace(one, value=mask.data(one.value), notes=mask.data(one.notes))
            for one in check.fields
        ],
        exchanges=[mask.exchange(one) for one in check.exchanges],
    )


def _layers(
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


def _fields(source: Source, extraction: Extraction, visit: Visit) -> list[CheckedField]:
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
    """Return what there is of a record that did not come to be."""
    try:
        return source.compose(extraction.item, extraction.results)
    except Exception:  # noqa: BLE001  # a source's own code, given less than it may rely on
        return Source.compose(source, extraction.item, extraction.results)
