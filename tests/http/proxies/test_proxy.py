"""Proxies in lists, their credentials, and the pool."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.http.proxies.choice import EVERYWHERE, Score
from longline.http.proxies.pool import CheckResult, PooledProxy, ProxyPool, ProxyStates, SeenDomain
from longline.http.proxies.proxy import BadProxy, CredentialFiles, Proxy, parse_proxy
from longline.limits.backends.sqlite import SqliteStateFile
from longline.storage.store import open_store
from tests.virtual import VirtualClock

ALIVE = CheckResult(is_alive=True, checked_at=1.0, latency=0.2, country="BG")
DEAD = CheckResult(is_alive=False, checked_at=2.0, problem="no connection")


@pytest.mark.parametrize(
    ("line", "address", "secret"),
    [
        ("1.2.3.4:80", "http://1.2.3.4:80", None),
        ("socks5://Proxy.Test:1080/", "socks5://proxy.test:1080", None),
        ("socks5h://a:1", "socks5://a:1", None),
        ("https://[::1]:443", "https://[::1]:443", None),
        ("http://ada:pass@a.test:8080", "http://a.test:8080", "ada:pass"),
        ("http://ada:p%40ss%3Aword@a.test:8080", "http://a.test:8080", "ada:p@ss:word"),
        ("http://ada:p@ss@a.test:8080", "http://a.test:8080", "ada:p@ss"),
        ("1.2.3.4:8080:ada:pass", "http://1.2.3.4:8080", "ada:pass"),
    ],
)
def test_a_line_is_a_proxy(line: str, address: str, secret: str | None) -> None:
    parsed = parse_proxy(line)

    assert parsed.proxy.address == address
    assert (parsed.secret and parsed.secret.get_secret_value()) == secret
    assert parsed.proxy.credentials is None
    assert secret is None or secret not in repr(parsed)


@pytest.mark.parametrize(
    "line",
    [
        *("", "a.test", "a.test:0", "a.test:99999", "ftp://a.test:21", "http://a b:80"),
        *("http://:secret9@a.test:80", "999.1.1.1:80", "http://[1]:80", "-a:80", "a..b:80x"),
        "http://us%3Aer:secret9@a.test:80",
    ],
)
def test_other_lines_are_refused_without_quoting_them(line: str) -> None:
    with pytest.raises(BadProxy) as caught:
        parse_proxy(line)

    assert "secret9" not in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_a_proxy_or_refused(text: str) -> None:
    try:
        parsed = parse_proxy(text)
    except BadProxy:
        return

    assert parse_proxy(parsed.proxy.address).proxy == parsed.proxy


def test_a_country_has_two_letters() -> None:
    assert parse_proxy("a:1", country="bg").proxy.country == "BG"
    with pytest.raises(BadProxy):
        parse_proxy("a:1", country="Bulgaria")


def test_a_stored_proxy_is_restored() -> None:
    pooled = PooledProxy(Proxy("http", "a", 1, "env:A", "BG"), 5.0).checked(ALIVE)

    assert PooledProxy(**json.loads(json.dumps(asdict(pooled)))) == pooled


@pytest.fixture(params=["memory", "file", "database"])
async def pool(
    request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock
) -> AsyncIterator[ProxyPool]:
    files = CredentialFiles(tmp_path / "secrets")
    if request.param == "memory":
        yield ProxyPool(ProxyStates.in_memory(clock), clock, files)
    elif request.param == "file":
        file = SqliteStateFile(tmp_path / "state.sqlite", clock)
        yield ProxyPool(ProxyStates.open(file.backend), clock, files)
        await file.close()
    else:
        with open_store(f"sqlite:///{tmp_path}/state.sqlite") as store:
            states = ProxyStates.open(partial(store.state_backend, clock=clock))
            yield ProxyPool(states, clock, files)


async def test_a_password_is_only_in_its_private_file(pool: ProxyPool, tmp_path: Path) -> None:
    (added,) = await pool.add([parse_proxy("http://ada:Secr3t-9@a.test:80")])

    (file,) = (tmp_path / "secrets").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert added.proxy.read_credentials() == ("ada", "Secr3t-9")
    others = [one for one in tmp_path.glob("state.sqlite*") if b"Secr3t-9" in one.read_bytes()]
    assert others == []
    assert "Secr3t-9" not in repr(await pool.statistics())

    assert await pool.remove("http://a.test:80")
    assert not file.exists()


async def test_a_removed_proxy_leaves_no_scores(tmp_path: Path, clock: VirtualClock) -> None:
    states = ProxyStates.in_memory(clock)
    pool = ProxyPool(states, clock)
    await pool.add([parse_proxy("a:1")])
    for domain in (EVERYWHERE, "shop.test"):
        await states.scores(domain).change("http://a:1", lambda _old, _now: (Score(), None))
    await states.domains.change("shop.test", lambda _old, now: (SeenDomain(now), None))

    assert await pool.remove("http://a:1")
    assert not await pool.remove("http://a:1")

    assert [await states.scores(one).all() for one in (EVERYWHERE, "shop.test")] == [{}, {}]
    assert tmp_path.exists()


async def test_a_request_that_ends_after_its_proxy_was_removed_is_not_counted(
    clock: VirtualClock,
) -> None:
    states = ProxyStates.in_memory(clock)
    pool = ProxyPool(states, clock)
    await pool.add([parse_proxy("a:1"), parse_proxy("b:1")])
    await pool.remove("http://a:1")
    await states.domains.change("shop.test", lambda _old, now: (SeenDomain(now), None))
    for address in ("http://a:1", "http://b:1"):
        late = Score(requests=1)
        await states.scores("shop.test").change(address, lambda _old, _now: (late, None))  # noqa: B023  # called now

    assert list(await pool.use()) == ["http://b:1"]


async def test_a_refresh_adds_the_living_and_marks_the_dead(pool: ProxyPool) -> None:
    await pool.add([parse_proxy("old:1"), parse_proxy("gone:1")])
    results = [
        (parse_proxy("new:1", origin="mine"), ALIVE),
        (parse_proxy("never:1", origin="mine"), DEAD),
        (parse_proxy("gone:1"), DEAD),
    ]

    replaced = await pool.replace_checked(results)

    assert replaced.added == ("http://new:1",)
    assert replaced.died == ("http://gone:1",)
    assert {one.address: one.state for one in await pool.all()} == {
        "http://gone:1": "dead",
        "http://new:1": "alive",
        "http://old:1": "unchecked",
    }
    (statistics,) = [await pool.statistics()]
    assert (statistics.total, statistics.alive, statistics.dead, statistics.usable) == (3, 1, 1, 2)


async def test_a_refresh_that_finds_none_alive_changes_nothing(pool: ProxyPool) -> None:
    await pool.add([parse_proxy("old:1")])
    await pool.record_check("http://old:1", ALIVE)

    replaced = await pool.replace_checked([(parse_proxy("old:1"), DEAD)])

    assert replaced.is_kept
    assert [one.state for one in await pool.all()] == ["alive"]


async def test_results_that_are_merged_twice_count_once(pool: ProxyPool) -> None:
    await pool.add([parse_proxy("a:1"), parse_proxy("b:1")])
    results = [(parse_proxy("a:1"), DEAD), (parse_proxy("b:1"), ALIVE)]

    await pool.replace_checked(results)
    await pool.replace_checked(results)

    assert [one.failed_checks for one in await pool.all()] == [1, 0]


async def test_a_refresh_does_not_bring_back_a_removed_proxy(pool: ProxyPool) -> None:
    await pool.add([parse_proxy("a:1"), parse_proxy("b:1")])
    candidates = [one.proxy for one in await pool.all()]
    await pool.remove("http://a:1")

    await pool.replace_checked([(one, ALIVE) for one in candidates])

    assert [one.address for one in await pool.all()] == ["http://b:1"]


async def test_credentials_that_were_replaced_are_deleted(pool: ProxyPool, tmp_path: Path) -> None:
    await pool.add([parse_proxy("http://ada:Secr3t-9@a.test:80")])
    assert len(list((tmp_path / "secrets").iterdir())) == 1

    await pool.add([parse_proxy("http://a.test:80")])

    assert list((tmp_path / "secrets").iterdir()) == []


async def test_changes_of_the_pool_are_events(clock: VirtualClock) -> None:
    seen: list[tuple[str, Any]] = []

    async def note(name: str, data: Any) -> None:
        seen.append((name, data["address"]))

    pool = ProxyPool(ProxyStates.in_memory(clock), clock, on_event=note)
    await pool.add([parse_proxy("a:1")])
    await pool.add([parse_proxy("a:1")])
    await pool.record_check("http://a:1", DEAD)
    await pool.record_check("http://a:1", ALIVE)
    await pool.remove("http://a:1")

    names = ["proxy.added", "proxy.died", "proxy.revived", "proxy.removed"]
    assert seen == [(name, "http://a:1") for name in names]
