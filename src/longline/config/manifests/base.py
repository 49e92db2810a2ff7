"""What every manifest says, whatever it collects from: a source without a line of Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from longline.config.auth import Auth
from longline.config.identity import Cookies, Headers
from longline.config.manifests.pipeline import Pipeline
from longline.config.private_hosts import PrivateHosts
from longline.config.spec import Rate
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
    at_once: int | None = Field(
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
