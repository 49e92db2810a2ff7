"""A person's word on a pair, and what it brings together, judged by the rules of the last search.

Without that, who contradicts whom in the groups that a confirmation joins would be known only
after the next search, and the same question would have two answers.
"""

from __future__ import annotations

from pydantic import ValidationError

from longline.config.matching import Rules
from longline.matching.judging import judge_by, judged
from longline.stores.matches import Matches
from longline.stores.matches_words import Deposit


async def decide(
    matches: Matches, kind: str, pair: tuple[int, int], decision: str, *, at: float
) -> None:
    """Keep that a pair is confirmed or rejected.

    Raises:
        StoreError: it could not be kept.
    """
    rules = await _last_rules(matches, kind)
    if rules is None:
        await matches.decide(kind, pair, decision, at=at)
        return
    left, right = await matches.records(pair)
    found = [judged(left, right, rules)]
    deposit = Deposit(kind, rules.mark, (), found, judge_by(rules), at)
    await matches.decide(kind, pair, decision, at=at, deposit=deposit)


async def _last_rules(matches: Matches, kind: str) -> Rules | None:
    text = await matches.kept_rules(kind)
    if text is None:
        return None
    try:
        return Rules.model_validate_json(text)
    except ValidationError:  # kept by another version of longline; the next search keeps its own
        return None
