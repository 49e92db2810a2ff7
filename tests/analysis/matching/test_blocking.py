"""Blocks: two records that may match share one, whatever is rounded or missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from longline.analysis.matching.compare import normal_text
from longline.analysis.matching.rules import Rules
from longline.analysis.matching.search import find_blocks
from tests.analysis.matching.ads import FLAT, NOTHING, RULES, flat, rules


def blocks_of(data: Mapping[str, Any], rules: Rules) -> frozenset[str]:
    return frozenset(name for block in find_blocks(data, rules) for name in block.names)


def by_area(within: str | float) -> Rules:
    return rules(normalise={}, block=[[{"area_m2": within}]])


def test_the_same_flat_shares_a_block_on_every_way() -> None:
    ways = {name.partition(":")[0] for name in blocks_of(FLAT, RULES)}

    assert ways == {str(number) for number in range(len(RULES.block))}


def test_an_empty_listing_stands_in_no_block() -> None:
    assert blocks_of(NOTHING, RULES) == frozenset()
    assert blocks_of({}, RULES) == frozenset()


@pytest.mark.parametrize("missing", ["city", "neighbourhood", "rooms", "area_m2", "year", "floor"])
def test_a_missing_field_still_finds_a_block(missing: str) -> None:
    assert blocks_of(FLAT, RULES) & blocks_of(flat(**{missing: None}), RULES)


def test_missing_city_and_missing_neighbourhood_together_find_a_block() -> None:
    left, right = flat(city=None), flat(neighbourhood=None)

    assert blocks_of(left, RULES) & blocks_of(right, RULES)


def test_flats_of_two_cities_with_one_name_of_a_neighbourhood_are_left_to_the_comparison() -> None:
    own = rules(block=[["city", "neighbourhood"]])

    assert not blocks_of(FLAT, own) & blocks_of(flat(city="Пловдив"), own)


def test_floor_zero_has_blocks_of_its_own() -> None:
    own = rules(normalise={}, block=[["floor"]])

    assert blocks_of(flat(floor=0), own) == {"0:0"}
    assert blocks_of(flat(floor=None), own) == frozenset()


@given(st.floats(1, 1e6), st.floats(0, 0.03))
def test_rounding_never_parts_what_is_within_a_share(area: float, gap: float) -> None:
    left, right = flat(area_m2=area), flat(area_m2=area * (1 - gap))

    assert blocks_of(left, by_area("3%")) & blocks_of(right, by_area("3%"))


@given(st.floats(-1e6, 1e6), st.floats(0, 0.5))
def test_rounding_never_parts_what_is_within_a_number(area: float, gap: float) -> None:
    left, right = flat(area_m2=area), flat(area_m2=area + gap)

    assert blocks_of(left, by_area(0.5)) & blocks_of(right, by_area(0.5))


@given(st.floats(1, 1e6), st.floats(1, 1e6))
def test_what_is_far_apart_shares_no_block(left: float, right: float) -> None:
    assume(max(left, right) > 1.1 * min(left, right))

    assert not blocks_of(flat(area_m2=left), by_area("3%")) & blocks_of(
        flat(area_m2=right), by_area("3%")
    )


def test_zero_and_signs_are_kept_apart() -> None:
    areas = [blocks_of(flat(area_m2=area), by_area("3%")) for area in (0, 5.0, -5.0)]

    assert not areas[0] & areas[1]
    assert not areas[1] & areas[2]
    assert areas[0]


def test_finer_blocks_carry_the_name_of_the_block_they_part() -> None:
    own = rules(normalise={}, block=[{"fields": ["city"], "finer": ["rooms"]}])

    assert blocks_of(FLAT, own) == {"0:софия", "0:софия+3"}
    assert blocks_of(flat(rooms=None), own) == {"0:софия"}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("с. Бистрица", "bistritsa"),
        ("с.Бистрица", "bistritsa"),
        ("С. БИСТРИЦА ", "bistritsa"),
        ("Студентски град", "studentski grad"),
        ("Сердика", "serdika"),
        ("кв. Лозенец", "lozenets"),
        ("кв.Лозенец", "lozenets"),
        ("Квартал", "kvartal"),
        ("ж.к. Младост 1", "mladost 1"),
        ("жк  Младост 1", "mladost 1"),
        ("Младост 1", "mladost 1"),
        ("м. Евксиноград", "evksinograd"),
        ("Младост", "mladost"),
        ("с.", "s."),
        ("Lozenets", "lozenets"),
        ("Изгрев", "izgrev"),
    ],
)
def test_a_prefix_is_cut_only_as_a_whole_word(written: str, read: str) -> None:
    assert normal_text(written, RULES.normalise["neighbourhood"]) == read


def test_other_ways_to_write_a_name_are_the_same() -> None:
    own = rules(normalise={"building_type": {"same": {"brick": ["Тухла", "Ziegel"]}}})

    read = [
        normal_text(one, own.normalise["building_type"]) for one in ("ТУХЛА", "ziegel", "panel")
    ]

    assert read == ["brick", "brick", "panel"]
