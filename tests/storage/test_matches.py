"""The store of pairs: steps that may be repeated, overtaken or cut short, and lose nothing."""

from __future__ import annotations

from typing import Any

import pytest

from longline.core.errors import UnknownRecord
from longline.storage.database import Database
from longline.storage.matches import BlockedRecord, MatchBatch, Matches, RecordPair
from longline.storage.store import Store
from tests.storage.given import record
from tests.virtual import EPOCH

KIND, MARK = "thing", "rules-1"
FIRST, SECOND = BlockedRecord(1, 1, {"red", "round"}, 3), BlockedRecord(2, 1, {"red"}, 3)


@pytest.fixture
async def matches(database: Database, store: Store) -> Matches:
    """Pairs of a store that has three records, with the ids 1 to 3."""
    for key in ("a", "b", "c"):
        await store.records.create(record(key), at=EPOCH)
    return Matches(database)


def pair(
    left: int = 1, right: int = 2, *, score: float = 9.0, versions: Any = (1, 1)
) -> RecordPair:
    return RecordPair(left, right, versions, score, is_match=True, evidence=[{"field": "colour"}])


def nothing(left: Any, right: Any) -> None:
    del left, right


def batch_of(
    *pairs: RecordPair, entries: Any = (FIRST, SECOND), contradict: Any = nothing
) -> MatchBatch:
    return MatchBatch(KIND, MARK, entries, pairs, contradict, EPOCH)


async def pending(matches: Matches, mark: str = MARK) -> list[int]:
    return [row["id"] for row in await matches.pending(KIND, mark, "shop")]


async def ends(matches: Matches) -> list[tuple[int, int]]:
    return [(link.left, link.right) for link in await matches.links(KIND)]


async def test_what_was_never_compared_is_pending(matches: Matches) -> None:
    assert await pending(matches) == [1, 2, 3]
    assert await matches.pending(KIND, MARK, "elsewhere") == []
    assert [row["id"] for row in await matches.pending(KIND, MARK, "shop", after="b")] == [3]


async def test_a_record_in_its_blocks_is_pending_until_its_pairs_are_written(
    matches: Matches,
) -> None:
    await matches.assign_blocks(KIND, MARK, [FIRST, SECOND])
    assert await pending(matches) == [1, 2, 3]

    await matches.save_pairs(batch_of(pair()))

    assert await pending(matches) == [3]
    assert await ends(matches) == [(1, 2)]


async def test_blocks_hold_records_of_the_present_rules_only(matches: Matches) -> None:
    await matches.assign_blocks(KIND, MARK, [FIRST])
    await matches.assign_blocks(KIND, "rules-2", [SECOND])

    assert await matches.block_members(KIND, MARK, ["red", "round", "blue"]) == {
        "red": [1],
        "round": [1],
    }
    assert await matches.block_members("other", MARK, ["red"]) == {}


async def test_a_changed_record_is_pending_and_leaves_its_old_blocks_and_pairs(
    matches: Matches, store: Store
) -> None:
    await matches.assign_blocks(KIND, MARK, [FIRST, SECOND])
    await matches.save_pairs(batch_of(pair()))

    await store.records.create(record("a", {"title": "New"}, fingerprint="new"), at=EPOCH)
    assert await pending(matches) == [1, 3]
    await matches.assign_blocks(KIND, MARK, [BlockedRecord(1, 2, {"blue"}, 3)])

    assert await ends(matches) == []
    assert await matches.block_members(KIND, MARK, ["red", "blue"]) == {"red": [2], "blue": [1]}


async def test_who_was_compared_meanwhile_is_not_taken_up_again(matches: Matches) -> None:
    await matches.assign_blocks(KIND, MARK, [FIRST])
    await matches.save_pairs(batch_of(entries=[FIRST]))

    assert await matches.assign_blocks(KIND, MARK, [FIRST, SECOND]) == {2}


async def test_a_pair_written_twice_is_one(matches: Matches) -> None:
    await matches.assign_blocks(KIND, MARK, [FIRST, SECOND])

    await matches.save_pairs(batch_of(pair()))
    await matches.save_pairs(batch_of(pair(score=8.0)))

    assert [link.score for link in await matches.links(KIND)] == [8.0]


