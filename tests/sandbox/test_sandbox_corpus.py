"""Real templates out of a file, served through the same addresses."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientSession

from longline.core.errors import BadFile
from longline.sandbox.templates.corpus import CorpusShelf
from longline.sandbox.web import PracticeWeb, WebOptions
from tests.virtual import VirtualClock


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"Template {number}",
        "workflow": {"nodes": [], "connections": {}},
        "detail": {
            "description": "Does things.",
            "createdAt": f"2024-01-{number:02d}T08:00:00.000Z",
            "views": 3,
            "totalViews": 3,
            "status": "published",
            "categories": [{"id": 5, "name": "Engineering"}],
            "image": [],
            "user": {"username": "ada", "name": "Ada", "verified": True},
            "nodes": [{"id": 20, "name": "n8n-nodes-base.if", "displayName": "If"}],
        },
    }


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    body = b"\n".join(orjson.dumps(line) for line in rows) + b"\n"
    path.write_bytes(gzip.compress(body) if path.suffix == ".gz" else body)
    return path


@pytest.mark.parametrize("name", ["some.jsonl", "some.jsonl.gz"])
async def test_the_templates_of_a_file_are_served(
    client: ClientSession, clock: VirtualClock, tmp_path: Path, name: str
) -> None:
    corpus = write(tmp_path / name, [row(9), row(4)])
    options = WebOptions(corpus=corpus, odd_shapes=False)

    async with PracticeWeb(options, clock=clock) as web:
        detail = await (await client.get(f"{web.api_url}/templates/workflows/4")).json()
        found = await (await client.get(f"{web.api_url}/templates/search")).json()
        strapi = await (await client.get(f"{web.api_url}/workflows/4")).json()
        page = await (await client.get(f"{web.url}/workflows/4")).text()

    assert list(web.catalogue.ids) == [4, 9]
    line = row(4)
    assert detail["workflow"] == {**line.pop("detail"), **line}
    assert [item["id"] for item in found["workflows"]] == [9, 4]
    assert found["filters"][0]["counts"][0]["count"] == 2
    assert "updatedAt" not in strapi["data"]["attributes"]
    assert "<h1>Template 4</h1>" in page


@pytest.mark.parametrize(
    ("line", "datum"),
    [
        ("{", "JSON"),
        ("[]", "object"),
        ('{"id": 1, "name": "a", "workflow": {}}', "'detail'"),
        ('{"id": "1", "name": "a", "workflow": {}, "detail": {}}', "'id'"),
        (orjson.dumps(row(1)).decode(), "template 1"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, datum: str) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text(orjson.dumps(row(1)).decode() + "\n" + line + "\n")

    with pytest.raises(BadFile, match=datum) as caught:
        CorpusShelf(path)

    assert caught.value.line == 2


def test_an_empty_file_is_no_corpus(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.touch()

    with pytest.raises(BadFile) as refused:
        CorpusShelf(path)

    assert refused.value.path == str(path)
    assert refused.value.__cause__ is None  # it was read


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadFile) as refused:
        CorpusShelf(tmp_path / "nowhere.jsonl")

    assert refused.value.path == str(tmp_path / "nowhere.jsonl")
    assert isinstance(refused.value.__cause__, FileNotFoundError)


def test_a_packed_file_that_is_cut_off(tmp_path: Path) -> None:
    path = write(tmp_path / "cut.jsonl.gz", [row(number) for number in range(1, 20)])
    path.write_bytes(path.read_bytes()[:-20])

    with pytest.raises(BadFile) as refused:
        CorpusShelf(path)

    assert refused.value.path == str(path)
    assert isinstance(refused.value.__cause__, EOFError | OSError)
