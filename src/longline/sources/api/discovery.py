"""Discovery in an API: lists page by page, and below each record the lists that hang from it.

What is left to do is a stack of tasks, a task being one page of one list. It is kept in the cursor
after every step, so a killed run goes on at the page it was at. The lists below a record are asked
for before the next page of its own list: that keeps the stack short.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urljoin

from longline.config.manifests.api import ApiManifest, Endpoint, parts_of
from longline.config.manifests.json_paths import find
from longline.core.errors import FailureKind, FetchError, SkipItem, UnexpectedShape
from longline.core.json_text import is_too_deep
from longline.core.model import Cursor, Item
from longline.core.threads import off_loop
from longline.http.messages import Page, without_userinfo
from longline.sources.api.paging import Answered, Place, beginning, following, turn_of
from longline.sources.api.records import described, digest, key_of, select
from longline.sources.api.requests import Asker, Calls, Turn, look_up
from longline.sources.visit import Visit

_WIDTH = 8  # lists that are asked for at the same time
_MOST_KNOWN = 200_000  # records; of those after them, nobody notices that a key comes again
_ANOTHER = (
    "records of different pages have the same key and other data, and only the first of each is "
    "kept: is the key too short, or did they change meanwhile?"
)
_DOUBLES = "several records of one page have the same key, and only one of each is kept"


@dataclass(frozen=True, slots=True)
class Task:
    """One page of one list; `above` is what it needs to know of the record it hangs from."""

    endpoint: str
    above: Mapping[str, Any] | None = None
    since: str | int | None = None
    place: Place = field(default_factory=Place)

    @property
    def scope(self) -> dict[str, Any]:
        """What names in braces may stand for, beside the parameters."""
        return {"parent": self.above or {}, "since": self.since}

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON, to be kept in a cursor."""
        above = None if self.above is None else dict(self.above)
        said = {"endpoint": self.endpoint, "above": above, "since": self.since}
        return {**said, "place": self.place.as_dict()}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Task:
        """Return what was kept in a cursor."""
        return cls(**{**values, "place": Place(**values["place"])})


@dataclass(slots=True)
class Progress:
    """How far discovery has come: what is left, since when, and the latest change it has seen."""

    tasks: list[Task]
    started: float
    marks: dict[str, float] = field(default_factory=dict)
    since: Mapping[str, str | int] = field(default_factory=dict)
    """Where the incremental lists began, by endpoint: what it takes to repeat the discovery."""

    def cursor(self) -> Cursor:
        """Return it as what is committed with the items found so far."""
        where: dict[str, Any] = {
            "tasks": [task.as_dict() for task in self.tasks],
            "started": self.started,
            "marks": dict(self.marks),
        }
        return Cursor({**where, "since": dict(self.since)} if self.since else where)

    @classmethod
    def of(cls, cursor: Mapping[str, Any]) -> Progress:
        """Return what was committed."""
        tasks = [Task.of(values) for values in cursor["tasks"]]
        return cls(tasks, cursor["started"], dict(cursor["marks"]), cursor.get("since", {}))


@dataclass(frozen=True, slots=True)
class _Listed:
    """A page as it came: where from, its records, and where the list goes on."""

    task: Task
    url: str = ""
    records: tuple[Any, ...] = ()
    onward: Place | None = None
    size_bytes: int = 0


class _Known:
    """Which records were listed, and what they said: a key that comes with other data is told."""

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}

    def is_another(self, key: str, record: Any) -> bool:
        """Say whether a record of this key has said something else before."""
        said = digest(record)
        if key in self._digests or len(self._digests) < _MOST_KNOWN:
            before = self._digests.setdefault(key, said)
            return before != said
        return False


