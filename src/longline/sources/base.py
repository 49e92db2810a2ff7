"""Source: a site or API to collect from. Subclass it, say how items are found and read."""

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
from longline.pipeline.quality import QualityRules
from longline.sources.visit import Visit

# ---------------- The words in which a source says what a good record is; `pipeline/quality.py`


LayerMethod = Callable[[Any, Visit], Awaitable[Mapping[str, Any]]]
_Method = TypeVar("_Method", bound=LayerMethod)


class Options(BaseModel):
    """What a user may set of a source with `--set name=value`. Subclass it to add fields."""

    # The text below a field is its explanation in `longline sources NAME`.
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True)
class Layer:
    """One named extraction step: the method to call, what it needs, whether it may fail."""

    name: str
    needs: tuple[str, ...] = ()
    is_optional: bool = False


def layer(*, needs: tuple[str, ...] = (), optional: bool = False) -> Callable[[_Method], _Method]:
    """Mark a method as a layer. Layers run in the order in which they are written.

    Args:
        needs: layers whose results it reads; if one of them failed, this one is not run.
        optional: its failure is recorded in the record and does not fail the item.
    """

    def mark(method: _Method) -> _Method:
        method.__layer__ = Layer(  # type: ignore[attr-defined]  # a mark on the function itself
            method.__name__, needs, optional
        )
        return method

    return mark


@dataclass(frozen=True, slots=True)
class Needs:
    """What must be there before the first request: secrets that are referred to, extras, a browser.

    `extras` are names of Python modules by the extra that brings them: `{"browser": "playwright"}`.
    """

    secrets: tuple[SecretRef, ...] = ()
    extras: Mapping[str, str] = field(default_factory=dict)
    browser: bool = False


@dataclass(frozen=True, slots=True)
class Metadata:
    """Who a source is: what it is made of, what it collects from, its name and version."""

    kind: str
    target: str | None
    name: str
    version: str


