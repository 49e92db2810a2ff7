"""The definition of a flow: its steps, their order, and what is undone after a failure.

A flow is a YAML file, or a `Flow` in Python with the same meaning. Loading one checks it and
freezes it: job files, manifests, rules and tasks that its steps name become part of it, so that a
run does not change when a file does.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from longline.analysis.match_rules import read_rules
from longline.config.documents import Document, read_document
from longline.config.expressions import JsonPath, check_braces, compile_path, fill, names_in
from longline.config.job_spec import make_spec
from longline.config.plugins import SOURCES, plugin_names
from longline.config.secrets import SecretRef
from longline.config.settings import Settings
from longline.config.times import Seconds
from longline.config.validation import (
    StrictModel,
    check_exactly_one,
    describe_error,
    invalid,
    nearest,
    one_or_several,
    select_problem,
    short_for,
)
from longline.config.yaml_tree import Location, format_location
from longline.core.errors import BadFile, BadOption, BadSource, ConfigError
from longline.enrichment.task_files import read_task
from longline.export.export import STDOUT, ExportRequest
from longline.export.tasks import prepare_for_task
from longline.sources.loader import (
    BUILT_IN,
    SUFFIXES,
    find_entry,
    load_python_file,
    load_source,
    merge_spec,
    yaml_files,
)
from longline.sources.manifest import absolute_path
from longline.storage.query import parse_condition

KINDS = (
    *("run", "match", "enrich", "export", "check", "command", "webhook", "approve"),
    *("flow", "each"),
)
"""The kinds of steps."""
INNER_FLOW = "each"
"""The name of the flow of one step that is run for each item."""
RESTORE, DELETE = "restore", "delete"
_UNDONE_BY: Mapping[str, tuple[str, ...]] = {RESTORE: ("run", "export"), DELETE: ("export",)}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_STEP = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
_MAX_STEPS = 500
_PYTHON = ".py"
_PLACES = ("params", "steps", "flow", "run", "item", "index", "key")
_NO_FILE = "there is no file {}; paths are relative to the folder of the flow"
_FUNCTION = re.compile(r"(?P<module>[\w./-]+):(?P<name>[A-Za-z_]\w*)")


class FailurePolicy(StrEnum):
    """What follows when a step has failed that is not optional."""

    STOP = "stop"  # start no further step
    CONTINUE = "continue"  # skip only the steps after it
    COMPENSATE = "compensate"  # stop, then undo the steps in reverse order


# ---------------- What a step does


class RunStep(StrictModel):
    """Run a source to its end.

    `source` is a name, a manifest, a job file, a Python file or package.module:Class. `states` is
    how its job must end; partial includes complete, any includes failed.
    """

    source: str = Field(min_length=1)
    options: dict[str, Any] = Field(default_factory=dict, alias="set")
    params: dict[str, Any] = Field(default_factory=dict)
    limit: int | None = Field(default=None, ge=1)
    states: Literal["complete", "partial", "any"] = "complete"
    priority: int = 0


class MatchStep(StrictModel):
    """Search for duplicates by the rules in a file."""

    rules: str = Field(min_length=1)


class EnrichStep(StrictModel):
    """Run the enrichment task in a file."""

    task: str = Field(min_length=1)
    limit: int | None = Field(default=None, ge=1)


def _check_condition(text: str) -> str:
    try:
        parse_condition(text)
    except BadOption as error:
        raise invalid(error.problem) from None
    return text


Conditions = Annotated[
    tuple[Annotated[str, AfterValidator(_check_condition)], ...], BeforeValidator(one_or_several)
]


class ExportStep(StrictModel):
    """Export records to a file, a table or an object, as `longline export` does."""

    to: str = Field(min_length=1)
    format: str | None = None
    columns: tuple[str, ...] = ()
    partition: str | None = None
    table: str | None = None
    secret: str | None = None
    endpoint: str | None = None
    redact: bool = False
    schema_file: bool = Field(default=True, alias="schema")
    mkdir: bool = False
    source: str | None = None
    job: str | None = None
    where: Conditions = ()
    min_score: float | None = None
    limit: int | None = Field(default=None, ge=1)

    def request(self, **more: Any) -> ExportRequest:
        """Return the options of the export.

        Raises:
            BadOption: the reference to the secret is malformed.
        """
        try:
            secret = None if self.secret is None else SecretRef.parse(self.secret)
        except (ValueError, RuntimeError) as error:  # RuntimeError: the ~ of an unknown user
            raise BadOption("secret", str(error)) from None
        return ExportRequest(
            self.to,
            format=self.format,
            columns=self.columns,
            partition=self.partition,
            table=self.table,
            secret=secret,
            endpoint=self.endpoint,
            has_schema=self.schema_file,
            makes_folder=self.mkdir,
            **more,
        )


class Bounds(StrictModel):
    """The least and the most that is expected; None is any."""

    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min is None and self.max is None:
            raise invalid("write min, max or both")
        if self.min is not None and self.max is not None and self.max < self.min:
            raise invalid("max must not be less than min")
        return self

    def problem(self, value: float | None) -> str | None:
        """Return what is wrong with a value; None if nothing is."""
        if value is None:
            return "is unknown"
        if self.min is not None and value < self.min:
            return f"is {value:g}, expected at least {self.min:g}"
        if self.max is not None and value > self.max:
            return f"is {value:g}, expected at most {self.max:g}"
        return None


def _check_function(text: str) -> str:
    if not _FUNCTION.fullmatch(text):
        raise invalid("name a function as package.module:function or file.py:function")
    return text


class CheckStep(StrictModel):
    """Compare a source or a job with expectations; the step fails if one is not met.

    `records`, `coverage` and `fresh` are about the source; `items` (by state) and `changes` (the
    share of collected items that are new or changed) about the job. `function` is called with a
    mapping of params, steps, flow and run; it fails the step by raising, or by returning False or
    a text.
    """

    source: str | None = Field(default=None, min_length=1)
    job: str | None = Field(default=None, min_length=1)
    records: Bounds | None = None
    coverage: dict[str, float] = Field(default_factory=dict)
    fresh: Seconds | None = Field(default=None, gt=0)
    items: dict[Literal["stored", "unchanged", "skipped", "failed", "quarantined"], Bounds] = Field(
        default_factory=dict
    )
    changes: Bounds | None = None
    function: Annotated[str, AfterValidator(_check_function)] | None = None

    @model_validator(mode="after")
    def _check_subjects(self) -> Self:
        of_source = self.records or self.coverage or self.fresh
        of_job = self.items or self.changes
        if of_source and self.source is None:
            raise invalid("records, coverage and fresh need a source")
        if of_job and self.job is None:
            raise invalid("items and changes need a job, such as '{steps.NAME.output.job}'")
        if not (of_source or of_job or self.function):
            raise invalid("write what is expected: records, coverage, fresh, items, changes")
        return self


def _refuse_text(value: Any) -> Any:
    if isinstance(value, str):
        raise invalid("write the command as a list: [rsync, --archive, out, backup]")
    return {"argv": value} if isinstance(value, Sequence) else value


class CommandStep(StrictModel):
    """Run a program; a code other than 0 fails the step. There is no shell."""

    argv: tuple[str, ...] = Field(min_length=1)
    folder: str | None = None


class WebhookStep(StrictModel):
    """Send a signed message to a webhook of `longline webhooks add`, or to a URL."""

    name: str | None = Field(default=None, min_length=1)
    url: str | None = Field(default=None, min_length=1)
    secret: str | None = None
    allow_private: bool = False
    data: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        check_exactly_one(self, ("name", "url"))
        if self.url is not None and self.secret is None:
            raise invalid("url needs a secret, such as env:HOOK_SECRET")
        if self.name is not None and (self.secret is not None or self.allow_private):
            raise invalid("secret and allow_private are those of the webhook; remove them")
        return self


class ApproveStep(StrictModel):
    """Wait until a person approves (`longline flow approve`)."""

    message: str = Field(min_length=1)


class SubFlowStep(StrictModel):
    """Run another flow."""

    file: str = Field(min_length=1)
    params: dict[str, Any] = Field(default_factory=dict)


class RecordSelection(StrictModel):
    """Records to fan out over: each item has `source`, `key`, `url` and `data`."""

    source: str | None = None
    job: str | None = None
    where: Conditions = ()
    limit: int = Field(default=1000, ge=1, le=10_000)


class EachStep(StrictModel):
    """Run a step or a flow for each of several items, which is `{item}` in it."""

    items: tuple[Any, ...] | None = Field(default=None, max_length=10_000)
    values: JsonPath | None = None
    """A path to a list, such as params.regions or steps.NAME.output.items."""
    records: RecordSelection | None = None
    sources: bool | None = None
    """All manifests and job files in the folders of the setting `sources`."""
    step: InnerStep | None = None
    flow: Annotated[SubFlowStep, short_for("file")] | None = None
    concurrency: int = Field(default=4, ge=1, le=100)

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        check_exactly_one(self, ("items", "values", "records", "sources"))
        check_exactly_one(self, ("step", "flow"))
        return self


# ---------------- Steps


class Retry(StrictModel):
    """Attempts of a step, and the wait before the second one, doubled for each further one."""

    attempts: int = Field(default=1, ge=1, le=100)
    base: Seconds = 10.0
    max: Seconds = 600.0


class Undo(StrictModel):
    """A command or a webhook that undoes a step."""

    command: Annotated[CommandStep, BeforeValidator(_refuse_text)] | None = None
    webhook: Annotated[WebhookStep, short_for("name")] | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        check_exactly_one(self, ("command", "webhook"))
        return self


def _parse_undo(value: Any) -> Any:
    if isinstance(value, str) and value not in _UNDONE_BY:
        raise invalid("it must be restore, delete, or a command or webhook below it")
    return value


class InnerStep(StrictModel):
    """What a step does, and how often it is attempted."""

    run: Annotated[RunStep, short_for("source")] | None = None
    match: Annotated[MatchStep, short_for("rules")] | None = None
    enrich: Annotated[EnrichStep, short_for("task")] | None = None
    export: Annotated[ExportStep, short_for("to")] | None = None
    check: Annotated[CheckStep, short_for("function")] | None = None
    command: Annotated[CommandStep, BeforeValidator(_refuse_text)] | None = None
    webhook: Annotated[WebhookStep, short_for("name")] | None = None
    approve: Annotated[ApproveStep, short_for("message")] | None = None
    flow: Annotated[SubFlowStep, short_for("file")] | None = None
    each: EachStep | None = None

    retry: Retry = Retry()
    timeout: Seconds | None = Field(default=None, gt=0)
    """Seconds for one attempt; of an approval, until it is refused."""
    undo: Annotated[Literal["restore", "delete"] | Undo, BeforeValidator(_parse_undo)] | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        check_exactly_one(self, KINDS)
        return self

    @property
    def kind(self) -> str:
        """What it does, as one of `KINDS`."""
        return next(name for name in KINDS if getattr(self, name) is not None)

    @property
    def work(self) -> StrictModel:
        """The settings of its kind."""
        work: StrictModel = getattr(self, self.kind)
        return work


def _check_flow_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise invalid("a name consists of at most 100 letters, digits, '.', '_' and '-'")
    return name


def _check_step_name(name: str) -> str:
    if not _STEP.fullmatch(name):
        raise invalid(
            "a step's name begins with a letter, followed by letters, digits, '_' and '-'"
        )
    return name


class StepSpec(InnerStep):
    """A step of a flow.

    Without `after`, it follows the step before it in the list; with `after: []`, it starts
    immediately. `when` is a JMESPath condition on params and earlier steps.
    """

    name: Annotated[str, AfterValidator(_check_step_name)]
    after: Annotated[tuple[str, ...], BeforeValidator(one_or_several)] | None = None
    when: JsonPath | None = None
    optional: bool = False
    """Its failure fails neither the flow nor the steps after it."""
    pivot: bool = False
    """The point of no return: once it is complete, nothing is undone."""


class FlowSpec(StrictModel):
    """A flow: named steps, and what follows a failure."""

    flow: Annotated[str, AfterValidator(_check_flow_name)]
    about: str = ""
    params: dict[str, Any] = Field(default_factory=dict)
    """Parameters and their defaults."""
    on_failure: FailurePolicy = FailurePolicy.STOP
    undo_retry: Retry = Retry(attempts=8, base=2.0, max=300.0)
    steps: tuple[StepSpec, ...]

    @model_validator(mode="after")
    def _check_number(self) -> Self:
        # Not by min_length, which would hide the error of the only step.
        if not 1 <= len(self.steps) <= _MAX_STEPS:
            raise invalid(f"a flow has from 1 to {_MAX_STEPS} steps")
        return self

    def stated(self) -> dict[str, Any]:
        """Return the values that were set, as JSON."""
        return _stated(self)

    @cached_property
    def by_name(self) -> Mapping[str, StepSpec]:
        """The steps by name, in the order of the list."""
        return {step.name: step for step in self.steps}

    @cached_property
    def parents(self) -> Mapping[str, tuple[str, ...]]:
        """The steps that each step waits for."""
        found: dict[str, tuple[str, ...]] = {}
        previous: tuple[str, ...] = ()
        for step in self.steps:
            found[step.name] = previous if step.after is None else step.after
            previous = (step.name,)
        return found

    @cached_property
    def order(self) -> Sequence[str]:
        """The names of the steps, each after those that it waits for.

        Raises:
            CycleError: they wait for each other.
        """
        places = {name: place for place, name in enumerate(self.by_name)}
        sorter = TopologicalSorter(self.parents)
        sorter.prepare()
        ordered: list[str] = []
        while sorter.is_active():
            ready = sorted(sorter.get_ready(), key=lambda name: places[name])
            ordered += ready
            sorter.done(*ready)
        return ordered

    def ancestors(self, name: str) -> frozenset[str]:
        """Return all steps that a step waits for, directly or not."""
        found: set[str] = set()
        left = list(self.parents[name])
        while left:
            one = left.pop()
            if one not in found:
                found.add(one)
                left += self.parents[one]
        return frozenset(found)

    def descendants(self, name: str) -> frozenset[str]:
        """Return all steps that wait for a step, directly or not."""
        return frozenset(one for one in self.by_name if name in self.ancestors(one))


# ---------------- Errors that are known when a flow is loaded


class _Problem(Exception):
    """A problem of a flow at a location of its definition."""

    def __init__(self, loc: Location, problem: str) -> None:
        super().__init__(problem)
        self.loc = loc
        self.problem = problem


def _check_flow(spec: FlowSpec) -> None:
    """Check what concerns several steps; raise _Problem for the first that is wrong."""
    names: set[str] = set()
    for place, step in enumerate(spec.steps):
        if step.name in names:
            raise _Problem(("steps", place, "name"), f"there are two steps {step.name!r}")
        names.add(step.name)
    for place, step in enumerate(spec.steps):
        for one in step.after or ():
            if one not in names:
                meant = nearest(one, names)
                hint = f"; did you mean {meant!r}?" if meant else ""
                raise _Problem(("steps", place, "after"), f"there is no step {one!r}{hint}")
    try:
        _ = spec.order
    except CycleError as error:
        cycle: list[str] = error.args[1][::-1]
        place = next(number for number, one in enumerate(spec.steps) if one.name in cycle)
        problem = f"a cycle: {' → '.join(cycle)}"
        raise _Problem(("steps", place, "after"), problem) from None
    for place, step in enumerate(spec.steps):
        _check_undo(spec, step, ("steps", place))
        _check_names(spec, step, ("steps", place))


def _check_undo(spec: FlowSpec, step: StepSpec, loc: Location) -> None:
    undo = step.undo
    if isinstance(undo, str) and step.kind not in _UNDONE_BY[undo]:
        kinds = " and ".join(_UNDONE_BY[undo])
        problem = f"`{undo}` works only for the kinds {kinds}, not for {step.kind}"
        raise _Problem((*loc, "undo"), f"{problem}; write a command or a webhook")
    if undo is not None and step.kind in ("flow", "each"):
        raise _Problem((*loc, "undo"), "the steps inside have their own undo; remove this one")
    pivots = [one for one in spec.ancestors(step.name) if spec.by_name[one].pivot]
    if undo is not None and pivots:
        problem = f"it comes after the pivot {pivots[0]!r}, after which nothing is undone"
        raise _Problem((*loc, "undo"), problem)


def _check_names(spec: FlowSpec, step: StepSpec, loc: Location) -> None:
    """Check the names in templates and conditions."""
    earlier = spec.ancestors(step.name)
    for place, text in _texts(step.work.model_dump(by_alias=True, mode="json")):
        where = (*loc, step.kind, *place)
        if step.kind == "each" and place == ("values",):  # a path, not a template
            _check_path(spec, text, where, earlier)
        else:
            _check_template(spec, text, where, earlier, has_item=step.kind == "each")
    if isinstance(step.undo, Undo):
        for place, text in _texts(step.undo.model_dump(mode="json")):
            _check_template(spec, text, (*loc, "undo", *place), earlier | {step.name})
    if step.when is not None:
        _check_path(spec, step.when, (*loc, "when"), earlier)


def _check_path(spec: FlowSpec, path: str, loc: Location, steps: frozenset[str]) -> None:
    for names in _paths_of(compile_path(path).parsed):
        _check_name(spec, names, loc, steps)


def _check_template(
    spec: FlowSpec,
    text: str,
    loc: Location,
    steps: frozenset[str],
    *,
    has_item: bool = False,
) -> None:
    try:
        check_braces(text)
    except PydanticCustomError as error:
        raise _Problem(loc, error.message()) from None
    for name in names_in(text):
        if name.partition(".")[0] in ("item", "index") and not has_item:
            raise _Problem(loc, f"{{{name}}} exists only in a step of kind each")
        _check_name(spec, name.split("."), loc, steps)


def _check_name(spec: FlowSpec, path: Sequence[str], loc: Location, steps: frozenset[str]) -> None:
    first, *rest = path
    if first not in _PLACES:
        raise _Problem(loc, f"there is no {first!r}; known: {', '.join(_PLACES)}")
    if first == "params" and rest and rest[0] not in spec.params:
        known = ", ".join(spec.params) or "none"
        raise _Problem(loc, f"there is no parameter {rest[0]!r}; known: {known}")
    if first == "steps" and rest and rest[0] not in steps:
        known = ", ".join(one for one in spec.by_name if one in steps) or "none"
        raise _Problem(loc, f"step {rest[0]!r} does not come before this one; known: {known}")


def _paths_of(node: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield the dotted names in a parsed JMESPath expression that begin at its root."""
    names = [one["value"] for one in node["children"] if one["type"] == "field"]
    if node["type"] == "subexpression" and node["children"][0]["type"] == "field":
        yield names
    elif node["type"] == "field":
        yield [node["value"]]
    elif node["type"] not in ("literal", "index", "current"):
        for one in node["children"]:
            if isinstance(one, Mapping):
                yield from _paths_of(one)


