"""Types and names of proposed fields; a type only where every value can be read as it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from longline.sources.parsing.values import read_value

_SHAPES = {"integer": re.compile(r"[1-9]\d{0,8}|0"), "number": re.compile(r"-?\d[\d.,\s]*")}
_TIME = re.compile(r"\d[T ]\d{1,2}:\d{2}")
_CODES = re.compile(
    r"sku|code|ref|isbn|ean|gtin|phone|tel|zip|postal|plz|number|nummer|^no$|^id$", re.IGNORECASE
)
_LONGEST_VALUE = 40
_NO_NAME = "field"
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORDS = re.compile(r"\W+|_+")
_LONGEST_NAME = 40


def kind_of(name: str, values: Sequence[str], locale: str | None) -> str | None:
    """Return the type that all of these values can be read as; None keeps them as text."""
    for kind in ("money", "datetime", "date", "integer", "number"):
        if values and all(_is(kind, value, locale) for value in values):
            # A code of digits is not a number.
            is_code = kind in {"integer", "number"} and _CODES.search(name)
            return None if is_code else kind
    return None


def _is(kind: str, value: str, locale: str | None) -> bool:
    if len(value) > _LONGEST_VALUE or not any(char.isdigit() for char in value):
        return False
    if kind == "money":
        return _has_currency(value, locale)
    if kind in _SHAPES:
        return bool(_SHAPES[kind].fullmatch(value)) and _reads(kind, value, locale)
    if kind == "datetime" and not _TIME.search(value):
        return False
    # Four digits alone may be a year, a size or a house number.
    return not value.isdecimal() and _reads(kind, value, locale)


def _has_currency(value: str, locale: str | None) -> bool:
    try:
        return read_value("money", value, locale=locale)["currency"] is not None
    except ValueError:
        return False


def _reads(kind: str, value: str, locale: str | None) -> bool:
    try:
        read_value(kind, value, locale=locale)
    except ValueError:
        return False
    return True


def field_name(text: str) -> str:
    """Return a label or an identifier as the name of a field: `datePublished`, `Price (net)`."""
    words = [word for word in _WORDS.split(_CAMEL.sub(" ", text).lower()) if word]
    name = "_".join(word for word in words if word != "0")[:_LONGEST_NAME].strip("_")
    return name if name and not name[0].isdigit() else f"{_NO_NAME}_{name}".strip("_")


def last_word(class_name: str) -> str | None:
    """Return the element part of a class name, without its block: `price` of card__price."""
    parts = [part for part in re.split(r"__|--|-|_", class_name) if part]
    if len(parts) < 2 or not parts[-1].isalpha():  # noqa: PLR2004  # a word alone has no block
        return parts[0].lower() if parts and parts[0].isalpha() else None
    return parts[-1].lower()


def source_name(url: str) -> str:
    """Return a name for the source of an address."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = host.removeprefix("www.")
    is_number = host.replace(".", "").isdigit() or ":" in host
    words = ["site"] if is_number else host.split(".")[:-1] or [host]
    words += [word for word in parts.path.split("/") if word][-2:]
    name = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")
    name = name if name[:1].isalpha() else f"site-{name}".strip("-")
    return name[:_LONGEST_NAME].strip("-")