class Source:
    """A site or API to collect from.

    A subclass has a `name`, a `discover` that yields items, and at least one `@layer`, each of
    which returns fields of the record. One object serves one run of a job.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    Options: ClassVar[type[Options]] = Options
    Record: ClassVar[type[BaseModel] | None] = None
    """The model that a record's data must satisfy; what does not is quarantined."""
    rate: ClassVar[float | Literal["auto"] | None] = 2.0
    """Requests a second and domain unless the user says otherwise.

    "auto" learns what the site allows, None is unlimited.
    """
    burst: ClassVar[int] = 5
    max_in_flight: ClassVar[int | None] = None
    """Requests that may be under way at one domain, over all processes; None is no limit."""
    retry: ClassVar[Any] = None
    """Attempts and waits of requests as in a job file: `{"attempts": 5, "base": 2, "max": 60}`."""
    headers: ClassVar[Mapping[str, str]] = {}
    """Headers of every request, beside those that a request brings itself."""
    cookies: ClassVar[Any] = True
    """Whether cookies are kept during a run; or those to begin with, as in a job file."""
    auth: ClassVar[Any] = None
    """How the source proves who it is, as in a job file; secrets only by reference."""
    cache: ClassVar[bool] = False
    """Whether answers are kept and validated as HTTP says (RFC 9111)."""
    ca_file: ClassVar[Path | None] = None
    """Certificates of authorities that are trusted beside those of the system, as PEM."""
    private_hosts: ClassVar[tuple[str, ...]] = ()
    """Hosts that may be reached at private addresses although the source starts at a public one.

    Names, addresses and networks: `("wiki.corp", "10.0.0.0/8")`.
    """
    expects: ClassVar[tuple[str, ...]] = ()
    """CSS selectors of which a page of this site has one; a ban page has none of them."""
    quality_rules: ClassVar[QualityRules | None] = None
    """What a good record has; without rules, layers that worked and fields that are filled."""
    kind: ClassVar[str] = "code"
    """What it is made of: code, html, api, command, function, scrapy."""
    target: ClassVar[str | None] = None
    """The site it is for, where it is for one."""
    needs: ClassVar[Needs] = Needs()
    """What it cannot work without; told before the first request."""
    transport: ClassVar[Literal["http", "browser", "auto"]] = "http"
    browser: ClassVar[Any] = None
    """What to do on pages that need a browser, as in a manifest."""
    volatile: ClassVar[frozenset[str]] = frozenset()
    """Fields that change all the time (view counts) and do not make a record a new version."""

    usually_empty: frozenset[str] = frozenset()
    """Fields that may be empty in every record; the end of a run does not warn of them.

    A source whose settings decide on it sets it in `__init__`.
    """
    pipeline: ClassVar[tuple[Any, ...]] = ()
    """What becomes of the composed data before it is a record: stages, in the order they run."""

    can_repeat_discovery: ClassVar[bool] = True
    """Whether `discover` requests only through its visit: then an archive can repeat it."""
    not_run: ClassVar[tuple[str, ...]] = ()
    """Parts of what the user wrote that have no effect; reported at the start and end of a run."""

    bookmarks: Any = None
    """Where the last complete run ended, by name; given by whoever runs the source."""

    _layers: ClassVar[tuple[Layer, ...]] = ()

    def __init__(self, options: BaseModel | None = None) -> None:
        self.options: Any = self.Options() if options is None else options

    @classmethod
    def with_options(cls, values: Mapping[str, Any]) -> Source:
        """Make the source from what a user wrote.

        Raises:
            BadOption: a name is unknown or a value does not fit.
        """
        try:
            return cls(cls.Options.model_validate(values))
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            known = ", ".join(sorted(cls.Options.model_fields)) or "none"
            is_unknown = first["type"] == "extra_forbidden"
            problem = (
                "there is no such setting"
                if is_unknown
                else describe_value_error(first, cls.Options)
            )
            raise BadOption(
                f"--set {name}", f"{problem}; settings of {cls.name}: {known}"
            ) from error

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._layers = tuple(_marked(cls).values())

    @classmethod
    def layers(cls) -> tuple[Layer, ...]:
        """Return the layers in the order in which they run."""
        return cls._layers

    @classmethod
    def described(cls) -> Metadata:
        """Return who this source is."""
        return Metadata(cls.kind, cls.target, cls.name, cls.version)

    async def prepare(self, visit: Visit) -> None:
        """Set up before the first item; what it raises stops the job."""

    async def finished(self, visit: Visit) -> None:
        """Take note that a run without a limit has ended, all its items committed, none failed.

        `visit.cursor` is the last cursor of the job.
        """

    async def teardown(self) -> None:
        """Let go of what `prepare` or the layers opened; called once, however the run ended."""

    def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the items, and now and then a Cursor that says how far this has come.

        A cursor is committed together with the items before it; after a crash `visit.cursor`
        holds the last one. An item yielded twice is queued once.
        """
        raise NotImplementedError  # the one method every source must write

    def cursor_to_repeat(self, last: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the cursor to repeat the discovery of a job from its first request.

        `last` is the last cursor of that job. None begins as a new job does.
        """
        del last
        return None

    def identity_of(self, item: Item) -> str | None:
        """Return what identifies the element or record that discovery made an item of.

        It does not depend on the extraction rules, so it finds the item again after they have
        changed, even if the key has. None when the key and the address are all there is.
        """
        del item
        return None

    def carries_values(self, item: Item) -> bool:
        """Return whether the item carries values that discovery or another item extracted."""
        return bool(item.data)

    def obstacle_to_repeat(self, item: Item) -> str | None:
        """Return why the layers of an item must not run a second time; None when they may.

        They are run again on archived answers, where nothing may be requested or written.
        """
        del item
        return None

    def compose(self, item: Item, layers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Make the record's data of the layers' results; as it stands, all fields side by side."""
        del item
        return {name: value for result in layers.values() for name, value in result.items()}


def _marked(kind: type) -> dict[str, Layer]:
    """Return the layers that a class and its bases mark, bases first."""
    return {
        name: mark
        for base in reversed(kind.__mro__)
        for name, value in vars(base).items()
        if isinstance(mark := getattr(value, "__layer__", None), Layer)
    }
