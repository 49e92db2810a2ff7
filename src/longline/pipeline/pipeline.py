"""The pipeline of a source: from the results of its layers to a valid record.

The material of an attempt is stored with a quarantined item, so that its record can be made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import orjson
from pydantic import BaseModel, ValidationError

from longline.config.plugins import STAGES, load_plugin
from longline.core.errors import BadOption, BadSource, LonglineError, error_text
from longline.core.json import NoData, kind_of_value, to_json
from longline.core.model import Item, Note, Record
from longline.pipeline.enrich import Enrich
from longline.pipeline.filter import Filter
from longline.pipeline.manifest import Step
from longline.pipeline.map import Map
from longline.pipeline.quality import QualityRules, score
from longline.pipeline.stages import Draft, Stage, StageFailed, ValidationFailed

Rules = type[BaseModel] | Mapping[str, Any] | Path
_FORMAT = 2
_NO_DATA, _SHOWN = "longline.no_data", "shown"  # how a value that is not data is stored
_PARTS = ("results", "notes", "provenance", "origins", "layers")


@dataclass(frozen=True, slots=True)
class Material:
    """The input of the pipeline.

    `provenance` names the layer and address of each field, `origins` overrides it for some fields;
    `layers` says how each layer ended. `problems` are the reasons of a quarantine.
    """

    results: Mapping[str, Mapping[str, Any]]
    notes: Sequence[Note] = ()
    provenance: dict[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    layers: Mapping[str, str] = field(default_factory=dict)
    problems: Sequence[str] = ()

    def as_raw(self, error: BaseException | None = None) -> dict[str, Any]:
        """Return it as it is stored with an item, with the problems of an error."""
        # Every item passes here, so nothing is copied; the writer encodes it.
        raw: dict[str, Any] = {
            "format": _FORMAT,
            "results": self.results,
            "notes": self.notes,
            "provenance": self.provenance,
            "origins": self.origins,
            "layers": self.layers,
        }
        if error is not None:
            raw["problems"] = (
                error.problems if isinstance(error, ValidationFailed) else [error_text(error)]
            )
        return raw


class PipelineSource(Protocol):
    """What the pipeline needs to know of a source."""

    name: ClassVar[str]
    Record: ClassVar[type[BaseModel] | None]
    volatile: ClassVar[frozenset[str]]
    pipeline: ClassVar[tuple[Any, ...]]

    @property
    def quality_rules(self) -> QualityRules | None:
        """The rules of the quality score; None to score by layers and empty fields."""

    def layers(self) -> Sequence[Any]:
        """Return the layers of the source."""

    def compose(self, item: Item, layers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the data of the record, made of the results of the layers."""


class Pipeline:
    """Makes records without I/O: compose, the stages of the source, fingerprint, score.

    Raises:
        ConfigError: a stage is invalid.
    """

    def __init__(self, source: PipelineSource) -> None:
        self._source = source
        self._stages = _stages_of(source)
        self._layers = tuple(layer.name for layer in source.layers())

    def record(self, item: Item, material: Material) -> Record:
        """Return the record of an item.

        Raises:
            NothingToStore: a filter drops it.
            UnexpectedShape: the data is invalid or cannot be stored.
            StageFailed: a stage raised an exception.
        """
        source = self._source
        data: Mapping[str, Any] = source.compose(item, material.results)
        origins = {n: material.origins.get(n, o) for n, o in material.provenance.items()}
        notes = tuple(material.notes)
        if self._stages:
            draft = Draft(item.key, item.url, source.name, data, notes, origins)
            for stage in self._stages:
                try:
                    draft = stage(draft)
                except LonglineError:
                    raise
                except Exception as error:
                    problem = f"{type(error).__name__}: {error_text(error)}"
                    raise StageFailed(stage.name, problem) from error
            data, notes, origins = draft.data, draft.notes, dict(draft.provenance)
        else:
            data = validated(source.Record, data, f"item {item.key}")
        try:
            print_of_data = fingerprint(data, volatile=source.volatile)
        except TypeError as error:
            raise ValidationFailed("it cannot be stored", (str(error),)) from error
        return Record(
            source=source.name,
            key=item.key,
            url=item.url,
            data=data,
            fingerprint=print_of_data,
            provenance={name: origin for name, origin in origins.items() if name in data},
            notes=notes,
            layers=dict(material.layers),
            quality=score(source.quality_rules, self._layers, data, material.layers, notes),
        )


