"""Random requests find no server error, and no response that breaks its schema."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from longline.config.settings import Settings
from tests.server.web.api.filled import Filled
from tests.server.web.api.fuzzing import fuzz
from tests.server.web.conftest import Dashboard

PROXY_USER = {"X-Remote-User": "fuzz", "Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def web_settings(tmp_path: Path) -> Settings:
    """The settings of a home whose users a proxy authenticates."""
    return Settings(
        home=tmp_path / "home",
        sources=(tmp_path / "sources",),
        flows=(tmp_path / "flows",),
        web_user_header="X-Remote-User",
        web_user_role="admin",
        web_trusted_proxies=("127.0.0.1",),
    )


async def test_random_requests_break_nothing(
    dashboard: Dashboard, filled: Filled, document: dict[str, Any]
) -> None:
    # The examples of the document name a job that exists.
    text = json.dumps(document).replace("shop-20261118-080000-ab12", filled.open_job)

    found = await asyncio.to_thread(
        fuzz,
        json.loads(text),
        dashboard.url,
        PROXY_USER,
        seed=1,
        phases=("examples", "fuzzing"),
        known=filled.parameters(),
        examples=1,
        seconds=6,
    )

    assert found.problems == {}
    assert found.requests > 10
