"""The editor of sources: validate, try, compare, save, and propose."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from longline.sandbox.web import PracticeWeb
from longline.server.web.source_files import version_of
from longline.storage.access import Role
from tests.server.web.conftest import Dashboard
from tests.server.web.test_sources import write_manifest

HOSTILE = "</textarea><script>alert(1)</script>"


async def test_the_editor_shows_the_text(dashboard: Dashboard) -> None:
    path = write_manifest(dashboard)

    answer = await dashboard.get(f"/sources/edit?file={quote(str(path))}")

    assert answer.status == 200
    assert "elements: div.quote" in answer.text
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize("file", ["/etc/passwd", "", "../longline.yaml", "\x00"])
async def test_only_files_of_sources_are_edited(dashboard: Dashboard, file: str) -> None:
    shown = await dashboard.get(f"/sources/edit?file={quote(file)}")
    saved = await dashboard.post("/sources/edit", {"file": file, "text": "x", "action": "save"})

    assert (shown.status, saved.status) == (422, 422)


async def test_an_error_is_shown_with_its_position(dashboard: Dashboard) -> None:
    path = write_manifest(dashboard)
    text = f"manifest: html\nname: quotes\nstart: {HOSTILE}\nfields: 1\n"

    answer = await dashboard.post(
        "/sources/edit", {"file": str(path), "text": text, "action": "check"}
    )

    assert answer.status == 422
    assert "Line " in answer.text
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize("key", ["alerts: {few-recrds: {min: 10}}", "schedule: {cron: 61 * * * *}"])
async def test_alerts_and_schedules_are_checked_too(dashboard: Dashboard, key: str) -> None:
    path = write_manifest(dashboard)
    text = f"{path.read_text()}{key}\n"

    answer = await dashboard.post(
        "/sources/edit", {"file": str(path), "text": text, "action": "check"}
    )

    assert answer.status == 422


async def test_a_change_is_compared_and_saved(dashboard: Dashboard) -> None:
    path = write_manifest(dashboard)
    text = path.read_text().replace("span.text", "span.quote")
    form = {"file": str(path), "version": version_of(path.read_bytes())}
    form["text"] = text.replace("\n", "\r\n")

    reviewed = await dashboard.post("/sources/edit", {**form, "action": "review"})
    saved = await dashboard.post("/sources/edit", {**form, "action": "save"}, allow_redirects=False)

    assert 'class="new">+  text: span.quote' in reviewed.text
    assert saved.status == 303
    assert path.read_text() == text


async def test_a_file_that_changed_meanwhile_is_kept(dashboard: Dashboard) -> None:
    path = write_manifest(dashboard)
    form = {"file": str(path), "version": version_of(b"before"), "text": path.read_text()}
    before = path.read_text()

    answer = await dashboard.post("/sources/edit", {**form, "action": "save"})

    assert answer.status == 409
    assert path.read_text() == before


async def test_an_edited_text_loaded_again_is_that_of_the_file(dashboard: Dashboard) -> None:
    path = write_manifest(dashboard)
    form = {"file": str(path), "text": path.read_text(), "action": "check"}

    answer = await dashboard.post("/sources/edit", form)

    action = answer.text.partition('<form method="post" action="/sources/edit')[2].partition('"')[0]
    assert (await dashboard.get(f"/sources/edit{action}")).status == 200


@pytest.mark.parametrize("path", ["/sources/new", "/sources/edit", "/sources/save"])
async def test_only_an_admin_writes_sources(dashboard: Dashboard, path: str) -> None:
    answer = await dashboard.api("POST", path, role=Role.OPERATE, data={"url": "http://x.test/"})

    assert answer.status == 403


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "http://", "a b", ""])
async def test_only_web_pages_are_proposed(dashboard: Dashboard, url: str) -> None:
    answer = await dashboard.post("/sources/new", {"url": url})

    assert answer.status == 422


async def test_a_new_source_is_saved_once(dashboard: Dashboard) -> None:
    text = write_manifest(dashboard).read_text()

    again = await dashboard.post("/sources/save", {"text": text})
    other = await dashboard.post(
        "/sources/save", {"text": text.replace("quotes", "others")}, allow_redirects=False
    )

    assert (again.status, other.status) == (422, 303)
    assert (dashboard.settings.sources[0] / "others.yaml").is_file()


@pytest.mark.parametrize("name", ["new", "edit"])
async def test_a_reserved_name_is_refused(dashboard: Dashboard, name: str) -> None:
    text = write_manifest(dashboard).read_text().replace("quotes", name)

    assert (await dashboard.post("/sources/save", {"text": text})).status == 422


@pytest.mark.real_time
async def test_a_source_is_proposed_saved_and_tried(dashboard: Dashboard) -> None:
    async with PracticeWeb() as practice:
        proposed = await dashboard.post("/sources/new", {"url": f"{practice.url}/quotes/"})
        text = proposed.text.partition("<textarea")[2].partition(">\n")[2].partition("</text")[0]
        plain = text.replace("&gt;", ">").replace("&#34;", '"').replace("&#39;", "'")
        saved = await dashboard.post(
            "/sources/save", {"text": plain.replace("&amp;", "&")}, allow_redirects=False
        )
        checked = await dashboard.post("/sources/check", {"source": "site-quotes"})

    assert (proposed.status, saved.status, checked.status) == (200, 303, 200)
    assert "would be stored" in checked.text
