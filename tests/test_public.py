"""What `import longline` promises: every name in `__all__`, found when first asked for."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from importlib.resources import files
from types import ModuleType

import pytest

import longline
from longline.orchestrator import Orchestrator

PACKAGES = [
    "longline",
    *(
        found.name
        for found in pkgutil.walk_packages(longline.__path__, "longline.")
        if found.ispkg and ".migrations" not in found.name
    ),
]


def source_of(module: ModuleType) -> ast.Module:
    assert module.__file__ is not None
    with open(module.__file__, encoding="utf-8") as file:  # noqa: PTH123  # a path as it is
        return ast.parse(file.read())


def imports_of(module: ModuleType) -> set[str]:
    """Return the names that a module imports from ours, whether they run or are for types."""
    return {
        alias.asname or alias.name
        for node in ast.walk(source_of(module))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("longline")
        for alias in node.names
    }


@pytest.mark.parametrize("name", longline.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(longline, name).__module__.startswith("longline.")


def test_type_checkers_see_all_public_names() -> None:
    assert set(longline.__all__) == imports_of(longline)
    assert longline.__all__ == sorted(longline.__all__)


def test_a_public_name_is_the_thing_itself() -> None:
    assert longline.Orchestrator is Orchestrator


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        getattr(longline, "Nothing")  # noqa: B009  # the attribute is not there, and mypy knows


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_list_exactly_what_they_import(package: str) -> None:
    module = importlib.import_module(package)
    listed = set(getattr(module, "__all__", ()))

    assert {name for name in listed if not hasattr(module, name)} == set()
    assert imports_of(module) == listed


def test_the_package_is_typed() -> None:
    assert (files("longline") / "py.typed").is_file()


def test_importing_longline_imports_nothing_heavy() -> None:
    code = "import longline, sys; print(*sys.modules)"

    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    heavy = {"pydantic", "sqlalchemy", "aiohttp", "rich", "yaml", "click"}
    assert heavy & set(answer.stdout.split()) == set()
