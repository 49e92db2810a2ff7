"""From what a user calls a source to the class: a name, a Python file, or package.module:Class."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from longline.errors import BadSource, UnknownSource
from longline.sources.base import Source

BUILT_IN = {
    "n8n": "longline.sources.catalogue.n8n:N8n",
}


def load_source(reference: str) -> type[Source]:
    """Return the class of a source.

    Raises:
        UnknownSource: there is no source of that name.
        BadSource: the file or module holds none that can be used.
    """
    target = BUILT_IN.get(reference, reference)
    if target.endswith(".py"):
        return _only_source(reference, _from_file(Path(target)))
    if ":" not in target:
        raise UnknownSource(reference, tuple(sorted(BUILT_IN)))
    module_name, _, class_name = target.partition(":")
    found = getattr(_imported(reference, module_name), class_name, None)
    if not (isinstance(found, type) and issubclass(found, Source)):
        raise BadSource(reference, f"{class_name!r} is not a subclass of longline.Source")
    return _checked(reference, found)


def _imported(reference: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise BadSource(reference, f"{type(error).__name__}: {error}") from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise BadSource(str(path), "there is no such file")
    # A name of its own: a file called json.py must not take the place of the library.
    spec = importlib.util.spec_from_file_location(f"longline_source_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise BadSource(str(path), "it is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pydantic look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
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
        problem = f"it defines {len(found)} subclasses of longline.Source, and must define one"
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
