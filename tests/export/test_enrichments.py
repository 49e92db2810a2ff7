"""What machines said goes along under a name of its own, and only about the version it is of."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # ships no types
import pytest

from longline.core.errors import BadOption
from longline.export.columns import Rows
from longline.export.export import ExportRequest, ExportResult, IncrementalRows, export
from longline.export.redaction import Redactor
from longline.storage.query import RecordQuery
from longline.storage.store import Store, open_store
from tests.export.sample_answers import answered, asked
from tests.storage.given import record
from tests.virtual import EPOCH

TOLD = {"made_by": "machine", "model": "practice", "prompt_version": "v3"}
AT = "2027-01-15T08:00:05+00:00"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/longline.sqlite") as store:
        yield store


def everything(store: Store) -> Rows:
    return lambda: store.records.stream(RecordQuery(), with_enrichments=True)


def exported(store: Store, path: Path, **options: Any) -> ExportResult:
    request = ExportRequest(str(path), **{"tasks": ("moods",), **options})
    return export(request, everything(store))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def names_the_task(text: str) -> bool:
    """Return whether a description says that a machine made the values, and for which task."""
    return "machine-made" in text and "moods" in text


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as text:
        return list(csv.DictReader(text))


async def test_an_object_has_the_answers_next_to_its_data(store: Store, tmp_path: Path) -> None:
    await store.records.create(record("a"), at=EPOCH)
    await store.records.create(record("b"), at=EPOCH)
    await answered(store, "a", {"mood": "eager"})

    exported(store, tmp_path / "a.jsonl")

    first, second = lines(tmp_path / "a.jsonl")
    assert first["data"] == {"title": "Thing a"}
    assert first["enrichments"]["moods"] == {
        **TOLD,
        "state": "answered",
        "answer": {"mood": "eager"},
        "answered_at": AT,
    }
    assert second["enrichments"] == {"moods": None}


async def test_what_was_said_of_an_older_version_is_not_passed_off_as_current(
    store: Store, tmp_path: Path
) -> None:
    await store.records.create(record("a"), at=EPOCH)
    await answered(store, "a", {"mood": "eager"})
    await store.records.create(record("a", {"title": "other"}, fingerprint="second"), at=EPOCH + 9)

    done = exported(store, tmp_path / "a.jsonl")
    exported(store, tmp_path / "a.csv")

    said = lines(tmp_path / "a.jsonl")[0]["enrichments"]["moods"]
    assert said == {**TOLD, "state": "outdated", "answer": None, "answered_at": None}
    assert table(tmp_path / "a.csv")[0]["enrichments.moods.@state"] == "outdated"
    assert "eager" not in (tmp_path / "a.csv").read_text()
    (note,) = done.notes
    assert "1" in note.split()
    assert "moods" in note


async def test_a_record_as_it_was_has_what_was_said_of_it_then(
    store: Store, tmp_path: Path
) -> None:
    await store.records.create(record("a"), at=EPOCH)
    await answered(store, "a", {"mood": "eager"})
    await store.records.create(record("a", {"title": "other"}, fingerprint="second"), at=EPOCH + 9)
    then = RecordQuery(as_of=EPOCH + 1)

    export(
        ExportRequest(str(tmp_path / "a.jsonl"), tasks=("moods",)),
        lambda: store.records.stream(then, with_enrichments=True),
    )

    (row,) = lines(tmp_path / "a.jsonl")
    assert (row["version"], row["enrichments"]["moods"]["answer"]) == (1, {"mood": "eager"})


async def test_a_question_without_an_answer_has_its_state(store: Store, tmp_path: Path) -> None:
    await store.records.create(record("a"), at=EPOCH)
    await asked(store, "a")

    exported(store, tmp_path / "a.jsonl")

    said = lines(tmp_path / "a.jsonl")[0]["enrichments"]["moods"]
    assert (said["state"], said["answer"], said["answered_at"]) == ("queued", None, None)


async def test_a_table_has_typed_columns_of_its_own_for_each_task(
    store: Store, tmp_path: Path
) -> None:
    clash = {"title": "x", "enrichments.moods.mood": "of the site", "mood": "of the site, too"}
    await store.records.create(record("a", clash), at=EPOCH)
    await answered(store, "a", {"mood": "eager", "sure": 0.5})
    await answered(store, "a", ["red"], task="colours")

    exported(store, tmp_path / "a.parquet", tasks=("moods", "colours"))

    (row,) = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert row["mood"] == "of the site, too"
    assert row["data.enrichments.moods.mood"] == "of the site"
    assert (row["enrichments.moods.mood"], row["enrichments.moods.sure"]) == ("eager", 0.5)
    assert (row["enrichments.moods.@model"], row["enrichments.moods.@prompt_version"]) == (
        "practice",
        "v3",
    )
    assert row["enrichments.moods.@answered_at"].isoformat() == AT
    assert row["enrichments.colours.answer"] == '["red"]'


@pytest.mark.parametrize("form", ["csv", "xlsx", "sqlite", "duckdb", "json"])
async def test_every_format_takes_them(store: Store, tmp_path: Path, form: str) -> None:
    await store.records.create(record("a"), at=EPOCH)
    await answered(store, "a", {"mood": "eager", "why": ["a", {"b": None}]})

    done = exported(store, tmp_path / f"a.{form}")

    assert (done.records, done.notes) == (1, ())


@pytest.mark.parametrize("columns", [(), ("key", "enrichments.moods.mood", "title")])
async def test_the_schema_is_valid_and_names_the_task(
    store: Store, tmp_path: Path, columns: tuple[str, ...]
) -> None:
    await store.records.create(record("a"), at=EPOCH)
    await store.records.create(record("b"), at=EPOCH)
    await answered(store, "a", {"mood": "eager"})

    exported(store, tmp_path / "a.jsonl", columns=columns)

    schema = json.loads((tmp_path / "a.jsonl.schema.json").read_text())
    jsonschema.validate(lines(tmp_path / "a.jsonl"), {"type": "array", "items": schema})
    assert names_the_task(json.dumps(schema))


async def test_the_schema_of_a_table_names_the_task_of_a_column(
    store: Store, tmp_path: Path
) -> None:
    await store.records.create(record("a"), at=EPOCH)
    await answered(store, "a", {"mood": "eager"})

    exported(store, tmp_path / "a.csv")

    schema = json.loads((tmp_path / "a.csv.schema.json").read_text())
    column = schema["properties"]["enrichments.moods.mood"]
    assert column.keys() == {"type", "description"}
    assert column["type"] == "string"
    assert names_the_task(column["description"])


async def test_columns_choose_what_machines_said_and_who(store: Store, tmp_path: Path) -> None:
    data = {"title": "x", "enrichments": {"moods": {"mood": "of the site"}}}
    await store.records.create(record("a", data), at=EPOCH)
    await answered(store, "a", {"mood": {"main": "eager"}})
    names = ("enrichments.moods.mood.main", "enrichments.moods.@model")

    exported(store, tmp_path / "a.csv", columns=(*names, "data.enrichments.moods.mood"))

    assert table(tmp_path / "a.csv") == [
        {names[0]: "eager", names[1]: "practice", "data.enrichments.moods.mood": "of the site"}
    ]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("enrichments.mods.mood", "enrichments.moods.FIELD"),
        ("enrichments.moods", "enrichments.moods.FIELD"),
        ("enrichments.moods.@price", "@state, @model"),
    ],
)
def test_a_column_that_no_task_has_is_refused_with_those_there_are(
    store: Store, tmp_path: Path, name: str, known: str
) -> None:
    with pytest.raises(BadOption) as refused:
        exported(store, tmp_path / "a.csv", columns=(name,))

    assert refused.value.option == "--columns"
    assert repr(name) in refused.value.problem
    assert known in refused.value.problem


async def test_parts_are_made_by_what_machines_said(store: Store, tmp_path: Path) -> None:
    await store.records.create(record("a"), at=EPOCH)
    await store.records.create(record("b"), at=EPOCH)
    await answered(store, "a", {"mood": "eager"})

    exported(store, tmp_path / "out", format="jsonl", partition="enrichments.moods.mood")

    assert sorted(one.name for one in (tmp_path / "out").glob("enrich*")) == [
        "enrichments.moods.mood=__HIVE_DEFAULT_PARTITION__",
        "enrichments.moods.mood=eager",
    ]


async def test_what_others_should_not_see_is_taken_out_of_answers_and_no_more(
    store: Store, tmp_path: Path
) -> None:
    await store.records.create(record("a"), at=EPOCH)
    said = {"who": "ann@example.com", "password": "hunter22", "kind": "mobile"}
    await answered(store, "a", said, task="phones")

    exported(store, tmp_path / "a.jsonl", tasks=("phones",), redactor=Redactor())

    entry = lines(tmp_path / "a.jsonl")[0]["enrichments"]["phones"]
    assert entry["answer"] == {"who": "[e-mail]", "password": "[secret]", "kind": "mobile"}
    assert (entry["model"], entry["answered_at"]) == ("practice", AT)


async def increment(store: Store, tasks: tuple[str, ...] = ("moods",)) -> list[str]:
    """Take what is new for an export, mark it, and return the keys."""
    fresh = IncrementalRows(store.export_cursors, "daily", everything(store), tasks=tasks)
    keys = [row["key"] for row in fresh()]
    await store.export_cursors.add("daily", fresh.yielded())
    return keys


async def test_another_answer_makes_a_record_new_for_an_increment_that_has_answers(
    store: Store,
) -> None:
    await store.records.create(record("a"), at=EPOCH)
    await store.records.create(record("b"), at=EPOCH)
    first = await increment(store)
    await asked(store, "b")
    only_asked = await increment(store)
    await answered(store, "a", {"mood": "eager"})
    with_answer = await increment(store)
    nothing = await increment(store)
    await answered(store, "a", {"mood": "eager"}, version="v4")
    with_another = await increment(store)

    assert (first, only_asked, with_answer, nothing) == (["a", "b"], [], ["a"], [])
    assert with_another == ["a"]


async def test_answers_of_other_tasks_and_exports_without_any_make_nothing_new(
    store: Store,
) -> None:
    await store.records.create(record("a"), at=EPOCH)
    await increment(store)
    await increment(store, tasks=())
    await answered(store, "a", {"mood": "eager"}, task="others")

    assert await increment(store) == []
    assert await increment(store, tasks=()) == []


async def test_a_changed_record_is_exported_again(store: Store) -> None:
    await store.records.create(record("a"), at=EPOCH)
    await answered(store, "a", {"mood": "eager"})
    await increment(store)
    await store.records.create(record("a", {"title": "other"}, fingerprint="second"), at=EPOCH + 9)

    assert await increment(store) == ["a"]


async def test_of_many_records_each_has_its_own_answer(store: Store) -> None:
    for number in range(7):
        await store.records.create(record(str(number)), at=EPOCH)
    for number in (0, 3, 6):
        await answered(store, str(number), {"number": number})

    rows = list(store.records.stream(RecordQuery(), size=3, with_enrichments=True))

    said = [[one["answer"]["number"] for one in row["enrichments"]] for row in rows]
    assert said == [[0], [], [], [3], [], [], [6]]
    assert "enrichments" not in next(store.records.stream(RecordQuery()))
