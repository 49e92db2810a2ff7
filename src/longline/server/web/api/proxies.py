"""Proxies: the pool, and its refresh."""

from __future__ import annotations

from dataclasses import asdict

from longline.core.errors import NotFoundError
from longline.server.models import Page, ProxyInfo, ProxyRefresh
from longline.server.web.api.requests import CursorText, Limit, api_router, page_in_memory
from longline.server.web.context import Home
from longline.services.proxies import proxies_json, read_overview, start_refresh
from longline.storage.proxy_refresh import Refresh

router = api_router("proxies")


class NoRefreshYet(NotFoundError):
    """The proxies were never refreshed."""

    message = "the proxies were never refreshed"
    hint = "`longline proxies refresh` refreshes them."


@router.get("/proxies")
async def list_proxies(web: Home, limit: Limit = 100, cursor: CursorText = None) -> Page[ProxyInfo]:
    """List the proxies of the pool by address."""
    found = await read_overview(web.settings, web.store, web.clock)
    rows = [ProxyInfo(**one) for one in proxies_json(found)]
    return page_in_memory(rows, limit, cursor, lambda one: (one.address,))


@router.get("/proxies/refresh")
async def get_proxy_refresh(web: Home) -> ProxyRefresh:
    """Return the open refresh of the proxies, or the last one."""
    found = await web.store.proxy_refreshes.last()
    if found is None:
        raise NoRefreshYet
    return _refresh_of(found)


@router.post("/proxies/refresh")
async def refresh_proxies(web: Home) -> ProxyRefresh:
    """Begin a refresh of the proxies, unless one is open."""
    return _refresh_of(await start_refresh(web.settings, web.store, web.clock))


def _refresh_of(found: Refresh) -> ProxyRefresh:
    values = asdict(found)
    del values["plan"]
    return ProxyRefresh(**{**values, "step": found.step.value if found.is_open else None})
