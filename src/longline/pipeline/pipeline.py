"""The pipeline of a source: from the results of its layers to a record."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar, Protocol

import orjson
from pydantic import BaseModel

from longline.config.plugins import STAGES, load_plugin
from longline.core.errors import BadOption, BadSource, LonglineError, error_text
from longline.core.json import to_json
from longline.core.model import Item, Record
from longline.pipeline.enrich import Enrich
from longline.pipeline.filter import Filter
from longline.pipeline.manifest import Step
from longline.pipeline.map import Map
from longline.pipeline.material import Material
from longline.pipeline.quality import QualityRules, score
from longline.pipeline.stages import Draft, Stage, StageFailed, ValidationFailed
from longline.pipeline.validate import Validate, validated


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