def _texts(value: Any, loc: Location = ()) -> Iterator[tuple[Location, str]]:
    if isinstance(value, str):
        yield loc, value
    elif isinstance(value, Mapping):
        for name, below in value.items():
            yield from _texts(below, (*loc, str(name)))
    elif isinstance(value, list | tuple):
        for number, below in enumerate(value):
            yield from _texts(below, (*loc, number))


def fill_values(value: Any, context: Mapping[str, Any]) -> Any:
    """Return values with the names in their texts replaced.

    Raises:
        KeyError: a name has no value.
    """
    if isinstance(value, str):
        return fill(value, context)
    if isinstance(value, Mapping):
        return {name: fill_values(below, context) for name, below in value.items()}
    if isinstance(value, list | tuple):
        return [fill_values(below, context) for below in value]
    return value


# ---------------- Frozen definitions


@dataclass(frozen=True, slots=True)
class FrozenFlow:
    """A checked definition with all that its files say.

    `resolved` has, by step, the settings of a job, the rules, the task, or another frozen flow.
    `file` is None for a flow that was built in Python and is not in a file.
    """

    spec: FlowSpec
    folder: str
    file: str | None = None
    resolved: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name."""
        return self.spec.flow

    @property
    def hash(self) -> str:
        """A hash of the definition and of what its files say."""
        content = [self.spec.stated(), self.resolved]
        text = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(text).hexdigest()[:16]

    @property
    def runs(self) -> frozenset[str]:
        """`flow NAME` and `source NAME` of all that it runs, itself included."""
        found = {f"flow {self.name}"}
        for name, step in self.spec.by_name.items():
            inside = self.resolved.get(name)
            if inside is not None and step.kind == "run":
                found.add(f"source {inside['name']}")
            elif inside is not None and step.kind in ("flow", "each"):
                flow = FrozenFlow.from_dict(inside)
                is_inner = flow.name == INNER_FLOW
                found |= {f"flow {self.name}.{name}"} if is_inner else {f"flow {flow.name}"}
                found |= flow.runs - {f"flow {INNER_FLOW}"}
        return frozenset(found)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "spec": self.spec.stated(),
            "folder": self.folder,
            "file": self.file,
            "resolved": dict(self.resolved),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FrozenFlow:
        """Return the flow that `as_dict` has made."""
        spec = FlowSpec.model_validate(values["spec"])
        return cls(spec, values["folder"], values["file"], values["resolved"])

    def check_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a run, defaults included.

        Raises:
            BadOption: there is no such parameter.
        """
        for name in params:
            if name not in self.spec.params:
                known = ", ".join(self.spec.params) or "none"
                problem = f"flow {self.name} has no such parameter; known: {known}"
                raise BadOption(f"--param {name}", problem)
        return {**self.spec.params, **params}


