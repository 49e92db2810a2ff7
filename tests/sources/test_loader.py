"""Manifests and job files of the source folders, and messages about sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.config.settings import Settings
from longline.core.errors import BadFile
from longline.core.json import to_json
from longline.sources.loader import Survey, check_secrets, survey
from longline.sources.parsing.values import read_value
from tests.config.messages import absent
from tests.sources.manifested import read
from tests.sources.scripted import notes_on
from tests.virtual import VirtualClock

MANIFEST = "manifest: html\nname: {name}\nstart: https://{name}.test/\nfields:\n  title: h1\n"


def write(folder: Path, name: str, *, file: str | None = None, more: str = "") -> None:
    (folder / f"{file or name}.yaml").write_text(MANIFEST.format(name=name) + more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    write(folder, "apples")
    write(folder, "pears")
    return folder


def survey_of(folder: Path) -> Survey:
    return survey(Settings(sources=(folder,)))


def test_every_manifest_and_job_file_is_listed(folder: Path) -> None:
    (folder / "nightly.yml").write_text("source: n8n\nlimit: 5\n")
    (folder / ".apples.yaml.swp").write_text("not [ yaml")
    (folder / ".hidden.yaml").write_text("not [ yaml")

    found = survey_of(folder)

    kinds = {name: one.kind for name, one in found.entries.items()}
    assert kinds == {"apples": "html", "nightly": "job", "pears": "html"}
    assert found.problems == ()


def test_an_edit_counts_for_the_next_survey_only(folder: Path) -> None:
    before = survey_of(folder)
    write(folder, "apples", more="version: v1\n")

    after = survey_of(folder)

    assert "version" not in before.entries["apples"].values
    assert after.entries["apples"].values["version"] == "v1"


def test_a_broken_file_does_not_hide_the_others(folder: Path) -> None:
    (folder / "apples.yaml").write_text("manifest: html\nname: apples\n")

    found = survey_of(folder)

    (problem,) = found.problems
    assert list(found.entries) == ["pears"]
    assert isinstance(problem, BadFile)
    assert problem.path == str(folder / "apples.yaml")


def test_two_files_with_the_same_name_are_a_problem(folder: Path) -> None:
    write(folder, "pears", file="second")

    (problem,) = survey_of(folder).problems

    assert isinstance(problem, BadFile)
    assert (problem.path, problem.line, problem.column) == (str(folder / "second.yaml"), 2, 1)
    assert absent(problem.problem, "name: pears.yaml 'pears'") == []


def test_secrets_are_checked_on_request(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_KEY", raising=False)
    auth = "auth:\n  kind: bearer\n  hosts: [shop.test]\n  token: env:SHOP_KEY\n"
    write(folder, "shop", more=auth)
    entry = survey_of(folder).entries["shop"]

    with pytest.raises(BadFile) as refused:
        check_secrets(entry)
    monkeypatch.setenv("SHOP_KEY", "x")
    check_secrets(entry)

    assert (refused.value.line, refused.value.column) == (9, 3)
    assert absent(str(refused.value), "shop.yaml auth.token: env:SHOP_KEY") == []


@pytest.mark.parametrize(
    ("field", "note"),
    [
        ("[.price, .old]", "nothing at css .price, css .old"),
        (
            "{css: h1, type: number}",
            "'Cod' cannot be read as number: there is no number in it",
        ),
    ],
)
async def test_a_note_says_why_a_field_is_empty(field: str, note: str, clock: VirtualClock) -> None:
    _, visit = await read(f"fields: {{price: {field}}}", "<h1>Cod</h1>", clock)

    assert notes_on(visit, "price") == [note]


def test_an_ambiguous_date_is_refused_with_advice() -> None:
    with pytest.raises(ValueError, match=r"^the order of day and month is unclear; set locale"):
        read_value("date", "01/05/2024")


def test_a_field_that_is_not_data_is_refused_with_its_type() -> None:
    with pytest.raises(
        TypeError, match=r"^field o is of type object, which cannot be stored; return "
    ):
        to_json({"o": object()})
