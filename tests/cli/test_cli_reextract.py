"""`longline reextract` and `longline archive`: a job whose web is gone."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from archived_jobs import collected
from cli.terminal import Terminal
from longline.clock import SystemClock
from longline.fetching.archives.files import packed
from longline.fetching.archives.warc import open_warc
from longline.orchestrator import Orchestrator
from longline.stores.store import open_store
from scripted_site import ScriptedSite

LOUDER = """
from little import Little
from longline import layer


class Louder(Little):
    @layer()
    async def page(self, visit):
        found = await super().page(visit)
        return {"text": found["text"].upper() if visit.item.key == "1" else found["text"]}
"""
STRICT = """
from little import Little
from longline import layer


class Strict(Little):
    @layer()
    async def page(self, visit):
        raise ValueError("no [/b] price")
"""


@pytest.fixture
def job(home: Path) -> str:
    """The id of a job of three items whose answers were archived."""

    async def collect() -> str:
        home.mkdir()
        with open_store(f"sqlite:///{home}/longline.sqlite") as store:
            async with ScriptedSite() as site, open_warc(home / "archive") as archive:
                for number in range(3):
                    site.says(f"/item/{number}", f"page [/b] {number}")
                options = {"site": site.url, "count": 3}
                found = await collected(store, archive, "little:Little", options, SystemClock())
                return found.id

    return asyncio.run(collect())


MANIFEST = """
manifest: html
name: rows
start: {site}/
rate: unlimited
key: "@id"
items: {{elements: {items}}}
fields: {{name: {name}}}
"""
ROWS = "".join(f"<p id=r{n}><b>name {n}</b><i>title {n}</i></p>" for n in range(3))


@pytest.fixture
def manifest_job(home: Path, tmp_path: Path) -> tuple[str, Path, str]:
    """A job of a manifest with three elements: its id, the manifest, and the site's address."""
    path = tmp_path / "rows.yaml"

    async def collect() -> tuple[str, str]:
        async with ScriptedSite() as site:
            site.says("/", ROWS)
            path.write_text(MANIFEST.format(site=site.url, items="p", name="b"))
            async with Orchestrator(str(path), home=home, archive=True) as longline:
                return (await longline.execute()).job, site.url

    job, url = asyncio.run(collect())
    return job, path, url


@pytest.fixture
def louder(tmp_path: Path) -> Path:
    path = tmp_path / "louder.py"
    path.write_text(LOUDER)
    return path


def test_the_same_source_is_said_to_make_the_same(longline: Terminal, job: str) -> None:
    answer = longline("reextract", job)

    assert answer.code == 0
    assert f"3 items of {job}: 3 same, 0 changed, 0 newly possible" in answer.out
    assert "0 requests" in answer.out


def test_changes_are_shown_and_nothing_is_written(
    longline: Terminal, job: str, louder: Path
) -> None:
    answer = longline("reextract", job, "--source", louder)

    assert answer.code == 0
    assert "2 same, 1 changed" in answer.out
    assert "page [/b] 1" in answer.out
    assert "PAGE [/B] 1" in answer.out
    assert "nothing was written" in answer.out
    assert "page [/b] 1" in longline("records", "show", "1").out


def test_changes_are_written_when_asked_for(longline: Terminal, job: str, louder: Path) -> None:
    answer = longline("reextract", job, "--source", louder, "--write", "--json")

    assert answer.code == 0
    assert answer.last["written"] == 1
    assert answer.last["changes"] == {
        "1": [{"field": "text", "old": "page [/b] 1", "new": "PAGE [/B] 1"}]
    }
    assert "PAGE [/B] 1" in longline("records", "show", "1").out


def test_a_source_that_fails_exits_with_3(longline: Terminal, job: str, tmp_path: Path) -> None:
    path = tmp_path / "strict.py"
    path.write_text(STRICT)

    answer = longline("reextract", job, "--source", path, "--limit", "2")

    assert answer.code == 3
    assert "2 failed" in answer.out
    assert "failed 0: layer page raised ValueError: no [/b] price" in answer.out