def _freeze(
    spec: FlowSpec,
    folder: Path,
    settings: Settings | None,
    *,
    file: str | None,
    above: tuple[str, ...] = (),
) -> FrozenFlow:
    """Read the files of the steps.

    Raises:
        _Problem: a file is missing, or something in it is wrong.
    """
    files = _Files(folder, settings, above)
    steps: list[StepSpec] = []
    resolved: dict[str, Any] = {}
    for place, step in enumerate(spec.steps):
        loc: Location = ("steps", place, step.kind)
        try:
            steps.append(files.absolute(step))
            found = files.resolve(steps[-1])
        except BadOption as error:
            is_own = error.option in step.work.model_dump(by_alias=True)
            problem = error.problem if is_own else str(error)
            raise _Problem((*loc, error.option) if is_own else loc, problem) from error
        except ConfigError as error:
            raise _Problem(loc, str(error)) from error
        if found is not None:
            resolved[step.name] = found
    changed = spec.model_copy(update={"steps": tuple(steps)})
    # Validated again, so that nothing that was computed of the old steps is kept.
    whole = FlowSpec.model_validate(changed.stated())
    return FrozenFlow(whole, str(folder), file, resolved)


@dataclass(frozen=True, slots=True)
class _Files:
    """Finds and reads the files that steps name; `above` are the flows that contain this one."""

    folder: Path
    settings: Settings | None
    above: tuple[str, ...]

    def absolute(self, step: StepSpec) -> StepSpec:
        """Return the step with a destination that does not depend on the working folder."""
        if step.export is None:
            return step
        to = step.export.to
        if to == STDOUT:
            raise BadOption("to", "a step cannot export to standard output; name a file")
        if "://" not in to and not Path(to).is_absolute():
            to = f"{_escape_braces(str(self.folder))}/{to}"
        export = step.export.model_copy(update={"to": to})
        if not names_in(to):
            prepare_for_task(export.request(), option="to", by_worker=True)
        return step.model_copy(update={"export": export})

    def resolve(self, step: InnerStep) -> Any:
        """Return what a step needs of its files; None if that is nothing."""
        found: Any = None
        match step.work:
            case RunStep() as work if not names_in(work.source):
                found = job_settings(work, self.folder, self.settings)
            case MatchStep() as work:
                found = _stated(read_rules(self._existing(work.rules, "rules")))
            case EnrichStep() as work:
                found = _stated(read_task(self._existing(work.task, "task")))
            case CheckStep(function=str() as function):
                load_function(function, self.folder)
            case SubFlowStep() as work:
                found = self._sub_flow(work)
            case EachStep(flow=SubFlowStep() as work):
                found = self._sub_flow(work)
            case EachStep(step=InnerStep() as inner):
                found = self._inner_flow(inner)
        return found

    def _existing(self, path: str, option: str) -> Path:
        found = Path(absolute_path(self.folder, path))
        if not found.is_file():
            raise BadOption(option, _NO_FILE.format(found))
        return found

    def _sub_flow(self, work: SubFlowStep) -> dict[str, Any]:
        path = self._existing(work.file, "file")
        if str(path) in self.above:
            raise BadOption("file", "it contains this flow; a flow cannot run itself")
        flow = load_flow(str(path), self.settings, above=self.above)
        try:
            flow.check_params(work.params)
        except BadOption as error:
            raise BadOption("params", error.problem) from None
        return flow.as_dict()

    def _inner_flow(self, inner: InnerStep) -> dict[str, Any]:
        """Return the flow of one step that is run for each item."""
        values = _stated(inner)
        spec = FlowSpec.model_validate(
            {"flow": INNER_FLOW, "steps": [{"name": inner.kind, **values}]}
        )
        try:
            _check_undo(spec, spec.steps[0], ())
            flow = _freeze(spec, self.folder, self.settings, file=None, above=self.above)
        except _Problem as error:
            raise BadOption("step", f"{format_location(error.loc)}: {error.problem}") from error
        return flow.as_dict()


