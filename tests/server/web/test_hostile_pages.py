"""Nothing that a site sent is markup, runs, or breaks the layout of a page."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from longline.core.clock import SystemClock
from longline.core.model import Outcome, OutcomeAction, Record
from longline.http.proxies.pool import CheckResult
from longline.http.proxies.proxy import Proxy
from longline.scheduling.flow import load_flow
from longline.scheduling.flow_runner import start_flow
from longline.storage.access import CredentialKind, NewCredential, Role
from longline.storage.events.events import event_row
from longline.storage.monitoring.alerts import Alert, AlertChange, AlertState, Silence
from longline.storage.monitoring.logs import LogLine
from longline.storage.scheduling.launches import LaunchLimits, NewLaunch
from longline.wiring import open_proxy_pool
from tests.server.web.conftest import Answer, Dashboard
from tests.server.web.filled_home import add_duplicates, failed, quarantined, run_job

# The tag, the attributes and the scheme are no words of ours, so that a page has them from a value.
VALUES = (
    "<zq-tag>bold</zq-tag><script>zq()</script>",
    '"><img src=//evil.test/zq onerror=zq()>',
    "' onmouseover='zq()' x='",
    "javascript:zq()//http://x.test/",
    "JaVaScRiPt:zq()",
    "data:text/html,<script>zq()</script>",
    "//evil.test/zq",
    "</title></td></table></main><zq-tag>",
    "`<zq-tag>` <!--<script>zq()",
    "{{ 7 * 191 }}{% raw %}${zq}<%= zq %>",
    "zq\u202ertl\u2066\u200b\x1b[31m\x07\x7f\x9b",
    "zq\nSet-Cookie: zq=1\r\n\r\n\tline",
    "zq\ufffd\\x00%00&#0;&#x202e;&lt;zq-tag&gt;",
    "W" * 5000,
    "\u0416\u6f22" * 2000,
)
UNSAFE = "\x00\x07\x1b\x7f\x9b\u202e\u2066\u200b"
LISTS = (
    *("/", "/sources", "/jobs", "/records", "/schedules", "/schedules?days=7", "/flows"),
    *(
        "/domains",
        "/proxies",
        "/quarantine",
        "/duplicates",
        "/duplicates?show=confirmed",
        "/alerts",
    ),
    *("/alerts/resolved", "/alerts/rules", "/alerts/deliveries", "/logs", "/events"),
    *("/events/audit", "/events/subscribers", "/workers", "/settings"),
)
LONGEST_WORD = 1000  # characters
LARGEST_PAGE = 600_000  # bytes


async def test_no_page_shows_hostile_values_as_markup(dashboard: Dashboard) -> None:
    details = await fill(dashboard, VALUES)

    pages = [(path, await dashboard.get(path)) for path in (*LISTS, *details)]

    assert [one for path, page in pages for one in problems_of(path, page)] == []


async def test_no_page_reflects_its_address_as_markup(dashboard: Dashboard) -> None:
    names = ("q", "done", "text", "reason", "subject", "type", "flow", "domain", "columns", "state")
    paths = [
        f"{path.partition('?')[0]}?{urlencode(dict.fromkeys(names, value[:300]))}"
        for path, value in zip(LISTS, VALUES * 2, strict=False)
    ]
    paths += [f"/{quote(value[:300], safe='')}" for value in VALUES]

    pages = [(path, await dashboard.get(path)) for path in paths]

    assert [one for path, page in pages for one in problems_of(path, page, {200, 404, 422})] == []


# ---------------- What is checked


def problems_of(path: str, page: Answer, expected: Sequence[int] | set[int] = (200,)) -> list[str]:
    """Return what is wrong with a page."""
    found = [*_problems_of_response(page, expected), *_Reader(page.text).problems]
    return [f"{path[:120]}: {one}" for one in found]


def _problems_of_response(page: Answer, expected: Sequence[int] | set[int]) -> Iterator[str]:
    if page.status not in expected:
        yield f"status {page.status}"
    policy = page.headers.get("Content-Security-Policy", "")
    if "default-src 'none'" not in policy or "script-src 'unsafe" in policy:
        yield f"policy {policy!r}"
    if "zq" in page.headers.get("Set-Cookie", ""):
        yield "a cookie"
    if len(page.text) > LARGEST_PAGE:
        yield f"{len(page.text)} characters"
    if "1337" in page.text.replace("127.0.0.1", ""):
        yield "a template was evaluated"


class _Reader(HTMLParser):
    """Collects what a value must not have become."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.problems: list[str] = []
        self._raw = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._raw = tag
        if tag in ("zq-tag", "iframe", "object", "embed", "base", "style", "img", "video"):
            self.problems.append(f"element {tag}")
        if tag == "script" and not given.get("src", "").startswith("/static/"):
            self.problems.append("an inline script")
        self.problems += [f"attribute {name}" for name in given if name.startswith(("on", "style"))]
        # The value of a field is sent back as it is.
        for name in given.keys() - {"value"}:
            self._check_text(given[name], f"{tag} {name}")
        for name in ("href", "src", "action", "formaction", "xlink:href", "hx-sse:connect"):
            if name in given:
                self._check_address(tag, name, given[name])

    def _check_address(self, tag: str, name: str, address: str) -> None:
        is_link = tag == "a" and name == "href"
        parts = urlsplit(address)
        if parts.scheme not in ("", "http", "https") or address.startswith(("//", "\\")):
            self.problems.append(f"{tag} {name} {address[:80]}")
        if parts.scheme and not is_link:
            self.problems.append(f"{tag} {name} leaves the server: {address[:80]}")

    def _check_text(self, text: str, place: str) -> None:
        self.problems += [f"character {one!r} in {place}" for one in UNSAFE if one in text]

    def handle_data(self, data: str) -> None:
        self._check_text(data, self._raw)
        longest = max((len(word) for word in data.split()), default=0)
        if longest > LONGEST_WORD and self._raw not in ("pre", "summary", "code"):
            self.problems.append(f"a word of {longest} characters in {self._raw}")

    def handle_comment(self, data: str) -> None:
        self.problems.append(f"comment {data[:40]}")


