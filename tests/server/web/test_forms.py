"""Errors of forms name the fields that a person has filled in."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import pytest

from longline.config.settings import Settings
from tests.server.web.conftest import Dashboard
from tests.server.web.test_flows import write_flow
from tests.server.web.test_sources import write_manifest

RUN = {"source": "quotes"}
PIN = {"domain": "shop.test", "rate": "1"}
SCHEDULE = {"name": "mine", "runs": "quotes", "trigger": "cron", "when": "1 * * * *"}
FLOW = {**SCHEDULE, "target": "flow"}


@pytest.fixture
def web_settings(tmp_path: Path) -> Settings:
    """The settings of a home with folders of sources and flows."""
    (tmp_path / "flows").mkdir()
    sources, flows = (tmp_path / "sources",), (tmp_path / "flows",)
    return Settings(home=tmp_path / "home", sources=sources, flows=flows)


@pytest.mark.parametrize(("site", "count"), [("same-origin", 1), ("cross-site", 0), ("none", 0)])
async def test_only_own_pages_say_what_was_done(
    dashboard: Dashboard, site: str, count: int
) -> None:
    page = await dashboard.get("/jobs?done=Paused", headers={"Sec-Fetch-Site": site})

    assert page.text.count("✓ Paused") == count


@pytest.mark.parametrize(
    ("path", "form", "field"),
    [
        ("/sources/run", {**RUN, "limit": "0"}, "Maximum records"),
        ("/sources/run", {**RUN, "rate": "-1"}, "Requests per second"),
        ("/sources/run", {**RUN, "set.size": "1"}, "size"),
        ("/sources/check", {**RUN, "set.size": "1"}, "size"),
        ("/domains/pin", {**PIN, "domain": ""}, "Domain"),
        ("/domains/pin", {**PIN, "rate": "-1"}, "Requests per second"),
        ("/domains/pin", {**PIN, "burst": "0"}, "Burst"),
        ("/schedules", {**SCHEDULE, "name": "a/b"}, "Name"),
        ("/schedules", {**SCHEDULE, "runs": ""}, "Source or flow"),
        ("/schedules", {**FLOW, "runs": "none"}, "Source or flow"),
        ("/schedules", {**SCHEDULE, "when": "61 * * * *"}, "When"),
        ("/schedules", {**SCHEDULE, "timezone": "Moon"}, "Time zone"),
        ("/alerts/silences", {"rule": "none*"}, "Rule"),
        ("/alerts/silences", {"subject": "moon/x"}, "Subject"),
        ("/settings/tokens", {"name": "", "role": "read"}, "Name"),
        ("/settings/tokens", {"name": "a", "role": "read", "expires": "x"}, "Expires"),
        ("/flows/run", {"flow": "publish", "param.size": "1"}, "size"),
    ],
)
async def test_a_refused_form_names_its_field(
    dashboard: Dashboard, path: str, form: dict[str, str], field: str
) -> None:
    write_manifest(dashboard)
    write_flow(dashboard)

    answer = await dashboard.post(path, form)

    assert (answer.status, f'<p class="prose">{field}: ' in answer.text) == (422, True)


@pytest.mark.parametrize(
    ("form", "field"), [({"url": "a b"}, "Address"), ({"url": "x.test", "name": "A"}, "Name")]
)
async def test_a_refused_address_of_a_new_source_names_its_field(
    dashboard: Dashboard, form: dict[str, str], field: str
) -> None:
    answer = await dashboard.post("/sources/new", form)

    assert (answer.status, f"▲ {field}: " in answer.text) == (422, True)


@pytest.mark.parametrize(
    ("path", "name", "field"),
    [
        ("/records", "where", "Condition"),
        ("/records", "since", "Changed since"),
        ("/records", "min_score", "Minimum score"),
        ("/records", "columns", "Columns"),
        ("/records/export", "columns", "Columns"),
        ("/logs", "since", "Since"),
        ("/logs", "until", "Until"),
        ("/events", "type", "Type"),
    ],
)
async def test_a_refused_filter_names_its_field(
    dashboard: Dashboard, path: str, name: str, field: str
) -> None:
    answer = await dashboard.get(f"{path}?{urlencode({name: '@x'})}")

    assert f">{field}: " in answer.text.replace("▲ ", "")
