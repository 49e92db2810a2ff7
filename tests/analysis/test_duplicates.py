"""Finding duplicates: only what is new or changed, the same in any order, decisions kept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from longline.analysis.clusters import clusters
from longline.analysis.duplicates import decide, find_blocks, find_duplicates
from longline.analysis.match_rules import Rules, normal_text
from longline.sandbox.sites.listings.rounds import Ad, make_ads
from longline.storage.database import Database, open_database
from longline.storage.matches import Matches
from longline.storage.query import RecordQuery
from longline.storage.records import Records, store_records
from tests.analysis.ads import (
    FLAT,
    HOMES,
    IMOTI,
    NOTHING,
    RULES,
    WOHNEN,
    Name,
    ad,
    flat,
    groups_in,
    pairs_in,
    pairs_of,
    put,
    rules,
)
from tests.virtual import EPOCH, VirtualClock

A, B, C = (IMOTI, "a"), (HOMES, "b"), (WOHNEN, "c")
AB = frozenset((A, B))


async def test_the_same_flat_on_two_sites_is_found(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    await put(records, *A, flat())
    await put(records, *B, flat(area_m2=91.7))

    found = await find_duplicates(matches, RULES, clock=clock)

    assert (found.records, found.compared, found.matched) == (2, 1, 1)
    assert await pairs_in(matches) == {AB}


async def test_empty_listings_are_counted_and_not_compared(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    await put(records, *A, NOTHING)
    await put(records, *B, NOTHING)

    found = await find_duplicates(matches, RULES, clock=clock)

    assert (found.records, found.compared, found.too_little) == (2, 0, 2)
    assert await pairs_in(matches) == set()


async def test_unchanged_records_are_not_compared_again(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    await put(records, *A, flat())
    await find_duplicates(matches, RULES, clock=clock)

    await put(records, *B, flat())
    second = await find_duplicates(matches, RULES, clock=clock)
    third = await find_duplicates(matches, RULES, clock=clock)

    assert (second.records, second.compared) == (1, 1)
    assert (third.records, third.compared) == (0, 0)


async def test_a_changed_record_loses_the_pairs_it_no_longer_has(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    await put(records, *A, flat())
    await put(records, *B, flat())
    await find_duplicates(matches, RULES, clock=clock)

    await put(records, *B, flat(city="Варна", neighbourhood="Чайка"))
    await find_duplicates(matches, RULES, clock=clock)

    assert await pairs_in(matches) == set()


async def test_changed_rules_compare_everything_anew(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    await put(records, *A, flat())
    await put(records, *B, flat(price_eur=None, year=None))
    await find_duplicates(matches, RULES, clock=clock)

    strict = await find_duplicates(matches, rules(threshold=14), clock=clock)

    assert strict.records == 2
    assert await pairs_in(matches) == set()


async def test_a_source_that_left_the_rules_leaves_the_pairs(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    for name in (A, B, C):
        await put(records, *name, flat())
    await find_duplicates(matches, RULES, clock=clock)

    await find_duplicates(matches, rules(sources=[IMOTI, HOMES]), clock=clock)

    assert await pairs_in(matches) == {AB}


async def test_pairs_that_are_dropped_are_counted(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    for name in (A, B, C):
        await put(records, *name, flat())
    first = await find_duplicates(matches, RULES, clock=clock)

    second = await find_duplicates(matches, rules(sources=[IMOTI, HOMES]), clock=clock)

    assert (first.dropped, second.dropped) == (0, 2)


async def test_a_misspelt_source_is_reported_and_drops_nothing(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    for name in (A, B, C):
        await put(records, *name, flat())
    await find_duplicates(matches, RULES, clock=clock)

    found = await find_duplicates(matches, rules(sources=[IMOTI, HOMES, "wohn"]), clock=clock)

    assert (found.unknown_sources, found.dropped) == (("wohn",), 0)
    assert len(await pairs_in(matches)) == 3


async def test_dropped_pairs_are_counted_with_a_misspelt_source(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    for name in (A, B, C):
        await put(records, *name, flat())
    await find_duplicates(matches, RULES, clock=clock)
    changed = rules(sources=[IMOTI, HOMES, "wohn"], threshold=8)

    found = await find_duplicates(matches, changed, clock=clock)

    assert found.dropped == 2
    assert await pairs_in(matches) == {AB}


async def test_a_field_that_no_record_has_is_reported_each_time(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    await put(records, *A, flat(price={"amount": 5}, **{"size.m2": 3}))
    await put(records, *B, flat(year=None))
    compare = {**RULES.model_dump(exclude_unset=True)["compare"], "flor": {}}
    own = rules(compare={**compare, "price.amount": {}, "size.m2": {}}, block=[["year"], ["ciy"]])

    first = await find_duplicates(matches, own, clock=clock)
    second = await find_duplicates(matches, own, clock=clock)

    assert first.unknown_fields == second.unknown_fields == ("flor", "ciy")


async def test_where_there_are_no_records_no_field_is_called_unknown(
    matches: Matches, clock: VirtualClock
) -> None:
    found = await find_duplicates(matches, RULES, clock=clock)

    assert (found.unknown_sources, found.unknown_fields) == (RULES.sources, ())


async def test_a_rejected_pair_stays_rejected(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    await put(records, *A, flat())
    await put(records, *B, flat())
    await find_duplicates(matches, RULES, clock=clock)
    await matches.decide(RULES.match, (2, 1), "rejected", at=EPOCH)

    await put(records, *B, flat(price_eur=249_000.0))
    await find_duplicates(matches, RULES, clock=clock)
    await find_duplicates(matches, rules(threshold=5), clock=clock)

    assert await pairs_in(matches) == set()
    (row,) = await matches.evidence(RULES.match, [1, 2])
    assert (row["decision"], row["is_match"]) == ("rejected", True)


async def test_a_confirmed_pair_stays_under_other_rules(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    await put(records, *A, flat())
    await put(records, *B, flat(floor=5))
    await find_duplicates(matches, RULES, clock=clock)
    await matches.decide(RULES.match, (1, 2), "confirmed", at=EPOCH)

    await put(records, *B, flat(floor=6))
    await find_duplicates(matches, RULES, clock=clock)

    assert await pairs_in(matches) == {AB}
    (row,) = await matches.evidence(RULES.match, [1, 2])
    floor = next(one for one in row["evidence"] if one["field"] == "floor")
    assert (row["is_match"], floor["right"], floor["verdict"]) == (False, 6, "forbids")


async def test_a_third_does_not_glue_two_that_contradict_each_other(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    await put(records, IMOTI, "second floor", flat(floor=2))
    await put(records, IMOTI, "third floor", flat(floor=3, price_eur=252_000.0))
    await put(records, HOMES, "some floor", flat(floor=None, price_eur=252_000.0))

    await find_duplicates(matches, RULES, clock=clock)

    assert len(await pairs_in(matches)) == 2
    assert await groups_in(matches) == {frozenset({"third floor", "some floor"})}


async def test_flats_of_one_building_stay_two_things_and_no_record_is_lost(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    await put(records, IMOTI, "ground", flat(floor=0))
    await put(records, IMOTI, "fourth", flat(floor=4))
    await put(records, HOMES, "ground too", flat(floor=0, area_m2=92.4))
    await put(records, HOMES, "fourth too", flat(floor=4, area_m2=91.6))

    await find_duplicates(matches, RULES, clock=clock)

    assert await groups_in(matches) == {
        frozenset({"ground", "ground too"}),
        frozenset({"fourth", "fourth too"}),
    }
    assert await records.count(RecordQuery()) == 4


async def test_relisted_ads_of_one_site_are_found_too(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    await put(records, IMOTI, "old", flat())
    await put(records, IMOTI, "new", flat(price_eur=240_000.0))

    await find_duplicates(matches, RULES, clock=clock)

    assert await groups_in(matches) == {frozenset({"old", "new"})}


async def test_a_large_block_is_reported_and_its_finer_ones_compared(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    own = rules(block=[{"fields": ["city"], "finer": ["rooms", "year"]}], largest_block=3)
    for number in range(6):
        year = 1990 + number // 2
        await put(records, IMOTI, str(number), flat(year=year, floor=number // 2))

    found = await find_duplicates(matches, own, clock=clock)

    assert found.crowded == {"0:sofiya": 6}
    assert found.compared == 3
    assert await groups_in(matches) == {
        frozenset({"0", "1"}),
        frozenset({"2", "3"}),
        frozenset({"4", "5"}),
    }


async def test_a_search_that_died_half_way_is_finished_by_the_next(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    await put(records, *A, flat())
    await put(records, *B, flat())
    dying = _Dying(matches)

    with pytest.raises(_DiedError):
        await find_duplicates(dying, RULES, clock=clock)  # type: ignore[arg-type]  # it acts as one
    assert await pairs_in(matches) == set()

    await find_duplicates(matches, RULES, clock=clock)
    assert await pairs_in(matches) == {AB}


async def test_concurrent_searches_find_each_pair_once(
    database: Database, records: Records, matches: Matches, clock: VirtualClock
) -> None:
    for number in range(40):
        await put(records, IMOTI, f"i{number}", flat(floor=number % 8, year=1950 + number % 20))
        await put(records, HOMES, f"h{number}", flat(floor=number % 8, year=1950 + number % 20))
    opened = [open_database(database.address) for _ in range(3)]  # as other processes do

    await asyncio.gather(
        *(find_duplicates(Matches(one), RULES, clock=clock, batch=7) for one in opened)
    )
    await find_duplicates(matches, rules(match="alone"), clock=clock)

    max_in_flight = await pairs_in(matches)
    assert max_in_flight == await pairs_in(matches, "alone")
    assert len(max_in_flight) == 360
    for one in opened:
        one.close()


class _DiedError(Exception):
    """What a process that is killed leaves its caller with."""


class _Dying:
    """Pairs that are never written: the process dies just before."""

    def __init__(self, matches: Matches) -> None:
        self._matches = matches

    def __getattr__(self, name: str) -> Any:
        if name == "save_pairs":
            raise _DiedError
        return getattr(self._matches, name)


VARIANTS = [
    flat(),
    flat(area_m2=92.5, price_eur=245_000.0),
    flat(floor=None),
    flat(floor=4),
    flat(floor=0),
    flat(city=None, neighbourhood="кв. Лозенец"),
    flat(neighbourhood=None, year=None),
    flat(area_m2=99.0),
    flat(city="Пловдив"),
    NOTHING,
]
KEYS = [(IMOTI, "a"), (IMOTI, "b"), (HOMES, "c"), (HOMES, "d"), (WOHNEN, "e")]
steps = st.lists(
    st.tuples(st.sampled_from(KEYS), st.integers(0, len(VARIANTS) - 1), st.booleans()),
    min_size=1,
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_any_order_of_adding_and_changing_gives_the_same_pairs(
    shown: list[tuple[tuple[str, str], int, bool]],
) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(_in_any_order(Path(folder), shown))


async def _in_any_order(folder: Path, shown: list[tuple[tuple[str, str], int, bool]]) -> None:
    database = open_database(f"sqlite:///{folder / 'steps.sqlite'}")
    records, matches = Records(database), Matches(database)
    clock = _Still()
    for name, variant, is_searched in shown:
        await put(records, *name, VARIANTS[variant])
        if is_searched:
            await find_duplicates(matches, RULES, clock=clock, batch=2)
    await find_duplicates(matches, RULES, clock=clock, batch=2)
    await find_duplicates(matches, rules(match="scratch"), clock=clock)

    assert await records.count(RecordQuery()) == len({name for name, _, _ in shown})
    assert await pairs_in(matches) == await pairs_in(matches, "scratch")
    assert await groups_in(matches) == await groups_in(matches, "scratch")
    database.close()


class _Still(VirtualClock):
    """Time that does not pass, for a loop that is not virtual."""

    def now(self) -> float:
        return EPOCH


def blocks_of(data: Mapping[str, Any], rules: Rules) -> frozenset[str]:
    return frozenset(name for block in find_blocks(data, rules) for name in block.names)


def by_area(within: str | float) -> Rules:
    return rules(normalise={}, block=[[{"area_m2": within}]])


def test_the_same_flat_shares_a_block_on_every_way() -> None:
    ways = {name.partition(":")[0] for name in blocks_of(FLAT, RULES)}

    assert ways == {str(number) for number in range(len(RULES.block))}


def test_an_empty_listing_is_in_no_block() -> None:
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
def test_numbers_within_a_relative_tolerance_share_a_block(area: float, gap: float) -> None:
    left, right = flat(area_m2=area), flat(area_m2=area * (1 - gap))

    assert blocks_of(left, by_area("3%")) & blocks_of(right, by_area("3%"))


@given(st.floats(-1e6, 1e6), st.floats(0, 0.5))
def test_numbers_within_an_absolute_tolerance_share_a_block(area: float, gap: float) -> None:
    left, right = flat(area_m2=area), flat(area_m2=area + gap)

    assert blocks_of(left, by_area(0.5)) & blocks_of(right, by_area(0.5))


@given(st.floats(1, 1e6), st.floats(1, 1e6))
def test_distant_numbers_share_no_block(left: float, right: float) -> None:
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


SIXTH, FIFTH = ("a", "a2"), ("b", "c", "d", "e")
PARTED = {frozenset("abc"), frozenset("de")}


@pytest.fixture
async def confirmed(records: Records, matches: Matches, clock: VirtualClock) -> None:
    """Flats on two floors, of which a person joined a (sixth floor) with b and c (fifth)."""
    for key in SIXTH:
        await put(records, IMOTI, key, flat(floor=6))
    for key in FIFTH:
        await put(records, HOMES, key, flat(floor=5))
    await put(records, WOHNEN, "far", flat(city="Варна", neighbourhood="Чайка"))
    await find_duplicates(matches, RULES, clock=clock)
    ids = {key: await matches.find(HOMES, key) for key in "bc"}
    first = await matches.find(IMOTI, "a")
    await decide(matches, RULES.match, (first, ids["b"]), "confirmed", at=EPOCH)
    await decide(matches, RULES.match, (ids["c"], first), "confirmed", at=EPOCH)


@pytest.mark.usefixtures("confirmed")
async def test_a_confirmation_joins_no_others_that_contradict_each_other(matches: Matches) -> None:
    assert await groups_in(matches) == PARTED


@pytest.mark.usefixtures("confirmed")
async def test_a_search_with_nothing_new_changes_no_answer(
    matches: Matches, clock: VirtualClock
) -> None:
    before = await matches.links(RULES.match)

    found = await find_duplicates(matches, RULES, clock=clock)

    assert found.records == 0
    assert await matches.links(RULES.match) == before


@pytest.mark.usefixtures("confirmed")
async def test_a_confirmation_stays_when_all_is_compared_again(
    matches: Matches, clock: VirtualClock
) -> None:
    before = await matches.links(RULES.match)

    found = await find_duplicates(matches, rules(threshold=8), clock=clock, batch=2)

    assert found.records == 7
    assert await groups_in(matches) == PARTED
    assert await matches.links(RULES.match) == before


@pytest.mark.usefixtures("confirmed")
async def test_a_decided_pair_has_its_evidence_immediately(matches: Matches) -> None:
    pair = [await matches.find(IMOTI, "a"), await matches.find(HOMES, "b")]

    (row,) = await matches.evidence(RULES.match, pair)

    floor = next(one for one in row["evidence"] if one["field"] == "floor")
    assert (row["decision"], floor["verdict"]) == ("confirmed", "forbids")


async def test_over_a_record_that_no_rule_compares_none_are_joined_that_contradict(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    await put(records, "elsewhere", "x", flat(floor=None))
    for key, floor in (("a", 6), ("a2", 6), ("b", 5), ("b2", 5)):
        await put(records, IMOTI, key, flat(floor=floor))
    own = rules(sources=[IMOTI])
    await find_duplicates(matches, own, clock=clock)
    await decide(matches, RULES.match, (1, 2), "confirmed", at=EPOCH)
    await decide(matches, RULES.match, (1, 4), "confirmed", at=EPOCH)
    before = await groups_in(matches)

    await find_duplicates(matches, rules(sources=[IMOTI], threshold=8), clock=clock)

    assert before == await groups_in(matches) == {frozenset({"x", "a", "b"})}


async def test_the_rules_that_are_kept_are_no_kind_of_their_own(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    await put(records, IMOTI, "a", flat())

    await find_duplicates(matches, RULES, clock=clock)

    assert await matches.kinds() == [RULES.match]
    assert await matches.links(RULES.match) == []


PRECISION, RECALL = 0.99, 0.95


async def store_ads(database: Database, ads: list[Ad]) -> None:
    deposits = [(ad(one.site, one.key, one.values), None, EPOCH) for one in ads]
    await database.write(store_records, deposits)


def truth(ads: list[Ad]) -> set[frozenset[Name]]:
    groups: dict[int, list[Name]] = {}
    for one in ads:
        groups.setdefault(one.property, []).append((one.site, one.key))
    return pairs_of(groups)


async def pairs_in_clusters(matches: Matches) -> set[frozenset[Name]]:
    return {
        frozenset(pair)
        async for cluster in clusters(matches, RULES.match)
        for pair in combinations([(row["source"], row["key"]) for row in cluster.records], 2)
    }


async def test_duplicates_are_found_with_the_precision_and_recall_that_is_asked_for(
    database: Database, matches: Matches, clock: VirtualClock
) -> None:
    ads = make_ads()
    await store_ads(database, ads)

    found = await find_duplicates(matches, RULES, clock=clock)

    true, direct = truth(ads), await pairs_in(matches)
    joined = await pairs_in_clusters(matches)
    assert (len(ads), len({one.property for one in ads})) == (3000, 1800)
    assert (found.records, found.crowded, found.oversized) == (3000, {}, 0)
    assert len(direct & true) / len(direct) >= PRECISION
    assert len(direct & true) / len(true) >= RECALL
    assert len(joined & true) / len(joined) >= PRECISION
    assert len(joined & true) / len(true) >= RECALL
    # What is compared grows with the ads, not with their square.
    assert found.compared < 20 * len(ads)


async def test_a_second_search_compares_only_new_and_changed_records(
    database: Database, matches: Matches, clock: VirtualClock
) -> None:
    await store_ads(database, make_ads(properties=180, ads=300))
    await find_duplicates(matches, RULES, clock=clock)

    later = make_ads(properties=180, ads=300, round=2)
    await store_ads(database, later)
    second = await find_duplicates(matches, RULES, clock=clock)
    incremental = await pairs_in(matches)
    await find_duplicates(matches, RULES.model_copy(update={"match": "scratch"}), clock=clock)

    assert second.records == 15 + 9  # five in a hundred changed, three are new
    assert incremental == await pairs_in(matches, "scratch")
