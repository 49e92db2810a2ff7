"""Rules of matching: short forms, and mistakes reported with their place before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.analysis.matching.rules import Rules, Tolerance, read_rules
from longline.core.errors import BadFile
from tests.config.messages import absent

EXAMPLE = Path(__file__).parents[3] / "examples" / "listings_match.yaml"
GOOD = """\
match: book
sources: [shop, library]
block:
  - [isbn]
  - {fields: [author, {year: 1}], finer: [{price.amount: 10%}]}
compare:
  isbn: exact
  title: {how: text, weight: 3, alike: 0.7}
  year: {how: number, within: 1, weight: 2, veto: true}
  price.amount: {how: number, within: [10%, 2]}
threshold: 4
"""


def read(folder: Path, text: str) -> Rules:
    path = folder / "rules.yaml"
    path.write_text(text, "utf-8")
    return read_rules(path)


def test_short_forms_are_understood(tmp_path: Path) -> None:
    rules = read(tmp_path, GOOD)

    assert [one.field for one in rules.block[0].fields] == ["isbn"]
    assert rules.block[1].finer[0].within == Tolerance(relative=0.1)
    assert rules.compare["isbn"].how == "exact"
    assert rules.compare["price.amount"].within == Tolerance(relative=0.1, absolute=2)
    assert rules.least_known == 3


def test_the_mark_follows_what_decides_and_nothing_else(tmp_path: Path) -> None:
    rules = read(tmp_path, GOOD)

    assert read(tmp_path, f"about: Books\n{GOOD}").mark == rules.mark
    assert read(tmp_path, GOOD.replace("[shop, library]", "[shop]")).mark == rules.mark
    assert read(tmp_path, GOOD.replace("threshold: 4", "threshold: 5")).mark != rules.mark


def test_the_example_is_good() -> None:
    assert read_rules(EXAMPLE).match == "property"


@pytest.mark.parametrize(
    ("old", "new", "data"),
    [
        ("threshold: 4", "threshold: 40", ":11:1: threshold"),
        ("threshold: 4", "threshold: 4\nleast_known: 2", "least_known"),
        ("threshold: 4", "threshold: 4\nleast_known: 5", "least_known"),
        ("within: 1,", "within: near,", ":9:23: compare.year.within:"),
        ("within: 1,", "within: [1, 2],", "compare.year.within:"),
        ("{year: 1}", "{year: 0}", ":5:23: block[1].fields[1]:"),
        ("{year: 1}", "{year: [1, 2%]}", "block[1].fields[1]:"),
        ("alike: 0.7", "within: 1", "compare.title within"),
        ("isbn: exact", "isbn: {alike: 0.5}", "compare.isbn alike"),
        ("isbn: exact", "isbn: fuzzy", ":7:3: compare.isbn: exact text number set"),
        ("sources: [shop, library]", "sources: []", "sources"),
        ("threshold: 4", "threshold: 4\nnormalise: {autor: {}}", "'autor'"),
        (
            "threshold: 4",
            "threshold: 4\nnormalise: {title: {same: {a: [x], b: [X]}}}",
            "'x'",
        ),
        ("[isbn]", "[{a: 1}, {b: 1}, {c: 1}, {d: 1}, {e: 1}]", "4 block"),
        (
            "match: book",
            "match: book\nsorces: [a]",
            ":2:1: sorces: 'sources'",
        ),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, old: str, new: str, data: str) -> None:
    with pytest.raises(BadFile) as error:
        read(tmp_path, GOOD.replace(old, new, 1))

    assert absent(str(error.value), data) == []
    assert "\n" not in str(error.value)


def test_the_rules_in_the_documentation_are_good(tmp_path: Path) -> None:
    page = (EXAMPLE.parents[1] / "docs" / "duplicates.md").read_text("utf-8")

    rules = read(tmp_path, page.partition("```yaml\n")[2].partition("```")[0])

    assert rules.compare["floor"].veto
