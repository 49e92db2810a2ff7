"""longline config: list, show, validate, set, diff and schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longline.core.errors import BadFile, BadOption
from tests.cli.terminal import Terminal

SHOP = """# the shop around the corner
manifest: html
name: shop        # as everyone calls it
about: Things on shelves
rate: 2           # they asked for it
start: https://shop.test/
items: a.thing

fields:
  title: h1
  price: {css: .price, type: money}   # with tax
"""


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "shop.yaml").write_text(SHOP)
    (folder / "nightly.yaml").write_text("source: shop.yaml\nlimit: 10\n")
    return folder


def test_a_list_of_no_files_names_the_empty_folder(longline: Terminal) -> None:
    answer = longline("config", "list")

    assert "sources" in answer.out
    assert len(answer.out.splitlines()) == 1
    assert longline("config", "list", "--json").last == []


def test_all_files_are_listed_the_broken_ones_too(longline: Terminal, shelf: Path) -> None:
    (shelf / "odd.yaml").write_text("manifest: html\nname: [\n")

    answer = longline("config", "list", "--json")

    assert answer.code == 0
    assert [(row["name"], row["kind"], row["file"]) for row in answer.last] == [
        ("nightly", "job", "sources/nightly.yaml"),
        ("shop", "html", "sources/shop.yaml"),
        (None, "broken", "sources/odd.yaml"),
    ]
    nightly, shop, odd = (row["about"] for row in answer.last)
    assert "shop.yaml" in nightly
    assert shop == "Things on shelves"
    assert "sources/odd.yaml:3:1" in odd


@pytest.mark.usefixtures("shelf")
def test_drift_lists_sources(longline: Terminal) -> None:
    assert "Things on shelves" in longline("config", "list").out


def test_settings_are_shown_with_where_they_come_from(
    longline: Terminal, tmp_path: Path, home: Path
) -> None:
    (tmp_path / "longline.yaml").write_text("timeout: 5\nprofiles:\n  slow: {concurrency: 1}\n")

    rows = {
        row["name"]: row for row in longline("config", "show", "--profile", "slow", "--json").last
    }

    assert rows["home"] == {"name": "home", "value": str(home), "origin": "LONGLINE_HOME"}
    assert (rows["timeout"]["value"], rows["timeout"]["origin"]) == (5.0, "longline.yaml:1")
    assert rows["concurrency"]["origin"].startswith("longline.yaml:3")
    assert "slow" in rows["concurrency"]["origin"]
    assert rows["contact"]["origin"] == "default"


@pytest.mark.usefixtures("shelf")
def test_a_manifest_is_shown_value_by_value(longline: Terminal) -> None:
    rows = {row["name"]: row for row in longline("config", "show", "shop", "--json").last}

    assert rows["fields.price.type"]["value"] == "money"
    assert rows["fields.price.type"]["origin"] == "sources/shop.yaml:11"
    assert (rows["burst"]["value"], rows["burst"]["origin"]) == (5, "default")
    assert "sources/shop.yaml:5" in longline("config", "show", "sources/shop.yaml").out


@pytest.mark.usefixtures("shelf")
def test_an_unknown_name_is_refused_with_the_nearest_one(longline: Terminal) -> None:
    answer = longline("config", "show", "shopp")

    assert (answer.code, len(answer.err.splitlines())) == (2, 1)
    assert isinstance(answer.error, BadOption)
    assert answer.error.option == "NAME"
    assert all(name in answer.error.problem for name in ("'shopp'", "'shop'", "nightly"))


@pytest.mark.usefixtures("shelf")
def test_valid_files_are_counted(longline: Terminal) -> None:
    answer = longline("config", "validate")

    assert (answer.code, answer.err) == (0, "")
    assert "2" in answer.out.split()
    assert longline("config", "validate", "--json").last == {"files": 2, "problems": []}


def test_every_broken_file_gets_one_line(longline: Terminal, shelf: Path) -> None:
    (shelf / "a.yaml").write_text("source: n8n\nlimit: many\nrate: fast\n")
    (shelf / "b.yaml").write_text("manifest: htm\n")

    answer = longline("config", "validate")

    assert answer.code == 2
    first, second = answer.err.splitlines()
    assert "sources/a.yaml:2:1: limit: " in first
    assert "sources/b.yaml:1:1: manifest: " in second
    assert all(word in second for word in ("html", "api", "command", "'htm'"))


def test_problems_can_be_read_by_a_program(longline: Terminal, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("source: n8n\nlimit: many\n")

    answer = longline("config", "validate", "job.yaml", "nothing.yaml", "--json")

    assert answer.code == 2
    assert answer.last["files"] == 2
    assert [(one["file"], one["line"], one["column"]) for one in answer.last["problems"]] == [
        ("job.yaml", 2, 1),
        ("nothing.yaml", 0, 0),
    ]


CYCLE = "  one: {source: shop, after: n8n}\n  two: {source: n8n, after: shop}\n"
FLOW = """flow: refresh
steps:
  - {name: collect, run: shop}
