"""Secrets in headers, URLs, bodies, settings and errors are in no stored log line or reason."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path
from urllib.parse import quote

import pytest
from aiohttp import web

from longline import Orchestrator
from longline.config.settings import Settings
from longline.core.errors import ServerFailed
from longline.monitoring.log_store import pass_on_logs
from longline.storage.monitoring.logs import LogFilter, LogLine
from longline.storage.store import Store
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

SECRET = 'hunter2"/7f3a-planted'  # noqa: S105  # not a real one
NUMBER = "8417253946"
LOG = logging.getLogger("longline.test")
FORMS = (
    SECRET,
    quote(SECRET, safe=""),
    SECRET.replace('"', '\\"'),
    base64.b64encode(SECRET.encode()).decode(),
    "7f3a-planted",
    NUMBER,
)
SHOP = """
import logging
from longline import Item, Source, layer

LOG = logging.getLogger("longline.shop")


class Shop(Source):
    name = "shop"

    async def discover(self, visit):
        yield Item("1", "{url}/echo")

    @layer()
    async def page(self, visit):
        page = await visit.fetch(visit.item.url)
        LOG.warning("got %s", page.text, extra={{"headers": dict(page.headers), "url": page.url}})
        try:
            raise ValueError(f"cannot read {{page.text}}")
        except ValueError as error:
            LOG.exception("bad page: %s", error)
        return {{"title": "one"}}
"""


@pytest.fixture
async def home(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Orchestrator]:
    monkeypatch.setenv("SHOP_PW", SECRET)
    monkeypatch.setenv("SHOP_PIN", NUMBER)
    settings = Settings(home=tmp_path / "home", redis_url=None)
    async with Orchestrator(settings=settings, clock=clock) as longline:
        yield longline


async def lines_of(store: Store) -> list[LogLine]:
    pass_on_logs()
    await store.events.append()  # the writer has then done all that was passed to it before
    found, _ = await store.logs.search(LogFilter(), limit=1000)
    return found


def shown(line: LogLine) -> str:
    return "\n".join(str(getattr(line, field.name)) for field in fields(line))


def echo_secrets(request: web.Request) -> str:
    """Return all that a site may repeat of what it was sent."""
    return "\n".join([str(request.url), *map(str, request.headers.items())])


async def test_a_site_that_repeats_its_secrets(
    home: Orchestrator, site: ScriptedSite, tmp_path: Path
) -> None:
    async def repeat(request: web.Request) -> web.StreamResponse:
        echoed = {"X-Echo": request.headers.get("X-Api-Key", "")}
        return web.Response(text=echo_secrets(request), headers=echoed)

    site.answers["/echo"] = repeat
    source = tmp_path / "shop.py"
    source.write_text(SHOP.format(url=site.url))
    host = site.url.partition("://")[2]
    for auth in (
        {"kind": "header", "name": "X-Api-Key", "value": "env:SHOP_PW"},
        {"kind": "query", "name": "key", "value": "env:SHOP_PW"},
        {"kind": "query", "name": "pin", "value": "env:SHOP_PIN"},
        {"kind": "basic", "user": "me", "password": "env:SHOP_PW"},
        {"kind": "bearer", "token": "env:SHOP_PW"},
    ):
        spec = {"auth": {**auth, "hosts": [host]}, "rate": "unlimited", "ignore_robots": [host]}
        await home.execute(str(source), spec, fresh=True)

    found = await lines_of(home.store)

    assert len(found) == 10
    assert [form for form in FORMS for line in found if form in shown(line)] == []


async def test_what_is_logged_about_requests_settings_and_errors(home: Orchestrator) -> None:
    Settings(
        database_url=f"postgresql://me:{quote(SECRET, safe='')}@db.test/x",
        redis_url=f"redis://:{NUMBER}@redis.test/0",
        home=Path("nowhere"),
    )
    error = ServerFailed(f"https://me:{quote(SECRET, safe='')}@a.test/?token={NUMBER}", 500)

    LOG.warning("settings %s", {"password": SECRET, "pin": int(NUMBER)}, extra={"pin": int(NUMBER)})
    LOG.warning("body", extra={"body": f'{{"password": "{SECRET}"}}', "deep": [{SECRET: [SECRET]}]})
    LOG.warning("headers", extra={"headers": {"Authorization": f"Bearer {SECRET}"}})
    LOG.error("failed: %s", error, exc_info=error)
    LOG.warning("https://a.test/?api_key=unknown-secret&x=1 Bearer unknown-secret2")

    found = await lines_of(home.store)
    assert len(found) == 5
    forms = (*FORMS, "unknown-secret")
    assert [form for form in forms for line in found if form in shown(line)] == []
    assert sum(shown(line).count("***") for line in found) >= 10


BROKEN = """
from longline import Item, Source, layer


class Shop(Source):
    name = "shop"
    step: str = "{step}"

    async def discover(self, visit):
        if self.step == "discover":
            await self.fail(visit, "{url}/echo")
        yield Item("1", "{url}/echo")

    @layer(optional={is_optional})
    async def page(self, visit):
        await self.fail(visit, visit.item.url)

    @layer()
    async def rest(self, visit):
        return {{"title": "one"}}

    async def fail(self, visit, url):
        page = await visit.fetch(url)
        raise ValueError(f"cannot read {{page.text}} http://me:unknown-secret@a.test/?token=t0ken-x")
"""


@pytest.mark.parametrize(
    ("step", "is_optional"), [("discover", False), ("page", False), ("page", True)]
)
async def test_an_error_that_quotes_secrets_is_stored_without_them(
    home: Orchestrator, site: ScriptedSite, tmp_path: Path, step: str, *, is_optional: bool
) -> None:
    async def repeat(request: web.Request) -> web.StreamResponse:
        return web.Response(text=echo_secrets(request))

    site.answers["/echo"] = repeat
    source = tmp_path / "shop.py"
    source.write_text(BROKEN.format(url=site.url, step=step, is_optional=is_optional))
    host = site.url.partition("://")[2]
    auth = {"kind": "header", "name": "X-Api-Key", "value": "env:SHOP_PW", "hosts": [host]}

    await home.execute(
        str(source), {"auth": auth, "rate": "unlimited", "ignore_robots": [host]}, fresh=True
    )

    await home.store.events.append()
    stored = b"".join(one.read_bytes() for one in (tmp_path / "home").glob("longline.sqlite*"))
    found = [form for form in (*FORMS, "unknown-secret", "t0ken-x") if form.encode() in stored]
    assert found == []
    assert b"cannot read" in stored
