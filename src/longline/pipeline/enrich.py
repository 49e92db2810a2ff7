"""The stage that adds derived fields, and its enrichers: currency, geocode, language."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from longline.config.documents import read_content, read_json_file
from longline.config.plugins import ENRICHERS, load_plugin, plugin_names
from longline.config.validation import StrictModel, invalid
from longline.core.errors import BadFile, BadOption, MissingExtra
from longline.core.model import Note
from longline.pipeline.stages import Draft, checked_step


@dataclass(frozen=True, slots=True)
class Addition:
    """The fields that an enricher adds, notes on empty ones, and their origin."""

    fields: Mapping[str, Any]
    notes: tuple[Note, ...] = ()
    origin: str = ""


class Enricher(Protocol):
    """Adds fields to a record, deterministically and without I/O.

    An unknown value is None with a note, never a guess. An enricher whose results may change has a
    `version`: that of its library, its rates or its table.
    """

    @property
    def name(self) -> str:
        """The name in manifests."""

    def enrich(self, data: Mapping[str, Any]) -> Addition:
        """Return what to add to this data, which is immutable."""


def _empty(field: str, why: str, origin: str) -> Addition:
    return Addition({field: None}, (Note(field, why),), origin)


Code = Annotated[str, Field(pattern=r"^[A-Z]{3}$")]


class Currency(StrictModel):
    """Convert amounts to another currency by a table of rates with a date."""

    name: ClassVar = "currency"

    field: str
    """A field of type money, or a number."""
    currency: str | None = None
    """The field that names the currency of a number."""
    assume: Code | None = None
    """The currency of amounts without one."""
    to: Code
    into: str | None = None
    """The new field; default: `price_eur` for `price` and EUR."""
    rates: dict[Code, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(min_length=1)
    """What one unit of each currency is worth in `to`."""
    date: date
    """The day of the rates."""
    digits: int = Field(default=2, ge=0, le=8)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.field, self.currency) if self.currency else (self.field,)

    @property
    def needed(self) -> tuple[str, ...]:
        """The fields without which it adds nothing."""
        return (self.field,)

    @property
    def version(self) -> str:
        return f"rates of {self.date}"

    def enrich(self, data: Mapping[str, Any]) -> Addition:
        target = self.into or f"{self.field}_{self.to.lower()}"
        origin = f"currency, {self.field} by the {self.version}"
        value: Any = data.get(self.field)
        code = data.get(self.currency) if self.currency else None
        if isinstance(value, Mapping):
            value, code = value.get("amount"), value.get("currency") or code
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        amount = Decimal(str(value)) if is_number else Decimal("NaN")
        if not amount.is_finite():
            return _empty(target, f"{self.field} is not an amount", origin)
        code = code if isinstance(code, str) and code else self.assume
        if code is None:
            return _empty(target, f"{self.field} has no currency", origin)
        code = code.strip().upper()
        rate = 1 if code == self.to else self.rates.get(code)
        if rate is None:
            why = f"there is no rate for {code} in the table of {self.date}"
            return _empty(target, why, origin)
        try:
            step = Decimal(1).scaleb(-self.digits)
            worth = (amount * Decimal(str(rate))).quantize(step, ROUND_HALF_UP)
        except InvalidOperation:
            return _empty(target, f"{self.field} is too large", origin)
        return Addition({target: float(worth)}, (), origin)


class PlaceRow(BaseModel):
    """A row of a table of places; an empty cell of a CSV file is null."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False, hide_input_in_errors=True)

    lat: float | None = Field(default=None, ge=-90, le=90)
    lon: float | None = Field(default=None, ge=-180, le=180)

    @model_validator(mode="before")
    @classmethod
    def _empty_cells(cls, row: Any) -> Any:
        # Extra cells of a line that is too long are under None.
        if not isinstance(row, Mapping):
            return row
        return {name: None if cell == "" else cell for name, cell in row.items() if name}


