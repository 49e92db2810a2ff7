"""The pipeline of a source in a manifest: what becomes of the fields before they are a record."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from longline.config.json_paths import JsonPath
from longline.config.patterns import Pattern
from longline.config.plugins import ENRICHERS, STAGES, plugin_names
from longline.config.strict_model import StrictModel, invalid
from longline.core.errors import ConfigError

REST = "*"
"""In a map, the name for all other fields: `"*": "*"` keeps them as they are."""
SURE = 0.6
"""How sure of a language one must be, if all are possible."""
_KINDS = ("map", "filter", "validate", "enrich", "stage")
_TESTS = (
    *("equals", "differs", "one_of", "above", "below", "at_least", "at_most"),
    *("contains", "matches", "filled"),
)
_LATITUDE, _LONGITUDE = 90.0, 180.0
_SURE_AMONG = 0.9


def _path(value: Any) -> Any:
    if value is not None and not isinstance(value, str | Mapping | Pick):
        raise invalid(
            "write a path such as price.amount, {value: …} for a constant, null to drop it"
        )
    return {"path": value} if isinstance(value, str) else value


class Pick(StrictModel):
    """The origin of a field: a path (jmespath), or a constant."""

    path: JsonPath | None = None
    value: Any = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if ("value" in self.model_fields_set) == (self.path is not None):
            raise invalid("write path or value")
        return self


class Condition(StrictModel):
    """What must be true: a jmespath, or one simple test of a field.

    A field that is empty passes none of the tests but `filled: false` and `equals: null`.
    """

    when: JsonPath | None = None
    """A jmespath that must be true; written alone, without its name."""
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
    def _one_test(self) -> Self:
        is_plain = self.when is not None and self.field is None and not self.tests
        is_test = self.when is None and self.field is not None and len(self.tests) == 1
        if not (is_plain or is_test):
            raise invalid(
                f"a condition has a field and one of {', '.join(_TESTS)}; or it is a path"
            )
        return self

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests of the condition."""
        return tuple(name for name in _TESTS if name in self.model_fields_set)


def _condition(value: Any) -> Any:
    return {"when": value} if isinstance(value, str) else value


def _conditions(value: Any) -> Any:
    return [value] if isinstance(value, str | Mapping) else value


