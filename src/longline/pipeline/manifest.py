"""The pipeline of a source in a manifest: its stages between the layers and the record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from longline.config.expressions import JsonPath, Pattern
from longline.config.plugins import STAGES, plugin_names
from longline.config.validation import StrictModel, invalid
from longline.core.errors import ConfigError
from longline.pipeline.enrich import Enrichers

REST = "*"
"""In a map, the name for all other fields: `"*": "*"` keeps them as they are."""
_KINDS = ("map", "filter", "validate", "enrich", "stage")


_NO_TESTS = frozenset({"when", "field"})


class Pick(StrictModel):
    """The origin of a field: a path (jmespath), or a constant."""

    path: JsonPath | None = None
    value: Any = None

    @model_validator(mode="after")
    def _check_pick(self) -> Self:
        if ("value" in self.model_fields_set) == (self.path is not None):
            raise invalid("write path or value")
        return self


def _expand_pick(value: Any) -> Any:
    if value is not None and not isinstance(value, str | Mapping | Pick):
        raise invalid(
            "write a path such as price.amount, {value: …} for a constant, null to drop it"
        )
    return {"path": value} if isinstance(value, str) else value


class Condition(StrictModel):
    """What must be true: a jmespath, or one simple test of a field.

    A field that is empty passes none of the tests but `filled: false` and `equals: null`.
    """

    when: JsonPath | None = None
    """A JMESPath that must be true; it may be written alone, without `when`."""
    field: JsonPath | None = None
    equals: Any = None
    differs: Any = None
    one_of: tuple[Any, ...] | None = None
    above: float | None = None
    below: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    contains: str | None = None
    """Contains this text (ignoring case), or is a list that includes it."""
    matches: Pattern | None = None
    filled: bool | None = None

    @model_validator(mode="after")
    def _check_tests(self) -> Self:
        is_plain = self.when is not None and self.field is None and not self.tests
        is_test = self.when is None and self.field is not None and len(self.tests) == 1
        if not (is_plain or is_test):
            known = ", ".join(name for name in type(self).model_fields if name not in _NO_TESTS)
            raise invalid(f"a condition has a field and one of {known}; or it is a path")
        return self

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(
            name for name in type(self).model_fields if name in self.model_fields_set - _NO_TESTS
        )


def _expand_conditions(value: Any) -> Any:
    """Accept one condition without a list, and a text as `when`."""
    several = [value] if isinstance(value, str | Mapping) else value
    if not isinstance(several, list | tuple):
        return several
    return [{"when": one} if isinstance(one, str) else one for one in several]


def _check_schema(value: dict[str, Any]) -> dict[str, Any]:
    if set(value) == {"file"}:
        return value  # read when the source is made
    # jsonschema is slow to import.
    from longline.pipeline.json_schema import validator_of  # noqa: PLC0415

    try:
        validator_of(value)
    except ConfigError as error:
        raise invalid(str(error)) from None
    return value


def _check_stage(value: Any) -> Any:
    """Accept `NAME` and `{NAME: options}` for a stage of a plugin."""
    stage = {value: {}} if isinstance(value, str) else value
    if not isinstance(stage, Mapping) or len(stage) != 1:
        raise invalid("write the name of one stage, or {NAME: {option: value}}")
    (name,) = stage
    if name not in (known := plugin_names(STAGES)):
        raise invalid(f"there is no stage {name!r}; installed: {', '.join(known) or 'none'}")
    return stage


_KEEP_REST = Pick(path=REST)


class Step(StrictModel):
    """One stage of the pipeline."""

    map: dict[str, Annotated[Pick | None, BeforeValidator(_expand_pick)]] | None = Field(
        default=None, min_length=1
    )
    """The fields of the record by name, each with the path it is found at."""
    filter: Annotated[tuple[Condition, ...], BeforeValidator(_expand_conditions)] | None = Field(
        default=None, min_length=1
    )
    """Conditions that must all hold; other records are skipped, with the reason."""
    # Under another name, since pydantic's models have a `validate` of their own.
    rules: Annotated[dict[str, Any], AfterValidator(_check_schema)] | None = Field(
        default=None, alias="validate"
    )
    """A JSON Schema, or `file` with the name of one; invalid records are quarantined."""
    enrich: Enrichers | None = None
    stage: Annotated[dict[str, dict[str, Any]], BeforeValidator(_check_stage)] | None = None
    """A stage of a plugin by its name, with its options."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        kinds = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise invalid(
                f"a stage is one of {', '.join(_KINDS)}; begin each one with its own dash"
            )
        if self.map is not None and self.map.get(REST, _KEEP_REST) != _KEEP_REST:
            raise invalid('"*" means all other fields; write "*": "*" to keep them')
        return self


Pipeline = tuple[Step, ...]
