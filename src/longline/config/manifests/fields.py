"""Fields of a page: where a value stands, first choice first, and what it is read as."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from selectolax.lexbor import LexborHTMLParser, SelectolaxError

from longline.config.locales import check_form, is_known
from longline.config.manifests.json_paths import JsonPath, ValueKind, check_path
from longline.config.patterns import user_pattern
from longline.config.written import Written, wrong

_AT = re.compile(r"@([A-Za-z_][\w:.-]*)$")
_TYPE = re.compile(r"[A-Za-z]\w*")
_PROPERTY = re.compile(r"[\w.-]+(?::[\w.-]+)+")
_NAME = re.compile(r"[^\W\d][\w-]*")
_PLACES = ("css", "json_ld", "microdata", "open_graph", "script", "after", "path", "url")
_NO_PLACE = f"says nowhere where it stands: write {', '.join(_PLACES)} or first"


def split_selector(text: str) -> tuple[str, str | None]:
    """Return the CSS selector and what follows its @: an attribute, `html` or `text`."""
    found = _AT.search(text)
    return (text[: found.start()].strip(), found[1]) if found else (text.strip(), None)


@lru_cache(maxsize=1)
def _nothing() -> LexborHTMLParser:
    return LexborHTMLParser("<p>")


def check_css(text: str) -> str:
    """See that a CSS selector can be used.

    Raises:
        PydanticCustomError: it cannot.
    """
    try:
        _nothing().css(text)
    except SelectolaxError:
        raise wrong(
            f"{text!r} is not a CSS selector that can be used; write for example h1.title, "
            "and h1.title@id for an attribute"
        ) from None
    return text


def check_selector(text: str) -> str:
    """See that a selector, with or without an attribute, can be used.

    Raises:
        PydanticCustomError: it cannot.
    """
    css, attribute = split_selector(text)
    if css or attribute is None:
        # `+ dd` is the element after an item; each part alone is CSS.
        steps = css.split("+")[1:] if css.startswith("+") else [css]
        for step in steps:
            check_css(step)
    return text.strip()


def _pattern(text: str) -> str:
    try:
        user_pattern(text)
    except ValueError as error:
        raise wrong(f"{text!r} is not a regular expression: {error}") from None
    return text


def _locale(text: str) -> str:
    if not is_known(text):
        raise wrong(f"{text!r} is not a locale known here; write a language such as de, or en-US")
    return text


def one_or_several(value: Any) -> Any:
    """Take one text for a list of one."""
    return [value] if isinstance(value, str) else value


Css = Annotated[str, AfterValidator(check_css)]
"""A CSS selector, and nothing after it."""

Selector = Annotated[str, AfterValidator(check_selector)]
"""A CSS selector for the text of an element; `selector@name` for an attribute, `@html` for HTML.

`+ dd` is the element after an item, `+ tr .price` one inside of it."""

Selectors = Annotated[tuple[Selector, ...], BeforeValidator(one_or_several), Field(min_length=1)]
"""One selector, or several of which the first that finds something wins."""

Pattern = Annotated[str, AfterValidator(_pattern)]
"""A regular expression; its first group counts, or all of it."""

Locale = Annotated[str, AfterValidator(_locale)]
"""How numbers and dates are written: a language such as de, or with its country: en-US."""


class Place(Written):
    """Where a value may stand."""

    css: Selectors | None = None
    """Elements of the page."""
    json_ld: str | None = None
    """In the page's JSON-LD: a type, and the way on from there: Product.offers.price."""
    microdata: str | None = None
    """In the page's microdata (itemscope, itemprop), written like json_ld: Product.offers.price."""
    open_graph: str | None = None
    """A property of the page's Open Graph tags, as the page writes it: og:title."""
    script: Css | None = None
    """In JSON in a script: the selector of that script."""
    after: Pattern | None = None
    """In JSON in a script: what stands before it there, such as window.state *= *."""
    path: JsonPath | None = None
    """The way in the JSON of the script; alone, that in a record of a load-more API."""
    url: Pattern | None = None
    """In the address of the page."""

    @model_validator(mode="after")
    def _check_structured_data(self) -> Self:
        if self.open_graph is not None and not _PROPERTY.fullmatch(self.open_graph):
            raise wrong("open_graph is a property with its prefix: og:title")
        named = [name for name in ("json_ld", "microdata") if getattr(self, name) is not None]
        for name in named:
            kind, _, way = getattr(self, name).partition(".")
            if not _TYPE.fullmatch(kind):
                raise wrong(f"{name} begins with a type: Product, or Product.offers.price")
            check_path(self.path or way or "@")
        if self.script or self.after:
            named.append("script")
        if len(named) > 1:
            raise wrong(
                f"{' and '.join(named)} are different places; write them under first, one by one"
            )
        return self

    @property
    def is_somewhere(self) -> bool:
        """Whether any place is named."""
        return any(getattr(self, name) is not None for name in _PLACES)