def _alone(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Code = Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Currency(StrictModel):
    """Convert amounts to another currency by a table of rates with a date."""

    field: str
    """A field of type money, or a number."""
    currency: str | None = None
    """The field that names the currency of a number."""
    assume: Code | None = None
    """The currency of amounts that name none."""
    to: Code
    into: str | None = None
    """The new field; without it `price_eur` for `price` and EUR."""
    rates: dict[Code, Positive] = Field(min_length=1)
    """What one unit of each currency is worth in `to`."""
    date: date
    """The day of the rates."""
    digits: int = Field(default=2, ge=0, le=8)

    @property
    def target(self) -> str:
        """The name of the new field."""
        return self.into or f"{self.field}_{self.to.lower()}"

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields that it reads."""
        return (self.field, self.currency) if self.currency else (self.field,)

    @property
    def needed(self) -> tuple[str, ...]:
        """The fields without which it adds nothing."""
        return (self.field,)


class Geocode(StrictModel):
    """Look up places in a table, by city or by city and country."""

    by: Annotated[
        dict[str, str],
        BeforeValidator(lambda one: {one: one} if isinstance(one, str) else one),
        Field(min_length=1),
    ]
    """The columns that find a row, each with the field it is compared with."""
    table: tuple[dict[str, Any], ...] | None = None
    file: str | None = None
    """A CSV file with a line of names, or a JSON file with a list of objects."""
    into: str = "place"
    """The new field: an object of all other columns."""

    @model_validator(mode="after")
    def _one_table(self) -> Self:
        if (self.table is None) == (self.file is None):
            raise invalid("write the rows under table, or the name of a file under file")
        for row in self.table or ():
            check_row(row, self.by)
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields that it reads."""
        return tuple(self.by.values())

    @property
    def needed(self) -> tuple[str, ...]:
        """The fields without which it adds nothing: all of them."""
        return self.reads


class Language(StrictModel):
    """Detect the language of texts as an ISO 639-1 code; null when it is uncertain."""

    fields: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_alone)]
    """The fields with text, evaluated together; a single one needs no list."""
    into: str = "language"
    """The new field."""
    among: tuple[Annotated[str, Field(pattern=r"^[a-z]{2}$")], ...] = ()
    """The possible languages; fewer are distinguished more reliably."""
    letters: int = Field(default=20, ge=1)
    """Minimum number of letters in the text."""
    least: float | None = Field(default=None, gt=0, le=1)
    """Minimum certainty; by default 0.6, and 0.9 with `among`."""

    @model_validator(mode="after")
    def _a_choice(self) -> Self:
        if len(set(self.among)) == 1:  # every text would be in it
            raise invalid("among: write at least two languages")
        return self

    @property
    def sureness(self) -> float:
        """The minimum certainty."""
        # With few candidates, a high certainty means less.
        usual = _SURE_AMONG if self.among else SURE
        return usual if self.least is None else self.least

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields that it reads."""
        return self.fields

    @property
    def needed(self) -> tuple[str, ...]:
        """Those without which it has nothing to say: of several, any will do."""
        return self.fields if len(self.fields) == 1 else ()


def check_row(row: Mapping[str, Any], by: Mapping[str, str]) -> None:
    """See that a row of a table of places can be used.

    Raises:
        PydanticCustomError: it cannot.
    """
    if missing := [name for name in by if row.get(name) in (None, "")]:
        raise invalid(f"a row has no {missing[0]}: {str(dict(row))[:80]}")
    for name, most in (("lat", _LATITUDE), ("lon", _LONGITUDE)):
        value = row.get(name)
        if value is not None and not (_is_number(value) and -most <= value <= most):
            raise invalid(f"{name} must be a number from -{most:g} to {most:g}, not {value!r:.40}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Enrichers(StrictModel):
    """What is added to a record, by the name of the enricher; others come from plugins."""

    model_config = ConfigDict(extra="allow")

    currency: Currency | None = None
    geocode: Geocode | None = None
    language: Language | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_names(cls, values: Any) -> Any:
        strangers = set(values) - set(cls.model_fields) if isinstance(values, Mapping) else set()
        known = [*cls.model_fields, *(plugin_names(ENRICHERS) if strangers else ())]
        for name in sorted(strangers - set(known)):
            raise invalid(f"there is no enricher {name!r}; known are {', '.join(known)}")
        return values

    def written(self) -> dict[str, Any]:
        """Return what was written, by the names of the enrichers, in this order."""
        given = {**self.__dict__, **(self.__pydantic_extra__ or {})}
        return {name: given[name] for name in given if given[name] is not None}


def _schema(value: dict[str, Any]) -> dict[str, Any]:
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


class Step(StrictModel):
    """One stage of the pipeline."""

    map: dict[str, Annotated[Pick | None, BeforeValidator(_path)]] | None = Field(
        default=None, min_length=1
    )
    """The fields of the record by name, each with the path it is found at."""
    filter: (
        Annotated[
            tuple[Annotated[Condition, BeforeValidator(_condition)], ...],
            BeforeValidator(_conditions),
        ]
        | None
    ) = Field(default=None, min_length=1)
    """Conditions that must all hold; other records are skipped, with the reason."""
    # Under another name, since pydantic's models have a `validate` of their own.
    rules: Annotated[dict[str, Any], AfterValidator(_schema)] | None = Field(
        default=None, alias="validate"
    )
    """A JSON Schema, or `file` with the name of one; what does not fit is quarantined."""
    enrich: Enrichers | None = None
    stage: Annotated[dict[str, dict[str, Any]], BeforeValidator(_check_stage)] | None = None
    """A stage of a plugin by its name, with its options."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise invalid(f"a stage is one of {', '.join(_KINDS)}; write the next with a new dash")
        rest = None if self.map is None or REST not in self.map else self.map[REST]
        if self.map is not None and REST in self.map and (rest is None or rest.path != REST):
            raise invalid('"*" means all other fields; write "*": "*" to keep them')
        return self


Pipeline = tuple[Step, ...]