def _stated(model: BaseModel) -> dict[str, Any]:
    """Return the values of a model that were set, as a file has them."""
    return model.model_dump(by_alias=True, mode="json", exclude_unset=True)


def _escape_braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def job_settings(work: RunStep, folder: Path, settings: Settings | None) -> dict[str, Any]:
    """Return the name of a source, and the settings of its job with the manifest.

    Raises:
        ConfigError: the source cannot be used.
    """
    reference = _find_source(work.source, folder, settings)
    params: dict[str, Any] = {"set": work.options, "params": work.params}
    if work.limit is not None:
        params["limit"] = work.limit
    spec = merge_spec(make_spec({"source": reference}), reference, params)
    source = load_source(spec.source, spec.manifest)
    if not any(names_in(text) for _, text in _texts(work.options)):
        source.read_options(spec.options)
    return {"name": source.name, "spec": spec.snapshot()}


def _find_source(reference: str, folder: Path, settings: Settings | None) -> str:
    file, colon, name = reference.partition(f"{_PYTHON}:")
    if reference.endswith((*SUFFIXES, _PYTHON)) or colon:
        path = absolute_path(folder, f"{file}{_PYTHON}" if colon else reference)
        if not Path(path).is_file():
            raise BadOption("source", _NO_FILE.format(path))
        return f"{path}:{name}" if colon else path
    is_known = ":" in reference or reference in BUILT_IN or reference in plugin_names(SOURCES)
    if is_known or settings is None:
        return reference
    try:
        return str(find_entry(reference, settings).document.path.absolute())
    except BadOption as error:
        raise BadOption("source", error.problem) from None


