"""Import modules when they are first used."""

from __future__ import annotations

import gc
import importlib
import sys
from types import ModuleType


def import_now(name: str) -> ModuleType:
    """Import a module, without collecting garbage while it is loaded.

    Nearly all objects that an import creates stay; looking for garbage among them took a tenth of
    the time of an import.
    """
    if name in sys.modules:  # perhaps another thread is loading it
        return importlib.import_module(name)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        if was_enabled:
            if not gc.get_freeze_count():
                # Makes all objects old ones, which are not looked through soon.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
