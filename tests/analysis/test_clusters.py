"""Clusters and the one view of each: who is joined with whom, and whose value is shown."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from longline.analysis.clusters import (
    Cluster,
    MergedField,
    SourceValue,
    cluster_of,
    explain_cluster,
    group_links,
    merge_fields,
    summarize_cluster,
)
from longline.analysis.duplicates import decide, find_duplicates
from longline.storage.matches import Link, Matches
from longline.storage.records import Records
from tests.analysis.ads import HOMES, IMOTI, RULES, WOHNEN, flat, put
from tests.virtual import EPOCH, VirtualClock


def link(left: int, right: int, score: float = 9.0, **more: Any) -> Link:
    return Link(left, right, score, **{"is_match": True, "decision": None, **more})


def cluster(*shown: dict[str, Any]) -> Cluster:
    """Return a cluster of records, each seen later than the one before."""
    rows = [
        {"id": n, "source": "site", "key": str(n), "url": "", "seen_at": EPOCH + n, "data": data}
        for n, data in enumerate(shown)
    ]
    return Cluster("thing", tuple(rows), ())


def view(*shown: dict[str, Any]) -> dict[str, MergedField]:
    return {field.name: field for field in merge_fields(cluster(*shown))}


def test_records_joined_through_others_are_one_group() -> None:
    assert group_links([link(1, 2), link(2, 3), link(7, 8)]) == [(1, 2, 3), (7, 8)]


def test_a_record_joins_the_better_of_two_contradicting_ones() -> None:
    links = [link(1, 3, 9.0), link(2, 3, 9.5), link(1, 2, 1.0, is_match=False)]

    assert group_links(links) == [(2, 3)]


def test_the_rest_of_a_split_group_stays_together() -> None:
    apart = link(1, 4, 0.0, is_match=False)

    assert group_links([link(1, 2), link(2, 3, 8.0), link(3, 4), apart]) == [(1, 2), (3, 4)]


def test_a_rejected_pair_is_not_joined_over_a_third() -> None:
    links = [link(1, 2, decision="rejected"), link(1, 3, 9.0), link(2, 3, 8.0)]

    assert group_links(links) == [(1, 3)]


def test_a_confirmation_precedes_any_score() -> None:
    confirmed = link(1, 3, 0.0, is_match=False, decision="confirmed")
    links = [confirmed, link(2, 3, 99.0), link(1, 2, is_match=False)]

    assert group_links(links) == [(1, 3)]


def test_a_confirmation_overrides_a_veto() -> None:
    veto = {"is_match": False}
    confirmed = [link(1, 2, decision="confirmed", **veto), link(1, 3, decision="confirmed", **veto)]

    assert group_links([*confirmed, link(2, 3, -1.0, **veto)]) == [(1, 2, 3)]


def test_a_confirmation_lifts_no_veto_of_a_third() -> None:
    confirmed = link(1, 2, 0.0, is_match=False, decision="confirmed")
    vetoes = [link(1, 3, is_match=False), link(1, 4, is_match=False)]

    assert group_links([confirmed, *vetoes, link(2, 3, 12.0), link(3, 4)]) == [(1, 2), (3, 4)]


def test_only_a_rejection_separates_a_confirmed_pair() -> None:
    links = [
        link(1, 2, 9.0, decision="confirmed"),
        link(1, 3, 8.0, decision="confirmed"),
        link(2, 3, decision="rejected"),
    ]

    assert group_links(links) == [(1, 2)]


drawn = st.tuples(
    st.integers(0, 9),
    st.integers(10, 19),
    st.floats(0, 9),
    st.booleans(),
    st.sampled_from([None, "confirmed", "rejected"]),
)


@given(st.lists(drawn, max_size=30, unique_by=lambda one: one[:2]))
def test_no_group_ever_holds_a_pair_that_is_kept_apart(shown: list[Any]) -> None:
    links = [Link(*one) for one in shown]

    groups = group_links(links)

    by_people = group_links(one for one in links if one.decision is not None)
    apart = {(one.left, one.right) for one in links if not one.joins}
    lifted = {(a, b) for group in by_people for a in group for b in group}
    together = {(a, b) for group in groups for a in group for b in group}
    assert not (apart - lifted) & together
    assert not {(one.left, one.right) for one in links if one.decision == "rejected"} & together
    assert sum(map(len, groups)) == len({one for group in groups for one in group})


@given(st.lists(drawn, max_size=30, unique_by=lambda one: one[:2]))
def test_confirmed_pairs_are_together_without_rejections(shown: list[Any]) -> None:
    links = [Link(*one) for one in shown if one[4] != "rejected"]

    groups = group_links(links)

    together = {(a, b) for group in groups for a in group for b in group}
    assert {(one.left, one.right) for one in links if one.decision == "confirmed"} <= together


def test_numbers_come_from_the_record_seen_last() -> None:
    price = view({"price": 100}, {"price": 102})["price"]

    assert (price.value, price.record, price.note) == (102, "site/1", None)
    assert price.others == (SourceValue("site/0", 100),)


def test_a_value_missing_in_the_last_record_comes_from_another() -> None:
    floor = view({"floor": 0}, {"floor": None})["floor"]

    assert (floor.value, floor.record, floor.others) == (0, "site/0", ())


def test_the_longest_text_is_shown() -> None:
    assert view({"about": "long and good"}, {"about": "short"})["about"].record == "site/0"


def test_a_boolean_that_another_record_contradicts_has_no_value() -> None:
    lift = view({"lift": True}, {"lift": False}, {"lift": None})["lift"]

    assert (lift.value, lift.record) == (None, None)
    assert lift.note
    assert lift.others == (SourceValue("site/1", False), SourceValue("site/0", True))


def test_an_uncontradicted_boolean_is_kept() -> None:
    assert view({"lift": True}, {"lift": None})["lift"].value is True
    assert view({"lift": False}, {"lift": False})["lift"].value is False


def test_an_unknown_field_is_not_in_the_merged_view() -> None:
    assert view({"floor": None}, {"floor": ""}) == {}


async def test_a_cluster_shows_every_source_side_by_side(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    for number, source in enumerate((IMOTI, HOMES, WOHNEN)):
        data = flat(title=f"Flat {number}", price_eur=250_000.0 + number)
        await put(records, source, str(number), data, at=EPOCH + number)
    await find_duplicates(matches, RULES, clock=clock)

    found = await cluster_of(matches, RULES.match, 2)
    shown = await explain_cluster(matches, found)

    assert found.sources == (HOMES, IMOTI, WOHNEN)
    assert [one["data"]["title"] for one in shown["records"]] == ["Flat 0", "Flat 1", "Flat 2"]
    assert {(pair["left"], pair["right"]) for pair in shown["pairs"]} == {
        (f"{IMOTI}/0", f"{HOMES}/1"),
        (f"{IMOTI}/0", f"{WOHNEN}/2"),
        (f"{HOMES}/1", f"{WOHNEN}/2"),
    }
    assert summarize_cluster(found)["merged"]["price_eur"] == 250_002.0


async def test_a_record_without_a_double_is_a_cluster_of_its_own(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    await put(records, IMOTI, "only", flat())
    await find_duplicates(matches, RULES, clock=clock)

    found = await cluster_of(matches, RULES.match, 1)

    assert [row["key"] for row in found.records] == ["only"]
    assert (found.score, summarize_cluster(found)["title"]) == (0.0, f"https://{IMOTI}.test/only")


async def test_a_confirmed_pair_that_a_rejection_separates_is_reported(
    records: Records, matches: Matches, clock: VirtualClock
) -> None:
    for number, source in enumerate((IMOTI, HOMES, WOHNEN)):
        await put(records, source, str(number), flat(floor=number))
    await find_duplicates(matches, RULES, clock=clock)
    await decide(matches, RULES.match, (1, 2), "confirmed", at=EPOCH)
    await decide(matches, RULES.match, (1, 3), "confirmed", at=EPOCH)
    await decide(matches, RULES.match, (3, 2), "rejected", at=EPOCH)

    shown = await explain_cluster(matches, await cluster_of(matches, RULES.match, 1))

    assert [one["record"] for one in shown["records"]] == [f"{IMOTI}/0", f"{HOMES}/1"]
    reason = [f"{HOMES}/1", f"{WOHNEN}/2"]
    assert shown["parted"] == [{"left": f"{IMOTI}/0", "right": f"{WOHNEN}/2", "rejected": [reason]}]
