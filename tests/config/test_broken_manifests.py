"""Every broken file ends with one clear sentence, at its line and column, and at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.config.library_entries import check_secrets, read_entry
from longline.errors import BadFile

FILES = sorted((Path(__file__).parent / "broken").glob("*.yaml"))
REPEATED = "x: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"


def told_of(path: Path) -> BadFile:
    with pytest.raises(BadFile) as told:
        check_secrets(read_entry(path))
    assert "\n" not in str(told.value)
    assert str(told.value).startswith(str(path))
    return told.value


def place_and_problem(error: BadFile) -> str:
    return f"{error.line}:{error.column}: {error.problem}"


def test_there_are_fifty_and_more() -> None:
    assert len(FILES) > 50


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_broken_file_is_told_as_its_first_line_says(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)
    expected = path.read_text("utf-8").partition("\n")[0].removeprefix("# ")

    assert place_and_problem(told_of(path)).startswith(expected)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (REPEATED + "y: &b [*a0, *a0]\n" * 600_000, "0:0: it is larger than 5,000,000 bytes"),
        ("x: [" + "&a 1, " * 800_000 + "2]", "1:599993: it holds more than 100,000 values"),
        (
            REPEATED
            + "".join(f"x{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 30)),
            "5:45: it holds more than 100,000 values, with all aliases written out",
        ),
        (
            "x: &a0 {a: 1}\n" + "".join(f"x{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 9000)),
            "59:12: nested more than 60 deep",
        ),
        ("x: " + "[" * 4_000_000, "1:63: nested more than 60 deep"),
        ("x: " + "{a: " * 1_000_000, "1:240: nested more than 60 deep"),
        ("- " * 2_000_000, "1:121: nested more than 60 deep"),
        ("x: '" + "a\n\n" * 1_000_000, "1:4: not valid YAML: a quote is not closed"),
    ],
    ids=["size", "anchors", "laughs", "ladder", "brackets", "braces", "dashes", "quote"],
)
@pytest.mark.timeout(20)
def test_a_file_made_to_exhaust_us_ends_at_once(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(text)

    assert place_and_problem(told_of(path)).startswith(told)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "1:1: it is empty; write names and values"),
        (b"\xef\xbb\xbf", "1:1: it is empty; write names and values"),
        (b"manifest: html\nname: caf\xe9\n", "2:10: it is not UTF-8 text; save it as UTF-8"),
        (b"\x89PNG\r\n\x1a\n", "1:1: it is not UTF-8 text; save it as UTF-8"),
        (b"name: a\n\x00\x01", "2:1: a control character (U+0000); this is not a text file"),
        (b"name: a\x1b[31m", "1:8: a control character (U+001B); this is not a text file"),
        (b"\xff\xfen\x00", "1:1: a job file holds names and values"),
    ],
)
def test_what_is_no_text_is_told(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_bytes(content)

    assert place_and_problem(told_of(path)).startswith(told)
