"""Manifests: sources written in YAML. The fields that all kinds share, and how one is read."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from longline.config.auth import Auth
from longline.config.documents import Document, check
from longline.config.expressions import check_braces, fill_all, names_in
from longline.config.identity import Cookies, Headers, PrivateHosts
from longline.config.job_spec import RATE_PROBLEM, Rate, RetrySpec, ScheduleValues
from longline.config.plugins import plugin_names
from longline.config.proxies import Proxies, Sessions
from longline.config.times import Seconds
from longline.config.validation import StrictModel, invalid
from longline.core.errors import BadFile, BadOption, DiscoveryFailed
from longline.core.model import Cursor, Item
from longline.pipeline.manifest import Pipeline
from longline.pipeline.stages import checked_step
from longline.sources.base import Options

KIND = "manifest"
"""The key that says which kind of manifest a file is; job files do not have it."""
# Imported when used: a run of one kind does not import the others.
_MODELS = {
    "html": "longline.sources.html.manifest:HtmlManifest",
    "api": "longline.sources.api.manifest:ApiManifest",
    "command": "longline.sources.command:CommandManifest",
}
KINDS = tuple(_MODELS)
ParameterType = Literal["text", "integer", "number", "boolean"]
Transport = Literal["http", "browser", "auto", "impersonate"]
Discovered = AsyncGenerator[Item | Cursor, None]

_SCHEMES = ("http://", "https://")
_NOT_OF_RUNS = ("schedule", "fresh", "alerts")  # keys that do not change what a run collects
_SAMPLE_VALUE = "1"  # valid as a host name and as a port
_PATH_SETTINGS = ("ca_file", "folder")  # relative to the folder of the manifest
_TYPES: Mapping[str, tuple[type, ...]] = {
    "text": (str, int, float),
    "integer": (int,),
    "number": (float, int),
    "boolean": (bool,),
}
"""The type of a parameter, and the other types that its default may have."""
_ATTRIBUTES = """
    name version burst max_in_flight retry headers auth proxies sessions cache ca_file
    private_hosts expects volatile usually_empty transport middlewares listeners pipeline