class Geocode(StrictModel):
    """Look up places in a table, by city or by city and country, ignoring case."""

    name: ClassVar = "geocode"

    by: Annotated[
        dict[str, str],
        BeforeValidator(lambda one: {one: one} if isinstance(one, str) else one),
        Field(min_length=1),
    ]
    """The columns that identify a row, each with the field that it is compared with."""
    table: tuple[dict[str, Any], ...] | None = None
    file: str | None = None
    """A CSV file with a header line, or a JSON file with a list of objects."""
    into: str = "place"
    """The new field: an object of all other columns."""

    @model_validator(mode="after")
    def _check_table(self) -> Self:
        if (self.table is None) == (self.file is None):
            raise invalid("write the rows under table, or the name of a file under file")
        if self.table is not None:
            _ = self.places
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(self.by.values())

    @property
    def needed(self) -> tuple[str, ...]:
        """The fields without which it adds nothing."""
        return self.reads

    @cached_property
    def places(self) -> dict[tuple[str, ...], Mapping[str, Any] | None]:
        """The rows by name; None for a name of several places.

        Raises:
            BadFile: the table cannot be read.
            PydanticCustomError: a row of `table` is invalid.
        """
        places: dict[tuple[str, ...], Mapping[str, Any] | None] = {}
        rows = _read_table(Path(self.file)) if self.file else self.table or ()
        for number, written in enumerate(rows, start=1):
            try:
                row = PlaceRow.model_validate(written).model_dump(exclude_unset=True)
                problem = next(
                    (f"{name} is empty" for name in self.by if row.get(name) is None), None
                )
            except ValidationError as error:
                row, first = {}, error.errors(include_url=False)[0]
                problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            if problem and self.file:
                raise BadFile(self.file, f"row {number}: {problem}")
            if problem:
                raise invalid(f"row {number}: {problem}")
            name = _place_name(row.pop(column) for column in self.by)
            if places.setdefault(name, row) != row:
                places[name] = None
        return places

    @property
    def version(self) -> str:
        written = json.dumps(list(self.places.items()), default=str)
        return f"table {sha256(written.encode()).hexdigest()[:12]}"

    def enrich(self, data: Mapping[str, Any]) -> Addition:
        origin = f"geocode, by {', '.join(self.reads)}"
        missing = [field for field in self.reads if data.get(field) in (None, "")]
        if missing:
            return _empty(self.into, f"{missing[0]} is empty", origin)
        name = _place_name(data[field] for field in self.reads)
        if (place := self.places.get(name)) is not None:
            return Addition({self.into: place}, (), origin)
        count = "several places called" if name in self.places else "no"
        return _empty(self.into, f"the table has {count} {', '.join(name)}", origin)


def _place_name(parts: Iterable[Any]) -> tuple[str, ...]:
    return tuple(" ".join(str(part).split()).casefold() for part in parts)


