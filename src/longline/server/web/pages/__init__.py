"""The pages of the dashboard: each module here is one subject.

A module has a `router` with its pages and actions, and may have `LIVE`: the parts of its pages that
are sent again while someone looks.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

from fastapi import APIRouter

from longline.server.web.live import LivePart


def routers() -> list[APIRouter]:
    """Return the routers of all pages."""
    return [module.router for module in _modules()]


def live_parts() -> Mapping[str, LivePart]:
    """Return the live parts of all pages, by name."""
    return {
        name: part for module in _modules() for name, part in getattr(module, "LIVE", {}).items()
    }


def _modules() -> list[ModuleType]:
    names = sorted(one.name for one in pkgutil.iter_modules(__path__))
    return [import_module(f"{__name__}.{name}") for name in names]
