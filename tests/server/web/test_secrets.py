"""Secrets that a site repeats, and those of settings, are on no page and in no response."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urldefrag

import pytest
from aiohttp import web

from longline import Orchestrator
from longline.monitoring.log_store import pass_on_logs
from tests.monitoring.test_log_secrecy import (
    BROKEN,
    FORMS,
    NUMBER,
    SECRET,
    SHOP,
    echo_secrets,
)
from tests.scripted_site import ScriptedSite
from tests.server.web.conftest import Dashboard

PLANTED = (*FORMS, "unknown-secret", "t0ken-x")
MOST_PAGES = 50


async def run_sources(dashboard: Dashboard, site: ScriptedSite, folder: Path) -> None:
    """Run a source that logs what the site repeats, and one that fails with it."""

    async def repeat(request: web.Request) -> web.StreamResponse:
        return web.Response(text=echo_secrets(request))

    site.answers["/echo"] = repeat
    host = site.url.partition("://")[2]
    query = {"kind": "query", "name": "key", "value": "env:SHOP_PIN", "hosts": [host]}
    header = {"kind": "header", "name": "X-Api-Key", "value": "env:SHOP_PW", "hosts": [host]}
    async with Orchestrator(settings=dashboard.settings) as longline:
        for name, text, auth in (("shop", SHOP, query), ("broken", BROKEN, header)):
            source = folder / f"{name}.py"
            filled = text.format(url=site.url, step="page", is_optional=False)
            source.write_text(filled.replace('name = "shop"', f'name = "{name}"'))
            spec = {"auth": auth, "rate": "unlimited", "ignore_robots": [host]}
            await longline.execute(str(source), spec, fresh=True)
        pass_on_logs()
        await longline.store.events.append()


async def pages_of(dashboard: Dashboard) -> dict[str, str]:
    """Return the pages that links lead to, from the first one on."""
    found: dict[str, str] = {}
    waiting = ["/"]
    while waiting and len(found) < MOST_PAGES:
        path = waiting.pop(0)
        if path in found:
            continue
        found[path] = (await dashboard.get(path)).text
        links = re.findall(r'href="(/[^"]*)"', found[path])
        waiting += [urldefrag(one.replace("&amp;", "&")).url for one in links]
    return found


async def answers_of(dashboard: Dashboard) -> dict[str, str]:
    """Return what the API answers at each address without parameters."""
    schema = re.findall(r'"(/api/v1/[a-z-]+)":\{"get"', await document_of(dashboard))
    return {path: (await dashboard.api("GET", path)).text for path in schema}


async def document_of(dashboard: Dashboard) -> str:
    return (await dashboard.api("GET", "/api/v1/openapi.json")).text


async def test_planted_secrets_are_on_no_page(
    dashboard: Dashboard, site: ScriptedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PW", SECRET)
    monkeypatch.setenv("SHOP_PIN", NUMBER)
    await run_sources(dashboard, site, tmp_path)

    pages = await pages_of(dashboard)
    answers = await answers_of(dashboard)

    texts = {**pages, **answers}
    assert len(pages) > 20
    assert len(answers) > 8
    assert "cannot read" in "".join(texts.values())
    assert [(path, one) for path, text in texts.items() for one in PLANTED if one in text] == []
