"""Check the first items of a source without storing them; record and replay them as test cases."""

from __future__ import annotations

import hashlib
import mimetypes
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from multidict import CIMultiDict

from longline.analysis.reextract import ReplayClock, diff_stored
from longline.config.documents import read_json_file
from longline.config.job_spec import JobSpec
from longline.core.clock import Clock
from longline.core.errors import BadFile, DestinationUnwritable, DiscoveryFailed
from longline.core.model import Item, Note, Outcome, OutcomeAction, Quality, Usage
from longline.core.redaction import SecretRedactor
from longline.devtools.session import (
    Exchange,
    LastVisitCollector,
    SourceSession,
    find_items,
    session_spec,
)
from longline.http.errors import NotArchived, decode_error, encode_error
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.status import RedirectMiddleware, StatusMiddleware
from longline.sources.base import Source, Visit
from longline.sources.loader import load_source
from longline.storage.backends import as_json
from longline.wiring import torn_down

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
    source, seconds = session.source, _time_layers(session.source, clock)
    started, visit = clock.now(), session.collector.visit()
    if only is not None:
        await source.prepare(visit)
        found = [only]
    else:
        found = [one async for one in find_items(session, items, visit)]
    if not found:
        raise DiscoveryFailed(source.name, "no item was found")
    redactor = session.redactor
    discovery = [one.redacted(redactor) for one in session.log.take()]
    notes = [replace(one, text=redactor.text(one.text)) for one in visit.notes]
    took = clock.now() - started
    checked = [_redact_check(await _check_item(session, one, seconds), redactor) for one in found]
    return Checks(source.name, source.version, checked, discovery, notes, took)


def _time_layers(source: Source, clock: Clock) -> dict[str, float]:
    """Measure the layers of a source object; return the seconds of the last run of each."""
    seconds: dict[str, float] = {}

    def timed(
        name: str, run: Callable[[Visit], Awaitable[Mapping[str, Any]]]
    ) -> Callable[[Visit], Awaitable[Mapping[str, Any]]]:
        async def run_timed(visit: Visit) -> Mapping[str, Any]:
            started = clock.now()
            try:
                return await run(visit)
            finally:
                seconds[name] = clock.now() - started

        return run_timed

    for layer in source.layers():
        # On the object, not on its class, which other objects share.
        setattr(source, layer.name, timed(layer.name, getattr(source, layer.name)))
    return seconds