def load_function(reference: str, folder: Path) -> Callable[..., Any]:
    """Return a function, given as package.module:function or file.py:function.

    Raises:
        BadOption: there is no such function.
    """
    place, _, name = reference.rpartition(":")
    if place.endswith(_PYTHON):
        try:
            module = load_python_file(Path(absolute_path(folder, place)))
        except BadSource as error:
            raise BadOption("function", f"{error.reference}: {error.problem}") from error
    else:
        for one in (str(Path.cwd()), str(folder)):
            if one not in sys.path:
                sys.path.insert(0, one)
        try:
            module = importlib.import_module(place)
        except Exception as error:
            problem = f"{place} cannot be imported: {error}"
            raise BadOption("function", problem) from error
    found = getattr(module, name, None)
    if not callable(found):
        raise BadOption("function", f"there is no function {name!r} in {place}")
    function: Callable[..., Any] = found
    return function


# ---------------- Loading


def read_flow(
    document: Document, settings: Settings | None = None, above: tuple[str, ...] = ()
) -> FrozenFlow:
    """Return the flow of a document.

    Raises:
        BadFile: it is invalid; of several problems, the first in the file is reported.
    """
    path = document.path.absolute()
    try:
        spec = FlowSpec.model_validate(document.values)
    except ValidationError as error:
        found = select_problem(error, document.tree)
        raise document.error(found.loc, found.problem, found.near) from None
    try:
        _check_flow(spec)
        return _freeze(spec, path.parent, settings, file=str(path), above=(*above, str(path)))
    except _Problem as error:
        raise document.error(error.loc, error.problem) from error


