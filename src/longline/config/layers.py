"""Settings in layers: defaults, a file, a profile of it, the environment, the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, create_model
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError

from longline.config.addresses import shown_address, without_password
from longline.config.documents import Document, check, read_document
from longline.config.documents_words import nearest
from longline.config.written import Written
from longline.errors import BadOption

FILE = "longline.yaml"
FILE_VARIABLE = "LONGLINE_CONFIG"
PROFILE_VARIABLE = "LONGLINE_PROFILE"
S = TypeVar("S", bound=BaseSettings)


@dataclass(frozen=True, slots=True)
class Layer:
    """What one place says: values by name, and where each of them stands."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Explained:
    """A setting, its value, and where the value comes from."""

    name: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Layers:
    """Everything that was said, from the weakest to the strongest."""

    layers: tuple[Layer, ...]
    document: Document | None = field(default=None, repr=False)

    def values(self) -> dict[str, Any]:
        """Return what holds in the end; what nobody said is left to the defaults."""
        return {name: value for layer in self.layers for name, value in layer.values.items()}

    def origin(self, name: str) -> str:
        """Return where a value comes from."""
        return next(
            (layer.origins[name] for layer in reversed(self.layers) if name in layer.values),
            "default",
        )


def read_layers(
    kind: type[S], *, given: Mapping[str, Any] | None = None, profile: str | None = None
) -> Layers:
    """Read what the file, the profile, the environment and the command line say.

    Args:
        kind: the settings to read.
        given: what the command line says, by the names of the settings.
        profile: the part of the file to use; LONGLINE_PROFILE without it.

    Raises:
        BadFile: the file is broken.
        BadOption: there is no such profile, or a variable cannot be read.
    """
    document = _document()
    name = profile or os.environ.get(PROFILE_VARIABLE) or None
    try:
        of_file = _file_layers(kind, document, name)
    except BadOption as error:
        said_by = "--profile" if profile else PROFILE_VARIABLE
        raise BadOption(said_by, error.problem) from error
    layers = [*of_file, _environment(kind)]
    said = {name: value for name, value in (given or {}).items() if value is not None}
    layers.append(Layer(said, {name: f"--{name.replace('_', '-')}" for name in said}))
    return Layers(tuple(layers), document)


def explained(settings: BaseSettings, layers: Layers) -> list[Explained]:
    """Say of every setting what it is and where that comes from; passwords are left out."""
    return [
        Explained(name, _explained(name, getattr(settings, name)), layers.origin(name))
        for name in type(settings).model_fields
    ]


def _explained(name: str, value: Any) -> Any:
    is_server = name.endswith("_url") and isinstance(value, str)
    return shown_address(value) if is_server else shown(value)


def shown(value: Any) -> Any:
    """Return a value as people may see it: an address without its password."""
    if isinstance(value, tuple):
        return [shown(one) for one in value]
    if isinstance(value, Path):
        return str(value)
    return without_password(value) if isinstance(value, str) else value


def settings_file() -> Path | None:
    """Return the file that settings stand in; None when there is none."""
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return Path(named).expanduser()
    return Path(FILE) if Path(FILE).exists() else None


def _document() -> Document | None:
    path = settings_file()
    return None if path is None else read_document(path)


def _file_layers(
    kind: type[BaseSettings], document: Document | None, profile: str | None
) -> list[Layer]:
    if document is None:
        if profile is not None:
            raise BadOption("profile", f"there is no {FILE} here in which {profile!r} could stand")
        return []
    said = check(document, file_model(kind))
    layers = [_layer(said, document, ())]
    profiles: dict[str, Written] = getattr(said, "profiles")  # noqa: B009  # made at run time
    if profile is None:
        return layers
    if profile not in profiles:
        raise BadOption("profile", _no_profile(profile, list(profiles), document.path))
    return [*layers, _layer(profiles[profile], document, ("profiles", profile))]


def _layer(said: BaseModel, document: Document, loc: tuple[str, ...]) -> Layer:
    names = said.model_fields_set - {"profiles"}
    folder = document.path.parent
    which = f" (profile {loc[1]})" if loc else ""
    return Layer(
        {name: _below(folder, getattr(said, name)) for name in names},
        {
            name: f"{document.path}:{document.place((*loc, name))[0]}{which}"
            for name in said.model_fields_set
        },
    )


def _below(folder: Path, value: Any) -> Any:
    """Return paths as they are meant: from the folder of the file that names them."""
    if isinstance(value, Path):
        return folder / value.expanduser()
    if isinstance(value, tuple):
        return tuple(_below(folder, one) for one in value)
    return value


def _environment(kind: type[BaseSettings]) -> Layer:
    try:
        said = EnvSettingsSource(kind)()
    except SettingsError as error:
        raise BadOption("LONGLINE_…", " ".join(str(error).split())) from error
    prefix = kind.model_config.get("env_prefix", "")
    values = {name: value for name, value in said.items() if name in kind.model_fields}
    return Layer(values, {name: f"{prefix}{name.upper()}" for name in values})


def _no_profile(profile: str, known: list[str], path: Path) -> str:
    meant = nearest(profile, known)
    hint = f"did you mean {meant!r}? " if meant else ""
    return f"{path} has no profile {profile!r}; {hint}it has {', '.join(known) or 'none at all'}"


@cache
def file_model(kind: type[BaseSettings]) -> type[BaseModel]:
    """Return the model of a file with these settings and profiles of them."""
    fields: dict[str, Any] = {
        name: (one.annotation, one) for name, one in kind.model_fields.items()
    }
    layer = create_model("ProfileFile", __base__=Written, **fields)
    profiles: dict[str, Any] = {"profiles": (dict[str, layer], {})}  # type: ignore[valid-type]  # made at run time
    return create_model("SettingsFile", __base__=layer, **profiles)
