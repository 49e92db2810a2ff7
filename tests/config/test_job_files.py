"""Job files: what is wrong with one is reported with its line and column."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from longline.config.job_spec import JobSpec, read_spec
from longline.core.errors import BadFile, BadOption
from longline.sources.loader import merge_spec, read_job_file
from tests.config.messages import absent

KNOWN = "source set params limit rate burst max_in_flight concurrency timeout retry ignore_robots"


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
    ("text", "data"),
    [
        ("source: n8n\nlimit: [1, 2\n", ":3:1: YAML ]"),
        ("a: b: c\n", ":1:5: YAML colon"),
        ("source: n8n\n\tlimit: 1\n", ":2:1: YAML tab"),
        ("source: !!python/object:os.system x\n", ":1:9: tag"),
        ("source: n8n\nlimit: 2024-13-45\n", ":2:1: limit:"),
        ("[" * 5000, ":1:61: 60"),
        ("source: n8n\nlimitt: 5\n", ":2:1: limitt: limit"),
        ("source: n8n\nzzz: 5\n", f":2:1: zzz: {KNOWN}"),
        ("source: n8n\n\nlimit: ten\n", ":3:1: limit:"),
        ("source: n8n\nlimit: -3\n", ":2:1: limit: 1"),
        ("source: n8n\nset: fast\n", ":2:1: set:"),
        ("source: n8n\nrate: fast\n", ":2:1: rate: 0 'auto' 'unlimited'"),
        ("source: n8n\nrate: 0\n", ":2:1: rate: 0 'auto' 'unlimited'"),
        ("source: n8n\nrate: .nan\n", ":2:1: rate: 0 'auto' 'unlimited'"),
        ("limit: 3\n", ":1:1: source:"),
        ("1: 2\nsource: n8n\n", ":1:1: 1: source"),
        ("- source\n- n8n\n", ":1:1:"),
        ("just words", ":1:1:"),
        ("", ":1:1: empty"),
    ],
)
def test_what_is_wrong_is_reported_with_its_place(path: Path, text: str, data: str) -> None:
    path.write_text(text)

    with pytest.raises(BadFile) as caught:
        read_spec(path)

    assert caught.value.path == str(path)
    assert absent(str(caught.value), data) == []
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "data"),
    [
        (b"source: \xff\xfe", ":1:9: UTF-8"),
        (b"\x00\x01", ":1:1: U+0000"),
        (b"\x89PNG\r\n\x1a\n", ":1:1: UTF-8"),
    ],
)
def test_a_file_that_is_not_text_is_refused_in_one_line(
    path: Path, content: bytes, data: str
) -> None:
    path.write_bytes(content)

    with pytest.raises(BadFile) as caught:
        read_spec(path)

    assert caught.value.path == str(path)
    assert absent(str(caught.value), data) == []
    assert "\n" not in str(caught.value)


def test_a_file_in_another_encoding_still_gets_its_place(path: Path) -> None:
    path.write_text("source: n8n\nlimitt: 5\n", encoding="utf-16")

    with pytest.raises(BadFile) as caught:
        read_spec(path)

    assert (caught.value.line, caught.value.column) == (2, 1)


def test_a_file_that_is_not_there_is_refused(path: Path) -> None:
    with pytest.raises(BadFile) as caught:
        read_spec(path)

    assert caught.value.path == str(path)
    assert os.strerror(errno.ENOENT) in caught.value.problem


def test_a_folder_is_no_job_file(tmp_path: Path) -> None:
    with pytest.raises(BadFile) as caught:
        read_spec(tmp_path)

    assert caught.value.path == str(tmp_path)
    assert os.strerror(errno.EISDIR) in caught.value.problem


# ---------------------------------------------------------------- paths


@pytest.mark.parametrize("source", ["mine.py", "mine.py:Mine", "sub/mine.py"])
def test_a_source_counts_from_the_folder_of_its_job_file(path: Path, source: str) -> None:
    path.write_text(f"source: {source}\n")
    file = path.parent / source.removesuffix(":Mine")
    file.parent.mkdir(exist_ok=True)
    file.write_text("")

    assert read_job_file(path)["source"] == str(path.parent / source)


@pytest.mark.parametrize("source", ["n8n", "package.module:Class"])
def test_a_name_is_not_a_path(path: Path, source: str) -> None:
    path.write_text(f"source: {source}\n")

    assert read_job_file(path)["source"] == source


@pytest.mark.parametrize("source", ["gone.py", "gone.py:Name", "gone.yaml"])
def test_a_missing_source_is_reported_where_it_is_named(path: Path, source: str) -> None:
    path.write_text(f"limit: 3\nsource: {source}\n")

    with pytest.raises(BadFile) as caught:
        read_job_file(path)

    assert (caught.value.path, caught.value.line) == (str(path), 2)


def test_other_paths_of_files_count_from_their_folder_too(path: Path) -> None:
    path.write_text("source: shop.yaml\nca_file: own.pem\n")
    manifest = (
        "manifest: command\nname: shop\ncommand: [ls]\nfolder: scripts\nca_file: theirs.pem\n"
    )
    (path.parent / "shop.yaml").write_text(manifest)

    values = read_job_file(path)

    folder = path.parent
    assert values["ca_file"] == str(folder / "own.pem")
    assert values["manifest"]["ca_file"] == str(folder / "theirs.pem")
    assert values["manifest"]["folder"] == str(folder / "scripts")


def test_params_of_a_manifest_are_refused(tmp_path: Path) -> None:
    manifest = tmp_path / "quotes.yaml"
    manifest.write_text(
        "manifest: html\nname: quotes\nstart: https://quotes.test/\nfields: {title: h1}\n"
    )

    with pytest.raises(BadOption) as refused:
        merge_spec(JobSpec(source="n8n"), str(manifest), {"params": {"page": "2"}})

    assert refused.value.option == "--param page"
