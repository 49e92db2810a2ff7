"""Task files of enrichment: what they may say, and how wrong ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.core.errors import BadFile
from longline.enrichment.task_files import EnrichTask, LocalTask, read_task
from tests.config.messages import absent

ROOT = Path(__file__).parents[2]
GOOD = """\
enrich: rooms
sources: [flats]
server: {url: "http://127.0.0.1:11434"}
model: llama3.2
prompt: "How many rooms? {description}"
schema: {type: object, properties: {rooms: {type: integer}}, required: [rooms]}
"""
LOCAL = """\
enrich: places
sources: flats
enricher:
  geocode: {by: city, file: towns.csv}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "task.yaml"


def test_a_short_file_is_enough(file: Path) -> None:
    file.write_text(GOOD)

    task = read_task(file)

    assert isinstance(task, EnrichTask)
    assert (task.enrich, task.sources, task.version) == ("rooms", ("flats",), "1")
    assert (task.server.dialect, task.needed) == ("ollama", ("description",))


def test_doubled_braces_are_literal_braces(file: Path) -> None:
    file.write_text(GOOD.replace("rooms? {description}", "rooms, {{rooms: 1}}? {{{description}}}"))

    assert read_task(file).needed == ("description",)


def test_the_example_can_be_read() -> None:
    task = read_task(ROOT / "examples" / "enrich_listings.yaml")

    assert isinstance(task, EnrichTask)
    assert task.enrich == "enrich_listings"
    assert task.budget.tokens


def test_a_task_may_name_an_enricher_and_nothing_of_a_model(file: Path) -> None:
    file.write_text(LOCAL)

    task = read_task(file)

    assert isinstance(task, LocalTask)
    assert (task.name, task.reads, task.needed) == ("geocode", ("city",), ("city",))


def test_a_table_of_places_is_relative_to_its_task(file: Path) -> None:
    file.write_text(LOCAL)

    task = read_task(file)

    assert isinstance(task, LocalTask)
    assert task.enricher.geocode is not None
    assert task.enricher.geocode.file == str(file.with_name("towns.csv"))


def test_the_example_without_a_model_can_be_read() -> None:
    task = read_task(ROOT / "examples" / "enrich_language.yaml")

    assert isinstance(task, LocalTask)
    assert (task.enrich, task.name) == ("enrich_language", "language")


@pytest.mark.parametrize(
    ("wrong", "right", "data"),
    [
        ("geocode", "geocde", "'geocde' currency geocode"),
        (
            "  geocode",
            "  language: {fields: title}\n  geocode",
            "currency geocode language",
        ),
        ("{by: city, file: towns.csv}", "null", "currency geocode language"),
        ("file: towns.csv", "files: towns.csv", "files:"),
        ("sources: flats", "sources: flats\nprompt: '{city}'", "prompt:"),
        (
            "sources: flats",
            "sources: flats\nbudget: {tokens: 5}",
            "budget:",
        ),
    ],
)
def test_a_wrong_file_without_a_model_is_refused_with_its_place(
    file: Path, wrong: str, right: str, data: str
) -> None:
    assert wrong in LOCAL
    file.write_text(LOCAL.replace(wrong, right))

    with pytest.raises(BadFile) as raised:
        read_task(file)

    assert absent(str(raised.value), data) == []
    assert raised.value.line > 0


@pytest.mark.parametrize(
    ("wrong", "right", "data"),
    [
        ("enrich: rooms", "enrich: Rooms!", "enrich: "),
        ("model: llama3.2", "modle: llama3.2", "modle: `model`"),
        ("model: llama3.2\n", "", "model: "),
        ("sources: [flats]", "sources: []", "sources: "),
        ("{description}", "these", "prompt: same"),
        ("rooms? {", "rooms? {x {", "prompt: {{"),
        ("{description}", "{description}}", "prompt: }}"),
        ("{description}", "{description} as {}", "prompt: {{"),
        ("{type: integer}", "{type: int}", "schema: properties.rooms.type"),
        ("{type: integer}", "{pattern: '('}", "schema: properties.rooms.pattern"),
        ("{type: integer}", "{$ref: '#/$defs/no'}", "schema: #/$defs/no"),
        ("{type: integer}", "{$ref: 'https://x.test/y'}", "schema: https://x.test/y"),
        ("model: llama3.2", "model: x\nrate: 0", "rate: 0"),
        ("model: llama3.2", "model: x\nconcurrency: 0", "concurrency: "),
        ("model: llama3.2", "model: x\nbudget: {tokens: 0}", "budget.tokens: "),
        ("model: llama3.2", "model: x\noptional: [title]", "title prompt"),
        ("http://127.0.0.1:11434", "localhost:11434", "url: http"),
        ('11434"}', '11434", dialect: claude}', "server.dialect: "),
        ('11434"}', '11434", key: sk-123456}', "server.key: env:NAME"),
        ('11434"}', '11434", key: env:NOT_SET_AT_ALL}', "env:NOT_SET_AT_ALL"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(
    file: Path, wrong: str, right: str, data: str
) -> None:
    assert wrong in GOOD
    file.write_text(GOOD.replace(wrong, right))

    with pytest.raises(BadFile) as raised:
        read_task(file)

    assert absent(str(raised.value), data) == []
    assert "sk-123456" not in str(raised.value)
    assert raised.value.line > 0
