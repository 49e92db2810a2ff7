"""Who may use the web interface."""

from __future__ import annotations

import pytest

from longline.core.clock import SystemClock
from longline.server.web.pages import proxies
from longline.server.web.pages.workers import Checkup
from longline.server.web.part import make_link
from longline.storage.access import CredentialKind, NewCredential, Role, UnknownToken
from longline.storage.events.events import EventFilter
from tests.server.web.conftest import Dashboard


async def test_a_link_opens_the_home_page(dashboard: Dashboard) -> None:
    answer = await dashboard.get("/")

    assert answer.status == 200
    assert "longline" in answer.text


async def test_a_link_works_once(dashboard: Dashboard) -> None:
    link = await make_link(dashboard.store, dashboard.settings, SystemClock().now())
    path = link.partition("8400")[2]

    first = await dashboard.get(path, allow_redirects=False)
    second = await dashboard.get(path, allow_redirects=False)

    assert (first.status, second.status) == (303, 403)


async def test_without_a_session_a_page_leads_to_the_login(dashboard: Dashboard) -> None:
    dashboard.session.cookie_jar.clear()

    answer = await dashboard.get("/jobs", allow_redirects=False)

    assert answer.status == 303
    assert answer.headers["Location"] == "/login?next=%2Fjobs"


async def test_without_a_token_the_api_responds_401(dashboard: Dashboard) -> None:
    dashboard.session.cookie_jar.clear()

    answer = await dashboard.get("/api/v1/openapi.json")

    assert answer.status == 401
    assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", ""])
async def test_a_foreign_host_is_refused(dashboard: Dashboard, host: str) -> None:
    answer = await dashboard.get("/", headers={"Host": host})

    assert answer.status == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {},
    ],
)
async def test_a_form_of_another_site_is_refused(
    dashboard: Dashboard, headers: dict[str, str]
) -> None:
    answer = await dashboard.request("POST", "/login/out", headers=headers)

    assert answer.status == 403
    assert (await dashboard.get("/", allow_redirects=False)).status == 200


async def test_a_read_token_changes_nothing(dashboard: Dashboard) -> None:
    answer = await dashboard.api("POST", "/jobs/shop-1/pause", role=Role.READ)

    assert answer.status == 403


async def test_a_person_who_may_only_read_can_log_out(dashboard: Dashboard) -> None:
    await dashboard.api("GET", "/", role=Role.READ)
    dashboard.session.cookie_jar.clear()
    await dashboard.post("/login", {"token": dashboard.tokens[Role.READ]})

    answer = await dashboard.post("/login/out", allow_redirects=False)

    assert answer.status == 303
    assert (await dashboard.get("/", allow_redirects=False)).status == 303


async def test_ten_failed_logins_delay_the_next(dashboard: Dashboard) -> None:
    statuses = [(await dashboard.post("/login", {"token": "wrong"})).status for _ in range(11)]

    assert statuses == [403] * 10 + [429]


async def test_a_login_with_a_token_ends_when_it_is_revoked(dashboard: Dashboard) -> None:
    await dashboard.api("GET", "/")
    dashboard.session.cookie_jar.clear()
    await dashboard.post("/login", {"token": dashboard.tokens[Role.ADMIN]})
    before = await dashboard.get("/", allow_redirects=False)

    await dashboard.store.credentials.revoke("test-admin", SystemClock().now())

    after = await dashboard.get("/", allow_redirects=False)
    assert (before.status, after.status) == (200, 303)


@pytest.mark.parametrize("target", ["//evil.example", "/\\evil.example", "http://evil.example"])
async def test_a_login_leads_to_no_other_site(dashboard: Dashboard, target: str) -> None:
    await dashboard.api("GET", "/")

    answer = await dashboard.post(
        "/login",
        {"token": dashboard.tokens[Role.ADMIN], "next": target},
        allow_redirects=False,
    )

    assert answer.headers["Location"] == "/"


async def test_a_change_is_an_event_with_its_caller(dashboard: Dashboard) -> None:
    await dashboard.api("POST", "/login/out", role=Role.OPERATE)

    [event] = await dashboard.store.events.last(EventFilter(("access.used",)), limit=5)
    assert event.data["caller"] == "test-operate"
    assert event.data["action"] == "POST /login/out"


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("/proxies/refresh", "/proxies"),
        ("/domains/pin", "/domains"),
        ("/schedules/nightly/pause", "/schedules/nightly"),
    ],
)
async def test_the_address_of_a_form_leads_to_its_page(
    dashboard: Dashboard, path: str, page: str
) -> None:
    answer = await dashboard.get(path, allow_redirects=False)

    assert (answer.status, answer.headers["Location"]) == (303, page)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/sources/none", 404),
        ("POST", "/proxies/refresh", 422),
        ("POST", "/sources/accept", 409),
        ("GET", "/workers", 500),
    ],
)
async def test_a_problem_is_shown_in_the_frame_of_the_pages(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch, method: str, path: str, status: int
) -> None:
    monkeypatch.setattr(Checkup, "read", None)

    answer = await dashboard.request(method, path, headers={"Sec-Fetch-Site": "same-origin"})

    assert (answer.status, '<a href="/jobs">' in answer.text) == (status, True)
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/sources/run", {"Sec-Fetch-Site": "same-origin"}, 401),
        ("/login", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("/login/none", {"Sec-Fetch-Site": "same-origin"}, 404),
    ],
)
async def test_a_problem_without_a_session_has_a_link_and_no_frame(
    dashboard: Dashboard, path: str, headers: dict[str, str], status: int
) -> None:
    dashboard.session.cookie_jar.clear()

    answer = await dashboard.request("POST", path, headers=headers)

    assert (answer.status, 'href="/"' in answer.text) == (status, True)
    assert "<nav" not in answer.text


async def test_a_change_that_fails_unexpectedly_is_an_event_too(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxies, "start_refresh", None)

    answer = await dashboard.post("/proxies/refresh")

    [event] = await dashboard.store.events.last(EventFilter(("access.used",)), limit=5)
    assert (answer.status, event.data["status"]) == (500, 500)


async def test_a_name_is_that_of_the_token_that_is_valid(dashboard: Dashboard) -> None:
    credentials, now = dashboard.store.credentials, SystemClock().now()
    old = NewCredential(CredentialKind.TOKEN, "anna", Role.READ, 60.0)
    expired, _ = await credentials.create(old, now - 3600)
    valid, _ = await credentials.create(old, now)

    revoked = await credentials.revoke("anna", now)

    kept = {one.id: one.revoked_at for one in await credentials.tokens()}
    assert (revoked.id, kept[expired.id]) == (valid.id, None)
    with pytest.raises(UnknownToken):
        await credentials.revoke(expired.id, now)
