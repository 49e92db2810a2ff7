"""Inspect jobs, records, checkpoints, sources, exports and reports."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from longline.engine.owner import this_host
from longline.storage.store import open_store
from tests.cli.terminal import SHOP, Terminal
from tests.storage.given import leased, queued, record


@pytest.fixture
def collected(longline: Terminal, shop: Path) -> str:
    """A job of three things, one of which failed; its id."""
    job = longline("run", shop, "--set", "bad=1", "--json").last["job"]
    assert isinstance(job, str)
    return job


def test_jobs_are_listed_for_people_and_programs(longline: Terminal, collected: str) -> None:
    table = longline("jobs").out
    (row,) = longline("jobs", "--json").last

    assert collected in table
    assert row["reason"] in table
    assert (row["job"], row["state"], row["stored"], row["failed"]) == (collected, "partial", 2, 1)


def test_the_id_of_a_job_is_never_cut_short(
    longline: Terminal, collected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")

    assert collected in longline("jobs").out


def test_one_job_is_shown_with_its_settings_and_events(longline: Terminal, collected: str) -> None:
    result = longline("jobs", collected[:8], "--json").last

    assert result["settings"]["set"] == {"bad": "1"}
    assert result["events"][0]["type"] == "job.created"
    assert "job.partial" in longline("jobs", collected).out


@pytest.mark.parametrize("words", [["jobs"], ["records", "stats"], ["checkpoints"]])
def test_an_empty_home_is_reported_as_empty(longline: Terminal, words: list[str]) -> None:
    answer = longline(*words)

    assert answer.code == 0
    assert answer.out.strip()
    assert longline(*words, "--json").last == []


@pytest.mark.usefixtures("collected")
def test_records_are_listed_though_they_look_like_markup(longline: Terminal) -> None:
    answer = longline("records", "list")

    assert answer.code == 0
    assert "shop/0" in answer.out
    assert "Thing [/b] 0" in answer.out


def test_a_long_title_is_shortened(longline: Terminal, tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(SHOP.replace("Thing [/b] {visit", "{'long ' * 20}{visit"))
    longline("run", tmp_path / "long.py", "--set", "things=1")

    assert f"{'long ' * 11}long… " in longline("records", "list").out


@pytest.mark.usefixtures("collected")
def test_records_are_json_lines(longline: Terminal) -> None:
    lines = longline("records", "list", "--json").out.splitlines()

    assert [json.loads(line)["key"] for line in lines] == ["0", "2"]


@pytest.mark.parametrize("key", ["0", "shop/0"])
@pytest.mark.usefixtures("collected")
def test_a_record_is_shown_by_its_key_as_it_is_listed(longline: Terminal, key: str) -> None:
    answer = longline("records", "show", key)

    assert answer.code == 0
    assert answer.out.startswith("shop/0 https://shop.test/0\n")
    assert "Thing [/b] 0" in answer.out
    assert "  page: title, tax, price\n" in answer.out
    assert longline("records", "show", key, "--json").last["data"]["price"] == 5
    assert longline("records", "versions", key).out.strip()
    assert longline("records", "versions", key, "--json").last == []


def test_a_key_may_hold_slashes(longline: Terminal, tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text(SHOP.replace("Item(str(number)", "Item(f'a/{number}'"))
    longline("run", tmp_path / "deep.py")

    assert longline("records", "show", "a/1", "--json").last["key"] == "a/1"
    assert longline("records", "show", "shop/a/1", "--json").last["key"] == "a/1"
    assert longline("records", "show", "b/1").code == 2


async def fill(home: Path) -> None:
    with open_store(f"sqlite:///{home / 'longline.sqlite'}") as store:
        await store.records.create(record("1", {"title": "Hat"}, source="hats"), at=1.0)
        await store.records.create(record("1", {"title": "Shoe"}, source="shoes"), at=2.0)
        await store.records.create(
            record("1", {"title": "Cap"}, source="hats", fingerprint="second"), at=3.0
        )


def test_a_key_of_two_sources_needs_the_source(longline: Terminal, home: Path) -> None:
    home.mkdir()
    asyncio.run(fill(home))

    assert longline("records", "show", "shoes/1", "--json").last["data"] == {"title": "Shoe"}
    assert longline("records", "show", "1", "--source", "hats", "--json").last["version"] == 2
    (old,) = longline("records", "versions", "hats/1", "--json").last
    assert (old["version"], old["data"]) == (1, {"title": "Hat"})
    (line,) = longline("records", "versions", "hats/1").out.splitlines()
    assert "1" in re.findall(r"\d+", line)
    assert "first" in line  # its fingerprint


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ([], "2"),
        (["--source", "shop"], "2"),
        (["--source", "shop", "--search", "nowhere"], "0"),
        (["--search", "[/b] 2"], "1"),
        (["--since", "2000-01-01"], "2"),
        (["--since", "2999-01-01T00:00:00"], "0"),
        (["--limit", "1"], "1"),
        (["--job", "shop-"], "2"),
    ],
)
@pytest.mark.usefixtures("collected")
def test_records_are_counted_as_they_are_filtered(
    longline: Terminal, words: list[str], count: str
) -> None:
    assert longline("records", "count", *words).out == f"{count}\n"
    assert longline("records", "count", *words, "--json").last == {"records": int(count)}


def test_a_source_whose_run_left_no_record_is_known(longline: Terminal, shop: Path) -> None:
    longline("run", shop, "--set", "closed=true")

    assert longline("records", "count", "--source", "shop").out == "0\n"
    assert longline("records", "count", "--source", "market").code == 2


@pytest.mark.usefixtures("collected")
def test_records_have_statistics(longline: Terminal) -> None:
    (row,) = longline("records", "stats", "--json").last

    assert (row["source"], row["records"]) == ("shop", 2)
    assert "shop" in longline("records", "stats").out


@pytest.mark.parametrize(("name", "form"), [("x.jsonl", "jsonl"), ("x.json", "json")])
@pytest.mark.usefixtures("collected")
def test_an_export_says_what_it_wrote(
    longline: Terminal, tmp_path: Path, name: str, form: str
) -> None:
    answer = longline("export", "-o", name)
    result = longline("export", "-o", name, "--job", "shop-", "--json").last

    assert answer.code == 0
    assert "2" in re.findall(r"\d+", answer.out)
    assert name in answer.out
    assert (tmp_path / name).read_text().count('"key"') == 2
    assert (result["records"], result["format"]) == (2, form)


@pytest.mark.usefixtures("collected")
def test_an_export_to_standard_output_holds_no_formula(longline: Terminal) -> None:
    answer = longline("export", "-o", "-", "--format", "csv", "--limit", "1")

    (row,) = csv.DictReader(io.StringIO(answer.out))
    assert (row["key"], row["tax"], row["price"]) == ("0", "'=1+1", "5")


def test_an_export_to_a_closed_pipe_ends_quietly(
    longline: Terminal, shop: Path, home: Path
) -> None:
    longline("run", shop, "--set", "things=400")
    code = "from longline.cli.main import main; main()"
    command = f"{sys.executable} -c '{code}' export -o - --home {home} | head -n 1"

    answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)

    assert answer.stdout.count("\n") == 1
    assert "Traceback" not in answer.stderr


def test_checkpoints_are_listed_by_the_beginning_of_a_job(
    longline: Terminal, collected: str
) -> None:
    (document,) = longline("checkpoints", "--json").last

    assert (document["job"], document["processed"], document["failed"]) == (collected, 3, 1)
    assert longline("checkpoints", collected[:9], "--json").last == [document]
    assert longline("checkpoints", "/etc", "--json").last == []
    name, job, state, *counts = longline("checkpoints").out.split()
    assert (name, job, state) == (document["checkpoint_id"], collected, "partial")
    assert sorted(re.findall(r"\d+", " ".join(counts))) == ["1", "3", "3"]


def test_sources_are_listed_and_one_is_explained(longline: Terminal, shop: Path) -> None:
    assert longline("sources").out.startswith("n8n ")

    answer = longline("sources", shop)
    (result,) = longline("sources", shop, "--json").last

    head, *details = answer.out.splitlines()
    assert head.split() == ["shop", "Things", "without", "a", "web."]
    assert (result["rate"], result["burst"]) == (2, 5)
    assert any({"2", "5"} <= set(re.findall(r"\d+", line)) for line in details)
    assert "--set things=3" in answer.out


def test_the_settings_of_a_source_are_explained(longline: Terminal, tmp_path: Path) -> None:
    about = 'things: int = 3\n    """How many there are,\n    on all shelves."""\n'
    (tmp_path / "told.py").write_text(SHOP.replace("things: int = 3\n", about))

    (n8n,) = longline("sources", "n8n", "--json").last
    assert f"--set rows=100  {n8n['settings']['rows']['about']}\n" in longline("sources", "n8n").out
    answer = longline("sources", tmp_path / "told.py")
    assert "  --set things=3  How many there are, on all shelves.\n" in answer.out


async def leave_alone(home: Path) -> None:
    with open_store(f"sqlite:///{home / 'longline.sqlite'}") as store:
        job = await queued(store, "1", "2")
        await leased(store, job, owner=f"{this_host()}:999999999:1.00")


def test_a_job_whose_process_was_killed_is_shown_as_abandoned(
    longline: Terminal, home: Path
) -> None:
    home.mkdir()
    asyncio.run(leave_alone(home))

    (row,) = longline("jobs", "--json").last
    assert (row["state"], row["is_abandoned"]) == ("running", True)
    assert "abandoned" in longline("jobs").out
    assert "abandoned" in longline("jobs", row["job"]).out
    (seen,) = longline("top", "--json").last["jobs"]
    assert seen["is_abandoned"]
    assert "abandoned" in longline("top").out


def test_a_report_is_written(longline: Terminal, collected: str, tmp_path: Path) -> None:
    answer = longline("report", "-o", "report.md")

    assert collected in answer.out
    assert "report.md" in answer.out
    assert (tmp_path / "report.md").read_text().startswith("# ")
