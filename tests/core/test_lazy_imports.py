"""Imports do not change what the garbage collector does."""

from __future__ import annotations

import gc
import weakref

import pytest

from longline.core.lazy_imports import import_now


class Node:
    """An object that refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.own = self


def test_importing_a_known_module_lets_young_garbage_be_collected() -> None:
    gc.collect()
    garbage = weakref.ref(Node())

    import_now("json")
    gc.collect(0)

    assert garbage() is None


def test_the_collector_is_enabled_after_a_failed_import() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_now("longline.nothing_of_this_name")

    assert gc.isenabled()
