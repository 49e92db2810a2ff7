"""A dashboard on a free port of this machine, and a browser without scripts that uses it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.server.web.part import WebPart, make_link
from longline.storage.access import CredentialKind, NewCredential, Role
from longline.storage.store import Store, open_store


@dataclass(frozen=True, slots=True)
class Answer:
    """A response; `text` is its body."""

    status: int
    text: str
    headers: Mapping[str, str]


@dataclass(slots=True)
class Dashboard:
    """A running web interface; requests carry the session of an admin unless they say otherwise."""

    url: str
    store: Store
    settings: Settings
    session: aiohttp.ClientSession
    tokens: dict[Role, str] = field(default_factory=dict)

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.request("GET", path, **options)

    async def post(
        self, path: str, form: Mapping[str, str] | None = None, **options: Any
    ) -> Answer:
        headers = {"Sec-Fetch-Site": "same-origin", **options.pop("headers", {})}
        return await self.request("POST", path, data=form or {}, headers=headers, **options)

    async def request(self, method: str, path: str, **options: Any) -> Answer:
        headers = {"Accept": "text/html", **options.pop("headers", {})}
        async with self.session.request(
            method, self.url + path, headers=headers, **options
        ) as response:
            return Answer(response.status, await response.text(), dict(response.headers))

    async def api(
        self, method: str, path: str, *, role: Role = Role.ADMIN, **options: Any
    ) -> Answer:
        """Call the API with a token of a role."""
        if role not in self.tokens:
            new = NewCredential(CredentialKind.TOKEN, f"test-{role}", role, None)
            _, self.tokens[role] = await self.store.credentials.create(new, SystemClock().now())
        headers = {
            "Accept": "application/json",
            "Authorization": f"Bearer {self.tokens[role]}",
            **options.pop("headers", {}),
        }
        return await self.request(method, path, headers=headers, **options)


@pytest.fixture
def web_settings(tmp_path: Path) -> Settings:
    """The settings of the home that the dashboard serves."""
    return Settings(home=tmp_path / "home", sources=(tmp_path / "sources",))


@pytest.fixture
async def dashboard(web_settings: Settings) -> AsyncIterator[Dashboard]:
    """Serve an empty home, with a browser that is logged in."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    web_settings.home.mkdir(parents=True)
    clock = SystemClock()
    with open_store(web_settings.database) as store:
        serving = asyncio.create_task(WebPart(web_settings, clock, listener).run())
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            link = await make_link(store, web_settings, clock.now())
            dashboard = Dashboard(url, store, web_settings, session)
            await dashboard.get(link.partition("8400")[2])
            yield dashboard
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    listener.close()
