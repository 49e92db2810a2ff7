"""Job files: what is wrong with one is told with its line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.config.files import read_file
from longline.config.spec import read_spec
from longline.errors import BadFile

KNOWN = "source, set, params, limit, rate, burst, at_once, concurrency, timeout, ignore_robots"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "job.yaml"


def test_a_job_file_says_what_the_command_line_could(path: Path) -> None:
    path.write_text(
        "# twice a week\nsource: n8n\nlimit: 10\nrate: unlimited\n"
        "set:\n  site_url: http://mirror.test\nignore_robots: [mirror.test]\n"
    )

    assert read_spec(path) == {
        "source": "n8n",
        "limit": 10,
        "rate": "unlimited",
        "set": {"site_url": "http://mirror.test"},
        "ignore_robots": ["mirror.test"],
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("source: n8n\nlimit: [1, 2\n", ":3:1: not valid YAML: a list is not closed"),
        ("a: b: c\n", ":1:5: not valid YAML: a colon too many"),
        ("source: n8n\n\tlimit: 1\n", ":2:1: not valid YAML: a tab; indent with spaces"),
        ("source: !!python/object:os.system x\n", ":1:9: a tag is not taken here"),
        ("source: n8n\nlimit: 2024-13-45\n", ":2:1: limit: Input should be a valid integer"),
        ("[" * 5000, ":1:61: nested more than 60 deep"),
        ("source: n8n\nlimitt: 5\n", f":2:1: limitt: there is no such setting; known are {KNOWN}"),
        ("source: n8n\n\nlimit: ten\n", ":3:1: limit: Input should be a valid integer"),
        ("source: n8n\nlimit: -3\n", ":2:1: limit: Input should be greater than or equal to 1"),
        ("source: n8n\nset: fast\n", ":2:1: set: Input should be a valid dictionary"),
        ("source: n8n\nrate: fast\n", ":2:1: rate: must be more than 0"),
        ("source: n8n\nrate: 0\n", ":2:1: rate: must be more than 0"),
        ("source: n8n\nrate: .nan\n", ":2:1: rate: must be more than 0"),
        ("limit: 3\n", ":1:1: source: Field required"),
        ("1: 2\nsource: n8n\n", ":1:1: 1: there is no such setting"),
        ("- source\n- n8n\n", ":1:1: a job file holds names and values"),
        ("just words", ":1:1: a job file holds names and values"),
        ("", ":1:1: it is empty; write names and values"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(path: Path, text: str, problem: str) -> None:
    path.write_text(text)

    with pytest.raises(BadFile) as told:
        read_spec(path)

    assert str(told.value).startswith(f"{path}{problem}")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"source: \xff\xfe", ":1:9: it is not UTF-8 text"),
        (b"\x00\x01", ":1:1: a control character (U+0000); this is not a text file"),
        (b"\x89PNG\r\n\x1a\n", ":1:1: it is not UTF-8 text"),
    ],
)
def test_a_file_that_is_no_text_is_told_in_one_line(
    path: Path, content: bytes, problem: str
) -> None:
    path.write_bytes(content)

    with pytest.raises(BadFile) as told:
        read_spec(path)

    assert str(told.value).startswith(f"{path}{problem}")
    assert "\n" not in str(told.value)


def test_a_file_in_another_encoding_still_gets_its_place(path: Path) -> None:
    path.write_text("source: n8n\nlimitt: 5\n", encoding="utf-16")

    with pytest.raises(BadFile) as told:
        read_spec(path)

    assert (told.value.line, told.value.column) == (2, 1)


def test_a_file_that_is_not_there_is_told(path: Path) -> None:
    with pytest.raises(BadFile, match=r"job\.yaml: No such file or directory"):
        read_spec(path)


def test_a_folder_is_no_job_file(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="Is a directory"):
        read_spec(tmp_path)


# ---------------------------------------------------------------- paths


@pytest.mark.parametrize("source", ["mine.py", "mine.py:Mine", "sub/mine.py"])
def test_a_source_counts_from_the_folder_of_its_job_file(path: Path, source: str) -> None:
    path.write_text(f"source: {source}\n")
    file = path.parent / source.removesuffix(":Mine")
    file.parent.mkdir(exist_ok=True)
    file.write_text("")

    assert read_file(path)["source"] == str(path.parent / source)


@pytest.mark.parametrize("source", ["n8n", "package.module:Class"])
def test_a_name_is_not_a_path(path: Path, source: str) -> None:
    path.write_text(f"source: {source}\n")

    assert read_file(path)["source"] == source


@pytest.mark.parametrize("source", ["gone.py", "gone.py:Name", "gone.yaml"])
def test_a_source_that_is_not_there_is_told_where_it_is_named(path: Path, source: str) -> None:
    path.write_text(f"limit: 3\nsource: {source}\n")

    with pytest.raises(BadFile) as told:
        read_file(path)

    assert (told.value.path, told.value.line) == (str(path), 2)


def test_other_paths_of_files_count_from_their_folder_too(path: Path) -> None:
    path.write_text("source: shop.yaml\nca_file: own.pem\n")
    manifest = (
        "manifest: command\nname: shop\ncommand: [ls]\nfolder: scripts\nca_file: theirs.pem\n"
    )
    (path.parent / "shop.yaml").write_text(manifest)

    values = read_file(path)

    folder = path.parent
    assert values["ca_file"] == str(folder / "own.pem")
    assert values["manifest"]["ca_file"] == str(folder / "theirs.pem")
    assert values["manifest"]["folder"] == str(folder / "scripts")
