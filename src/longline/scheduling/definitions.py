"""The schedules that files define, and what they run.

A manifest or a job file has the key `schedule`, the settings file has `schedules`. A manifest may
also have `fresh`, the maximum age of its data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from longline.config.documents import Document, check, read_document
from longline.config.job_spec import JobSpec
from longline.config.plugins import SOURCES, plugin_names
from longline.config.settings import FILE, Settings, file_model, settings_file
from longline.core.errors import BadFile, BadOption, BadSource, ConfigError, StoreError
from longline.core.threads import Threads
from longline.scheduling.dependencies import check_cycles
from longline.scheduling.schedule import Dependency, Schedule, make_schedule, read_schedule
from longline.sources.base import Source
from longline.sources.loader import (
    BUILT_IN,
    SUFFIXES,
    UnknownSource,
    load_source,
    merge_spec,
    parse_entry,
    read_entry,
    validate_files,
    yaml_files,
)
from longline.sources.manifest import Manifest
from longline.storage.scheduling.schedules import ScheduleTaken
from longline.storage.store import Store

_LONGEST_IMPORT = 10.0  # seconds for a source in Python
_MOST_IMPORTS = 16  # at the same time; those that hang never end
_Stamp = tuple[int, int] | None  # modification time and size of a file; None: it does not exist


@dataclass(frozen=True, slots=True)
class FileContent:
    """The schedules of one file by name; of a manifest, also its source and maximum age."""

    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    source: str | None = None
    fresh: float | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs from the last time: changed files, those that are gone, and invalid ones."""

    changed: Mapping[str, FileContent]
    gone: tuple[str, ...]
    problems: tuple[BadFile, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """What a schedule runs, as a launch needs it; `name` is that of the source or flow.

    `runs` has `source NAME` and `flow NAME` of all that it runs, as the steps of a flow do.
    """

    kind: str
    name: str
    spec: Mapping[str, Any]
    runs: frozenset[str]


class DefinitionFiles:
    """The files of the settings that may define schedules; each is read when it has changed.

    An invalid file keeps the content that it had when it was valid.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stamps: dict[str, _Stamp] = {}
        self._contents: dict[str, FileContent] = {}
        self._invalid: dict[str, BadFile] = {}
        self._targets: dict[str, tuple[Schedule, Mapping[str, _Stamp], Target]] = {}
        self._threads = Threads(_MOST_IMPORTS, "longline-import")
        self._loading: dict[tuple[str, _Stamp], Future[type[Source]]] = {}

    def refresh(self) -> Changes:
        """Read the files that are new or have changed since the last call."""
        stamps = {path: _stamp(path) for path in map(str, self._paths())}
        changed: dict[str, FileContent] = {}
        partial: dict[str, FileContent] = {}
        problems: dict[str, BadFile] = {}
        for path, stamp in stamps.items():
            if path in self._stamps and self._stamps[path] == stamp:
                continue
            try:
                changed[path] = read_definitions(Path(path))
            except BadFile as error:
                problems[path] = error
                if path not in self._contents:
                    partial[path] = _without_schedules(Path(path))
        gone = tuple(path for path in self._stamps if path not in stamps)
        self._stamps = stamps
        contents = {path: one for path, one in self._contents.items() if path not in gone}
        self._contents = contents | partial | changed
        kept = {*stamps} - {*changed}
        self._invalid = {path: one for path, one in self._invalid.items() if path in kept}
        self._invalid |= problems
        return Changes(changed, gone, tuple(problems.values()))

    def repeat(self, changes: Changes) -> None:
        """Report these changes again at the next `refresh`, because they were not stored."""
        for path in (*changes.changed, *(one.path for one in changes.problems)):
            self._stamps.pop(path, None)
        self._stamps |= dict.fromkeys(changes.gone)

    def missing_among(self, origins: Iterable[str]) -> list[str]:
        """Return the files that would be among these, but do not exist."""
        folders = self._folders()
        return [
            one
            for one in origins
            if one == str(_settings_path()) or Path(one).parent in folders
            if not Path(one).exists()
        ]

    def freshness(self) -> Mapping[str, float]:
        """Return the maximum age of the data of each source that has one, in seconds."""
        return {
            one.source: one.fresh
            for one in self._contents.values()
            if one.source is not None and one.fresh is not None
        }

    def target_of(self, schedule: Schedule) -> Target:
        """Return what a schedule runs, as its files are now.

        Raises:
            ConfigError: there is no such source or file, or it cannot run with these values.
        """
        known = self._targets.get(schedule.name)
        if known is not None and known[0] == schedule and _are_unchanged(known[1]):
            return known[2]
        try:
            target, files = self._resolve(schedule)
        except ConfigError:
            raise
        except Exception as error:  # of code of the source, such as a validator of its options
            raise BadOption("source", f"{type(error).__name__}: {error}") from error
        stamps = {path: _stamp(path) for path in files}
        self._targets[schedule.name] = (schedule, stamps, target)
        return target

    def knows(self, kind: str, name: str) -> bool:
        """Return whether a file, longline itself or a plugin defines a source or flow."""
        if kind == "source":
            is_manifest = any(one.source == name for one in self._contents.values())
            return is_manifest or name in BUILT_IN or name in self._plugins
        from longline.scheduling.flow import flow_name_in  # noqa: PLC0415  # has many parts

        for path in yaml_files(self._settings.flows):
            with suppress(ConfigError):  # `longline config validate` reports it
                if flow_name_in(read_document(path)) == name:
                    return True
        return False

    def check_cycles(self, schedules: Iterable[Schedule]) -> None:
        """Check that no source or flow triggers itself through others.

        Raises:
            BadOption: one does; says which.
        """
        follows: list[tuple[Dependency, frozenset[str]]] = []
        for one in schedules:
            if one.after is not None:
                with suppress(ConfigError):  # it is reported when the schedule is due
                    follows.append((one.after, self.target_of(one).runs))
        check_cycles(follows)

    def _paths(self) -> Iterator[Path]:
        yield from yaml_files(one for one in self._folders() if one.is_dir())
        if (path := _settings_path()).exists():
            yield path

    def _folders(self) -> list[Path]:
        return [folder.absolute() for folder in self._settings.sources]

    def _resolve(self, schedule: Schedule) -> tuple[Target, Iterable[str]]:
        values = {"set": schedule.options, "params": schedule.params}
        given = {name: value for name, value in values.items() if value}
        if schedule.flow is not None:
            return self._resolve_flow(schedule)
        reference = schedule.job or self._reference(schedule.source or "")
        spec = merge_spec(JobSpec(source=reference), reference, given)
        files = [_file_of(one) for one in (reference, spec.source)]
        files = [one for one in files if one.endswith((*SUFFIXES, ".py"))]
        found = self._load(spec)
        found.read_options(spec.options)
        runs = frozenset([f"source {found.name}"])
        return Target("source", found.name, spec.snapshot(), runs), files

    def _load(self, spec: JobSpec) -> type[Source]:
        """Load a source. A module that takes long to be imported keeps no other schedule waiting.

        Raises:
            ConfigError: it cannot be loaded, or takes too long.
        """
        if spec.manifest is not None:
            return load_source(spec.source, spec.manifest)
        version = (spec.source, _stamp(_file_of(spec.source)))  # one that hangs may be corrected
        loading, seconds = self._loading.get(version), 0.0
        if loading is None:
            loading, seconds = self._threads.submit(load_source, spec.source), _LONGEST_IMPORT
            self._loading[version] = loading
        try:
            found: type[Source] = loading.result(seconds)
        except TimeoutError:
            problem = f"importing it takes longer than {_LONGEST_IMPORT:g} s"
            raise BadSource(spec.source, problem) from None
        finally:
            if loading.done():
                self._loading.pop(version, None)
        return found

    def _resolve_flow(self, schedule: Schedule) -> tuple[Target, Iterable[str]]:
        from longline.scheduling.flow import load_flow  # noqa: PLC0415  # has many parts

        if schedule.options:
            raise BadOption("set", "a flow has parameters and no options; write params")
        flow = load_flow(schedule.flow or "", self._settings)
        flow.check_params(schedule.params)
        spec = {"flow": flow.file or schedule.flow, "params": schedule.params}
        return Target("flow", flow.name, spec, flow.runs), [
            _file_of(flow.file)
        ] if flow.file else []

    def _reference(self, source: str) -> str:
        """Return how the loader finds a source that a schedule names."""
        manifests = {one.source: path for path, one in self._contents.items() if one.source}
        if source in manifests:
            return manifests[source]
        file = _file_of(source)
        is_file = file.endswith((*SUFFIXES, ".py"))
        if is_file and not Path(file).is_file():
            raise BadOption("source", f"there is no file {file}")
        is_name = not is_file and ":" not in source
        if is_name and source not in BUILT_IN and source not in self._plugins:
            if self._invalid:
                first = next(iter(self._invalid.values()))
                problem = (
                    f"no source is named {source!r}; is it in the file that is invalid: {first}"
                )
                raise BadOption("source", problem)
            known = {*manifests, *BUILT_IN, *self._plugins}
            raise UnknownSource(source, tuple(sorted(known)))
        return source

    @cached_property
    def _plugins(self) -> Collection[str]:
        """The sources of plugins; reading what is installed takes a tenth of a second."""
        return plugin_names(SOURCES)


def _without_schedules(path: Path) -> FileContent:
    """Return what an invalid file still defines: its source, if only its schedules are invalid."""
    try:
        entry = read_entry(path)
    except ConfigError:
        return FileContent()
    is_manifest = isinstance(entry.model, Manifest)
    return FileContent(source=entry.name if is_manifest else None)


def read_definitions(path: Path) -> FileContent:
    """Return what a manifest, a job file or the settings file defines.

    Raises:
        BadFile: it is invalid.
    """
    document = read_document(path)
    if path.name == FILE or path == _settings_path():
        check(document, file_model(Settings))  # applied completely or not at all
        return FileContent(_settings_schedules(document))
    return definitions_in(document)


def definitions_in(document: Document) -> FileContent:
    """Return what a manifest or a job file defines.

    Raises:
        BadFile: it is invalid.
    """
    entry = parse_entry(document)
    if isinstance(entry.model, Manifest):
        target = {"name": entry.name, "source": entry.name}
        found = _named(document, _read_all(document, target))
        return FileContent(found, entry.name, entry.model.fresh)
    target = {"name": entry.name, "job": str(document.path.absolute())}
    return FileContent(_named(document, _read_all(document, target)))


def _read_all(
    document: Document, defaults: Mapping[str, Any]
) -> Iterator[tuple[Schedule, tuple[str | int, ...]]]:
    node = document.node(("schedule",))
    if node is None or node.content is None:
        return
    if not isinstance(node.content, list):
        yield read_schedule(document, ("schedule",), defaults), ("schedule",)
        return
    for number in range(len(node.content)):
        yield read_schedule(document, ("schedule", number), defaults), ("schedule", number)


def _named(
    document: Document, found: Iterable[tuple[Schedule, tuple[str | int, ...]]]
) -> dict[str, Schedule]:
    schedules: dict[str, Schedule] = {}
    for schedule, loc in found:
        if schedule.name in schedules:
            problem = f"two schedules are named {schedule.name!r}; give each a name"
            raise document.error((*loc, "name"), problem, loc)
        schedules[schedule.name] = schedule
    return schedules


def _settings_schedules(document: Document) -> dict[str, Schedule]:
    node = document.node(("schedules",))
    names = node.content if node is not None else None
    found: dict[str, Schedule] = {}
    for name in names if isinstance(names, dict) else ():
        schedule = read_schedule(document, ("schedules", name), {"name": name})
        if schedule.name != name:
            problem = f"it is already named {name!r}; remove this"
            raise document.error(("schedules", name, "name"), problem)
        found[name] = _with_path(schedule, document.path.absolute().parent)
    return found


def _with_path(schedule: Schedule, folder: Path) -> Schedule:
    """Return a schedule whose job file is named relative to a folder."""
    if schedule.job is None:
        return schedule
    path = (folder / Path(schedule.job).expanduser()).absolute()
    return schedule.model_copy(update={"job": str(path)})


def absolute_reference(reference: str, *, is_file: bool = False) -> str:
    """Return a file as an executor finds it, whatever folder that runs in."""
    file, colon, name = reference.partition(".py:")
    if colon:
        return f"{Path(f'{file}.py').absolute()}:{name}"
    has_suffix = reference.endswith((*SUFFIXES, ".py"))
    return str(Path(reference).expanduser().absolute()) if is_file or has_suffix else reference


def _settings_path() -> Path:
    return (settings_file() or Path(FILE)).absolute()


def _file_of(reference: str) -> str:
    """Return the file of `file.py:name`, and other references as they are."""
    file, colon, _ = reference.partition(".py:")
    return f"{file}.py" if colon else reference


def _are_unchanged(stamps: Mapping[str, _Stamp]) -> bool:
    return all(_stamp(path) == stamp for path, stamp in stamps.items())


def _stamp(path: str) -> _Stamp:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


# ---------------- Validation


def validate_home(
    files: Sequence[Path],
    settings: Settings,
    *,
    with_secrets: bool = True,
    source_checks: Sequence[Callable[[Document], object]] = (),
    settings_checks: Sequence[Callable[[Document], object]] = (),
) -> tuple[int, list[ConfigError]]:
    """Return the number of files, and the first problem of each invalid one.

    Without `files`, all manifests, job files and flows of the settings are validated, and the
    settings file with the targets of all schedules. `source_checks` of manifests and job files, and
    `settings_checks` raise `ConfigError`; they are those of packages that this one does not know.
    """
    from longline.scheduling.flow import read_flow  # noqa: PLC0415  # has many parts

    def check_settings(document: Document) -> None:
        check(document, file_model(Settings))
        _settings_schedules(document)
        for one in settings_checks:
            one(document)

    own = _settings_path()
    flows = [*yaml_files(settings.flows)]
    others = [own] if own.exists() else []
    if files:
        others = [path for path in files if path.name == FILE or path.absolute() == own]
        flows = [path for path in files if path not in others and _is_flow(path)]
    entries = [path for path in files if path not in others and path not in flows]
    count, problems = 0, list[ConfigError]()
    if entries or not files:
        count, problems = validate_files(
            entries, settings, with_secrets=with_secrets, checks=(definitions_in, *source_checks)
        )
    for path in (*flows, *others):
        try:
            document = read_document(path)
            check_settings(document) if path in others else read_flow(document, settings)
        except ConfigError as error:
            problems.append(error)
    if not files and not problems:
        problems = [*_problems_of_targets(settings)]
    return count + len(flows) + len(others), problems


def _is_flow(path: Path) -> bool:
    try:
        return read_document(path).node(("steps",)) is not None
    except ConfigError:
        return False  # the validation of manifests reports it


def _problems_of_targets(settings: Settings) -> Iterator[ConfigError]:
    """Yield what is wrong with schedules of valid files: their targets, names and cycles."""
    files = DefinitionFiles(settings)
    found: dict[str, str] = {}  # the file of each schedule
    every: list[Schedule] = []
    for path, content in files.refresh().changed.items():
        for schedule in content.schedules.values():
            if schedule.name in found:
                yield BadFile(
                    path, problem_text(ScheduleTaken(schedule.name, found[schedule.name]))
                )
            found[schedule.name] = path
            every.append(schedule)
            try:
                files.target_of(schedule)
            except ConfigError as error:
                yield BadFile(path, f"schedule {schedule.name}: {problem_text(error)}")
    try:
        files.check_cycles(every)
    except ConfigError as error:
        yield error


# ---------------- Files and the database


async def sync_files(
    store: Store, files: DefinitionFiles, now: float, *, is_first: bool
) -> list[BadFile]:
    """Store what the files define now; return the problems of files that are not used.

    With `is_first`, the schedules of files that were deleted meanwhile are removed, too.
    """
    changes = await asyncio.to_thread(files.refresh)
    try:
        return await _store_changes(store, files, changes, now, is_first=is_first)
    except StoreError:
        files.repeat(changes)
        raise


async def _store_changes(
    store: Store, files: DefinitionFiles, changes: Changes, now: float, *, is_first: bool
) -> list[BadFile]:
    gone = [*changes.gone]
    if is_first:
        gone += files.missing_among(await store.schedules.origins())
    for path in gone:
        await store.schedules.sync(path, {}, now)
    problems = [*changes.problems]
    stored = await store.schedules.list() if changes.changed else []
    origins = {row.origin for row in stored}
    followers = {
        row.name: (row.origin, make_schedule(row.definition))
        for row in stored
        if row.definition.get("after") is not None
    }
    for path, content in changes.changed.items():
        new = content.schedules
        if not new and path not in origins:
            continue
        others = {name: one for name, one in followers.items() if one[0] != path}
        try:
            together = [*(one for _, one in others.values()), *new.values()]
            await asyncio.to_thread(files.check_cycles, together)
            definitions = {name: one.stated() for name, one in new.items()}
            await store.schedules.sync(path, definitions, now)
        except (ScheduleTaken, BadOption) as error:
            problems.append(BadFile(path, problem_text(error)))
        else:
            mine = {name: (path, one) for name, one in new.items() if one.after is not None}
            followers = others | mine
    return problems


def problem_text(error: ConfigError) -> str:
    """Return the problem of a definition, to be followed by other text."""
    return str(error).rstrip(".")
