"""longline quarantine: what did not fit, why, and its way into the records."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from longline.core.errors import BadOption, UnknownJob
from longline.orchestrator import Orchestrator
from tests.cli.terminal import Terminal
from tests.scripted_site import ScriptedSite

GOODS = [
    {"sku": "a", "title": "Hook [/b]", "price": 5},
    {"sku": "b", "title": "Reel \x1b[31m", "price": "five"},
    {"sku": "c", "price": -1, "title": None},
]
STRICT = """
pipeline:
  - validate:
      required: [title]
      properties: {title: {type: string}, price: {type: number, minimum: 0}}
"""
ROWS = """
manifest: html
name: rows
start: {site}/
rate: unlimited
key: "@id"
items: {{elements: p}}
fields: {{name: {{css: {name}, required: true}}}}
"""
MENDED = """
pipeline:
  - filter: title
  - validate: {required: [title]}
"""


def fields_of(reason: str) -> list[str]:
    """Return the fields that a reason names, each at the start of its problem."""
    return [problem.partition(":")[0] for problem in reason.split("; ")]


def write_manifest(path: Path, pipeline: str, name: str = "goods") -> None:
    script = path.parent / "goods.py"
    lines = "\n".join(json.dumps(one) for one in GOODS)
    script.write_text(f"print({lines!r})")
    command = json.dumps([sys.executable, str(script)])
    path.write_text(f"manifest: command\nname: {name}\ncommand: {command}\nkey: sku\n{pipeline}")


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "goods.yaml"
    write_manifest(path, STRICT)
    return path


@pytest.fixture
def job(longline: Terminal, manifest: Path) -> str:
    """Return a job of three items, of which two are quarantined."""
    answer = longline("run", manifest, "--json")
    assert (answer.code, answer.last["quarantined"]) == (3, 2)
    name: str = answer.last["job"]
    return name


def test_other_fields_of_lines_are_read_again_before_they_are_stored(
    longline: Terminal, job: str, manifest: Path
) -> None:
    write_manifest(manifest, "fields: {title: sku}\n" + MENDED)

    answer = longline("quarantine", "replay", job, "--json")

    assert (answer.code, answer.last["stored"]) == (0, 2)
    assert longline("records", "show", "b", "--json").last["data"] == {"title": "b"}


def test_export_tasks_of_another_job_are_not_shown(
    longline: Terminal, job: str, manifest: Path
) -> None:
    write_manifest(manifest, MENDED)
    manifest.write_text(manifest.read_text().replace("key: sku", "key: title"))

    answer = longline("quarantine", "replay", job, "--json")

    assert (answer.code, answer.last["items"], answer.last["left"]) == (3, 2, 2)


def test_an_element_is_read_again_from_the_archived_page(
    longline: Terminal, home: Path, tmp_path: Path
) -> None:
    path = tmp_path / "rows.yaml"

    async def collect() -> str:
        async with ScriptedSite() as site:
            site.says("/", "<p id=a><b>one</b></p><p id=b><i>two</i></p>")
            path.write_text(ROWS.format(site=site.url, name="b"))
            async with Orchestrator(str(path), home=home, archive=True) as running:
                return (await running.execute()).job

    job = asyncio.run(collect())
    path.write_text(path.read_text().replace("css: b", "css: [b, i]"))

    answer = longline("quarantine", "replay", job, "--json")

    assert (answer.code, answer.last["stored"], answer.last["state"]) == (0, 1, "complete")
    assert longline("records", "show", "b", "--json").last["data"] == {"name": "two"}


def test_reasons_are_listed_with_their_counts(longline: Terminal, job: str) -> None:
    answer = longline("quarantine", "list", job, "--json")

    result = {tuple(one["keys"]): (one["count"], fields_of(one["reason"])) for one in answer.last}
    assert result == {("b",): (1, ["price"]), ("c",): (1, ["price", "title"])}


def test_limits_are_shown_as_a_table(longline: Terminal, job: str) -> None:
    answer = longline("quarantine", "list")
    groups = longline("quarantine", "list", "--json").last

    assert answer.code == 0
    assert all(one["reason"] in answer.out for one in groups)
    assert job in answer.out


def test_reasons_can_be_searched(longline: Terminal, job: str) -> None:
    assert len(longline("quarantine", "list", job, "--reason", "TITLE", "--json").last) == 1
    assert longline("quarantine", "list", job, "--kind", "bug", "--json").last == []


def test_an_empty_quarantine_is_reported_as_empty(longline: Terminal) -> None:
    assert longline("quarantine", "list").out.count("\n") == 1
    assert longline("quarantine", "list", "--json").last == []


def test_a_quarantined_item_is_shown_with_problems_and_layers(longline: Terminal, job: str) -> None:
    result = longline("quarantine", "show", job, "c", "--json").last

    assert fields_of("; ".join(result["problems"])) == ["price", "title"]
    assert "0" in result["problems"][0]  # the least that it may be
    assert [fields["price"] for fields in result["raw"].values()] == [-1]


def test_site_text_does_not_control_the_terminal(longline: Terminal, job: str) -> None:
    answer = longline("quarantine", "show", job, "b")
    (problem,) = longline("quarantine", "show", job, "b", "--json").last["problems"]

    assert fields_of(problem) == ["price"]
    assert problem in answer.out
    assert "five" in answer.out
    assert "\x1b[31m" not in answer.out


def test_a_fixed_manifest_turns_quarantined_items_into_records(
    longline: Terminal, job: str, manifest: Path
) -> None:
    write_manifest(manifest, MENDED)

    answer = longline("quarantine", "replay", job, "--json")

    result = answer.last
    assert (answer.code, result["items"], result["stored"], result["skipped"]) == (0, 2, 1, 1)
    assert (result["state"], result["requests"]) == ("complete", 0)
    assert longline("jobs", job, "--json").last["state"] == "complete"
    assert longline("records", "show", "b", "--json").last["data"]["price"] == "five"


def test_a_manifest_can_be_named_and_tried_first(
    longline: Terminal, job: str, tmp_path: Path
) -> None:
    other = tmp_path / "mended.yaml"
    write_manifest(other, MENDED)

    words = ("quarantine", "replay", job, "--source", other, "--dry-run")
    answer, result = longline(*words), longline(*words, "--json").last

    assert answer.code == 0
    assert job in answer.out
    assert (result["dry_run"], result["stored"], result["skipped"]) == (True, 1, 1)
    assert result["requests"] == 0
    assert len(longline("quarantine", "list", "--json").last) == 2


def test_without_a_change_everything_stays(longline: Terminal, job: str) -> None:
    answer = longline("quarantine", "replay", job)
    result = longline("quarantine", "replay", job, "--json").last

    assert answer.code == 3
    assert (result["quarantined"], result["requests"], result["state"]) == (2, 0, "partial")
    assert set(result["reasons"]) == {"b", "c"}
    assert all(f"{key}: {reason}" in answer.out for key, reason in result["reasons"].items())
    assert "partial" in answer.out


def test_the_exit_code_is_that_of_the_job_even_when_all_that_was_named_is_stored(
    longline: Terminal, job: str, manifest: Path
) -> None:
    write_manifest(manifest, MENDED)

    first = longline("quarantine", "replay", job, "--key", "b")
    rest = longline("quarantine", "replay", job)

    assert (first.code, rest.code) == (3, 0)
    assert "partial" in first.out
    assert "complete" in rest.out


def test_a_schema_that_never_ends_quarantines_items(longline: Terminal, manifest: Path) -> None:
    write_manifest(manifest, 'pipeline: [{validate: {$ref: "#"}}]\n')

    answer = longline("run", manifest, "--json")

    assert answer.code == 1
    assert answer.last["quarantined"] == 3


def test_a_file_that_is_gone_leaves_the_copy_of_the_job(
    longline: Terminal, job: str, manifest: Path
) -> None:
    manifest.unlink()

    assert longline("quarantine", "replay", job, "--json").last["quarantined"] == 2


def test_one_item_can_be_replayed(longline: Terminal, job: str, manifest: Path) -> None:
    write_manifest(manifest, MENDED)

    result = longline("quarantine", "replay", job, "--key", "b", "--json").last

    assert (result["stored"], result["state"]) == (1, "partial")


def test_another_source_is_refused(longline: Terminal, job: str, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    write_manifest(other, MENDED, name="other")

    answer = longline("quarantine", "replay", job, "--source", other)

    assert answer.code == 2
    assert isinstance(answer.error, BadOption)
    assert answer.error.option == "--source"
    assert all(name in answer.error.problem for name in (job, "other"))


@pytest.mark.parametrize(
    "words", [("list", "nowhere"), ("show", "nowhere", "a"), ("replay", "nowhere")]
)
def test_an_unknown_job_is_refused(longline: Terminal, words: tuple[str]) -> None:
    answer = longline("quarantine", *words)

    assert answer.code == 2
    assert isinstance(answer.error, UnknownJob)
    assert answer.error.job == "nowhere"


def test_an_item_that_is_not_in_quarantine_is_refused(longline: Terminal, job: str) -> None:
    answer = longline("quarantine", "show", job, "a")

    assert answer.code == 2
    assert isinstance(answer.error, BadOption)
    assert answer.error.option == "KEY"
    assert job in answer.error.problem


@pytest.mark.parametrize("name", ["list", "show", "replay"])
def test_the_commands_of_quarantine_have_help_too(longline: Terminal, name: str) -> None:
    answer = longline("quarantine", name, "--help")

    assert answer.code == 0
    assert f"longline quarantine {name} " in answer.out.splitlines()[0]
