"""Every broken file ends with one error, at its line and column, and quickly."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.core.errors import BadFile
from longline.sources.loader import check_secrets, read_entry
from tests.config.messages import absent

FILES = sorted((Path(__file__).parent / "broken").glob("*.yaml"))
REPEATED = "x: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"


def error_of(path: Path) -> BadFile:
    with pytest.raises(BadFile) as caught:
        check_secrets(read_entry(path))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))
    return caught.value


def assert_error(error: BadFile, expected: str) -> None:
    """Compare an error with its line and column, followed by what its message has to name."""
    place, _, data = expected.partition(": ")
    assert f"{error.line}:{error.column}" == place
    assert absent(error.problem, data) == []


def test_there_are_fifty_and_more() -> None:
    assert len(FILES) > 50


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_broken_file_is_refused_as_its_first_line_says(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)
    expected = path.read_text("utf-8").partition("\n")[0].removeprefix("# ")

    assert_error(error_of(path), expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (REPEATED + "y: &b [*a0, *a0]\n" * 600_000, "0:0: 5,000,000"),
        ("x: [" + "&a 1, " * 800_000 + "2]", "1:1199987: 100,000"),
        (
            REPEATED
            + "".join(f"x{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 30)),
            "5:5: 100,000 aliases",
        ),
        (
            "x: &a0 {a: 1}\n" + "".join(f"x{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 9000)),
            "58:6: 60",
        ),
        ("x: " + "[" * 4_000_000, "1:63: 60"),
        ("x: " + "{a: " * 1_000_000, "1:240: 60"),
        ("- " * 2_000_000, "1:121: 60"),
        ("x: '" + "a\n\n" * 1_000_000, "1:4: YAML quote"),
    ],
    ids=["size", "anchors", "laughs", "ladder", "brackets", "braces", "dashes", "quote"],
)
@pytest.mark.timeout(20)
def test_a_file_made_to_exhaust_us_ends_immediately(
    tmp_path: Path, text: str, expected: str
) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(text)

    assert_error(error_of(path), expected)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "1:1: empty"),
        (b"\xef\xbb\xbf", "1:1: empty"),
        (b"manifest: html\nname: caf\xe9\n", "2:10: UTF-8"),
        (b"\x89PNG\r\n\x1a\n", "1:1: UTF-8"),
        (b"name: a\n\x00\x01", "2:1: U+0000"),
        (b"name: a\x1b[31m", "1:8: U+001B"),
        (b"\xff\xfen\x00", "1:1"),
    ],
)
def test_what_is_not_text_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_bytes(content)

    assert_error(error_of(path), expected)
