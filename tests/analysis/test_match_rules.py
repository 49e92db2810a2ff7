"""Rules of matching: short forms, and mistakes reported with their place before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.analysis.match_rules import Comparison, Rules, Tolerance, Verdict, compare, read_rules
from longline.core.errors import BadFile
from tests.analysis.ads import FLAT, NOTHING, RULES, flat, rules
from tests.config.messages import absent

EXAMPLE = Path(__file__).parents[2] / "examples" / "listings_match.yaml"
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


def test_the_hash_of_rules_changes_with_deciding_parts_only(tmp_path: Path) -> None:
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
            ":2:1: sorces: `sources`",
        ),
    ],
)
def test_invalid_rules_are_refused(tmp_path: Path, old: str, new: str, data: str) -> None:
    with pytest.raises(BadFile) as error:
        read(tmp_path, GOOD.replace(old, new, 1))

    assert absent(str(error.value), data) == []
    assert "\n" not in str(error.value)


def test_the_rules_in_the_documentation_are_good(tmp_path: Path) -> None:
    page = (EXAMPLE.parents[1] / "docs" / "duplicates.md").read_text("utf-8")

    rules = read(tmp_path, page.partition("```yaml\n")[2].partition("```")[0])

    assert rules.compare["floor"].veto


def verdict_of(comparison: Comparison, field: str) -> Verdict:
    return next(one.verdict for one in comparison.evidence if one.field == field)


VALUES = {
    "city": st.sampled_from([None, "София", "гр. Пловдив", "Varna"]),
    "neighbourhood": st.sampled_from([None, "кв. Изток", "Изток", "Студентски град", ""]),
    "rooms": st.sampled_from([None, 1, 2, 3]),
    "area_m2": st.none() | st.floats(20, 160),
    "floor": st.sampled_from([None, 0, 1, 2]),
    "floors": st.sampled_from([None, 4, 6]),
    "year": st.sampled_from([None, 1998, 1999]),
    "building_type": st.sampled_from([None, "brick", "Brick"]),
    "price_eur": st.none() | st.floats(10_000, 500_000),
}
ads = st.fixed_dictionaries(VALUES)


def test_the_same_flat_on_two_sites_matches() -> None:
    other = flat(neighbourhood="кв. Лозенец", area_m2=91.6, price_eur=246_000.0)

    assert compare(FLAT, other, RULES).is_match


def test_the_score_is_the_sum_of_the_points() -> None:
    comparison = compare(FLAT, flat(price_eur=200_000.0, area_m2=91.0), RULES)

    assert comparison.score == pytest.approx(sum(one.points for one in comparison.evidence))
    assert {one.field for one in comparison.evidence} == set(RULES.compare)


def test_the_evidence_has_both_values() -> None:
    comparison = compare(FLAT, flat(floor=5), RULES)

    floor = next(one for one in comparison.evidence if one.field == "floor")
    assert (floor.left, floor.right, floor.verdict) == (3, 5, Verdict.FORBIDS)


def test_the_ground_floor_is_not_a_missing_floor() -> None:
    ground, unknown, third = flat(floor=0), flat(floor=None), FLAT

    assert verdict_of(compare(ground, third, RULES), "floor") is Verdict.FORBIDS
    assert verdict_of(compare(unknown, third, RULES), "floor") is Verdict.UNKNOWN
    assert verdict_of(compare(ground, unknown, RULES), "floor") is Verdict.UNKNOWN
    assert verdict_of(compare(ground, ground, RULES), "floor") is Verdict.AGREES


def test_listings_without_any_field_match_nothing() -> None:
    comparison = compare(NOTHING, NOTHING, RULES)

    assert (comparison.is_match, comparison.known, comparison.score) == (False, 0, 0)
    assert not compare({}, {}, RULES).is_match


@pytest.mark.parametrize("empty", [None, "", "  ", [], {}, float("nan")])
def test_two_that_say_nothing_do_not_agree(empty: Any) -> None:
    found = compare(flat(city=empty), flat(city=empty), RULES)

    assert verdict_of(found, "city") is Verdict.UNKNOWN


def test_fewer_than_three_known_fields_are_never_enough() -> None:
    two = {**NOTHING, "neighbourhood": "Лозенец", "year": 1998}
    generous = rules(threshold=1)

    assert not compare(two, two, generous).is_match
    assert compare(two | {"rooms": 3}, two | {"rooms": 3}, generous).is_match


def test_a_field_that_one_side_lacks_does_not_count_as_known() -> None:
    one = {**NOTHING, "neighbourhood": "Лозенец", "year": 1998, "rooms": 3}
    other = {**NOTHING, "neighbourhood": "Лозенец", "year": 1998, "floors": 6}

    assert compare(one, other, rules(threshold=1)).known == 2


@pytest.mark.parametrize(("left", "right"), [(64.4, 64.6), (64.5, 65.0), (64.49, 64.51)])
def test_an_area_that_was_rounded_is_the_same(left: float, right: float) -> None:
    assert compare(flat(area_m2=left), flat(area_m2=right), RULES).is_match


def test_two_flats_of_one_building_are_two() -> None:
    assert not compare(FLAT, flat(floor=4), RULES).is_match
    assert not compare(FLAT, flat(area_m2=99.5, price_eur=268_000.0), RULES).is_match


def test_the_same_street_in_another_city_is_another() -> None:
    assert not compare(FLAT, flat(city="Пловдив"), RULES).is_match


def test_a_missing_city_does_not_prevent_a_match() -> None:
    assert compare(FLAT, flat(city=None), RULES).is_match


def test_numbers_that_are_nearer_earn_more() -> None:
    same, near, edge = (
        compare(FLAT, flat(price_eur=price), RULES).score
        for price in (250_000.0, 240_000.0, 212_500.0)
    )

    assert same > near > edge
    assert edge == pytest.approx(same - RULES.compare["price_eur"].weight / 2)


def test_true_is_not_one_and_false_is_known() -> None:
    own = rules(
        normalise={},
        compare={"lift": "exact", "garden": "exact", "age": {"how": "number"}},
        threshold=1,
    )

    found = compare(
        {"lift": True, "garden": False, "age": True}, {"lift": 1, "garden": False, "age": 1}, own
    )

    assert [one.verdict for one in found.evidence] == ["differs", "agrees", "unknown"]


def test_texts_and_sets_are_compared_by_their_common_part() -> None:
    own = rules(
        normalise={},
        compare={
            "text": {"how": "text", "alike": 0.6},
            "tags": {"how": "set", "alike": 0.5},
            "price.amount": {"how": "number", "within": 5},
        },
        threshold=1,
    )
    left = {"text": "A bright flat with a view", "tags": ["lift", "garden"], "price": {"amount": 1}}

    near = compare(left, {**left, "text": "Bright flat with view", "tags": ["Lift"]}, own)
    far = compare(left, {**left, "text": "A garage", "tags": ["cellar"]}, own)

    assert [one.verdict for one in near.evidence] == ["agrees", "agrees", "agrees"]
    assert [one.verdict for one in far.evidence] == ["differs", "differs", "agrees"]


@given(ads, ads)
def test_the_order_of_two_makes_no_difference(left: Any, right: Any) -> None:
    one, other = compare(left, right, RULES), compare(right, left, RULES)

    assert (one.score, one.is_match, one.known) == (other.score, other.is_match, other.known)


@given(ads, ads)
def test_a_match_has_three_known_fields_and_nothing_that_forbids(left: Any, right: Any) -> None:
    found = compare(left, right, rules(threshold=0.1))

    assert not found.is_match or (found.known >= 3 and not found.is_forbidden)
