"""The life of alerts: decided from what is wrong now and from what was open before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from longline.monitoring.alerts.conditions import AlertCondition
from longline.monitoring.alerts.life import decide_changes
from longline.storage.monitoring.alerts import Alert, AlertChange, AlertState

WAIT = 60.0
HOLD = 100.0
FAILED = AlertCondition("failed", "source/shop", "warning", "it failed", {"job": 1}, "look")


class Book:
    """Alerts in memory, changed as the store does it."""

    def __init__(self) -> None:
        self.open: dict[tuple[str, str], Alert] = {}
        self.events: list[tuple[float, str, str]] = []

    def tick(self, now: float, *conditions: AlertCondition) -> Sequence[AlertChange]:
        changes = decide_changes(
            list(self.open.values()), conditions, now, waits={"slow": WAIT}, resolve_after=HOLD
        )
        for number, one in enumerate(changes, 1):
            key = (one.alert.rule, one.alert.subject)
            if one.is_dropped or one.alert.state is AlertState.RESOLVED:
                del self.open[key]
            else:
                self.open[key] = replace(one.alert, id=one.alert.id or number)
            if one.event is not None:
                self.events.append((now, one.event, one.alert.rule))
        return changes

    @property
    def names(self) -> list[str]:
        return [name for _, name, _ in self.events]


def test_a_rule_without_a_wait_fires_immediately() -> None:
    book = Book()

    (change,) = book.tick(10.0, FAILED)

    assert change.event == "alert.firing"
    assert (change.alert.state, change.alert.since, change.alert.fired_at) == ("firing", 10.0, 10.0)


def test_an_alert_is_pending_until_the_problem_has_lasted() -> None:
    book = Book()
    slow = replace(FAILED, rule="slow")

    states = [book.tick(now, slow)[0].alert.state for now in (0.0, 30.0, 60.0)]

    assert states == ["pending", "pending", "firing"]
    assert book.events == [(60.0, "alert.firing", "slow")]


def test_a_problem_that_began_long_ago_fires_immediately() -> None:
    (change,) = Book().tick(1000.0, replace(FAILED, rule="slow", since=900.0))

    assert (change.alert.state, change.alert.since) == ("firing", 900.0)


def test_a_pending_alert_whose_problem_is_over_is_dropped_without_an_event() -> None:
    book = Book()
    book.tick(0.0, replace(FAILED, rule="slow"))

    (change,) = book.tick(30.0)

    assert change.is_dropped
    assert not book.events


def test_a_flapping_problem_is_one_alert() -> None:
    book = Book()

    for now in range(0, 1000, 50):
        book.tick(float(now), *([FAILED] if now % 100 == 0 else []))
    book.tick(1001.0)

    assert book.events == [(0.0, "alert.firing", "failed"), (1001.0, "alert.resolved", "failed")]


def test_an_alert_that_becomes_critical_says_so_and_stays_critical() -> None:
    book = Book()
    book.tick(0.0, FAILED)

    (worse,) = book.tick(30.0, replace(FAILED, severity="critical"))
    (same,) = book.tick(60.0, FAILED)

    assert (worse.event, worse.alert.fired_at) == ("alert.worsened", 30.0)
    assert (same.event, same.alert.severity, same.alert.fired_at) == (None, "critical", 30.0)


def test_of_two_conditions_for_one_alert_the_worse_counts() -> None:
    (change,) = Book().tick(0.0, FAILED, replace(FAILED, severity="critical"), FAILED)

    assert change.alert.severity == "critical"


def test_a_firing_alert_shows_the_newest_finding() -> None:
    book = Book()
    book.tick(0.0, FAILED)

    (change,) = book.tick(1.0, replace(FAILED, summary="the end", action="run it again"))

    assert (change.alert.summary, change.alert.action) == ("the end", "run it again")
    assert change.event is None


CONDITIONS = st.builds(
    AlertCondition,
    rule=st.sampled_from(["slow", "failed"]),
    subject=st.sampled_from(["source/a", "source/b"]),
    severity=st.sampled_from(["warning", "critical"]),
    summary=st.just("x"),
    evidence=st.just({}),
    action=st.just("y"),
)
TICKS = st.lists(
    st.tuples(st.floats(0.1, 200.0), st.lists(CONDITIONS, max_size=4)), min_size=1, max_size=25
)


@given(ticks=TICKS)
def test_every_history_of_an_alert_is_fire_worsen_resolve(
    ticks: list[tuple[float, list[AlertCondition]]],
) -> None:
    now, book = 0.0, Book()
    histories: dict[tuple[str, str], list[str]] = {}

    for step, conditions in ticks:
        now += step
        changes = book.tick(now, *conditions)
        keys = [(one.alert.rule, one.alert.subject) for one in changes]
        assert len(keys) == len(set(keys))
        for one in changes:
            history = histories.setdefault((one.alert.rule, one.alert.subject), [])
            history += [one.event] if one.event else []
        wrong = {(one.rule, one.subject) for one in conditions}
        assert wrong <= book.open.keys()
        assert all(key in wrong or now - one.seen_at < HOLD for key, one in book.open.items())
        assert all(
            one.state is AlertState.PENDING or now - one.since >= WAIT
            for one in book.open.values()
            if one.rule == "slow"
        )

    allowed = {
        None: {"alert.firing"},
        "alert.firing": {"alert.worsened", "alert.resolved"},
        "alert.worsened": {"alert.resolved"},
        "alert.resolved": {"alert.firing"},
    }
    for history in histories.values():
        for before, after in zip([None, *history], history, strict=False):
            assert after in allowed[before]