class Discovery:
    """Lists the records of an API for one run."""

    def __init__(self, manifest: ApiManifest, asker: Asker, calls: Calls) -> None:
        self._endpoints = manifest.endpoints
        self._asker = asker
        self._calls = calls
        self._noted: set[tuple[str, str]] = set()
        self._known = _Known()
        self._twice = 0
        parts = parts_of(manifest.endpoints)
        lists = {name: one for name, one in manifest.endpoints.items() if name not in parts}
        self._below = {
            name: [child for child, one in lists.items() if one.parent == name] for name in lists
        }
        # Records of several endpoints may have the same key.
        self._is_one_of_many = sum(one.collect for one in lists.values()) > 1
        self.roots = [name for name, one in lists.items() if one.parent is None]

    def start(self, since: Mapping[str, str | int | None], at: float) -> Progress:
        """Return where a discovery begins: the first page of each list without a parent."""
        tasks = [
            Task(name, since=since.get(name), place=beginning(self._endpoints[name].pagination))
            for name in reversed(self.roots)
        ]
        begun = {name: value for name, value in since.items() if value is not None}
        return Progress(tasks, at, since=begun)

    async def run(self, visit: Visit, progress: Progress) -> AsyncGenerator[Item | Cursor, None]:
        """Yield the items of what is left to do, and a cursor after each step."""
        while progress.tasks:
            batch = [progress.tasks.pop() for _ in range(min(_WIDTH, len(progress.tasks)))]
            more: list[Task] = []
            for listed in await self._ask_all(visit, batch):
                for item in self._items(listed):
                    yield item
                self._tell_doubles(visit, listed.task.endpoint)
                await off_loop(listed.size_bytes, self._mark, listed, progress, visit)
                for child in await off_loop(listed.size_bytes, self._children, listed):
                    if isinstance(child, Item):
                        yield child
                    else:
                        more.append(child)
                if listed.onward:
                    task = listed.task
                    more.append(Task(task.endpoint, task.above, task.since, listed.onward))
            progress.tasks.extend(reversed(more))
            yield progress.cursor()

    # ------------------------------------------------------------ asking

    async def _ask_all(self, visit: Visit, batch: list[Task]) -> list[_Listed]:
        try:
            async with asyncio.TaskGroup() as group:
                asking = [group.create_task(self._ask(visit, task)) for task in batch]
        except ExceptionGroup as several:
            # One speaks for all: the engine knows what to do about each, and not about a group.
            first = several.exceptions[0]
            raise first from first.__cause__
        return [one.result() for one in asking]

    async def _ask(self, visit: Visit, task: Task) -> _Listed:
        endpoint = self._endpoints[task.endpoint]
        try:
            return await self._page(visit, task, endpoint)
        except SkipItem as error:
            problem = str(error)
        except FetchError as error:
            if error.kind is not FailureKind.GONE or task.above is None:
                raise
            problem = str(error)  # the record above has gone meanwhile
        visit.note(task.endpoint, problem)
        if task.place.pages:
            # A list that is not there at all may be meant; one that breaks off is not whole.
            visit.cut(f"{task.endpoint}: the list ended after {task.place.pages} pages: {problem}")
        return _Listed(task)

    async def _page(self, visit: Visit, task: Task, endpoint: Endpoint) -> _Listed:
        turn = turn_of(endpoint.pagination, task.place)
        call = self._calls.make(task.endpoint, task.scope, _with_since(turn, endpoint, task))
        page, body = await self._asker.ask(visit, task.endpoint, call)
        return await off_loop(len(page.body), self._read, visit, task, page, body)

    def _read(self, visit: Visit, task: Task, page: Page, body: Any) -> _Listed:
        endpoint = self._endpoints[task.endpoint]
        records = select(endpoint.records, body, page.url)
        answered = Answered(page, body, [_identity(endpoint, one, task.scope) for one in records])
        if len(set(answered.keys)) < answered.count:
            self._warn_once(visit, task.endpoint, _DOUBLES)
        onward, cut = following(endpoint.pagination, task.place, answered, self._calls.onward)
        if cut:
            visit.cut(f"{task.endpoint}: {cut}")
        return _Listed(task, page.url, tuple(records), onward, len(page.body))

    # ------------------------------------------------------------ what came

    def _items(self, listed: _Listed) -> Iterator[Item]:
        name, endpoint = listed.task.endpoint, self._endpoints[listed.task.endpoint]
        if not endpoint.collect:
            return
        is_any_deep = is_too_deep(listed.records)
        for record in listed.records:
            if is_any_deep and is_too_deep(record):
                problem = "it has a value that is nested too deeply to be stored"
                deep = {"endpoint": name, "page": listed.url, "problem": problem}
                yield Item(self._deep_key(endpoint, record, listed), listed.url, data=deep)
                continue
            data = {"endpoint": name, "page": listed.url, "record": record}
            if listed.task.above is not None:
                data["above"] = dict(listed.task.above)
            try:
                key = key_of(endpoint.key or (), record, listed.task.scope)
            except ValueError as error:
                # Found, and not lost: it is quarantined with the reason.
                lost = {**data, "problem": str(error)}
                yield Item(f"{name} {digest(record)}", listed.url, data=lost)
                continue
            url = self._address(endpoint, record, listed)
            key = f"{name}:{key}" if self._is_one_of_many else key
            self._twice += self._known.is_another(key, record)
            yield Item(key, url, data=data)

    def _deep_key(self, endpoint: Endpoint, record: Any, listed: _Listed) -> str:
        """Return the key of a record that cannot be stored; without one, its place on the page."""
        try:
            key = key_of(endpoint.key or (), record, listed.task.scope)
        except ValueError:
            number = next(n for n, one in enumerate(listed.records) if one is record)
            return f"{listed.task.endpoint} {listed.url} {number}"
        return f"{listed.task.endpoint}:{key}" if self._is_one_of_many else key

    def _tell_doubles(self, visit: Visit, name: str) -> None:
        if self._twice:
            self._warn_once(visit, name, _ANOTHER)
            self._twice = 0

    def _address(self, endpoint: Endpoint, record: Any, listed: _Listed) -> str:
        try:
            said = find(endpoint.url, record) if endpoint.url else None
            if isinstance(said, str) and said:
                return urljoin(listed.url, without_userinfo(said))
            if endpoint.detail:
                scope = scope_below(record, listed.task.above)
                return self._calls.make(endpoint.detail, scope).url
        except (ValueError, UnexpectedShape):
            pass  # the layer that asks for it says what is wrong
        return listed.url

    def _children(self, listed: _Listed) -> list[Task | Item]:
        return [
            self._child(name, record, listed)
            for record in listed.records
            for name in self._below[listed.task.endpoint]
        ]

    def _child(self, name: str, record: Any, listed: _Listed) -> Task | Item:
        """Return the list below a record; when it cannot be asked for, what says why."""
        known = scope_below(record, listed.task.above)
        above: dict[str, Any] = {}
        for wanted in self._wanted(name):
            value = look_up(wanted, known, None)
            if value is not None:
                _put(above, wanted.split(".")[1:], value)
        try:
            task = Task(name, above, place=beginning(self._endpoints[name].pagination))
            self._calls.make(name, task.scope)
        except (ValueError, UnexpectedShape) as error:
            problem = f"{name} cannot be asked for below {described(record)}: {error}"
            data = {"endpoint": name, "page": listed.url, "problem": problem}
            return Item(f"{name} below {digest(record)}", listed.url, data=data)
        return task

    def _wanted(self, name: str) -> list[str]:
        """Return the names of the record above that a list needs, for itself and those below."""
        below = [self._endpoints[part].parent_names() for part in self._endpoints[name].below]
        below += [self._wanted(child) for child in self._below.get(name, ())]
        further = [one.removeprefix("parent.") for names in below for one in names]
        own = self._endpoints[name].parent_names()
        return list(dict.fromkeys([*own, *(one for one in further if one.startswith("parent."))]))

    def _mark(self, listed: _Listed, progress: Progress, visit: Visit) -> None:
        """Note the latest change among the records; one that cannot be read moves nothing on."""
        name = listed.task.endpoint
        incremental = self._endpoints[name].incremental
        if incremental is None:
            return
        for record in listed.records:
            try:
                value = incremental.read(find(incremental.field, record))
            except ValueError as error:
                self._note_once(visit, name, f"incremental by {incremental.field!r}: {error}")
                continue
            progress.marks[name] = max(value, progress.marks.get(name, value))

    def _warn_once(self, visit: Visit, name: str, text: str) -> None:
        self._note_once(visit, name, text)
        visit.warn(f"{name}: {text}")

    def _note_once(self, visit: Visit, name: str, text: str) -> None:
        about = (name, text.partition(":")[0])
        if about not in self._noted:
            self._noted.add(about)
            visit.note(name, text)


def scope_below(record: Any, above: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what names in braces stand for below a record: parent, and parent.parent."""
    fields = dict(record) if isinstance(record, Mapping) else {"value": record}
    return {"parent": {**fields, **({"parent": above} if above else {})}}


def _with_since(turn: Turn, endpoint: Endpoint, task: Task) -> Turn:
    name = endpoint.incremental.parameter if endpoint.incremental else None
    if name is None or task.since is None:
        return turn
    return replace(turn, query={name: task.since, **turn.query})


def _identity(endpoint: Endpoint, record: Any, scope: Mapping[str, Any]) -> Any:
    """Return what a record is known by, to see whether a page comes again."""
    try:
        return key_of(endpoint.key, record, scope) if endpoint.key else digest(record)
    except ValueError:
        return digest(record)


def _put(target: dict[str, Any], way: list[str], value: Any) -> None:
    for step in way[:-1]:
        target = target.setdefault(step, {})
    target[way[-1]] = value
