"""A filled home for the tests of the HTTP API, and its OpenAPI document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.orchestrator import Orchestrator
from longline.server.web.app import create_app
from longline.server.web.context import Web
from tests.server.web.api.filled import Filled, fill
from tests.server.web.conftest import Dashboard


@pytest.fixture
def web_settings(tmp_path: Path) -> Settings:
    """The settings of a home with folders of sources and flows."""
    return Settings(
        home=tmp_path / "home", sources=(tmp_path / "sources",), flows=(tmp_path / "flows",)
    )


@pytest.fixture
async def filled(dashboard: Dashboard) -> Filled:
    """Put something of each kind into the home."""
    return await fill(dashboard.settings, dashboard.store)


@pytest.fixture(scope="session")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The OpenAPI document, made without a server."""
    settings = Settings(home=tmp_path_factory.mktemp("document"))
    web = Web(Orchestrator(settings=settings), settings, SystemClock())
    return create_app(web, "127.0.0.1").openapi()