async def test_a_pair_of_a_version_that_was_overtaken_is_not_written(matches: Matches) -> None:
    await matches.assign_blocks(KIND, MARK, [FIRST, SECOND])
    await matches.assign_blocks(KIND, MARK, [BlockedRecord(2, 2, {"red"}, 3)])  # by another process

    matched, _ = await matches.save_pairs(batch_of(pair()))

    assert matched == 0
    assert await ends(matches) == []
    assert await pending(matches) == [2, 3]


async def test_a_decision_outlives_what_is_compared_later(matches: Matches) -> None:
    await matches.assign_blocks(KIND, MARK, [FIRST, SECOND])
    await matches.save_pairs(batch_of(pair()))
    await matches.decide(KIND, (2, 1), "rejected", at=EPOCH + 5)

    await matches.assign_blocks(KIND, MARK, [BlockedRecord(1, 2, {"red"}, 3)])
    await matches.save_pairs(
        batch_of(pair(versions=(2, 1), score=7.0), entries=[BlockedRecord(1, 2, set(), 3)])
    )

    (row,) = await matches.evidence(KIND, [1, 2])
    assert (row["decision"], row["decided_at"], row["score"]) == ("rejected", EPOCH + 5, 7.0)
    assert await matches.decided_pairs(KIND, [1]) == [(1, 2)]


async def test_a_person_may_decide_on_what_was_never_compared(matches: Matches) -> None:
    await matches.decide(KIND, (3, 1), "confirmed", at=EPOCH)
    await matches.decide(KIND, (1, 3), "rejected", at=EPOCH + 1)

    (link,) = await matches.links(KIND)
    assert (link.left, link.right, link.decision, link.joins) == (1, 3, "rejected", False)
    assert await matches.kinds() == [KIND]


async def test_records_that_others_join_are_asked_about_and_contradictions_kept(
    matches: Matches,
) -> None:
    third = BlockedRecord(3, 1, {"red"}, 3)
    asked: list[tuple[int, int]] = []

    def contradict(left: Any, right: Any) -> RecordPair:
        asked.append((left["id"], right["id"]))
        return RecordPair(left["id"], right["id"], (1, 1), -1.0, is_match=False, evidence=[])

    await matches.assign_blocks(KIND, MARK, [FIRST, SECOND, third])
    await matches.save_pairs(batch_of(pair(1, 2), contradict=contradict))
    await matches.save_pairs(batch_of(pair(2, 3), entries=[third], contradict=contradict))

    assert asked == [(1, 3)]
    assert [link.joins for link in await matches.links(KIND)] == [True, False, True]


async def test_a_source_is_left_out_but_not_what_a_person_said_of_it(
    matches: Matches, store: Store
) -> None:
    await store.records.create(record("d", source="library"), at=EPOCH)
    fourth = BlockedRecord(4, 1, {"red"}, 3)
    await matches.assign_blocks(KIND, MARK, [FIRST, SECOND, fourth])
    await matches.save_pairs(batch_of(pair(1, 4), pair(1, 2), entries=[FIRST, SECOND, fourth]))
    await matches.decide(KIND, (2, 4), "confirmed", at=EPOCH)

    await matches.forget_other_sources(KIND, ["shop"])

    assert await ends(matches) == [(1, 2), (2, 4)]
    assert await matches.block_members(KIND, MARK, ["red"]) == {"red": [1, 2]}


async def test_the_surroundings_of_a_record_reach_over_others(matches: Matches) -> None:
    third = BlockedRecord(3, 1, {"red"}, 3)
    await matches.assign_blocks(KIND, MARK, [FIRST, SECOND, third])
    await matches.save_pairs(batch_of(pair(1, 2), pair(2, 3), entries=[FIRST, SECOND, third]))

    around = await matches.links_around(KIND, 1)

    assert [(link.left, link.right) for link in around] == [(1, 2), (2, 3)]


async def test_a_record_is_found_by_source_and_key(matches: Matches) -> None:
    assert await matches.find("shop", "b") == 2
    with pytest.raises(UnknownRecord):
        await matches.find("shop", "nowhere")
