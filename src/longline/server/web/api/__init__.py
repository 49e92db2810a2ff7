"""The HTTP API under /api/v1: each module here is one subject, with its `router`."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from fastapi import APIRouter


def routers() -> list[APIRouter]:
    """Return the routers of all subjects."""
    names = sorted(one.name for one in pkgutil.iter_modules(__path__))
    found = [import_module(f"{__name__}.{name}") for name in names]
    return [one.router for one in found if hasattr(one, "router")]
