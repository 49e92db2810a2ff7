"""The judge of a server: it echoes requests without a login, if it is switched on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longline.config.settings import Settings
from tests.server.web.conftest import Dashboard


@pytest.fixture
def web_settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", web_judge=True)


async def test_the_judge_echoes_without_a_login(dashboard: Dashboard) -> None:
    headers = {"X-Forwarded-For": "198.51.100.7", "Cookie": "", "Accept": "*/*"}
    dashboard.session.cookie_jar.clear()

    answer = await dashboard.get("/judge?x=1", headers=headers)
    posted = await dashboard.post("/judge")

    found = json.loads(answer.text)
    assert (found["address"], found["headers"]["x-forwarded-for"]) == ("127.0.0.1", "198.51.100.7")
    assert found.keys() == {"address", "headers"}
    assert posted.status == 405


async def test_the_judge_is_limited(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longline.server.web.probes._MOST_JUDGED", 0)

    answer = await dashboard.get("/judge")

    assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