def load_flow(
    reference: str, settings: Settings | None = None, *, above: tuple[str, ...] = ()
) -> FrozenFlow:
    """Return a flow by its file (YAML or Python, also file.py:name), or by its name.

    A name is that of a flow in the folders of the setting `flows`.

    Raises:
        BadFile: the file is invalid.
        BadOption: there is no such flow.
    """
    file, colon, name = reference.partition(f"{_PYTHON}:")
    if colon or reference.endswith(_PYTHON):
        path = Path(f"{file}{_PYTHON}" if colon else reference)
        return _python_flow(path, name, settings)
    if reference.endswith(SUFFIXES):
        return read_flow(read_document(Path(reference)), settings, above)
    known: dict[str, Path] = {}
    for path in yaml_files(settings.flows if settings else ()):
        if (found := flow_name_in(read_document(path))) is not None:
            known.setdefault(found, path)
    if reference in known:
        return read_flow(read_document(known[reference]), settings, above)
    meant = nearest(reference, known)
    hint = f"did you mean {meant!r}? " if meant else ""
    listed = ", ".join(sorted(known)) or "none"
    raise BadOption("FLOW", f"there is no flow {reference!r}; {hint}known flows: {listed}")


def flow_name_in(document: Document) -> str | None:
    """Return the name of the flow that a document defines; None: it is not a flow."""
    node = document.node(("flow",))
    return node.content if node is not None and isinstance(node.content, str) else None


