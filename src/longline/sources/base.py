"""Source: a site or API to collect from. Subclass it to define discovery and layers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from longline.config.secrets import SecretRef
from longline.config.validation_messages import describe_value_error
from longline.core.errors import BadOption
from longline.core.model import Cursor, Item
from longline.http.middleware.base import MiddlewareFactory
from longline.pipeline.quality import QualityRules
from longline.sources.visit import Visit

LayerMethod = Callable[[Any, Visit], Awaitable[Mapping[str, Any]]]
_Method = TypeVar("_Method", bound=LayerMethod)


class Options(BaseModel):
    """Options of a source, set with `--set name=value`. Subclass it to add fields."""

    # The docstring of a field is its description in `longline sources NAME`.
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True)
class Layer:
    """One named extraction step: the layers it needs, and whether it may fail."""

    name: str
    needs: tuple[str, ...] = ()
    is_optional: bool = False


def layer(*, needs: tuple[str, ...] = (), optional: bool = False) -> Callable[[_Method], _Method]:
    """Mark a method as a layer. Layers run in the order of their definition.

    Args:
        needs: layers whose results it reads; it is not run if one of them failed.
        optional: its failure is noted in the record and does not fail the item.
    """

    def mark(method: _Method) -> _Method:
        method.__layer__ = Layer(  # type: ignore[attr-defined]  # an attribute of the function
            method.__name__, needs, optional
        )
        return method

    return mark


@dataclass(frozen=True, slots=True)
class Needs:
    """What must be available before the first request: secrets, extras, a browser.

    `extras` maps extras to the modules that they install: `{"browser": "playwright"}`.
    """

    secrets: tuple[SecretRef, ...] = ()
    extras: Mapping[str, str] = field(default_factory=dict)
    browser: bool = False


@dataclass(frozen=True, slots=True)
class Metadata:
    """Kind, target, name and version of a source."""

    kind: str
    target: str | None
    name: str
    version: str


class Source:
    """A site or API to collect from.

    A subclass has a `name`, a `discover` that yields items, and at least one `@layer` that returns
    fields of the record. One object serves one run of a job.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    Options: ClassVar[type[Options]] = Options
    Record: ClassVar[type[BaseModel] | None] = None
    """Model of a record's data; records that do not satisfy it are quarantined."""
    rate: ClassVar[float | Literal["auto"] | None] = 2.0
    """Default of the maximum requests per second per domain.

    "auto" learns what the site allows, None is unlimited.
    """
    burst: ClassVar[int] = 5
    max_in_flight: ClassVar[int | None] = None
    """Maximum concurrent requests per domain, over all processes; None is unlimited."""
    retry: ClassVar[Any] = None
    """Attempts and waits of requests as in a job file: `{"attempts": 5, "base": 2, "max": 60}`."""
    headers: ClassVar[Mapping[str, str]] = {}
    """Headers of every request, in addition to its own."""
    cookies: ClassVar[Any] = True
    """Whether cookies are kept during a run; or the initial ones, as in a job file."""
    auth: ClassVar[Any] = None
    """Authentication, as in a job file; secrets only by reference."""
    cache: ClassVar[bool] = False
    """Whether responses are cached by the rules of HTTP (RFC 9111)."""
    ca_file: ClassVar[Path | None] = None
    """Certificate authorities to trust besides the system's, as PEM."""
    private_hosts: ClassVar[tuple[str, ...]] = ()
    """Hosts at private addresses that may be requested from a source with a public start URL.

    Names, addresses and networks: `("wiki.corp", "10.0.0.0/8")`.
    """
    expects: ClassVar[tuple[str, ...]] = ()
    """CSS selectors of which every page matches one; a ban page matches none."""
    quality_rules: ClassVar[QualityRules | None] = None
    """Quality rules; default: successful layers and filled fields."""
    kind: ClassVar[str] = "code"
    """Kind of source: code, html, api, command, function, scrapy."""
    target: ClassVar[str | None] = None
    """URL of the site, if there is one."""
    needs: ClassVar[Needs] = Needs()
    """Requirements that are checked before the first request."""
    transport: ClassVar[Literal["http", "browser", "auto"]] = "http"
    browser: ClassVar[Any] = None
    """Browser settings, as in a manifest."""
    volatile: ClassVar[frozenset[str]] = frozenset()
    """Fields whose changes do not make a new version of a record, such as view counts."""

    usually_empty: frozenset[str] = frozenset()
    """Fields that may be empty in every record without a warning.

    A source can set it in `__init__`, depending on its options.
    """
    middlewares: ClassVar[tuple[str | MiddlewareFactory, ...]] = ()
    """Middlewares of the request chain: plugins by name, or functions of the next middleware.

    Every attempt of a request passes them before robots.txt, cache and limits.
    """
    pipeline: ClassVar[tuple[Any, ...]] = ()
    """Pipeline stages between `compose` and the record, in order."""

    can_repeat_discovery: ClassVar[bool] = True
    """Whether `discover` sends requests only through its visit, so that it can be repeated."""
    not_run: ClassVar[tuple[str, ...]] = ()
    """Parts of the user's code that are not run; reported at the start and end of a run."""

    bookmarks: Any = None
    """Where the last complete run ended, by name; set by the engine."""

    _layers: ClassVar[tuple[Layer, ...]] = ()

    def __init__(self, options: BaseModel | None = None) -> None:
        self.options: Any = self.Options() if options is None else options

    @classmethod
    def with_options(cls, values: Mapping[str, Any]) -> Source:
        """Create the source with these options.

        Raises:
            BadOption: a name is unknown or a value invalid.
        """
        try:
            return cls(cls.Options.model_validate(values))
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            known = ", ".join(sorted(cls.Options.model_fields)) or "none"
            is_unknown = first["type"] == "extra_forbidden"
            problem = (
                "there is no such option"
                if is_unknown
                else describe_value_error(first, cls.Options)
            )
            raise BadOption(
                f"--set {name}", f"{problem}; options of {cls.name}: {known}"
            ) from error

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._layers = tuple(_find_layers(cls).values())

    @classmethod
    def layers(cls) -> tuple[Layer, ...]:
        """Return the layers in the order in which they run."""
        return cls._layers

    @classmethod
    def describe_source(cls) -> Metadata:
        """Return kind, target, name and version."""
        return Metadata(cls.kind, cls.target, cls.name, cls.version)

    async def prepare(self, visit: Visit) -> None:
        """Prepare the run before the first item; an exception stops the job."""

    async def finished(self, visit: Visit) -> None:
        """Handle the end of a run without a limit whose items are all committed, none failed.

        `visit.cursor` is the last cursor of the job.
        """

    async def teardown(self) -> None:
        """Release resources; called once, however the run ended."""

    def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the items, and cursors with the progress of discovery.

        A cursor is committed together with the items before it; after a crash `visit.cursor`
        is the last one. An item that is yielded twice is queued once.
        """
        raise NotImplementedError  # every source implements it

    def cursor_to_repeat(self, last: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the cursor from which to repeat the discovery of a job.

        `last` is the last cursor of that job. None starts like a new job.
        """
        del last
        return None

    def identity_of(self, item: Item) -> str | None:
        """Return what identifies the element or record of an item, independent of extraction rules.

        It finds the item again after the rules, and perhaps its key, have changed. None when there
        is only the key and the URL.
        """
        del item
        return None

    def carries_values(self, item: Item) -> bool:
        """Return whether the item carries values that discovery or another item extracted."""
        return bool(item.data)

    def obstacle_to_repeat(self, item: Item) -> str | None:
        """Return why the layers of an item must not run again; None when they may.

        Re-extraction runs them on archived responses, without requests and writes.
        """
        del item
        return None

    def compose(self, item: Item, layers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the data of the record, made of the layers' results; default: merge them."""
        del item
        return {name: value for result in layers.values() for name, value in result.items()}


def _find_layers(kind: type) -> dict[str, Layer]:
    """Return the layers of a class and its bases, bases first."""
    return {
        name: mark
        for base in reversed(kind.__mro__)
        for name, value in vars(base).items()
        if isinstance(mark := getattr(value, "__layer__", None), Layer)
    }