# ---------------- A home full of them


async def fill(dashboard: Dashboard, values: Sequence[str]) -> list[str]:
    """Put values wherever a site or a person can; return the pages that show one each."""
    paths: list[str] = []
    for number, value in enumerate(values):
        paths += await _add_jobs(dashboard, value, number)
        paths += await _add_record(dashboard, value)
        paths += await _add_schedule(dashboard, value)
        paths += await _add_flow(dashboard, value, number)
        await _add_domain(dashboard, value)
        await _add_proxy(dashboard, value, number)
        await _add_processes(dashboard, value, number)
    await _add_alerts(dashboard, values)
    await _add_logs(dashboard, values)
    await _add_files(dashboard, values)
    await add_duplicates(dashboard.store, 2, title=values[0])
    return [*paths, *(f"/alerts/{number + 1}" for number in range(len(values)))]


async def _add_jobs(dashboard: Dashboard, value: str, number: int) -> list[str]:
    store = dashboard.store
    data = {value: value, "title": value, "link": [value], "nested": {value: value}}
    record = Record(value, value, value, data, fingerprint=value)
    outcomes = [
        failed(value),
        quarantined(value, data),
        Outcome(OutcomeAction.STORE, record=record),
        Outcome(OutcomeAction.SKIP, reason=value),
    ]
    source = " ".join(value.split())  # it is in the paths of its jobs, which have no newlines
    job = await run_job(store, outcomes, source=source, prefix=f"{value}{number}")
    paused = await run_job(store, source=source)
    await store.jobs.pause(paused, time.time(), value)
    path = f"/jobs/{quote(job, safe='')}"
    [held] = await store.quarantine.held(job, text="", after=0, limit=2)
    return [
        *(path, f"/jobs/{quote(paused, safe='')}", f"{path}/items?state=failed"),
        f"/quarantine/item?{urlencode({'job': job, 'key': held.item.key})}",
        f"/sources/of?{urlencode({'name': source})}",
    ]


async def _add_record(dashboard: Dashboard, value: str) -> list[str]:
    for version in (1, 2):
        data = {"title": value, value: version, "url": value, "photo": f"{value}.jpg", "v": value}
        mark = f"{value} {version}"
        provenance = {"title": value, value: value}
        record = Record("records", value, value, data, mark, provenance)
        await dashboard.store.records.create(record, at=float(version))
    return [f"/records/one?{urlencode({'source': 'records', 'key': value})}"]


