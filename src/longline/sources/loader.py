"""Load a source by reference: a name, a file, package.module:Class, a function or a spider."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

from longline.config.documents import read_document
from longline.config.plugins import MIDDLEWARES, SOURCES, load_plugin, plugin_names
from longline.core.errors import BadSource, ConfigError, MissingExtra
from longline.http.middleware.base import MiddlewareFactory
from longline.http.transports.browser.options import check_browser
from longline.sources.base import Source
from longline.sources.job_files import check_reference
from longline.sources.library import SUFFIXES
from longline.sources.manifest import (
    KIND,
    Manifest,
    make_manifest,
    parse_manifest,
    resolve_files,
)

BUILT_IN = {
    "n8n": "longline.sources.catalogue.n8n.source:N8n",
}
# By kind of manifest; each module is imported only when it is used.
_FACTORIES = {
    "html": "longline.sources.html.source:html_source",
    "api": "longline.sources.api.source:api_source",
    "command": "longline.sources.adapters.command:command_source",
}
_BROWSER_EXTRA = ("browser", "playwright")
_VERSION = "__longline_version__"  # modification time and size of an executed file


class UnknownSource(ConfigError):
    """No source has this name."""

    name: str
    known: tuple[str, ...]
    message = "no source is named {name!r}"
    hint = (
        "Known sources: {known}. A file (my_source.py, job.yaml) or package.module:Class works too."
    )


def load_source(reference: str, manifest: Mapping[str, Any] | None = None) -> type[Source]:
    """Return the class of a source.

    Args:
        reference: the reference that a user wrote.
        manifest: the values of its manifest, for a source that a job stores.

    Raises:
        UnknownSource: there is no source of that name.
        BadSource: the file or module has no usable source.
        BadFile: the manifest is invalid.
    """
    if manifest is not None:
        return _source_of_manifest(make_manifest(manifest), manifest[KIND])
    check_reference(reference)
    if reference.endswith(SUFFIXES):
        return _load_manifest_file(Path(reference))
    target = BUILT_IN.get(reference, reference)
    if target.endswith(".py"):
        return _only_source(reference, _load_python_file(Path(target)))
    if ":" not in target:
        return _load_plugin_source(reference)
    place, _, name = target.rpartition(":")
    is_file = place.endswith(".py")
    module = _load_python_file(Path(place)) if is_file else _import_module(reference, place)
    found = getattr(module, name, None)
    if found is None:
        raise BadSource(reference, f"there is no {name!r} in {place}")
    return _check_definition(reference, as_source(reference, found))


def as_source(reference: str, found: Any) -> type[Source]:
    """Return a source class, or the source that adapts a spider or a function.

    Raises:
        BadSource: it is none of these.
    """
    if isinstance(found, type) and issubclass(found, Source):
        return found
    # A spider exists only if Scrapy is imported already.
    scrapy = sys.modules.get("scrapy")
    if scrapy is not None and isinstance(found, type) and issubclass(found, scrapy.Spider):
        from longline.sources.adapters.scrapy.source import scrapy_source  # noqa: PLC0415

        return scrapy_source(found)
    if callable(found) and not isinstance(found, type):
        # Imported only here because `requests` is slow to import.
        from longline.sources.adapters.function import function_source  # noqa: PLC0415

        return function_source(found)
    problem = "it is neither a subclass of longline.Source, nor a function, nor a Scrapy spider"
    raise BadSource(reference, problem)


def _load_plugin_source(reference: str) -> type[Source]:
    found = load_plugin(SOURCES, reference)
    if found is None:
        raise UnknownSource(reference, tuple(sorted([*BUILT_IN, *plugin_names(SOURCES)])))
    return _check_definition(reference, as_source(reference, found))


def _load_manifest_file(path: Path) -> type[Source]:
    document = read_document(path)
    parse_manifest(document)  # for errors with a position in the file
    values = resolve_files(document.values, path.parent)
    return _source_of_manifest(make_manifest(values), values[KIND])


def _source_of_manifest(manifest: Manifest, kind: str) -> type[Source]:
    module, _, name = _FACTORIES[kind].partition(":")
    make: Callable[[Manifest], type[Source]] = getattr(importlib.import_module(module), name)
    return make(manifest)


def _import_module(reference: str, name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:  # unlike `python -m`, a console script does not add it
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == "scrapy":
            raise MissingExtra("scrapy", reference) from error
        raise BadSource(reference, str(error)) from error
    except (Exception, SystemExit) as error:
        raise BadSource(reference, f"{type(error).__name__}: {error}") from error


def _load_python_file(path: Path) -> ModuleType:
    """Return the module of a file; an unchanged file is executed once per process."""
    try:
        found = path.stat()
    except OSError as error:
        raise BadSource(str(path), "there is no such file") from error
    # The prefix keeps a file called json.py from replacing the library.
    folder = blake2b(str(path.resolve().parent).encode(), digest_size=4).hexdigest()
    name, version = f"longline_source_{folder}_{path.stem}", (found.st_mtime_ns, found.st_size)
    known = sys.modules.get(name)
    if known is not None and vars(known).get(_VERSION) == version:
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadSource(str(path), "it is not a Python module")
    module = importlib.util.module_from_spec(spec)
    setattr(module, _VERSION, version)
    sys.modules[spec.name] = module  # dataclasses and pydantic look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise BadSource(str(path), f"{type(error).__name__}: {error}") from error
    return module


def _only_source(reference: str, module: ModuleType) -> type[Source]:
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Source)
        and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        problem = (
            f"it defines {len(found)} subclasses of longline.Source instead of one; "
            f"name a source, a function or a spider in it: {reference}:NAME"
        )
        raise BadSource(reference, problem)
    return _check_definition(reference, found[0])


def _check_definition(reference: str, found: type[Source]) -> type[Source]:
    if not getattr(found, "name", ""):
        raise BadSource(reference, f"{found.__name__} has no name")
    if not found.layers():
        raise BadSource(reference, f"{found.__name__} has no @layer")
    if found.discover is Source.discover:
        raise BadSource(reference, f"{found.__name__} has no discover()")
    return found


def load_middlewares(source: type[Source]) -> tuple[MiddlewareFactory, ...]:
    """Return the middlewares that a source adds to the request chain.

    Raises:
        BadSource: one does not exist or cannot be loaded.
    """
    return tuple(_load_middleware(source, one) for one in source.middlewares)


def _load_middleware(source: type[Source], one: str | MiddlewareFactory) -> MiddlewareFactory:
    found = load_plugin(MIDDLEWARES, one) if isinstance(one, str) else one
    if not callable(found):
        known = ", ".join(plugin_names(MIDDLEWARES)) or "none"
        raise BadSource(source.name, f"there is no middleware {one!r}; installed: {known}")
    make: MiddlewareFactory = found
    return make


def check_needs(source: type[Source], chromium: str | None = None) -> None:
    """Check that everything a source needs is available.

    Args:
        source: the source.
        chromium: the browser to use, if one is configured.

    Raises:
        MissingExtra: a package is not installed.
        NoBrowser: there is no browser.
        UnknownSecret: a secret cannot be read.
    """
    needs = source.needs
    extras = dict(needs.extras)
    if needs.browser or source.transport != "http":
        extras.setdefault(*_BROWSER_EXTRA)
    for extra, module in extras.items():
        if importlib.util.find_spec(module) is None:
            raise MissingExtra(extra, f"the source {source.name}")
    if _BROWSER_EXTRA[0] in extras:
        check_browser(chromium)
    for secret in needs.secrets:
        secret.check()
