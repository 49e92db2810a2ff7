"""The three listing sites, 3,000 ads of 1,800 properties: what is found against what is true."""

from __future__ import annotations

from itertools import combinations

from longline.analysis.matching.clusters import clusters
from longline.analysis.matching.search import find_duplicates
from longline.sandbox.sites.listings.rounds import Ad, make_ads
from longline.storage.database import Database
from longline.storage.records.matches import Matches
from longline.storage.records.records import store_records
from tests.analysis.matching.ads import RULES, Name, ad, pairs_in, pairs_of
from tests.virtual import EPOCH, VirtualClock

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


async def test_a_second_round_compares_only_what_is_new_or_changed(
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
