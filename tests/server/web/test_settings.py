"""The page of settings and tokens."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from longline.config.settings import Settings
from longline.server.web.pages.settings import read_settings
from longline.storage.access import Credential, Role
from tests.server.web.conftest import Dashboard

NEW = {"name": "grafana", "role": "read", "expires": "30d"}


async def tokens(dashboard: Dashboard) -> list[Credential]:
    return [one for one in await dashboard.store.credentials.tokens() if "test-" not in one.name]


def secret_in(page: str) -> str:
    return page.partition('class="secret">')[2].partition("<")[0]


async def test_settings_are_listed_with_their_origin(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGLINE_CONCURRENCY", "8")

    page = await dashboard.get("/settings")

    assert page.status == 200
    assert page.text.count("<strong class=") == len(Settings.model_fields)
    assert page.text.count("LONGLINE_CONCURRENCY") == 1


def test_a_value_of_the_command_line_has_its_origin(tmp_path: Path) -> None:
    lines, problem = read_settings(Settings(home=tmp_path, timeout=5))

    origins = {one.name: one.origin for one in lines}
    assert problem == ""
    assert origins["home"] == origins["timeout"] != "default"
    assert origins["concurrency"] == "default"


def test_an_invalid_file_is_reported_with_the_settings_that_apply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "longline.yaml").write_text("concurrency: many\n")
    monkeypatch.chdir(tmp_path)

    lines, problem = read_settings(Settings())

    assert "longline.yaml" in problem
    assert len(lines) == len(Settings.model_fields)


def test_passwords_are_not_shown() -> None:
    settings = Settings(
        database_url="postgresql://user:hunter2@db.test/x",
        redis_url="redis://:hunter2@r.test",
        otlp_url="http://user:hunter2@otlp.test/v1",
        proxy_command="rotate --upstream http://user:hunter2@p.test",
        proxy_address="127.0.0.1:1",
    )

    lines, _ = read_settings(settings)

    assert not any("hunter2" in one.value for one in lines)


async def test_the_page_of_a_new_token_loaded_again_is_the_settings(dashboard: Dashboard) -> None:
    answer = await dashboard.get("/settings/tokens", allow_redirects=False)

    assert (answer.status, answer.headers["Location"]) == (303, "/settings")


async def test_the_secret_of_a_new_token_is_shown_once(dashboard: Dashboard) -> None:
    created = await dashboard.post("/settings/tokens", NEW)
    later = await dashboard.get("/settings")

    secret = secret_in(created.text)
    [token] = await tokens(dashboard)
    assert await dashboard.store.credentials.find(secret, time.time()) == token
    assert (token.name, token.role) == ("grafana", Role.READ)
    assert token.expires_at == pytest.approx(time.time() + 30 * 86_400, abs=60)
    assert secret not in later.text
    assert created.headers["Cache-Control"] == "no-store"


async def test_a_token_may_have_no_end(dashboard: Dashboard) -> None:
    await dashboard.post("/settings/tokens", {**NEW, "expires": ""})

    [token] = await tokens(dashboard)
    assert token.expires_at is None


@pytest.mark.parametrize(
    "change", [{"name": ""}, {"name": "n" * 101}, {"role": "root"}, {"expires": "9999d"}]
)
async def test_an_invalid_token_is_refused(dashboard: Dashboard, change: dict[str, str]) -> None:
    assert (await dashboard.post("/settings/tokens", {**NEW, **change})).status == 422
    assert await tokens(dashboard) == []


async def test_a_token_is_revoked(dashboard: Dashboard) -> None:
    await dashboard.post("/settings/tokens", NEW)
    [token] = await tokens(dashboard)

    answer = await dashboard.post(f"/settings/tokens/{token.id}/revoke", allow_redirects=False)
    again = await dashboard.post(f"/settings/tokens/{token.id}/revoke")

    page = await dashboard.get("/settings")
    assert (answer.status, again.status) == (303, 404)
    assert page.text.count("● revoked") == 1
    assert f"/settings/tokens/{token.id}/revoke" not in page.text


@pytest.mark.parametrize("role", [Role.READ, Role.OPERATE])
async def test_only_an_admin_manages_tokens(dashboard: Dashboard, role: Role) -> None:
    await dashboard.post("/settings/tokens", NEW)
    [token] = await tokens(dashboard)

    page = await dashboard.api("GET", "/settings", role=role, headers={"Accept": "text/html"})
    added = await dashboard.api("POST", "/settings/tokens", role=role, data=NEW)
    revoked = await dashboard.api("POST", f"/settings/tokens/{token.id}/revoke", role=role)

    assert (page.status, added.status, revoked.status) == (200, 403, 403)
    assert "grafana" not in page.text
    assert await tokens(dashboard) == [token]
