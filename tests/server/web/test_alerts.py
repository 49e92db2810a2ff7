"""The pages of alerts: open, resolved, one alert, rules, deliveries, silences."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from longline.storage.access import Role
from longline.storage.monitoring.alerts import Alert, AlertChange, AlertState
from tests.server.web.conftest import Dashboard
from tests.server.web.test_sources import HOSTILE


async def raise_alerts(
    dashboard: Dashboard, count: int = 1, *, is_resolved: bool = False, text: str = "no records"
) -> None:
    now = time.time()
    alerts = [
        Alert(
            rule="run_failed",
            subject=f"source/shop{number}",
            state=AlertState.FIRING,
            severity="critical",
            summary=text,
            evidence={text[:300]: text, "runs": [1, 2]},
            action=text,
            since=now - 60,
            seen_at=now,
            fired_at=now,
        )
        for number in range(count)
    ]
    await dashboard.store.alerts.change(
        lambda _: [AlertChange(one, "alert.firing") for one in alerts], now
    )
    if is_resolved:
        await dashboard.store.alerts.change(
            lambda opened: [
                AlertChange(
                    replace(one, state=AlertState.RESOLVED, resolved_at=now), "alert.resolved"
                )
                for one in opened
            ],
            now,
        )


@pytest.mark.parametrize(
    "path", ["/alerts", "/alerts/resolved", "/alerts/rules", "/alerts/deliveries"]
)
async def test_an_empty_home_has_pages_of_alerts(dashboard: Dashboard, path: str) -> None:
    assert (await dashboard.get(path)).status == 200


async def test_a_firing_alert_is_listed_with_its_evidence(dashboard: Dashboard) -> None:
    await raise_alerts(dashboard)

    answer = await dashboard.get("/alerts")

    assert answer.text.count('class="row alert"') == 1
    assert 'href="/sources/shop0"' in answer.text
    assert "[1,2]" in answer.text


async def test_hostile_alerts_are_shown_as_text(dashboard: Dashboard) -> None:
    await raise_alerts(dashboard, text=HOSTILE)
    await dashboard.post("/alerts/silences", {"alert": "1", "reason": HOSTILE})

    pages = [await dashboard.get(path) for path in ("/alerts", "/alerts/1")]

    assert [one.status for one in pages] == [200, 200]
    assert not any("<img src=x" in one.text or "\x1b" in one.text for one in pages)
    assert not any("x" * 1000 in one.text for one in pages)


async def test_resolved_alerts_have_pages(dashboard: Dashboard) -> None:
    await raise_alerts(dashboard, 60, is_resolved=True)

    first = await dashboard.get("/alerts/resolved")
    older = first.text.partition('href="?before=')[2].partition('"')[0]
    second = await dashboard.get(f"/alerts/resolved?before={older}")

    assert first.text.count('<tr><td class="wide"><a href="/alerts/') == 50
    assert second.text.count('<tr><td class="wide"><a href="/alerts/') == 10


async def test_an_unknown_alert_is_not_found(dashboard: Dashboard) -> None:
    assert (await dashboard.get("/alerts/7")).status == 404
    assert (await dashboard.get(f"/alerts/{10**30}")).status == 404
    assert (await dashboard.get("/alerts/x")).status == 422


async def test_an_alert_is_silenced_and_the_silence_ended(dashboard: Dashboard) -> None:
    await raise_alerts(dashboard)

    added = await dashboard.post("/alerts/silences", {"alert": "1"}, allow_redirects=False)
    [silence] = await dashboard.store.alerts.silences(time.time())
    page = await dashboard.get("/alerts")
    ended = await dashboard.post(f"/alerts/silences/{silence.id}/end", allow_redirects=False)

    assert (added.status, ended.status) == (303, 303)
    assert (silence.rule, silence.subject) == ("run_failed", "source/shop0")
    assert "● silenced" in page.text
    assert await dashboard.store.alerts.silences(time.time()) == []


@pytest.mark.parametrize(
    "form",
    [{}, {"rule": "none*"}, {"subject": "moon/x"}, {"alert": "x"}, {"rule": "*", "hours": "9"}],
)
async def test_a_silence_that_fits_nothing_is_refused(
    dashboard: Dashboard, form: dict[str, str]
) -> None:
    answer = await dashboard.post("/alerts/silences", form)

    assert answer.status == 422
    assert await dashboard.store.alerts.silences(time.time()) == []


async def test_patterns_are_silenced(dashboard: Dashboard) -> None:
    await dashboard.post("/alerts/silences", {"subject": "source/shop*", "hours": "24"})

    [silence] = await dashboard.store.alerts.silences(time.time())
    assert (silence.rule, silence.subject) == (None, "source/shop*")


async def test_an_unknown_silence_is_not_ended(dashboard: Dashboard) -> None:
    assert (await dashboard.post("/alerts/silences/9/end")).status == 404


async def test_a_read_token_silences_nothing(dashboard: Dashboard) -> None:
    answer = await dashboard.api("POST", "/alerts/silences", role=Role.READ, data={"rule": "*"})

    assert answer.status == 403
