"""What is to be found out about records after collection, as a user writes it in a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import BeforeValidator, Field, field_validator, model_validator

from longline.config.auth import check_secret_url
from longline.config.documents import check, read_document
from longline.config.expressions import names_in
from longline.config.secrets import SecretRef
from longline.config.strict_model import StrictModel, invalid
from longline.core.errors import BadFile, UnknownSecret
from longline.pipeline.enrich import Currency, Enrichers, Geocode, Language

Dialect = Literal["ollama", "openai"]
_BRACES = re.compile(r"\{\{|\}\}|\{[A-Za-z_][A-Za-z0-9_.]*\}|([{}])")


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_several)]
"""A list of texts; a single one needs no list."""


class ModelServer(StrictModel):
    """Where the model is, and how it is spoken to."""

    url: str
    """The address without a path of the API: http://127.0.0.1:11434."""
    dialect: Dialect = "ollama"
    """`ollama`, or `openai` for every server that speaks like OpenAI's."""
    key: SecretRef | None = None
    """A reference to the key, for servers that want one: env:NAME."""
    allow_http: bool = False
    """Send the key unencrypted, too."""
    timeout: float = Field(default=120.0, gt=0)
    """Seconds for one whole answer."""
    patience: float = Field(default=60.0, ge=0)
    """Seconds without any answer, after which the run is paused."""

    @model_validator(mode="after")
    def _sound_address(self) -> Self:
        is_open = self.key is None or self.allow_http
        check_secret_url("url", self.url, allow_http=is_open)
        return self


class EnrichBudget(StrictModel):
    """What one run may use up; what is None is not limited."""

    tokens: int | None = Field(default=None, ge=1)
    requests: int | None = Field(default=None, ge=1)
    seconds: float | None = Field(default=None, gt=0)


class _Task(StrictModel):
    """About which records something is to be found out."""

    enrich: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=60)
    """The name: small letters, digits, - and _; answers are kept under it."""
    about: str = ""
    """One sentence on what it finds out."""
    sources: Texts = Field(min_length=1)
    """The sources whose records are asked about."""
    where: Texts = ()
    """Conditions that a record must fit: `price > 100`."""