"""


class Parameter(StrictModel):
    """A value that users set with `--set name=value`; required unless it has a default."""

    type: ParameterType = "text"
    default: str | int | float | bool | None = None
    about: str = ""

    @model_validator(mode="after")
    def _check_default(self) -> Self:
        # By the exact type, since a bool is also an int.
        if self.default is not None and type(self.default) not in _TYPES[self.type]:
            raise invalid(f"the default must be of the type {self.type}")
        return self


def _check_identifier(name: str) -> str:
    if not name.isidentifier():
        raise invalid(f"{name!r} is not a name of letters, digits and _")
    return name


Identifier = Annotated[str, AfterValidator(_check_identifier)]
"""A name that can be written in braces."""


class Manifest(StrictModel):
    """What all kinds of manifests share: name, parameters and how requests are sent."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=60)
    """Name of the source: lower-case letters, digits, - and _."""
    version: str = "1"
    about: str = ""
    """One sentence about what it collects."""
    parameters: dict[Identifier, Parameter] = Field(default_factory=dict)
    """Values that users can set; `{name}` in a URL is replaced by the value."""
    rate: Rate | None = 2.0
    """Maximum requests per second per domain, `auto` or `unlimited`."""
    burst: int = Field(default=5, ge=1)
    max_in_flight: int | None = Field(
        default=None,
        ge=1,
        description="maximum concurrent requests per domain, across all processes",
    )
    retry: RetrySpec | None = None
    """Attempts of a request and the waits between them: attempts, base, max."""
    headers: Headers = Field(default_factory=dict)
    cookies: Cookies | None = None
    auth: Auth | None = None
    proxies: Proxies | None = None
    """Which proxies are used: true, false, tiers, or more."""
    sessions: Sessions | None = None
    """Sessions of cookies, a proxy and headers: item, login, or a number of uses."""
    cache: bool = False
    ca_file: Path | None = Field(
        default=None, description="certificate authorities to trust besides the system's (PEM)"
    )
    private_hosts: PrivateHosts = Field(
        default=(), description="hosts at private addresses that the site may link to"
    )
    expects: tuple[str, ...] = ()
    """CSS selectors; every page matches at least one of them, and a ban page none."""
    volatile: frozenset[str] = frozenset()
    """Fields whose changes do not make a new version of a record."""
    usually_empty: frozenset[str] = frozenset()
    """Fields that may be empty in every record without a warning."""
    transport: Transport = "http"
    """How pages are fetched: `browser` runs scripts, `auto` only where fields are missing.

    `impersonate` looks like Chrome to the site: TLS, HTTP/2 and headers.
    """
    middlewares: tuple[str, ...] = ()
    """Middlewares of plugins that every request passes, the outermost first."""
    listeners: tuple[str, ...] = ()
    """Plugins that are called with each committed outcome and with the end of the job."""
    pipeline: Pipeline = ()
    """Stages between extraction and the record: map, filter, validate, enrich."""
    schedule: ScheduleValues | None = None
    """When to run it automatically: one schedule or a list; see `longline schedule`."""
    fresh: Seconds | None = Field(default=None, gt=0)
    """Maximum age of the data; when it is older, the event `source.late` is appended."""
    alerts: dict[str, Any] | None = None
    """Rules of alerts that are changed for this source, by name: limits, `enabled`, `severity`."""

    @field_validator("rate")
    @classmethod
    def _check_rate(cls, rate: Rate | None) -> Rate | None:
        if isinstance(rate, float) and not 0 < rate < float("inf"):
            raise invalid(RATE_PROBLEM)
        return rate

    @field_validator("middlewares", "listeners")
    @classmethod
    def _check_plugins(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        known = plugin_names(f"longline.{info.field_name}") if names else []
        for name in names:
            if name not in known:
                listed = ", ".join(known) or "none"
                raise invalid(f"there is no plugin {name!r}; installed: {listed}")
        return names

    @field_validator("parameters", mode="before")
    @classmethod
    def _expand_parameters(cls, parameters: Any) -> Any:
        """Accept `name: value` as a parameter with that default."""
        if not isinstance(parameters, dict):
            return parameters
        types = {bool: "boolean", int: "integer", float: "number"}
        return {
            name: one
            if isinstance(one, dict | Parameter)
            else {"type": types.get(type(one), "text"), "default": one}
            for name, one in parameters.items()
        }


def manifest_model(kind: Any) -> type[Manifest]:
    """Return the model of a kind of manifest; raise BadOption if there is no such kind."""
    if not isinstance(kind, str) or kind not in _MODELS:
        raise BadOption(KIND, f"must be one of {', '.join(KINDS)}, not {kind!r:.60}")
    model: type[Manifest] = pkgutil.resolve_name(_MODELS[kind])
    return model


def parse_manifest(document: Document) -> Manifest:
    """Return the manifest in a document; raise BadFile if it is invalid."""
    try:
        model = manifest_model(document.values.get(KIND))
    except BadOption as error:
        raise BadFile(str(document.path), str(error), *document.place((KIND,))) from error
    return check(document, model)


def make_manifest(values: Mapping[str, Any]) -> Manifest:
    """Return the manifest of a job; raise BadOption if this version does not accept it."""
    return checked_step(manifest_model(values.get(KIND)), **values)


def resolve_files(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the values for a run: with absolute paths, and with the schema files included."""
    values = {name: value for name, value in values.items() if name not in _NOT_OF_RUNS}
    paths = {name: values[name] for name in _PATH_SETTINGS if isinstance(values.get(name), str)}
    values = {**values, **{name: absolute_path(folder, path) for name, path in paths.items()}}
    steps = values.get("pipeline")
    if not isinstance(steps, list):
        return dict(values)
    return {**values, "pipeline": [_resolve_step(step, folder) for step in steps]}


def absolute_path(folder: Path, path: str) -> str:
    """Return the absolute path of a file that is named relative to `folder`."""
    return str((folder / Path(path).expanduser()).absolute())


def _resolve_step(step: Any, folder: Path) -> Any:
    match step:
        case {"validate": {"file": str(file), **others}} if not others:
            # Imported here because most sources have no schema, and jsonschema is slow to import.
            from longline.pipeline.json_schema import read_schema  # noqa: PLC0415

            return {**step, "validate": read_schema(folder / file)}
        case {"enrich": {"geocode": {"file": str(file)} as geocode, **others}}:
            found = {**geocode, "file": absolute_path(folder, file)}
            return {**step, "enrich": {**others, "geocode": found}}
    return step


def check_url(text: str) -> str:
    """Return a URL, with or without names in braces; raise PydanticCustomError if invalid."""
    check_braces(text)
    sample = fill_all(text, _SAMPLE_VALUE)
    if not sample.startswith(_SCHEMES):
        return text  # it starts with a name, or is relative
    host = re.split(r"[/?#\\]", sample.partition("://")[2], maxsplit=1)[0]
    if "@" in host:
        raise invalid(
            "a URL must not contain a user or password, since records show it; write "
            "auth: {kind: basic, user: …, password: env:NAME, hosts: […]}"
        )
    try:
        parts = urlsplit(sample)
        is_valid = parts.port != 0 and parts.hostname and not any(map(str.isspace, host))
    except ValueError:  # brackets without an IPv6 address, or a port above 65535
        is_valid = False
    if not is_valid:
        raise invalid(f"{host!r} is not a host, or has an invalid port; write https://example.com/")
    return text


def check_url_with_defaults(text: str, parameters: Mapping[str, Parameter]) -> None:
    """Raise PydanticCustomError if a URL is invalid when its names have their default values."""
    defaults = {name: one.default for name, one in parameters.items() if one.default is not None}
    if problem := url_problem(text, defaults):
        raise invalid(f"{text} with its defaults: {problem}")


def url_problem(text: str, values: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a URL that starts with a name, given its value; None if valid."""
    first = next(iter(names_in(text)), None)
    if first is None or first not in values or not text.startswith("{"):
        return None
    url = str(values[first]) + text.partition("}")[2]
    if not url.startswith(_SCHEMES):
        return f"{{{first}}} must begin with http:// or https://"
    try:
        check_url(url)
    except PydanticCustomError as error:
        return error.message()
    return None


def source_attributes(manifest: Manifest) -> dict[str, Any]:
    """Return the attributes of the source class that a manifest becomes."""
    return {
        "__doc__": manifest.about or f"The source {manifest.name}, from a manifest.",
        "__module__": __name__,
        "Options": options_model(manifest.parameters),
        "rate": None if manifest.rate == "unlimited" else manifest.rate,
        "cookies": True if manifest.cookies is None else manifest.cookies,
        **{name: getattr(manifest, name) for name in _ATTRIBUTES.split()},
    }


def options_model(parameters: Mapping[str, Parameter]) -> type[Options]:
    """Return the options model of a source with these parameters."""
    fields: dict[str, Any] = {
        name: (
            _TYPES[one.type][0],
            Field(
                default=... if one.default is None else one.default, description=one.about or None
            ),
        )
        for name, one in parameters.items()
    }
    model: type[Options] = create_model("ManifestOptions", __base__=Options, **fields)
    return model


async def fail_if_empty(
    found: Discovered, source: str, advice: str, *, may_be_empty: bool
) -> Discovered:
    """Yield what discovery finds; raise DiscoveryFailed with the advice if there is no item."""
    is_empty = True
    async with aclosing(found) as stream:
        async for one in stream:
            is_empty = is_empty and isinstance(one, Cursor)
            yield one
    if is_empty and not may_be_empty:
        problem = f"no items were found: {advice}, or write may_be_empty: true"
        raise DiscoveryFailed(source, problem)
