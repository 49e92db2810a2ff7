"""Fixtures of the sandbox tests: a practice web and a client for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession

from longline.sandbox.web import PracticeWeb, WebOptions
from tests.sandbox.client import open_client
from tests.virtual import VirtualClock


@pytest.fixture
async def client() -> AsyncIterator[ClientSession]:
    async with open_client() as client:
        yield client


@pytest.fixture
async def web(clock: VirtualClock) -> AsyncIterator[PracticeWeb]:
    async with PracticeWeb(WebOptions(items=60), clock=clock) as web:
        yield web
