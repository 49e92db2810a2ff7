"""A checked page as a test: recorded with one command, replayed with another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longline.config.settings import load_settings
from longline.core.errors import BadFile
from longline.core.model import Item, OutcomeAction
from longline.devtools.cases import cases_in, record_case, replay_case
from longline.devtools.check import check_source
from longline.devtools.session import open_session, session_spec
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

MANIFEST = """
manifest: html
name: things
start: {site}/1
fields:
  title: {{css: h1, required: true}}
  price: {{css: .price, type: number}}
"""
HTML = {"content-type": "text/html", "set-cookie": "session=secret"}


async def record(folder: Path, home: Path, clock: VirtualClock, source: str, item: Item) -> None:
    spec = session_spec(source)
    async with open_session(load_settings(home=home), spec, clock) as bench:
        (check,) = (await check_source(bench, clock, only=item)).items
    record_case(folder, spec, check, clock.now())


@pytest.fixture
async def case(tmp_path: Path, clock: VirtualClock, site: ScriptedSite) -> Path:
    """A recorded page, and its manifest beside the folder of cases."""
    site.says("/1", "<h1>One</h1><p class=price>5</p>", headers=HTML)
    source = tmp_path / "things.yaml"
    source.write_text(MANIFEST.format(site=site.url))
    folder = tmp_path / "cases" / "one"
    await record(folder, tmp_path / "home", clock, str(source), Item("1", f"{site.url}/1"))
    return folder


async def test_a_recorded_page_gives_the_same_record_without_a_request(
    case: Path, site: ScriptedSite
) -> None:
    asked = sum(site.hits.values())

    result = await replay_case(case)

    assert result.is_same
    assert sum(site.hits.values()) == asked


async def test_a_secret_that_the_site_echoes_is_neither_shown_nor_kept(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THINGS_TOKEN", "t0ken/of+mine")
    echoes = "<h1>for t0ken/of+mine</h1><a href='/?t=t0ken%2Fof%2Bmine'>on</a>"
    site.says("/1", echoes, headers={**HTML, "x-echo": "t0ken/of+mine"})
    source = tmp_path / "things.yaml"
    auth = f"auth: {{kind: bearer, token: env:THINGS_TOKEN, hosts: ['{site.url[7:]}']}}"
    source.write_text(MANIFEST.format(site=site.url) + auth)
    spec, home = session_spec(str(source)), load_settings(home=tmp_path / "home")

    async with open_session(home, spec, clock) as bench:
        checks = await check_source(bench, clock, items=1)
    record_case(tmp_path / "case", spec, checks.items[0], clock.now())

    kept = b"".join(path.read_bytes() for path in (tmp_path / "case").iterdir())
    shown = json.dumps(checks.as_dict())
    assert checks.items[0].data["title"] == "for ***"
    assert all(word not in shown.encode() + kept for word in (b"t0ken/of", b"t0ken%2F"))
    assert (await replay_case(tmp_path / "case")).is_same


async def test_a_change_of_the_source_is_reported_field_by_field(case: Path) -> None:
    source = case.parent.parent / "things.yaml"
    source.write_text(source.read_text().replace("price: {css: .price, type: number}", "p: .price"))

    result = await replay_case(case)

    removed, added = result.differences
    assert removed.startswith("price: ")
    assert "5.0" in removed
    assert added.startswith("p: ")
    assert '"5"' in added


async def test_a_page_that_changes_in_the_files_is_another_record(case: Path) -> None:
    answer = next(case.glob("answer-*.html"))
    answer.write_text(answer.read_text().replace("One", "Two"))

    result = await replay_case(case)

    (difference,) = result.differences
    assert difference.startswith("title: ")
    assert difference.index('"One"') < difference.index('"Two"')


async def test_a_record_that_is_lost_is_reported_with_the_reason(case: Path) -> None:
    next(case.glob("answer-*.html")).write_text("<p>nothing</p>")

    (difference,) = (await replay_case(case)).differences

    assert OutcomeAction.QUARANTINE in difference
    assert OutcomeAction.STORE in difference
    assert "title" in difference


async def test_a_request_that_was_not_recorded_is_an_error_and_not_made(
    case: Path, site: ScriptedSite
) -> None:
    told = json.loads((case / "case.json").read_text())
    told["item"]["url"] = f"{site.url}/2"
    (case / "case.json").write_text(json.dumps(told))

    (difference,) = (await replay_case(case)).differences

    assert f"GET {site.url}/2" in difference
    assert site.hits["/2"] == 0


async def test_cookies_are_not_written_down(case: Path) -> None:
    assert "secret" not in (case / "case.json").read_text()


@pytest.mark.usefixtures("case")
async def test_source_and_cases_may_be_moved_together(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "things.yaml").rename(elsewhere / "things.yaml")
    (tmp_path / "cases").rename(elsewhere / "cases")

    assert (await replay_case(elsewhere / "cases" / "one")).is_same


async def test_a_page_that_is_gone_can_be_a_case_too(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite, case: Path
) -> None:
    folder = case.parent / "gone"

    await record(
        folder, tmp_path / "home", clock, str(tmp_path / "things.yaml"), Item("2", f"{site.url}/2")
    )

    assert json.loads((folder / "expected.json").read_text())["action"] == "skip"
    assert (await replay_case(folder)).is_same
    assert cases_in(case.parent) == [folder, case]


def test_a_folder_without_a_case_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"case\.json"):
        cases_in(tmp_path)


async def test_a_broken_case_is_refused(case: Path) -> None:
    (case / "case.json").write_text("{}")

    with pytest.raises(BadFile) as refused:
        await replay_case(case)

    assert refused.value.path.startswith(str(case))
