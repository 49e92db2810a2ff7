"""What every manifest says, whatever it collects from: a source without a line of Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote, urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from longline.config.auth import Auth
from longline.config.identity import Cookies, Headers, PrivateHosts
from longline.config.job_spec import Rate
from longline.config.manifests.pipeline import Pipeline
from longline.config.written import Written, wrong

ParameterKind = Literal["text", "integer", "number", "boolean"]
Transport = Literal["http", "browser", "auto"]

_DEFAULTS: dict[str, type | tuple[type, ...]] = {
    "text": (str, int, float),
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}
_WORDS = {
    "text": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


class Parameter(Written):
    """Something a user may set with `--set name=value`; without a default it must be set."""

    type: ParameterKind = "text"
    default: str | int | float | bool | None = None
    about: str = ""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        default = self.default
        kinds = _DEFAULTS[self.type]
        is_flag = isinstance(default, bool)
        if default is not None and (not isinstance(default, kinds) or is_flag != (kinds is bool)):
            raise wrong(f"the default must be {_WORDS[self.type]}, as its type says")
        return self


class Manifest(Written):
    """A source in a file: who it is and how it asks. What it collects is said by its kinds."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=60)
    """Small letters, digits, - and _; records are kept under it."""
    version: str = "1"
    about: str = ""
    """One sentence on what it collects."""
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    """What may be set from outside; `{name}` in an address stands for its value."""
    rate: Rate | None = 2.0
    """Requests a second and domain, `auto` or `unlimited`."""
    burst: int = Field(default=5, ge=1)
    max_in_flight: int | None = Field(
        default=None, ge=1, description="requests under way at one domain, over all processes"
    )
    headers: Headers = Field(default_factory=dict)
    cookies: Cookies | None = None
    auth: Auth | None = None
    cache: bool = False
    ca_file: Path | None = Field(
        default=None, description="certificate authorities to trust beside the system's (PEM)"
    )
    private_hosts: PrivateHosts = Field(
        default=(), description="hosts that the site may lead to at private addresses"
    )
    expects: tuple[str, ...] = ()
    """CSS selectors of which every page of the site has one; a ban page has none of them."""
    volatile: frozenset[str] = frozenset()
    """Fields that change all the time and do not make a record a new version."""
    usually_empty: frozenset[str] = frozenset()
    """Fields that may be empty in every record; the end of a run does not warn of them."""
    transport: Transport = "http"
    """How pages are fetched: `browser` runs their scripts, `auto` only where fields are missing."""
    pipeline: Pipeline = ()
    """What becomes of the fields before they are a record: map, filter, validate, enrich."""

    @field_validator("rate")
    @classmethod
    def _a_pace(cls, rate: Rate | None) -> Rate | None:
        if isinstance(rate, float) and not 0 < rate < float("inf"):
            raise wrong("must be more than 0 requests a second, 'auto' to learn it, or 'unlimited'")
        return rate

    @field_validator("parameters", mode="before")
    @classmethod
    def _short_form(cls, parameters: Any) -> Any:
        """Take `name: value` for a parameter with that default."""
        if not isinstance(parameters, dict):
            return parameters
        return {
            name: one if isinstance(one, dict | Parameter) else _with_default(one)
            for name, one in parameters.items()
        }

    @field_validator("parameters")
    @classmethod
    def _plain_names(cls, parameters: dict[str, Parameter]) -> dict[str, Parameter]:
        for name in parameters:
            if not name.isidentifier():
                raise wrong(f"the parameter {name!r} needs a name of letters, digits and _")
        return parameters


def _with_default(value: Any) -> dict[str, Any]:
    kinds = {bool: "boolean", int: "integer", float: "number"}
    return {"type": kinds.get(type(value), "text"), "default": value}


# ---------------- Texts with names in braces, which stand for values: `{base_url}/page/{page}`

_NAME = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_.]*)\}")


def names_in(text: str) -> list[str]:
    """Return the names that a text holds, in order; `{{` and `}}` are plain braces."""
    return [found[1] for found in _NAME.finditer(text) if found[1]]


def fill(text: str, values: Mapping[str, Any], *, in_address: bool = False) -> str:
    """Return the text with a value for each name; in an address, values are quoted.

    A value that begins an address (`{base_url}/…`) is left as it is. `a.b` looks into a mapping.

    Raises:
        KeyError: there is no value of a name.
    """

    def replaced(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        value = _text(_looked_up(found[1], values))
        return quote(value, safe="") if in_address and found.start() else value

    return _NAME.sub(replaced, text)


def _looked_up(name: str, values: Mapping[str, Any]) -> Any:
    if name in values:
        return values[name]
    value: Any = values
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise KeyError(name)
        value = value[part]
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


# ---------------- Addresses in manifests: what can be known to be wrong before anyone is asked

_SCHEMES = ("http://", "https://")
_KNOWN = re.compile(r"\{\{|\}\}|\{[A-Za-z_][A-Za-z0-9_.]*\}")
_STAND_IN = "1"  # for a name: a host may be called so, and a port may be this


def check_braces(text: str) -> str:
    """See that every brace of a text is closed, and holds a name.

    Raises:
        PydanticCustomError: one is not.
    """
    left = _KNOWN.sub("", text)
    if "{" in left or "}" in left:
        brace, other = ("{", "}") if "{" in left else ("}", "{")
        raise wrong(
            f"a {brace} has no {other} that belongs to it, or no plain name between; {{name}} "
            f"stands for a parameter, and a brace that is meant is written twice: {brace * 2}"
        )
    return text


def check_address(text: str) -> str:
    """See that an address, with or without names in braces, can be one of a page.

    Raises:
        PydanticCustomError: it cannot.
    """
    check_braces(text)
    filled = _KNOWN.sub(_STAND_IN, text)
    if not filled.startswith(_SCHEMES):
        return text  # it begins with a name, or below another address
    host = re.split(r"[/?#\\]", filled.partition("://")[2], maxsplit=1)[0]
    if "@" in host:
        raise wrong(
            "an address holds no user and no password: everyone who sees a record would see them; "
            "write auth: {kind: basic, user: …, password: env:NAME, hosts: […]}"
        )
    _check_host(filled, host)
    return text


def check_with_defaults(text: str, parameters: Mapping[str, Parameter]) -> None:
    """See that an address is one with the values that its names have unless others are set.

    Raises:
        PydanticCustomError: it is not.
    """
    defaults = {name: one.default for name, one in parameters.items() if one.default is not None}
    if problem := problem_with(text, defaults):
        raise wrong(f"{text} with its defaults: {problem}")


def problem_with(text: str, values: Mapping[str, Any]) -> str | None:
    """Return what is wrong with an address that begins with a name, once that has a value."""
    first = next(iter(names_in(text)), None)
    if first is None or first not in values or not text.startswith("{"):
        return None
    address = str(values[first]) + text.partition("}")[2]
    if not address.startswith(_SCHEMES):
        return f"{{{first}}} must begin with http:// or https://"
    try:
        check_address(address)
    except PydanticCustomError as error:
        return error.message()
    return None


def _check_host(address: str, host: str) -> None:
    try:
        parts = urlsplit(address)
        is_possible = parts.port != 0
    except ValueError:
        is_possible = False
        if "[" in host or "]" in host:
            raise wrong(
                f"{host!r} is no host: only an IPv6 address stands in [ and ], as in http://[::1]/"
            ) from None
    if not is_possible:
        raise wrong(f"{host!r} has an impossible port: ports are numbers from 1 to 65535")
    if not parts.hostname or any(char.isspace() for char in host):
        raise wrong("its host is missing or no name; an address is like https://example.com/list")
