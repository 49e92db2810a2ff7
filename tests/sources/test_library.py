"""The manifests and job files of the source folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.config.settings import Settings
from longline.core.errors import BadFile
from longline.sources.loader import Survey, check_secrets, survey
from tests.config.messages import absent

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


def test_entries_are_read_only(folder: Path) -> None:
    found = survey_of(folder)

    found.entries["apples"].values["name"] = "mine"

    assert found.entries["apples"].values["name"] == "apples"
    with pytest.raises(TypeError):
        found.entries["mine"] = found.entries["apples"]  # type: ignore[index]  # that is the test


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