async def _add_proxy(dashboard: Dashboard, value: str, number: int) -> None:
    """Add a proxy whose list and site have sent a value."""
    proxy = Proxy("http", "10.0.0.1", number + 1, tier=value, origin=value)
    failed = CheckResult(is_alive=False, checked_at=1.0, exit_address=value, problem=value)
    async with open_proxy_pool(dashboard.settings, SystemClock()) as pool:
        await pool.add([proxy])
        await pool.record_check(proxy.address, failed)
    refreshes = dashboard.store.proxy_refreshes
    await refreshes.begin(1.0, value, {})
    if number == 0:
        (task,) = await dashboard.store.tasks.ready(2.0)
        claimed = await dashboard.store.tasks.claim(task, "me", 2.0, 3.0)
        assert claimed is not None
        await refreshes.complete_collection(claimed, 2.0, [], {value: value})


async def _add_schedule(dashboard: Dashboard, value: str) -> list[str]:
    name = value[:300].replace("/", "|")
    definition = {"name": name, "source": value, "cron": "0 3 * * *", "pause_after_failures": 1}
    await dashboard.store.schedules.save(name, definition, time.time())
    await dashboard.store.schedules.pause(name, time.time(), value)
    return [f"/schedules/{quote(name, safe='')}"]


async def _add_flow(dashboard: Dashboard, value: str, number: int) -> list[str]:
    flows, now = dashboard.store.flows, time.time()
    path = dashboard.settings.home / f"asking{number}.yaml"
    path.write_text("flow: asking\nsteps:\n  - name: ask\n    approve: Publish?\n")
    flow = load_flow(str(path), dashboard.settings)
    run = await start_flow(dashboard.store, flow, {}, at=now + number, origin=value)
    found = await flows.lease("me", now + 100, now + 200)
    [leased] = [one for one in found if one.id == run.id]
    await flows.wait_for_approval(leased.lease, "ask", now, None)
    await flows.release([one.lease for one in found])
    await flows.cancel(run.id, value, now)
    return [f"/flows/{quote(run.id, safe='')}"]


async def _add_domain(dashboard: Dashboard, value: str) -> None:
    now, domain = time.time(), value[:253]
    events = dashboard.store.events
    trouble: dict[str, Any] = {"domain": domain, "reason": value, "until": now + 900}
    await events.append(event_row(None, now, "breaker.opened", **trouble))
    banned: dict[str, Any] = {"domain": domain, "evidence": value, "until": now + 900}
    await events.append(event_row(None, now, "domain.blocked", **banned))


async def _add_processes(dashboard: Dashboard, value: str, number: int) -> None:
    store, now = dashboard.store, time.time()
    owner = f"{value[:60]}:7{number}:1.0:x"
    await store.workers.renew(value[:200], f"host:7{number}:1.0:x", now, now + 60)
    await store.launches.place(NewLaunch("source", value, {"source": value}, value, now))
    await store.launches.lease(owner, now, now + 60, LaunchLimits(total=100))
    new = NewCredential(CredentialKind.TOKEN, f"{number}{value}"[:100], Role.READ, None)
    await store.credentials.create(new, now)


async def _add_alerts(dashboard: Dashboard, values: Sequence[str]) -> None:
    now, store = time.time(), dashboard.store.alerts
    alerts = [
        Alert(
            rule="run-failed",
            subject=f"source/{value}",
            state=AlertState.FIRING,
            severity="critical",
            summary=value,
            evidence={value: value, "nested": [{value: value}]},
            action=value,
            since=now - 60,
            seen_at=now,
            fired_at=now,
        )
        for value in values
    ]
    await store.change(lambda _: [AlertChange(one, "alert.firing") for one in alerts], now)
    for value in values:
        await store.silence(Silence(value, value, now + 900, value, now))


async def _add_logs(dashboard: Dashboard, values: Sequence[str]) -> None:
    lines = [
        LogLine(
            at=time.time(),
            level=logging.ERROR,
            logger=value,
            message=value,
            exception=value,
            source=value,
            domain=value,
            item=value,
            worker=value,
            fields={value[:100]: value},
        )
        for value in values
    ]
    await asyncio.wrap_future(dashboard.store.logs.add_soon(lines, max_per_job=None))


async def _add_files(dashboard: Dashboard, values: Sequence[str]) -> None:
    [folder] = dashboard.settings.sources
    folder.mkdir()
    for number, value in enumerate(values):
        text = f"manifest: html\nname: {value[:200]!r}\nstart: http://x.test/\nitems: a@href\n"
        (folder / f"file{number}.yaml").write_text(text)
