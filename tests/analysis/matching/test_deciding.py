"""Decisions: a person's word counts at once, and a search finds nothing to add to it."""

from __future__ import annotations

import pytest

from longline.analysis.matching.search import decide, find_duplicates
from longline.storage.records.matches import Matches
from longline.storage.records.records import Records
from tests.analysis.matching.ads import HOMES, IMOTI, RULES, WOHNEN, flat, groups_in, put, rules
from tests.virtual import EPOCH, VirtualClock

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
async def test_a_confirmation_stays_when_all_is_compared_anew(
    matches: Matches, clock: VirtualClock
) -> None:
    before = await matches.links(RULES.match)

    found = await find_duplicates(matches, rules(threshold=8), clock=clock, batch=2)

    assert found.records == 7
    assert await groups_in(matches) == PARTED
    assert await matches.links(RULES.match) == before


@pytest.mark.usefixtures("confirmed")
async def test_what_is_decided_on_has_its_evidence_at_once(matches: Matches) -> None:
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
