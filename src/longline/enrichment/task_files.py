"""Task files of enrichment: which records, which questions, and which model or enricher."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import BeforeValidator, Field, field_validator, model_validator
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from longline.config.auth import check_secret_url
from longline.config.documents import check, read_document
from longline.config.expressions import check_braces, names_in
from longline.config.secrets import SecretRef
from longline.config.validation import StrictModel, invalid, one_or_several
from longline.core.errors import BadFile, UnknownSecret
from longline.pipeline.enrich import Currency, Enrichers, Geocode, Language

Dialect = Literal["ollama", "openai"]
Texts = Annotated[tuple[str, ...], BeforeValidator(one_or_several)]
"""A list of texts, or a single text."""


class ModelServer(StrictModel):
    """The server of a language model."""

    url: str
    """URL without the path of the API: http://127.0.0.1:11434."""
    dialect: Dialect = "ollama"
    """`ollama`, or `openai` for every server with OpenAI's API."""
    key: SecretRef | None = None
    """Reference to the API key: env:NAME."""
    allow_http: bool = False
    """Whether to send the key without TLS."""
    timeout: float = Field(default=120.0, gt=0)
    """Response timeout in seconds."""
    patience: float = Field(default=60.0, ge=0)
    """Seconds without any response after which the run is paused."""

    @model_validator(mode="after")
    def _check_server_url(self) -> Self:
        is_open = self.key is None or self.allow_http
        check_secret_url("url", self.url, allow_http=is_open)
        return self


class EnrichBudget(StrictModel):
    """Limits of one run; None is unlimited."""

    tokens: int | None = Field(default=None, ge=1)
    requests: int | None = Field(default=None, ge=1)
    seconds: float | None = Field(default=None, gt=0)

    def exhausted(self, *, tokens: int, requests: int, seconds: float) -> str | None:
        """Return which limit is reached, as a sentence; None when none is."""
        used = {"tokens": tokens, "requests": requests, "seconds": seconds}
        for name, amount in used.items():
            limit = getattr(self, name)
            if limit is not None and amount >= limit:
                return f"the budget of {limit:,.15g} {name} is exhausted"
        return None


class _Task(StrictModel):
    """The records of a task."""

    enrich: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=60)
    """Name of the task; answers are stored under it."""
    about: str = ""
    """Description."""
    sources: Texts = Field(min_length=1)
    """Sources of the records."""
    where: Texts = ()
    """Conditions on the records: `price > 100`."""


class LocalTask(_Task):
    """A task of an enricher in this process: without a server, a budget or a retry."""

    enricher: Enrichers
    """An enricher of the pipeline, with its options."""
    rate: ClassVar[Literal["unlimited"]] = "unlimited"
    concurrency: ClassVar[int] = 4
    attempts: ClassVar[int] = 1  # the same input gives the same answer
    budget: ClassVar[EnrichBudget] = EnrichBudget()
    patience: ClassVar[float] = 0.0
    address: ClassVar[str] = ""
    asks_by: ClassVar[str] = "enricher"

    @field_validator("enricher")
    @classmethod
    def _check_enricher(cls, enrichers: Enrichers) -> Enrichers:
        names = list(enrichers.options())
        # Which fields an enricher of a plugin reads is unknown, so that every version of a record
        # would be a new question.
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
        """The fields that the enricher reads."""
        return self.options.reads

    @property
    def needed(self) -> tuple[str, ...]:
        """The fields that a record must have."""
        return self.options.needed


class EnrichTask(_Task):
    """A question to a language model about every record, and the schema of the answers."""

    asks_by: ClassVar[str] = "prompt"

    server: ModelServer
    model: str = Field(min_length=1)
    version: str = Field(default="1", min_length=1)
    """Version of the prompt; all records are asked about again when it changes."""
    system: str = ""
    """The system prompt, the same for all records."""
    prompt: str = Field(min_length=1)
    """The question about a record; `{name}` is a field of it."""
    optional: frozenset[str] = frozenset()
    """Fields of the prompt that may be missing; a record without another one is skipped."""
    answer: dict[str, Any] = Field(alias="schema")
    """The JSON Schema of the answers."""
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["unlimited"] = 2.0
    """Requests per second."""
    concurrency: int = Field(default=2, ge=1, le=100)
    """Maximum concurrent questions."""
    attempts: int = Field(default=3, ge=1, le=20)
    """Maximum attempts before invalid answers fail a question."""
    budget: EnrichBudget = EnrichBudget()

    @field_validator("prompt")
    @classmethod
    def _check_prompt(cls, prompt: str) -> str:
        if not names_in(check_braces(prompt)):
            raise invalid("is the same for every record; name a field in braces: {description}")
        return prompt

    @field_validator("answer")
    @classmethod
    def _check_answer_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            where = ".".join(map(str, error.absolute_path))
            at = f" at {where}" if where else ""
            raise invalid(f"is not a JSON Schema{at}: {error.message:.200}") from None
        # Without a registry: nothing is downloaded.
        resolver = Registry().resolver_with_root(DRAFT202012.create_resource(schema))
        for reference in _references(schema):
            try:
                resolver.lookup(reference)
            except Unresolvable:
                raise invalid(f"$ref {reference!r:.80} is not in this schema") from None
        return schema

    @model_validator(mode="after")
    def _check_optional(self) -> Self:
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
        """The fields that a record must have."""
        return tuple(name for name in self.reads if name not in self.optional)

    @property
    def patience(self) -> float:
        """Seconds without any response after which the run is paused."""
        return self.server.patience

    @property
    def address(self) -> str:
        """URL of the server."""
        return self.server.url


AnyTask = EnrichTask | LocalTask


def read_task(path: Path) -> AnyTask:
    """Read a task from a file, and check that its secret can be read.

    Raises:
        BadFile: it is not valid; with line, column and the reason.
    """
    document = read_document(path)
    if "enricher" in document.values:
        return _resolve_table(check(document, LocalTask), path.parent)
    task = check(document, EnrichTask)
    try:
        if task.server.key is not None:
            task.server.key.check()
    except UnknownSecret as error:
        place = document.place(("server", "key"))
        raise BadFile(str(path), f"server.key: {error}", *place) from error
    return task


def _resolve_table(task: LocalTask, folder: Path) -> LocalTask:
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
        schema = list(schema.values())
    for value in schema if isinstance(schema, list) else ():
        yield from _references(value)