def _python_flow(path: Path, name: str, settings: Settings | None) -> FrozenFlow:
    module = load_python_file(path)
    found = {one: value for one, value in vars(module).items() if isinstance(value, Flow)}
    if name:
        found = {one: value for one, value in found.items() if one == name}
    if len(found) != 1:
        problem = f"it has {len(found)} flows; name one of them: {path}:NAME"
        if name:
            problem = f"there is no flow {name!r} in it"
        raise BadFile(str(path), problem)
    ((variable, flow),) = found.items()
    file = f"{path.absolute()}:{variable}"
    return flow.freeze(settings, folder=path.absolute().parent, file=file)


# ---------------- The same in Python


class Flow:
    """A flow in Python: each method adds a step that follows the one before it.

        flow = (
            Flow("nightly", on_failure="compensate")
            .run("shop", "shop.yaml")
            .export("publish", "shop.csv", undo="restore")
        )

    The second argument of a method is what YAML has below the kind of the step; the others are
    the fields of a step: after, when, optional, retry, timeout, pivot, undo.
    """

    def __init__(self, name: str, **values: Any) -> None:
        self._values = {"flow": name, **values}
        self._steps: list[dict[str, Any]] = []

    def __repr__(self) -> str:
        return f"<Flow {self._values['flow']}, {len(self._steps)} steps>"

    def step(self, name: str, **values: Any) -> Self:
        """Add a step with the names of YAML."""
        self._steps.append({"name": name, **values})
        return self

    def run(self, name: str, source: str | Mapping[str, Any], **values: Any) -> Self:
        """Run a source."""
        return self.step(name, run=source, **values)

    def match(self, name: str, rules: str, **values: Any) -> Self:
        """Search for duplicates."""
        return self.step(name, match=rules, **values)

    def enrich(self, name: str, task: str | Mapping[str, Any], **values: Any) -> Self:
        """Run an enrichment task."""
        return self.step(name, enrich=task, **values)

    def export(self, name: str, to: str | Mapping[str, Any], **values: Any) -> Self:
        """Export records."""
        return self.step(name, export=to, **values)

    def check(self, name: str, expected: str | Mapping[str, Any], **values: Any) -> Self:
        """Compare a source or a job with expectations."""
        return self.step(name, check=expected, **values)

    def command(self, name: str, argv: Sequence[str] | Mapping[str, Any], **values: Any) -> Self:
        """Run a program."""
        is_list = not isinstance(argv, Mapping | str)
        return self.step(name, command=[*argv] if is_list else argv, **values)

    def webhook(self, name: str, webhook: str | Mapping[str, Any], **values: Any) -> Self:
        """Send a message to a webhook."""
        return self.step(name, webhook=webhook, **values)

    def approve(self, name: str, message: str, **values: Any) -> Self:
        """Wait for a person."""
        return self.step(name, approve=message, **values)

    def flow(self, name: str, file: str | Mapping[str, Any], **values: Any) -> Self:
        """Run another flow."""
        return self.step(name, flow=file, **values)

    def each(self, name: str, items: Mapping[str, Any], **values: Any) -> Self:
        """Run a step or a flow for each of several items."""
        return self.step(name, each=items, **values)

    def freeze(
        self,
        settings: Settings | None = None,
        *,
        folder: Path | None = None,
        file: str | None = None,
    ) -> FrozenFlow:
        """Check the flow and read its files; paths are relative to `folder`, or to this one.

        Raises:
            BadOption: something is invalid.
        """
        values = {**self._values, "steps": self._steps}
        name = f"flow {self._values['flow']}"
        try:
            spec = FlowSpec.model_validate(values)
            _check_flow(spec)
            return _freeze(spec, (folder or Path()).absolute(), settings, file=file)
        except ValidationError as error:
            first = error.errors()[0]
            loc = list(first["loc"])
            if first["type"] == "unknown_name":
                loc.append(first["ctx"]["name"])
            raise BadOption(f"{name}: {format_location(loc)}", describe_error(first)) from None
        except _Problem as error:
            raise BadOption(f"{name}: {format_location(error.loc)}", error.problem) from error