def _place(value: Any) -> Any:
    return {"css": [value]} if isinstance(value, str) else value


class FieldSpec(Place):
    """One field: its places, what it is read as, and what becomes of it when nothing is there."""

    first: tuple[Annotated[Place, BeforeValidator(_place)], ...] = ()
    """Several places, of which the first that has something wins."""
    type: ValueKind | None = None
    """What the value is read as; without it, it is kept as it was found."""
    match: Pattern | None = None
    """The part of the text that counts."""
    words: dict[str, Any] | None = None
    """What each text stands for, small letters or large; others are not known, with a note."""
    many: bool = False
    """All that is found, as a list."""
    fields: Fields | None = None
    """The field is an object, or with `many` a list of objects: their fields, each in `css`."""
    default: Any = None
    """Stands in when nothing is found. Without it the field is empty, with a note."""
    required: bool = False
    """A record without it is quarantined."""
    locale: Locale | None = None
    form: str | None = None
    """What the text leaves unsaid: a date's format (%d.%m.%Y), a currency, a unit."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.fields is not None:
            self._check_object()
        elif not self.places:
            raise wrong(_NO_PLACE)
        if self.words is not None and self.type is not None:
            raise wrong("words are followed by what they stand for, so there is no type to read")
        check_form(self.type, self.form)
        if self.required and self.has_default:
            raise wrong("a required field has no default: with one it is never missing")
        return self

    def _check_object(self) -> None:
        if not self.fields:
            raise wrong("an object needs fields: name and selector each")
        if self.type is not None or self.match is not None or self.words is not None:
            raise wrong(
                "an object has no type, match or words of its own; write them to its fields"
            )
        others = (name for name in _PLACES if name != "css" and getattr(self, name) is not None)
        if self.first or (other := next(others, None)):
            named = "first" if self.first else other
            raise wrong(f"an object stands in an element: write css, not {named}")

    @property
    def has_default(self) -> bool:
        """Whether somebody wrote a default."""
        return "default" in self.model_fields_set

    @property
    def places(self) -> tuple[Place, ...]:
        """All places, first choice first."""
        return (*([self] if self.is_somewhere else []), *self.first)


def _names(fields: Any) -> Any:
    for name in fields if isinstance(fields, Mapping) else ():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise wrong(f"{name!r} cannot name a field: letters, digits, _ and -, no digit first")
    return fields


def full_form(value: Any) -> Any:
    """Take a text for a selector, and a list for places of which the first that has it wins."""
    if isinstance(value, str):
        return {"css": [value]}
    if isinstance(value, list):
        return {"first": value}
    if not isinstance(value, Mapping | FieldSpec):
        raise wrong("write a selector, a list of selectors, or css with type and more")
    return value


FieldLike = Annotated[FieldSpec, BeforeValidator(full_form)]
Fields = Annotated[dict[str, FieldLike], BeforeValidator(_names)]
"""Fields by name; a text alone is the selector."""
FieldSpec.model_rebuild()