class LocalTask(_Task):
    """What an enricher on this machine finds out: without a server, a budget or a second try."""

    enricher: Enrichers
    """One of those of a manifest's pipeline, with what is written there."""
    rate: ClassVar[Literal["unlimited"]] = "unlimited"
    concurrency: ClassVar[int] = 4
    attempts: ClassVar[int] = 1  # it would say the same again
    budget: ClassVar[EnrichBudget] = EnrichBudget()
    patience: ClassVar[float] = 0.0
    address: ClassVar[str] = ""
    asks_by: ClassVar[str] = "enricher"

    @field_validator("enricher")
    @classmethod
    def _one_of_ours(cls, enrichers: Enrichers) -> Enrichers:
        names = list(enrichers.options())
        # Which fields enrichers of plugins read is unknown, so questions would repeat.
        if len(names) != 1 or names[0] not in Enrichers.model_fields:
            raise invalid(f"name one of {', '.join(Enrichers.model_fields)}")
        return enrichers

    @property
    def name(self) -> str:
        """The name of the enricher."""
        return next(iter(self.enricher.options()))

    @property
    def options(self) -> Currency | Geocode | Language:
        """Its options."""
        options: Currency | Geocode | Language = self.enricher.options()[self.name]
        return options

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields that it reads."""
        return self.options.reads

    @property
    def needed(self) -> tuple[str, ...]:
        """The fields without which there is no question about a record."""
        return self.options.needed


class EnrichTask(_Task):
    """One question to a language model about every record, and the shape of its answers."""

    asks_by: ClassVar[str] = "prompt"

    server: ModelServer
    model: str = Field(min_length=1)
    version: str = Field(default="1", min_length=1)
    """Version of the prompt; a new one asks about all records again."""
    system: str = ""
    """The system prompt, the same for all records."""
    prompt: str = Field(min_length=1)
    """The question about a record; `{name}` is replaced by a field of it."""
    optional: frozenset[str] = frozenset()
    """Fields of the prompt that may be missing; without any other, a record is not asked about."""
    answer: dict[str, Any] = Field(alias="schema")
    """The JSON Schema of the answers."""
    rate: float | Literal["unlimited"] = 2.0
    """Requests a second."""
    concurrency: int = Field(default=2, ge=1, le=100)
    """Maximum concurrent questions."""
    attempts: int = Field(default=3, ge=1, le=20)
    """How often a question is asked before its invalid answers count as a failure."""
    budget: EnrichBudget = EnrichBudget()

    @field_validator("rate")
    @classmethod
    def _a_pace(cls, rate: float | str) -> float | str:
        if isinstance(rate, float) and not 0 < rate < float("inf"):
            raise invalid("must be more than 0 requests a second, or 'unlimited'")
        return rate

    @field_validator("prompt")
    @classmethod
    def _about_something(cls, prompt: str) -> str:
        alone = next((found.start() for found in _BRACES.finditer(prompt) if found[1]), None)
        if alone is not None:
            line, column = prompt.count("\n", 0, alone) + 1, alone - prompt.rfind("\n", 0, alone)
            raise invalid(
                f"a brace that belongs to no field, in line {line} of the text, column {column}: "
                "{name} is a field; write {{ and }} for braces"
            )
        if not names_in(prompt):
            raise invalid("asks every record the same: name a field of it in braces, {description}")
        return prompt

    @field_validator("answer")
    @classmethod
    def _a_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            where = ".".join(map(str, error.absolute_path))
            at = f" at {where}" if where else ""
            raise invalid(f"is not a JSON Schema{at}: {error.message:.200}") from None
        for reference in _references(schema):
            if not _is_there(schema, reference):
                raise invalid(f"$ref {reference!r:.80} points to nothing in this schema")
        return schema

    @model_validator(mode="after")
    def _optional_ones_are_asked_for(self) -> Self:
        unasked = sorted(self.optional - set(names_in(self.prompt)))
        if unasked:
            raise invalid(f"optional: {', '.join(unasked)} is not in the prompt")
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields of the prompt."""
        return tuple(dict.fromkeys(names_in(self.prompt)))

    @property
    def needed(self) -> tuple[str, ...]:
        """The fields without which there is no question about a record."""
        return tuple(name for name in self.reads if name not in self.optional)

    @property
    def patience(self) -> float:
        """Seconds without any answer, after which the run is paused."""
        return self.server.patience

    @property
    def address(self) -> str:
        """Where the model is."""
        return self.server.url


AnyTask = EnrichTask | LocalTask


def read_task(path: Path) -> AnyTask:
    """Read a task from a file, and see that its secret can be read.

    Raises:
        BadFile: it is broken; with line, column, and what would be right.
    """
    document = read_document(path)
    if "enricher" in document.values:
        return _with_tables(check(document, LocalTask), path.parent)
    task = check(document, EnrichTask)
    try:
        if task.server.key is not None:
            task.server.key.check()
    except UnknownSecret as error:
        place = document.place(("server", "key"))
        raise BadFile(str(path), f"server.key: {error}", *place) from error
    return task


def _with_tables(task: LocalTask, folder: Path) -> LocalTask:
    """Return the task with the path of its table relative to its file."""
    places = task.enricher.geocode
    if places is None or places.file is None:
        return task
    found = places.model_copy(update={"file": str((folder / places.file).absolute())})
    return task.model_copy(update={"enricher": task.enricher.model_copy(update={"geocode": found})})


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        if isinstance(reference := schema.get("$ref"), str):
            yield reference
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def _is_there(schema: Mapping[str, Any], reference: str) -> bool:
    """Say whether a reference stays in its schema and finds something: nothing is downloaded."""
    if not reference.startswith("#"):
        return False
    place: Any = schema
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(place, Mapping) or name not in place:
            return False
        place = place[name]
    return reference == "#" or reference.startswith("#/")