def test_a_manifest_is_read_again_from_its_file(
    longline: Terminal, manifest_job: tuple[str, Path, str]
) -> None:
    job, path, site = manifest_job
    path.write_text(MANIFEST.format(site=site, items="p", name="i"))

    answer = longline("reextract", job, "--json")

    told = answer.last
    assert (answer.code, told["items"], told["changed"], told["requests"]) == (0, 3, 3, 0)
    assert told["changes"]["r1"] == [{"field": "name", "old": "name 1", "new": "title 1"}]
    assert told["discovery"] == {"repeated": True, "problem": None}


def test_items_that_are_not_found_any_more_exit_with_3(
    longline: Terminal, manifest_job: tuple[str, Path, str]
) -> None:
    job, path, site = manifest_job
    path.write_text(MANIFEST.format(site=site, items="'p:not(#r1)'", name="b"))

    answer = longline("reextract", job, "--json")
    shown = longline("reextract", job)

    assert (answer.code, shown.code) == (3, 3)
    assert (answer.last["same"], answer.last["removed"]) == (2, 1)
    assert list(answer.last["not_found"]) == ["r1"]
    assert "removed r1" in shown.out


def test_a_manifest_that_is_gone_is_named(
    longline: Terminal, manifest_job: tuple[str, Path, str]
) -> None:
    job, path, _ = manifest_job
    path.unlink()

    answer = longline("reextract", job, "--json")

    assert (answer.code, answer.last["same"]) == (0, 3)
    assert str(path) in answer.err


def test_a_record_that_cannot_be_read_is_a_damaged_database(
    longline: Terminal, job: str, home: Path
) -> None:
    with closing(sqlite3.connect(home / "longline.sqlite")) as connection, connection:
        connection.execute("UPDATE records SET url = CAST(x'ff' AS TEXT) WHERE key = '1'")

    answer = longline("reextract", job)

    assert (answer.code, answer.out) == (1, "")
    assert str(home / "longline.sqlite") in answer.err


def test_a_job_without_an_archive_says_how_to_get_one(longline: Terminal, shop: Path) -> None:
    job = longline("run", shop, "--json").last["job"]

    answer = longline("reextract", job)

    assert (answer.code, answer.out) == (2, "")
    assert "kept no answers; run it with --archive" in answer.err


def test_what_the_archive_holds_can_be_asked_and_checked(
    longline: Terminal, job: str, home: Path
) -> None:
    del job

    totals = longline("archive", "stats", "--json").last
    sound = longline("archive", "verify")
    (path,) = (home / "archive").glob("*.warc.gz")
    path.write_bytes(path.read_bytes()[:-30])
    damaged = longline("archive", "verify")

    assert (totals["files"], totals["answers"], totals["jobs"]) == (1, 3, 1)
    assert (sound.code, sound.out) == (0, "everything is as it was written\n")
    assert damaged.code == 3
    assert "1 answer was written to it, and gone from it" in damaged.out
    assert "note: " in damaged.out


def test_an_archive_whose_files_were_deleted_is_not_found_sound(
    longline: Terminal, job: str, home: Path
) -> None:
    del job
    (path,) = (home / "archive").glob("*.warc.gz")
    path.unlink()

    told = longline("archive", "verify", "--json")

    assert told.code == 3
    assert told.last == {
        "problems": [f"{path.name}: 3 answers were written to it, and gone from it"],
        "notes": [],
    }


def test_a_record_that_a_killed_process_left_cut_is_no_reason_to_worry(
    longline: Terminal, job: str, home: Path
) -> None:
    del job
    (path,) = (home / "archive").glob("*.warc.gz")
    path.write_bytes(path.read_bytes() + packed(b"WARC/1.1 and so on")[:-5])

    told = longline("archive", "verify")

    assert told.code == 0
    assert told.out.startswith("everything is as it was written\nnote: ")


@pytest.mark.parametrize("name", ["stats", "verify"])
def test_the_commands_of_the_archive_have_help_too(longline: Terminal, name: str) -> None:
    answer = longline("archive", name, "--help")

    assert answer.code == 0
    assert answer.out.startswith(f"Usage: longline archive {name}")