async def _check_item(session: SourceSession, item: Item, seconds: dict[str, float]) -> Check:
    seconds.clear()
    source, collector = session.source, session.collector
    outcome = await collector.collect(item)
    await outcome.usage.settle()
    record = outcome.record
    layers = []
    for one in source.layers():
        took = seconds.get(one.name)
        unfinished = "not run" if took is None else f"failed: {outcome.reason}"
        layers.append(CheckedLayer(one.name, outcome.layers.get(one.name, unfinished), took))
    return Check(
        item,
        outcome.action,
        outcome.reason,
        layers,
        _fields_of_item(source, item, outcome, collector.last),
        session.log.take(),
        outcome.seconds,
        record.quality if record else None,
        len(outcome.found),
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


def _fields_of_item(
    source: Source, item: Item, outcome: Outcome, visit: Visit
) -> list[CheckedField]:
    record = outcome.record
    data = record.data if record else _composed(source, item, outcome)
    origins = {**(record.provenance if record else {}), **visit.origins}
    notes: defaultdict[str, list[str]] = defaultdict(list)
    for note in visit.notes:
        notes[note.field].append(note.text)
    return [
        CheckedField(name, value, origins.get(name), tuple(notes[name]))
        for name, value in data.items()
    ]


def _composed(source: Source, item: Item, outcome: Outcome) -> Mapping[str, Any]:
    """Return the fields of an item that did not become a record."""
    try:
        return source.compose(item, outcome.results)
    except Exception:  # noqa: BLE001  # code of the source, which may rely on all layers
        return Source.compose(source, item, outcome.results)


# ---------------- Record a checked item as a test case, and replay it without requests

CASE, EXPECTED = "case.json", "expected.json"
_RESPONSE = "answer-"
_LEFT_OUT = frozenset(  # secrets, and headers that describe the body as it was sent
    {"set-cookie", "set-cookie2", "content-encoding", "transfer-encoding", "content-length"}
)
_SOURCE_FILES = (".yaml", ".yml", ".py")


class RecordedResponses(Middleware):
    """Returns the recorded responses of each request in order, and repeats the last one.

    Raises:
        KeyError: a row is not what `record_case` writes.
    """

    def __init__(self, folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
        self._folder = folder
        self._rows: defaultdict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
        for row in rows:
            self._rows[row["method"], row["url"], row.get("body_sha256")].append(row)

    async def __call__(self, request: Request, usage: Usage) -> Page:
        rows = self._rows.get((request.method, request.url, _body_digest(request)))
        if not rows:
            raise NotArchived(request.url, request.method)
        row = rows.pop(0) if len(rows) > 1 else rows[0]
        if "error" in row:
            raise decode_error(row) or NotArchived(request.url, request.method)
        usage.status = row["status"]
        path = self._folder / row["file"]
        try:
            body = path.read_bytes()
        except OSError as error:
            raise BadFile(str(path), error.strerror or str(error)) from error
        return Page(row["at_url"], row["status"], CIMultiDict(row["headers"]), body)


def _body_digest(request: Request) -> str | None:
    """Return a hash of the request body, which may contain a secret."""
    return None if request.body is None else hashlib.sha256(request.body).hexdigest()


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The differences, in sentences, between a replayed case and its recording."""

    folder: Path
    differences: Sequence[str] = ()

    @property
    def is_same(self) -> bool:
        """Whether the source still gives the recorded result."""
        return not self.differences


def record_case(folder: Path, spec: JobSpec, check: Check, at: float) -> None:
    """Write a checked item to a folder, and replace an earlier recording.

    Raises:
        DestinationUnwritable: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{_RESPONSE}*"):
            old.unlink()
        answers = [
            _write_response(folder, number, one)
            for number, one in enumerate(check.exchanges, start=1)
        ]
        source = spec.source
        if source.endswith(_SOURCE_FILES):  # relative, so that both can be moved together
            source = Path(os.path.relpath(source, folder)).as_posix()
        case = {
            "source": source,
            "set": spec.options,
            "params": spec.params,
            "item": asdict(check.item),
            "at": at,
            "answers": answers,
        }
        _write_json(folder / CASE, case)
        data = check.data if check.action is OutcomeAction.STORE else None
        expected = {"action": check.action.value, "reason": check.reason, "data": data}
        _write_json(folder / EXPECTED, expected)
    except OSError as error:
        raise DestinationUnwritable(str(folder), error.strerror or str(error)) from error


def cases_in(folder: Path) -> list[Path]:
    """Return the folders of cases: this one, or those below it.

    Raises:
        BadFile: there are none.
    """
    if (folder / CASE).is_file():
        return [folder]
    found = sorted(path.parent for path in folder.rglob(CASE))
    if not found:
        raise BadFile(
            str(folder), f"it has no {CASE}: record one with `longline sources check --record`"
        )
    return found


async def replay_case(folder: Path, source: str | None = None) -> CaseResult:
    """Run a recorded item through its source without requests.

    Args:
        folder: the case.
        source: a source to use in place of the recorded one.

    Raises:
        ConfigError: the case or the source cannot be read.
    """
    problem = "it is not a recorded case"
    case, expected = (read_json_file(folder / name, dict, problem) for name in (CASE, EXPECTED))
    try:
        reference = source or case["source"]
        if source is None and reference.endswith(_SOURCE_FILES):
            reference = str(folder / reference)
        item, clock = Item(**case["item"]), ReplayClock(case["at"])
        responses = RecordedResponses(folder, case["answers"])
        chain = RedirectMiddleware(StatusMiddleware(responses, clock))
        values = {"set": case["set"], "params": case["params"]}
        wanted = expected["action"], expected["data"]
    except (KeyError, TypeError) as error:
        raise BadFile(str(folder / CASE), f"it is not a recorded case ({error!r})") from error
    spec = session_spec(reference, values)
    loaded = load_source(spec.source, spec.manifest).with_options(spec.options)
    async with torn_down(loaded):
        collector = LastVisitCollector(loaded, chain, clock, spec.params)
        outcome = await collector.collect(item)
    record = outcome.record
    found = outcome.action.value, record.data if record else None
    return CaseResult(folder, tuple(_differences(wanted, found, outcome.reason)))


def _differences(
    wanted: tuple[str, Mapping[str, Any] | None],
    found: tuple[str, Mapping[str, Any] | None],
    reason: str | None,
) -> Iterable[str]:
    if wanted[0] != found[0]:
        why = f" ({reason})" if reason else ""
        yield f"the item ended as {found[0]}{why}, recorded as {wanted[0]}"
        return
    # Volatile fields are compared, too: the same responses give the same values.
    for change in diff_stored(wanted[1] or {}, found[1] or {}):
        old, new = (
            orjson.dumps(change.values[side]).decode() if side in change.values else "no such field"
            for side in ("old", "new")
        )
        yield f"{change.field}: recorded {old}, now {new}"


def _write_response(folder: Path, number: int, exchange: Exchange) -> dict[str, Any]:
    request, page = exchange.request, exchange.result
    row: dict[str, Any] = {"method": request.method, "url": request.url}
    if request.body is not None:
        row["body_sha256"] = _body_digest(request)
    if not isinstance(page, Page):
        return {**row, **encode_error(page)}
    kind = page.headers.get("content-type", "").partition(";")[0].strip().lower()
    name = f"{_RESPONSE}{number:02}{mimetypes.guess_extension(kind) or '.bin'}"
    (folder / name).write_bytes(page.body)
    headers = {key.lower(): value for key, value in page.headers.items()}
    kept = {key: value for key, value in headers.items() if key not in _LEFT_OUT}
    return {**row, "status": page.status, "at_url": page.url, "headers": kept, "file": name}


def _write_json(path: Path, value: Any) -> None:
    plain = orjson.loads(as_json(value))
    path.write_bytes(orjson.dumps(plain, option=orjson.OPT_INDENT_2) + b"\n")