def _read_table(path: Path) -> Sequence[Any]:
    if path.suffix == ".json":
        return read_json_file(path, list, "a table in JSON is a list of objects")
    try:
        text = read_content(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadFile(str(path), "it is not UTF-8 text; save it as UTF-8") from None
    return list(csv.DictReader(io.StringIO(text, newline="")))


_LIBRARY = "py3langid"
# Addresses have no language, and look English by their letters. The pattern of a mail address
# starts at a word boundary; inside a long word it would take quadratic time.
_ADDRESSES = re.compile(r"(?:https?://|www\.)\S+|(?<!\S)\S[^\s@]*+@\S+")
_MAX_LENGTH = 2_000  # characters; more do not improve the result
_CERTAIN = 0.6  # when all languages are possible
_CERTAIN_AMONG = 0.9  # with few candidates, a high certainty means less


class Language(StrictModel):
    """Detect the main language of texts as an ISO 639-1 code; null when it is uncertain."""

    name: ClassVar = "language"

    fields: Annotated[
        tuple[str, ...],
        Field(min_length=1),
        BeforeValidator(lambda one: (one,) if isinstance(one, str) else one),
    ]
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
    def _check_among(self) -> Self:
        if len(set(self.among)) == 1:  # every text would be in it
            raise invalid("among: write at least two languages")
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        return self.fields

    @property
    def needed(self) -> tuple[str, ...]:
        """The fields without which it adds nothing; of several, any is enough."""
        return self.fields if len(self.fields) == 1 else ()

    @cached_property
    def identifier(self) -> Any:
        """The model of the library.

        Raises:
            ConfigError: it is not installed, or does not know a language in `among`.
        """
        try:
            from py3langid import langid  # type: ignore[import-untyped]  # noqa: PLC0415  # ships no types; an extra
        except ImportError as error:
            raise MissingExtra("language", "language detection") from error
        identifier = _load_model(langid.LanguageIdentifier, langid.MODEL_FILE)
        if unknown := sorted(set(self.among) - set(identifier.labels)):
            raise BadOption("among", f"{_LIBRARY} does not know the language {unknown[0]!r}")
        return identifier

    @cached_property
    def version(self) -> str:
        return f"{_LIBRARY} {version(_LIBRARY)}"

    def enrich(self, data: Mapping[str, Any]) -> Addition:
        origin = f"language, machine-made from {', '.join(self.fields)} by {self.version}"
        texts = (data.get(field) for field in self.fields)
        whole = "\n".join(one for one in texts if isinstance(one, str))
        text = _ADDRESSES.sub(" ", whole)[:_MAX_LENGTH]
        letters = sum(map(str.isalpha, text))
        if letters < self.letters:
            why = f"too little text: {letters} letters, but at least {self.letters} are needed"
            return _empty(self.into, why, origin)
        code, doubt = self._detect(text)
        return (
            _empty(self.into, doubt, origin) if doubt else Addition({self.into: code}, (), origin)
        )

    def _detect(self, text: str) -> tuple[str, str | None]:
        """Return the most likely language, and why it is not accepted."""
        likely: dict[str, float] = dict(self.identifier.rank(text))
        code, share = next(iter(likely.items()))
        least = self.least or (_CERTAIN_AMONG if self.among else _CERTAIN)
        if self.among and code not in self.among and share >= _CERTAIN:
            return code, f"it looks like {code}, which is not among {', '.join(self.among)}"
        if self.among:
            shares = {one: likely.get(one, 0.0) for one in self.among}
            code = max(shares, key=shares.__getitem__)
            share = shares[code] / (sum(shares.values()) or 1.0)
        if share < least:
            shown = f"with a confidence of {share:.2f}; at least {least:g} is needed"
            return code, f"the language is uncertain: {code} is the most likely, {shown}"
        if len(code) != len("en"):  # zxx is not a language
            return code, f"it looks like {code}, which is not a language with a two-letter code"
        return code, None


@lru_cache(maxsize=1)
def _load_model(kind: Any, file: str) -> Any:
    """Load the model once per process; it takes a second."""
    return kind.from_model_file(file, norm_probs=True)


_BUILT_IN: dict[str, type[Currency | Geocode | Language]] = {
    "currency": Currency,
    "geocode": Geocode,
    "language": Language,
}


class Enrichers(StrictModel):
    """What is added to a record, by the name of the enricher; others come from plugins."""

    model_config = ConfigDict(extra="allow")

    currency: Currency | None = None
    geocode: Geocode | None = None
    language: Language | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_names(cls, values: Any) -> Any:
        others = set(values) - set(cls.model_fields) if isinstance(values, Mapping) else set()
        known = [*cls.model_fields, *(plugin_names(ENRICHERS) if others else ())]
        for name in sorted(others - set(known)):
            raise invalid(f"there is no enricher {name!r}; known: {', '.join(known)}")
        return values

    def options(self) -> dict[str, Any]:
        """Return the options of each enricher that is used, by name and in this order."""
        given = {**self.__dict__, **(self.__pydantic_extra__ or {})}
        return {name: options for name, options in given.items() if options is not None}


def make_enricher(name: str, options: Any) -> Enricher:
    """Make a built-in enricher, or that of a plugin, ready to be used.

    Raises:
        ConfigError: it is unknown, does not accept the options, or lacks its library or table.
    """
    if name in _BUILT_IN:
        is_made = isinstance(options, StrictModel)
        built_in = options if is_made else checked_step(_BUILT_IN[name], **options)
        if isinstance(built_in, Geocode):
            _ = built_in.places
        elif isinstance(built_in, Language):
            _ = built_in.identifier
        return built_in
    make = load_plugin(ENRICHERS, name)
    if make is None:
        raise BadOption("enrich", f"there is no enricher {name!r}")
    enricher: Enricher = make(**options) if isinstance(options, Mapping) else make(options)
    if not callable(getattr(enricher, "enrich", None)):
        raise BadOption("enrich", f"the plugin {name!r} is not an enricher: it has no enrich()")
    return enricher


class Enrich:
    """Runs enrichers in order; collected values are never replaced."""

    name = "enrich"

    def __init__(self, *enrichers: Enricher) -> None:
        self._enrichers = enrichers

    @classmethod
    def from_manifest(cls, enrichers: Enrichers) -> Enrich:
        """Make one from the `enrich` step of a manifest.

        Raises:
            ConfigError: an enricher is unknown, or does not accept its options.
        """
        return cls(*(make_enricher(name, one) for name, one in enrichers.options().items()))

    def __call__(self, draft: Draft) -> Draft:
        for enricher in self._enrichers:
            addition = enricher.enrich(draft.data)
            kept = [name for name in addition.fields if draft.data.get(name) is not None]
            fields = {name: value for name, value in addition.fields.items() if name not in kept}
            notes = [note for note in addition.notes if note.field not in kept]
            notes += [
                Note(name, f"{enricher.name} does not replace a value of the site") for name in kept
            ]
            origins = dict.fromkeys(fields, addition.origin or enricher.name)
            provenance = {**draft.provenance, **origins}
            draft = draft.with_data({**draft.data, **fields}, *notes, provenance=provenance)
        return draft