"""


def test_flows_and_the_settings_file_are_validated_too(
    longline: Terminal, shelf: Path, tmp_path: Path
) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "refresh.yaml").write_text(FLOW)
    (tmp_path / "longline.yaml").write_text("schedules: {daily: {flow: refresh, every: 1d}}\n")

    answer = longline("config", "validate", "--json")

    assert (answer.code, answer.last) == (0, {"files": 4, "problems": []})
    assert shelf.is_dir()


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("flows/odd.yaml", "flow: odd\nsteps:\n  - {name: one, after: [two], run: shop}\n", 3),
        ("longline.yaml", "schedules:\n  daily: {source: shop, cron: '61 * * * *'}\n", 2),
        ("longline.yaml", "schedules:\n  daily: {source: gone, every: 1d}\n", 0),
        ("longline.yaml", "schedules:\n  shop: {source: shop, after: shop}\n", 2),
        ("longline.yaml", f"schedules:\n{CYCLE}", 0),
    ],
)
@pytest.mark.usefixtures("shelf")
def test_an_invalid_flow_or_schedule_is_a_problem(
    longline: Terminal, tmp_path: Path, name: str, text: str, line: int
) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / name).write_text(text)

    answer = longline("config", "validate", "--json")

    assert (answer.code, len(answer.last["problems"])) == (2, 1)
    assert answer.last["problems"][0]["line"] == line


def test_a_flow_is_validated_by_its_file(longline: Terminal, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW.replace("shop", "n8n"))
    (tmp_path / "bad.yaml").write_text(FLOW.replace("run: shop", "run: [1]"))

    answer = longline("config", "validate", "flow.yaml", "bad.yaml", "--json")

    assert (answer.code, answer.last["files"]) == (2, 2)
    assert [one["file"] for one in answer.last["problems"]] == ["bad.yaml"]


def test_a_missing_secret_is_a_problem_unless_secrets_are_left_out(
    longline: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOP_KEY", raising=False)
    auth = "auth: {kind: bearer, hosts: [shop.test], token: env:SHOP_KEY}\n"
    (tmp_path / "shop.yaml").write_text(SHOP + auth)

    answer = longline("config", "validate", "shop.yaml")

    assert answer.code == 2
    assert "shop.yaml:12:42: auth.token: " in answer.err
    assert "env:SHOP_KEY" in answer.err
    assert longline("config", "validate", "shop.yaml", "--no-secrets").code == 0


@pytest.mark.parametrize(
    ("key", "value", "change"),
    [
        ("rate", "0.5", ("rate: 2  ", "rate: 0.5  ")),
        ("fields.price.type", "number", ("type: money", "type: number")),
        ("about", "All: of # them", ("Things on shelves", '"All: of # them"')),
        ("about", "", ("Things on shelves", '""')),
        ("fields.price", "{css: b}", ("{css: .price, type: money}", "{css: b}")),
        ("burst", "9", ("# with tax\n", "# with tax\nburst: 9\n")),
        ("fields.size", ".size", ("# with tax\n", "# with tax\n  size: .size\n")),
    ],
)
def test_one_value_is_set_and_all_else_stays(
    longline: Terminal, shelf: Path, key: str, value: str, change: tuple[str, str]
) -> None:
    answer = longline("config", "set", "shop", key, value)

    assert answer.code == 0
    assert (shelf / "shop.yaml").read_text() == SHOP.replace(*change)
    assert len(list(shelf.iterdir())) == 2  # no draft is left behind


@pytest.mark.parametrize(
    ("key", "value", "place", "mentioned"),
    [
        ("rate", "fast", (5, 1), "number"),
        ("fields.title", "h1[", (10, 3), "'h1['"),
        ("raet", "5", (12, 1), "`rate`"),
        ("fields", "h1", (9, 1), "edit"),
        ("fields.price.form", "x", (11, 3), "edit"),
        ("a.b.c", "x", (2, 1), "edit"),
    ],
)
def test_a_value_that_would_break_the_file_is_not_written(
    longline: Terminal,
    shelf: Path,
    *,
    key: str,
    value: str,
    place: tuple[int, int],
    mentioned: str,
) -> None:
    answer = longline("config", "set", "shop", key, value)

    assert answer.code == 2
    assert isinstance(answer.error, BadFile)
    assert answer.error.path == "sources/shop.yaml"
    assert (answer.error.line, answer.error.column) == place
    assert answer.error.problem.startswith(f"{key}: ")
    assert mentioned in answer.error.problem
    assert (shelf / "shop.yaml").read_text() == SHOP


@pytest.mark.usefixtures("shelf")
def test_two_files_are_compared_value_by_value(longline: Terminal, tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text(
        SHOP.replace("rate: 2", "burst: 9").replace(".price", ".cost")
    )

    found = longline("config", "diff", "shop", "new.yaml", "--json").last

    assert [(one["path"], one["before"], one["after"], one["change"]) for one in found] == [
        ("rate", 2, None, "removed"),
        ("fields.price.css", ".price", ".cost", "changed"),
        ("burst", None, 9, "added"),
    ]
    same = longline("config", "diff", "shop", "shop")
    assert (same.code, len(same.out.splitlines())) == (0, 1)
    assert longline("config", "diff", "shop", "shop", "--json").last == []


def test_a_job_is_compared_with_the_file_as_it_is_now(
    longline: Terminal, shop: Path, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(f"source: {shop}\nlimit: 2\n")
    job = longline("run", "job.yaml", "--json").last["job"]
    (tmp_path / "job.yaml").write_text(f"source: {shop}\nlimit: 3\n")

    found = longline("config", "diff", job, "job.yaml", "--json").last

    assert [(one["path"], one["before"], one["after"]) for one in found] == [("limit", 2, 3)]


def test_a_diff_of_unknown_names_is_refused(longline: Terminal) -> None:
    answer = longline("config", "diff", "this", "that")

    assert answer.code == 2
    assert isinstance(answer.error, BadOption)
    assert "'this'" in answer.error.problem


@pytest.mark.parametrize("kind", ["html", "api", "command", "job", "settings"])
def test_every_kind_of_file_has_a_schema(longline: Terminal, kind: str) -> None:
    schema = json.loads(longline("config", "schema", kind).out)

    assert schema["title"] == f"longline {kind}"
    assert schema["additionalProperties"] is False
    assert schema["properties"]


def test_the_schema_of_a_manifest_wants_its_kind(longline: Terminal) -> None:
    schema = json.loads(longline("config", "schema", "api").out)

    assert schema["properties"]["manifest"] == {"const": "api"}
    assert "manifest" in schema["required"]
    assert schema["properties"]["burst"]["minimum"] == 1


def test_the_schema_takes_the_short_form_of_a_field(longline: Terminal) -> None:
    schema = json.loads(longline("config", "schema", "html").out)

    field = schema["properties"]["fields"]["anyOf"][0]["additionalProperties"]

    assert field["anyOf"] == [
        {"$ref": "#/$defs/FieldSpec"},
        {"type": ["string", "number", "boolean", "array"]},
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("source: gone.py\n", 1),
        ("limit: 2\nsource: gone.yaml\n", 2),
        ("source: nothing_of_this_name\n", 1),
        ("source: no.such.module:Class\n", 1),
        ("source: broken.py\n", 1),
        ("source: n8n\nset: {no_such_setting: 1}\n", 2),
        ("source: htm.yaml\n", 1),
        ("source: https://shop.test/list\n", 1),
    ],
)
def test_a_job_file_with_an_unusable_source_is_invalid(
    longline: Terminal, tmp_path: Path, text: str, line: int
) -> None:
    (tmp_path / "job.yaml").write_text(text)
    (tmp_path / "broken.py").write_text("raise RuntimeError")
    (tmp_path / "htm.yaml").write_text("manifest: htm\n")

    answer = longline("config", "validate", "job.yaml", "--json")

    (problem,) = answer.last["problems"]
    assert (answer.code, problem["line"]) == (2, line)


def test_a_job_file_in_another_folder_is_run_and_validated_with_its_source(
    longline: Terminal, tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "mine.py").write_text("def numbers():\n    yield {'id': 1}\n")
    (folder / "job.yaml").write_text("source: mine.py:numbers\n")

    validated = longline("config", "validate", "elsewhere/job.yaml")
    ran = longline("run", "elsewhere/job.yaml", "--json")

    assert (validated.code, ran.code, ran.last["stored"]) == (0, 0, 1)
