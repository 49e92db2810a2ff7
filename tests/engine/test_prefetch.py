"""How many items are held ahead: learned from what is begun while more are taken."""

from __future__ import annotations

from longline.engine.worker import Prefetch


def taken_once(ahead: Prefetch, begun: int, *, is_dry: bool = False) -> None:
    ahead.start()
    for _ in range(begun):
        ahead.item_begun()
    if is_dry:
        ahead.ran_dry()
    ahead.learn()


def test_at_first_the_prefetch_is_the_concurrency() -> None:
    assert Prefetch(8).wanted(0) == 16
    assert Prefetch(8).wanted(8) == 8
    assert Prefetch(8).wanted(9) == 0


def test_a_quick_site_has_what_is_begun_meanwhile_twice_over() -> None:
    ahead = Prefetch(8)
    taken_once(ahead, begun=10)

    assert ahead.wanted(28) > 0
    assert ahead.wanted(29) == 0


def test_one_that_ran_dry_has_twice_as_many_as_before() -> None:
    ahead = Prefetch(8)
    taken_once(ahead, begun=2, is_dry=True)

    assert ahead.wanted(16) > 0
    assert ahead.wanted(17) == 0


def test_one_that_has_become_slow_holds_few_again() -> None:
    ahead = Prefetch(8)
    taken_once(ahead, begun=40)
    taken_once(ahead, begun=0)

    assert ahead.wanted(9) == 0


def test_the_prefetch_is_limited_but_not_below_the_concurrency() -> None:
    quick, wide = Prefetch(8), Prefetch(500)
    taken_once(quick, begun=1000)
    taken_once(wide, begun=1000)

    assert quick.wanted(129) == 0
    assert wide.wanted(500) > 0
