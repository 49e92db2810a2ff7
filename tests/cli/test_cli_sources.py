"""longline sources: new, check, record and test: from an address to a manifest with a test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from longline.cli.commands.sources import sources_command
from longline.core.errors import BadOption
from longline.sandbox.web import PracticeWeb
from tests.cli.served import served
from tests.cli.terminal import Terminal


@pytest.fixture(scope="module")
def web() -> Iterator[PracticeWeb]:
    with served(items=20) as web:
        yield web


@pytest.fixture
def manifest(longline: Terminal, tmp_path: Path, web: PracticeWeb) -> Path:
    """A manifest that was proposed for a generated site."""
    path = tmp_path / "proposed.yaml"
    url = f"{web.url}/generated/3/"
    answer = longline("sources", "new", url, "--yes", "-o", path, "--home", tmp_path / "new")
    assert answer.code == 0, answer.err
    return path


@pytest.mark.parametrize("number", [2, 5, 11])
def test_an_unknown_site_is_collected_by_a_proposed_manifest(
    longline: Terminal, tmp_path: Path, web: PracticeWeb, number: int
) -> None:
    url = f"{web.url}/generated/{number}/"

    new = longline("sources", "new", url, "--yes", "--name", "found", "--home", tmp_path / "new")
    check = longline("sources", "check", "found.yaml", "--json", "--home", tmp_path / "check")

    assert new.code == 0
    assert (tmp_path / "found.yaml").is_file()
    assert "longline sources check found.yaml" in new.out
    assert check.code == 0
    (item,) = check.last["items"]
    assert item["action"] == "store"
    assert "title" in {one["name"] for one in item["fields"]}
    assert [one["status"] for one in item["requests"]] == [200]


def test_each_field_can_be_renamed_or_dropped(tmp_path: Path, web: PracticeWeb) -> None:
    path = tmp_path / "mine.yaml"
    words = ["1", "99=oops", "1=headline -2 -3 -4 -5"]
    arguments = ["new", f"{web.url}/generated/3/", "-o", str(path), "--home", str(tmp_path / "h")]

    answer = CliRunner().invoke(sources_command, arguments, input="\n".join(words) + "\n")

    assert answer.exit_code == 0, answer.output
    lines = path.read_text().partition("fields:\n")[2].splitlines()
    assert [line.split(":")[0].strip() for line in lines] == ["headline"]


def test_a_file_is_never_written_over(longline: Terminal, manifest: Path, web: PracticeWeb) -> None:
    before = manifest.read_text()

    answer = longline("sources", "new", f"{web.url}/generated/3/", "--yes", "-o", manifest)

    assert answer.code == 2
    assert manifest.read_text() == before


def test_a_relative_url_is_refused(longline: Terminal) -> None:
    answer = longline("sources", "new", "example.org", "--yes")

    assert answer.code == 2
    assert isinstance(answer.error, BadOption)
    assert answer.error.option == "URL"


def test_a_check_shows_fields_selectors_requests_and_time(
    longline: Terminal, manifest: Path, web: PracticeWeb
) -> None:
    answer = longline("sources", "check", manifest)
    result = longline("sources", "check", manifest, "--json").last

    (item,) = result["items"]
    assert answer.code == 0
    assert (item["action"], item["quality"]["score"]) == ("store", 100)
    assert result["discovery"]["requests"]
    assert f"GET {web.url}/generated/3/\n" in answer.out  # which finds the items
    assert f"GET {item['url']}\n" in answer.out
    assert all(shown in answer.out for shown in (" page ", " css h1.", "200", "100"))


def test_a_page_that_lacks_what_is_required_is_exit_code_3(
    longline: Terminal, manifest: Path, web: PracticeWeb
) -> None:
    words = ("sources", "check", manifest, "--url", f"{web.url}/robots.txt")
    answer, result = longline(*words), longline(*words, "--json").last

    (item,) = result["items"]
    assert answer.code == 3
    assert item["action"] == "quarantine"
    assert "title" in item["reason"]
    assert item["reason"] in answer.out


def test_a_recorded_page_is_a_test(longline: Terminal, manifest: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recorded"

    recorded = longline("sources", "check", manifest, "--record", folder)
    same = longline("sources", "test", folder)
    manifest.write_text(manifest.read_text().replace("title:", "headline:"))
    differs = longline("sources", "test", folder)
    (result,) = longline("sources", "test", folder, "--json").last

    assert f"longline sources test {folder}" in recorded.out
    assert (same.code, same.out.count("\n")) == (0, 1)
    assert same.out.startswith(f"{folder}: ")
    assert differs.code == 1
    assert {"title", "headline"} <= {one.partition(":")[0] for one in result["differences"]}
    assert len(differs.out.splitlines()) == 1 + len(result["differences"])
    assert "headline: " in differs.out


def test_several_items_are_recorded_in_folders(
    longline: Terminal, manifest: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "recorded"

    longline("sources", "check", manifest, "--items", "2", "--record", folder)
    answer = longline("sources", "test", folder, "--json")

    assert [one["differences"] for one in answer.last] == [[], []]
    assert [Path(one["case"]).name for one in answer.last] == ["01", "02"]


def test_a_manifest_is_shown_like_any_source(longline: Terminal, manifest: Path) -> None:
    plain, result = longline("sources", manifest), longline("sources", manifest, "--json")

    assert plain.out.startswith("site-generated-3")
    assert result.last[0]["layers"][0]["name"] == "page"
    assert longline("sources", "show", manifest).out == plain.out
    assert json.loads(longline("sources", "--json", manifest).out) == result.last


def test_manifests_of_the_folder_are_listed_and_broken_ones_say_why(
    longline: Terminal, tmp_path: Path
) -> None:
    folder = tmp_path / "sources"
    folder.mkdir()
    good = (
        "manifest: html\nname: good\nabout: All is well.\nstart: https://x.test/\nfields: {t: h1}\n"
    )
    (folder / "good.yaml").write_text(good)
    (folder / "bad.yaml").write_text("manifest: html\nname: bad\n")

    lines = longline("sources").out.splitlines()

    assert lines[0].startswith("n8n ")
    assert any(line.split() == ["sources/good.yaml", "All", "is", "well."] for line in lines)
    assert any("bad.yaml:" in line for line in lines)  # the place of what is wrong


def test_a_setting_that_must_be_given_is_shown_as_such(longline: Terminal, tmp_path: Path) -> None:
    text = (
        "manifest: html\nname: asks\nparameters: {where: {about: Which town.}}\n"
        "start: https://x.test/{where}\nfields: {t: h1}\n"
    )
    (tmp_path / "asks.yaml").write_text(text)

    (result,) = longline("sources", "asks.yaml", "--json").last
    lines = longline("sources", "asks.yaml").out.splitlines()
    assert result["settings"]["where"]["required"]
    assert any("--set where=" in line and "Which town." in line for line in lines)


def test_the_docstring_of_an_option_is_its_description(longline: Terminal, tmp_path: Path) -> None:
    (tmp_path / "towns.py").write_text(_TOWNS)

    (result,) = longline("sources", "towns.py", "--json").last
    about = {name: one["about"] for name, one in result["settings"].items()}
    assert about == {"where": "Which town, or all.", "from_": "The first day.", "depth": None}


_TOWNS = """\
from pydantic import Field

from longline import Item, Source, layer


class Towns(Source):
    name = "towns"

    class Options(Source.Options):
        where: str = "all"
        '''Which town,
        or all.'''
        from_: str = Field("today", alias="from")
        '''The first day.'''
#       old: int = 1
        depth: int = 2

    async def discover(self, visit):
        yield Item("1", "https://x.test/")

    @layer()
    async def page(self, visit):
        return {}
"""


def test_an_unknown_source_is_refused(longline: Terminal) -> None:
    assert longline("sources", "nothing").code == 2
