"""`longline reextract` and `longline archive`: a job whose web is gone."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from longline.analysis.reextract import NothingArchived
from longline.core.clock import SystemClock
from longline.http.archive.packing import compress
from longline.http.archive.warc import open_warc
from longline.orchestrator import Orchestrator
from longline.storage.store import open_store
from tests.archived_jobs import collected
from tests.cli.terminal import Terminal
from tests.scripted_site import ScriptedSite

LOUDER = """
from tests.sample_sources import PageSource
from longline import layer


class Louder(PageSource):
    @layer()
    async def page(self, visit):
        found = await super().page(visit)
        return {"text": found["text"].upper() if visit.item.key == "1" else found["text"]}
"""
STRICT = """
from tests.sample_sources import PageSource
from longline import layer


class Strict(PageSource):
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
                found = await collected(
                    store, archive, "tests.sample_sources:PageSource", options, SystemClock()
                )
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


def test_the_same_source_makes_the_same_records(longline: Terminal, job: str) -> None:
    answer = longline("reextract", job)
    result = longline("reextract", job, "--json").last

    assert answer.code == 0
    assert job in answer.out
    assert (result["items"], result["same"], result["changed"], result["new"]) == (3, 3, 0, 0)
    assert result["requests"] == 0


def test_reextract_shows_changes_without_writing(
    longline: Terminal, job: str, louder: Path
) -> None:
    answer = longline("reextract", job, "--source", louder)
    result = longline("reextract", job, "--source", louder, "--json").last

    assert answer.code == 0
    assert (result["same"], result["changed"], result["written"]) == (2, 1, 0)
    assert "page [/b] 1" in answer.out
    assert "PAGE [/B] 1" in answer.out
    assert "--write" in answer.out
    assert "page [/b] 1" in longline("records", "show", "1").out


def test_reextract_writes_changes_on_request(longline: Terminal, job: str, louder: Path) -> None:
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

    words = ("reextract", job, "--source", path, "--limit", "2")
    answer, result = longline(*words), longline(*words, "--json").last

    assert answer.code == 3
    assert (result["failed"], set(result["failures"])) == (2, {"0", "1"})
    assert all(f"failed {key}: {why}" in answer.out for key, why in result["failures"].items())
    assert "ValueError: no [/b] price" in result["failures"]["0"]


def test_a_manifest_is_read_again_from_its_file(
    longline: Terminal, manifest_job: tuple[str, Path, str]
) -> None:
    job, path, site = manifest_job
    path.write_text(MANIFEST.format(site=site, items="p", name="i"))

    answer = longline("reextract", job, "--json")

    result = answer.last
    assert (answer.code, result["items"], result["changed"], result["requests"]) == (0, 3, 3, 0)
    assert result["changes"]["r1"] == [{"field": "name", "old": "name 1", "new": "title 1"}]
    assert result["discovery"] == {"repeated": True, "problem": None}


def test_items_no_longer_discovered_exit_with_3(
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
    assert isinstance(answer.error, NothingArchived)
    assert answer.error.job == job
    assert "--archive" in answer.err


def gone_from(problems: list[str], path: Path) -> list[str]:
    """Return the numbers in the only problem, which is that of a file."""
    (problem,) = problems
    assert problem.startswith(path.name)
    return re.findall(r"\d+", problem.removeprefix(path.name))


def test_the_archive_has_stats_and_verification(longline: Terminal, job: str, home: Path) -> None:
    del job

    totals = longline("archive", "stats", "--json").last
    sound, intact = longline("archive", "verify"), longline("archive", "verify", "--json")
    (path,) = (home / "archive").glob("*.warc.gz")
    path.write_bytes(path.read_bytes()[:-30])
    damaged, result = longline("archive", "verify"), longline("archive", "verify", "--json").last

    assert (totals["files"], totals["answers"], totals["jobs"]) == (1, 3, 1)
    assert (sound.code, sound.out.count("\n")) == (0, 1)
    assert intact.last == {"problems": [], "notes": []}
    assert damaged.code == 3
    assert gone_from(result["problems"], path) == ["1"]
    assert len(result["notes"]) == 1
    assert all(one in damaged.out for one in result["problems"] + result["notes"])


def test_missing_archive_files_fail_the_verification(
    longline: Terminal, job: str, home: Path
) -> None:
    del job
    (path,) = (home / "archive").glob("*.warc.gz")
    path.unlink()

    result = longline("archive", "verify", "--json")

    assert result.code == 3
    assert gone_from(result.last["problems"], path) == ["3"]
    assert result.last["notes"] == []


def test_a_truncated_last_archive_record_is_not_a_problem(
    longline: Terminal, job: str, home: Path
) -> None:
    del job
    (path,) = (home / "archive").glob("*.warc.gz")
    path.write_bytes(path.read_bytes() + compress(b"WARC/1.1 and so on")[:-5])

    answer = longline("archive", "verify", "--json")

    assert answer.code == 0
    assert answer.last["problems"] == []
    assert len(answer.last["notes"]) == 1


@pytest.mark.parametrize("name", ["stats", "verify"])
def test_the_commands_of_the_archive_have_help_too(longline: Terminal, name: str) -> None:
    answer = longline("archive", name, "--help")

    assert answer.code == 0
    assert f"longline archive {name} " in answer.out.splitlines()[0]