# ---------------- Graphs


def graph_lines(flow: FrozenFlow, states: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each step, in the order in which they run."""
    spec = flow.spec
    width = max(len(name) for name in spec.order)
    for name in spec.order:
        step = spec.by_name[name]
        notes = [step.kind]
        notes += [f"after {', '.join(spec.parents[name])}"] if spec.parents[name] else []
        notes += [f"when {step.when}"] if step.when else []
        notes += [word for word in ("optional", "pivot") if getattr(step, word)]
        notes += [f"undo: {_undo_text(step)}"] if step.undo is not None else []
        state = f"  [{states[name]}]" if name in states else ""
        yield f"{name:{width}}  {'; '.join(notes)}{state}"


def mermaid_lines(flow: FrozenFlow, states: Mapping[str, str]) -> Iterator[str]:
    """Yield a flow as a Mermaid diagram."""
    yield "graph TD"
    spec = flow.spec
    ids = {name: f"s{place}" for place, name in enumerate(spec.order)}
    for name in spec.order:
        step = spec.by_name[name]
        label = f"{name}<br/>{step.kind}" + (f"<br/>{states[name]}" if name in states else "")
        opening, closing = ("{{", "}}") if step.kind == "approve" else ("[", "]")
        yield f'  {ids[name]}{opening}"{label}"{closing}'
        if step.pivot:
            yield f"  style {ids[name]} stroke-width:4px"
    for name in spec.order:
        step = spec.by_name[name]
        arrow = "-.->" if step.optional or step.when else "-->"
        for parent in spec.parents[name]:
            yield f"  {ids[parent]} {arrow} {ids[name]}"


def _undo_text(step: InnerStep) -> str:
    if isinstance(step.undo, Undo):
        return "command" if step.undo.command is not None else "webhook"
    return str(step.undo)
