"""Pools of sessions: which one a request gets, and when it ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from longline.config.proxies import SessionSpec
from longline.http.proxies.sessions import Session, SessionPool


def use(pool: SessionPool, scope: str | None = None, name: str | None = None) -> Session:
    session = pool.take("shop.test", scope, name)
    pool.release(session)
    return session


def test_repeated_errors_end_a_session_and_successes_make_up_for_them() -> None:
    pool = SessionPool(SessionSpec(errors=2))
    session = use(pool, "1")
    for has_failed in (True, False, True):
        pool.record(session, has_failed=has_failed)
        assert use(pool, "1") is session

    pool.record(session, has_failed=True)

    assert use(pool, "1") is not session


def test_sessions_take_turns() -> None:
    pool = SessionPool(SessionSpec(per="uses", uses=100, size=3))

    names = [use(pool).name for _ in range(9)]

    assert len(set(names)) == 3
    assert names[:3] == names[3:6] == names[6:]


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 60))
def test_no_session_serves_more_than_its_uses(uses: int, size: int, requests: int) -> None:
    pool = SessionPool(SessionSpec(per="uses", uses=uses, size=size))

    sessions = [use(pool) for _ in range(requests)]

    assert max(session.uses for session in sessions) <= uses


def test_domains_items_and_names_have_sessions_of_their_own() -> None:
    by_item, by_use = SessionPool(SessionSpec()), SessionPool(SessionSpec(per="uses", size=1))

    assert use(by_item, "1") is use(by_item, "1")
    assert use(by_item, "1") is not use(by_item, "2")
    assert use(by_item, "1", "basket") is use(by_item, "2", "basket")
    assert by_use.take("a.test", None, None) is not by_use.take("b.test", None, None)


def test_a_login_inside_the_chain_finds_the_session_of_all() -> None:
    pool = SessionPool(SessionSpec(per="login"))
    session = pool.take("shop.test", "1", None)

    assert pool.find(None) is session
    assert pool.find(session.name) is session
    assert SessionPool(SessionSpec()).find(None) is None


def test_the_number_of_sessions_is_bounded() -> None:
    pool = SessionPool(SessionSpec())
    first = use(pool, "0")

    for number in range(1, 5001):
        use(pool, str(number))

    assert use(pool, "0") is not first
