"""Documents: values as they were meant, and each with its place."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from longline.config.documents import Document, check, parse_document, read_document
from longline.config.validation import StrictModel
from longline.core.errors import BadFile
from tests.config.messages import absent


class Price(StrictModel):
    amount: float
    currency: Literal["EUR", "USD"] = "EUR"


class Weight(StrictModel):
    grams: int
    """How heavy it is."""


class Thing(StrictModel):
    name: str
    value: Price | Weight | str | None = None
    tags: tuple[str, ...] = ()
    size: int | bool | list[int] = 1
    inner: dict[str, Price] = Field(default_factory=dict)


def document(text: str, **environment: str) -> Document:
    return parse_document(text.encode(), Path("thing.yaml"), environment=environment)


def result(text: str, model: type[BaseModel] = Thing) -> str:
    with pytest.raises(BadFile) as error:
        check(document(text), model)
    return str(error.value)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("2020-01-01", "2020-01-01"),
        ("2020-01-01T10:00:00Z", "2020-01-01T10:00:00Z"),
        ("12:30", "12:30"),
        ("yes", "yes"),
        ("off", "off"),
        ("true", True),
        ("False", False),
        ("007", "007"),
        ("0o17", "0o17"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("12", 12),
        ("-3", -3),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("1e999", "1e999"),
        (".nan", ".nan"),
        (".inf", ".inf"),
        (".5", 0.5),
        (".", "."),
        ("e5", "e5"),
        ("9" * 40, "9" * 40),
        ("~", None),
        ("", None),
        ("'12'", "12"),
        ("[1, a]", [1, "a"]),
        ("{no: 1}", {"no": 1}),
    ],
)
def test_a_word_means_what_people_mean(word: str, value: Any) -> None:
    assert document(f"x: {word}\n").values == {"x": value}


def test_names_are_always_text() -> None:
    assert document("404: skip\non: 1\n2020-01-01: 2\n").values == {
        "404": "skip",
        "on": 1,
        "2020-01-01": 2,
    }


def test_explicit_values_override_merged_ones() -> None:
    values = document("usual: &u {a: 1, b: 2}\nx:\n  <<: *u\n  b: 3\n").values

    assert values["x"] == {"a": 1, "b": 3}


def test_every_value_knows_its_place() -> None:
    one = document("a: 1\nb:\n  - x\n  - c: 2\n    d: &n [1]\ne: *n\n")

    assert one.place(()) == (1, 1)
    assert one.place(("b", 1, "d")) == (5, 5)
    assert one.place(("b", 1, "d", 0)) == (5, 12)
    assert one.place(("e",)) == (6, 1)
    assert one.place(("b", 7, "d")) == (2, 1)
    assert one.place(("nothing", "at", "all")) == (1, 1)


def test_values_are_a_new_copy_each_time() -> None:
    one = document("a: [1]\n")

    one.values["a"].append(2)

    assert one.values == {"a": [1]}


def test_variables_stand_for_values() -> None:
    text = "a: ${CITY}/x\nb: ${NOTHING:-here}\nc: $${CITY}\nd: '${CITY} ${CITY}'\ne: ${EMPTY:-}\n"

    assert document(text, CITY="Berlin").values == {
        "a": "Berlin/x",
        "b": "here",
        "c": "${CITY}",
        "d": "Berlin Berlin",
        "e": "",
    }


def test_a_name_and_a_reference_to_a_secret_hold_no_variables() -> None:
    text = "${CITY}: env:${CITY}\nb: $CITY+{CITY}\n"

    assert document(text, CITY="Berlin").values == {
        "${CITY}": "env:${CITY}",
        "b": "$CITY+{CITY}",
    }


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a:\n  - ${CITY}\n", ":2:5: a[0]: CITY"),
        ("a: {b: '${API_KEY}'}\n", ":1:8: a.b: env:API_KEY"),
    ],
)
def test_a_variable_that_cannot_be_filled_in_is_refused_with_its_place(
    text: str, data: str
) -> None:
    with pytest.raises(BadFile) as error:
        document(text)

    assert absent(str(error.value), data) == []


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("name: a\nvalue: {amount: 1, currency: EURO}\n", ":2:20: value.currency: EUR"),
        ("name: a\nvalue: {grams: heavy}\n", ":2:9: value.grams:"),
        ("name: a\nvalue: {gram: 5}\n", ":2:9: value.gram: `grams`"),
        ("name: a\nvalue: {amount: 1, curency: EUR}\n", ":2:20: value.curency: `currency`"),
        ("name: a\nvalue: 5\n", ":2:1: value:"),
        ("name: a\nsize: big\n", ":2:1: size: true false"),
        ("name: a\nsize: [1, x]\n", ":2:11: size[1]:"),
        ("name: a\ninner:\n  x: {amount: a}\n", ":3:7: inner.x.amount:"),
        ("tags: []\n", ":1:1: name:"),
        ("nmae: a\n", ":1:1: nmae: `name`"),
        ("name: a\ntags: b\n", ":2:1: tags:"),
        ("name: 1.0\n", ":1:1: name:"),
    ],
)
def test_of_all_problems_the_one_that_helps_is_reported(text: str, data: str) -> None:
    assert absent(result(text), data) == []


def test_the_first_problem_in_the_file_is_reported() -> None:
    assert absent(result("tags: 5\nsize: big\nname: 3\n"), "thing.yaml:1:1: tags:") == []


def test_what_was_written_is_not_repeated() -> None:
    text = "name: a\nsize: hunter2\ntags: hunter2\n"

    assert "hunter2" not in result(text)


def test_a_file_that_fits_becomes_its_model(tmp_path: Path) -> None:
    path = tmp_path / "thing.yaml"
    path.write_bytes("\ufeff# mine\nname: café\nvalue: {amount: 2}\n".encode())

    thing = check(read_document(path), Thing)

    assert thing == Thing(name="café", value=Price(amount=2.0))


def test_a_file_in_utf_16_is_read(tmp_path: Path) -> None:
    path = tmp_path / "thing.yaml"
    path.write_text("name: café\n", encoding="utf-16")

    assert read_document(path).values == {"name": "café"}


@pytest.mark.timeout(10)
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")

    with pytest.raises(BadFile, match="pipe") as refused:
        read_document(tmp_path / "pipe.yaml")

    assert (refused.value.path, refused.value.line) == (str(tmp_path / "pipe.yaml"), 0)


def test_a_folder_and_a_file_that_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile) as folder:
        read_document(tmp_path)
    with pytest.raises(BadFile) as missing:
        read_document(tmp_path / "no.yaml")

    assert folder.value.path == str(tmp_path)
    assert missing.value.path == str(tmp_path / "no.yaml")
    assert os.strerror(errno.EISDIR) in folder.value.problem
    assert os.strerror(errno.ENOENT) in missing.value.problem


@given(st.text(alphabet=st.sampled_from("ab:-[]{}&*!|>'\"#%@,?\n\t <0\u00e9"), max_size=60))
def test_any_text_is_a_document_or_one_sentence(text: str) -> None:
    try:
        found = parse_document(text.encode(), Path("any.yaml"), environment={})
    except BadFile as error:
        assert "\n" not in str(error)  # noqa: PT017  # either way is fine
    else:
        assert isinstance(found.values, dict)