def fingerprint(data: Mapping[str, Any], *, volatile: AbstractSet[str] = frozenset()) -> str:
    """Return a hash of the data without its volatile fields, independent of the order of fields.

    Raises:
        TypeError: a field, volatile or not, cannot be stored; the message names it.
    """
    steady = {n: v for n, v in data.items() if n not in volatile} if volatile else dict(data)
    if volatile:
        to_json({n: v for n, v in data.items() if n in volatile})
    text = to_json(steady, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _stages_of(source: PipelineSource) -> list[Stage]:
    """Return the stages of a source, with the validation of its `Record`.

    It is validated after the leading maps and filters, from where on the data has its shape.
    """
    stages: list[Stage] = []
    for one in source.pipeline:
        stage = _from_step(one) if isinstance(one, Step) else one
        if not _is_stage(stage):
            raise BadSource(source.name, f"{one!r:.60} in pipeline is not a stage: it has no name")
        stages.append(stage)
    if stages and source.Record is not None:
        others = (n for n, one in enumerate(stages) if not isinstance(one, Map | Filter))
        stages.insert(next(others, len(stages)), Validate(source.Record))
    return stages


def _is_stage(stage: Any) -> bool:
    return callable(stage) and isinstance(getattr(stage, "name", None), str)


def _from_step(step: Step) -> Stage:
    if step.map is not None:
        return Map(step.map)
    if step.filter is not None:
        return Filter(step.filter)
    if step.rules is not None:
        return Validate(step.rules)
    if step.enrich is not None:
        return Enrich.from_manifest(step.enrich)
    ((name, options),) = (step.stage or {}).items()
    make = load_plugin(STAGES, name)
    if make is None:
        raise BadOption("pipeline", f"there is no stage {name!r}")
    try:
        stage: Any = make(**options)
    except TypeError as error:
        raise BadOption(f"stage {name}", str(error)) from error
    if not _is_stage(stage):
        raise BadOption(
            f"stage {name}", "the plugin did not return a stage, which is a callable with a name"
        )
    made: Stage = stage
    return made


# ---------------- Validation


class Validate:
    """Quarantines invalid data, with every broken rule and its place.

    Args:
        rules: a pydantic model, which may convert the data; or a JSON Schema (Draft 2020-12, with
            formats), or the path of one, which leaves the data unchanged.
    """

    name = "validate"

    def __init__(self, rules: Rules) -> None:
        self._model = rules if isinstance(rules, type) else None
        self._problems = None if isinstance(rules, type) else _checker(rules)

    def __call__(self, draft: Draft) -> Draft:
        where = f"item {draft.key}"
        if self._problems is None:
            return draft.with_data(validated(self._model, draft.data, where))
        try:
            # As the database stores it: a date is text there, NaN is null.
            stored = orjson.loads(to_json(draft.data))
        except TypeError as error:  # a lone surrogate, for example, or an object
            raise ValidationFailed(where, (f"it cannot be stored: {error}",)) from error
        if problems := self._problems(stored):
            raise ValidationFailed(where, problems)
        return draft


def validated(model: type[BaseModel] | None, data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the data as the model converts it; without a model, unchanged.

    Raises:
        ValidationFailed: the data is invalid; it names every field and its problem.
    """
    if model is None:
        return dict(data)
    try:
        return model.model_validate(data).model_dump()
    except ValidationError as error:
        problems = (
            f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
            for problem in error.errors(include_url=False)
        )
        raise ValidationFailed(where, tuple(problems)) from error


def _checker(rules: Mapping[str, Any] | Path) -> Callable[[Any], tuple[str, ...]]:
    # jsonschema is slow to import, and most sources have no schema.
    from longline.pipeline.json_schema import SchemaCheck, read_schema  # noqa: PLC0415

    if isinstance(rules, Mapping) and set(rules) == {"file"}:
        rules = Path(rules["file"])
    return SchemaCheck(read_schema(rules) if isinstance(rules, Path) else rules).problems


# ---------------- Material as it is stored with an item


def pack_raw(raw: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Return `as_raw` as ASCII JSON, which every database can store; None on failure.

    The JSON of the standard library writes lone surrogates and integers of any size. A value that
    is not data is stored as its type and its repr, and is still not data when it is read again.
    """
    try:
        return None if raw is None else {"packed": json.dumps(raw, default=_encode_value)}
    except (TypeError, ValueError, RecursionError):
        return None


def unpack_material(raw: Any) -> Material:
    """Return the material that is stored with an item; empty if there is none."""
    if isinstance(raw, Mapping) and isinstance(raw.get("packed"), str):
        raw = json.loads(raw["packed"], object_hook=_decode_object)
    if not isinstance(raw, Mapping):
        return Material({})
    kept = {name: raw.get(name) or {} for name in _PARTS}
    notes = tuple(Note(str(one["field"]), str(one["text"])) for one in kept.pop("notes"))
    return Material(**kept, notes=notes, problems=tuple(raw.get("problems") or ()))


def _encode_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    try:
        return json.loads(to_json(value))
    except TypeError:
        pass
    try:
        shown = value.shown if isinstance(value, NoData) else repr(value)
    except Exception:  # noqa: BLE001  # the code of a source, which may do anything
        shown = object.__repr__(value)
    return {_NO_DATA: kind_of_value(value), _SHOWN: shown}


def _decode_object(found: dict[str, Any]) -> Any:
    is_data = set(found) != {_NO_DATA, _SHOWN}
    return found if is_data else NoData(found[_NO_DATA], found[_SHOWN])
