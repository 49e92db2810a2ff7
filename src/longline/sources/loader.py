"""From what a user calls a source to the class: a name, a Python file, or package.module:Class."""

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
from longline.config.manifests.base import Manifest
from longline.config.manifests.kinds import KEY, make_manifest, manifest_in
from longline.config.manifests.pipeline import with_files
from longline.config.plugins import SOURCES, load_plugin, plugin_names
from longline.config.run_files import SUFFIXES, check_reference
from longline.core.errors import BadSource, ConfigError, MissingExtra
from longline.http.transports.browser.options import check_browser
from longline.sources.adapters.existing import as_source
from longline.sources.base import Source

BUILT_IN = {
    "n8n": "longline.sources.catalogue.n8n.source:N8n",
}


# From a kind of manifest to what makes a source of it; each is imported only when it is used.
_ADAPTERS = {
    "html": "longline.sources.html.source:html_source",
    "api": "longline.sources.api.source:api_source",
    "command": "longline.sources.adapters.command:command_source",
}

_VERSION = "__longline_version__"  # of a file that was executed: when it was written, and its size


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
        reference: what a user calls it.
        manifest: what it is made of, for a source that was read from a manifest.

    Raises:
        UnknownSource: there is no source of that name.
        BadSource: the file or module holds none that can be used.
        BadFile: the manifest is broken.
    """
    if manifest is not None:
        return _adapted(make_manifest(manifest), manifest[KEY])
    check_reference(reference)
    if reference.endswith(SUFFIXES):
        return _from_manifest(Path(reference))
    target = BUILT_IN.get(reference, reference)
    if target.endswith(".py"):
        return _only_source(reference, _from_file(Path(target)))
    if ":" not in target:
        return _from_plugin(reference)
    place, _, name = target.rpartition(":")
    module = _from_file(Path(place)) if place.endswith(".py") else _imported(reference, place)
    found = getattr(module, name, None)
    if found is None:
        raise BadSource(reference, f"there is no {name!r} in {place}")
    return _checked(reference, as_source(reference, found))


def _from_plugin(reference: str) -> type[Source]:
    found = load_plugin(SOURCES, reference)
    if found is None:
        raise UnknownSource(reference, tuple(sorted([*BUILT_IN, *plugin_names(SOURCES)])))
    return _checked(reference, as_source(reference, found))


def _from_manifest(path: Path) -> type[Source]:
    document = read_document(path)
    manifest_in(document)  # whose errors have a place in the file
    values = with_files(document.values, path.parent)
    return _adapted(make_manifest(values), values[KEY])


def _adapted(manifest: Manifest, kind: str) -> type[Source]:
    module, _, name = _ADAPTERS[kind].partition(":")
    adapt: Callable[[Manifest], type[Source]] = getattr(importlib.import_module(module), name)
    return adapt(manifest)


def _imported(reference: str, name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:  # a console script does not look there by itself, as `python -m` does
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == "scrapy":
            raise MissingExtra("scrapy", reference) from error
        raise BadSource(reference, str(error)) from error
    except (Exception, SystemExit) as error:
        raise BadSource(reference, f"{type(error).__name__}: {error}") from error


def _from_file(path: Path) -> ModuleType:
    """Return the module of a file; a file that has not changed is executed once in a process."""
    try:
        found = path.stat()
    except OSError as error:
        raise BadSource(str(path), "there is no such file") from error
    # A name of its own: a file called json.py must not take the place of the library.
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
            f"it defines {len(found)} subclasses of longline.Source, and must define one; "
            f"name another source, a function or a spider in it: {reference}:NAME"
        )
        raise BadSource(reference, problem)
    return _checked(reference, found[0])


def _checked(reference: str, found: type[Source]) -> type[Source]:
    if not getattr(found, "name", ""):
        raise BadSource(reference, f"{found.__name__} has no name")
    if not found.layers():
        raise BadSource(reference, f"{found.__name__} has no @layer")
    if found.discover is Source.discover:
        raise BadSource(reference, f"{found.__name__} has no discover()")
    return found


# ---------------- Whether all that a source needs is there, before it makes its first request

_BROWSER = ("browser", "playwright")


def check_needs(source: type[Source], chromium: str | None = None) -> None:
    """See that a source has what it declares; `chromium` names the browser to use, if one is.

    Raises:
        MissingExtra: a package is not installed.
        NoBrowser: there is no browser.
        UnknownSecret: a secret cannot be read.
    """
    needs = source.needs
    wanted = dict(needs.extras)
    if needs.browser or source.transport != "http":
        wanted.setdefault(*_BROWSER)
    for extra, module in wanted.items():
        if importlib.util.find_spec(module) is None:
            raise MissingExtra(extra, f"the source {source.name}")
    if _BROWSER[0] in wanted:
        check_browser(chromium)
    for secret in needs.secrets:
        secret.check()
