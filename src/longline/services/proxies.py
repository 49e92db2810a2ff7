"""What a person sees and changes of the pool of proxies: list, add, remove, check, refresh."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from longline.config.secrets import SecretRef
from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.core.errors import BadFile, BadOption, ConfigError, NotFoundError
from longline.distributed.proxy_tasks import (
    ProxyTasks,
    begin_refresh,
    state_of,
    summary_of,
)
from longline.http.proxies.check import Checked
from longline.http.proxies.configuration import (
    CheckOptions,
    ProxySettings,
    read_proxy_settings,
)
from longline.http.proxies.pool import PoolStatistics, ProxyPool, ProxyStatus, ProxyUse
from longline.http.proxies.proxy import DEFAULT_TIER, BadProxy, ParsedProxy, parse_proxy
from longline.storage.proxy_refresh import PoolSummary, Refresh
from longline.storage.store import Store
from longline.wiring import open_proxy_checker, open_proxy_pool

_POLL = 0.5  # seconds between two polls for steps that other processes run
_TIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_COUNTRY = re.compile(r"[A-Za-z]{2}")
_LARGEST_FILE = 20_000_000  # bytes


class AmbiguousProxy(ConfigError):
    """Several proxies of the pool have this host and port."""

    place: str
    message = "the pool has several proxies at {place}"
    hint = "Write the scheme, too: `longline proxies list` lists them."


class UnknownProxy(NotFoundError):
    """The pool has no proxy with this address."""

    address: str
    message = "the pool has no proxy {address}"
    hint = "`longline proxies list` lists them."


@dataclass(frozen=True, slots=True)
class ProxyOverview:
    """The pool, its last refresh, and what the settings file says; `problem` if it is invalid.

    `use` has the requests through each proxy: at the domain that was asked for, or everywhere.
    """

    pool: PoolStatistics
    use: Mapping[str, ProxyUse]
    summary: PoolSummary
    refresh: Refresh | None
    settings: ProxySettings
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """What is known about proxies that a person adds."""

    tier: str = DEFAULT_TIER
    country: str | None = None
    credentials: SecretRef | None = None
    is_rotating: bool = False


async def read_overview(
    settings: Settings, store: Store, clock: Clock, domain: str | None = None
) -> ProxyOverview:
    """Return the pool with the scores at a domain, or everywhere."""
    problem = None
    known = ProxySettings()
    try:
        known = read_proxy_settings()
    except BadFile as error:
        problem = str(error)
    async with open_proxy_pool(settings, clock, store) as pool:
        statistics = await pool.statistics(domain)
        use = _use_at(statistics) if domain is not None else await pool.use()
    summary = summary_of(statistics, known, clock.now())
    last = await store.proxy_refreshes.last()
    return ProxyOverview(statistics, use, summary, last, known, problem)


def proxies_json(found: ProxyOverview) -> list[dict[str, Any]]:
    """Return proxies for programs; times are seconds since the epoch, credentials are left out."""
    none = ProxyUse()
    return [_proxy_json(one, found.use.get(one.pooled.address, none)) for one in found.pool.proxies]


def _proxy_json(one: ProxyStatus, use: ProxyUse) -> dict[str, Any]:
    pooled, proxy, check = one.pooled, one.pooled.proxy, one.pooled.check
    is_held = one.quarantined_until is not None and pooled.state != "dead"
    return {
        "address": proxy.address,
        "state": state_of(one),
        "tier": proxy.tier,
        "country": proxy.country,
        "origin": proxy.origin or None,
        "is_rotating": proxy.is_rotating,
        "has_credentials": proxy.credentials is not None,
        "latency": None if check is None else check.latency,
        "anonymity": None if check is None else check.anonymity,
        "exit_address": None if check is None else check.exit_address,
        "problem": None if check is None else check.problem,
        "checked_at": None if check is None else check.checked_at,
        **asdict(use),
        "quarantined_until": one.quarantined_until if is_held else None,
        "reason": one.reason or None,
    }


def _use_at(found: PoolStatistics) -> dict[str, ProxyUse]:
    scores = {one.pooled.address: one.score for one in found.proxies}
    return {name: ProxyUse(one.requests, one.failed, one.bans) for name, one in scores.items()}


def read_lines(path: Path) -> list[str]:
    """Return the lines of a list of proxies.

    Raises:
        BadFile: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise BadFile(str(path), error.strerror or "it cannot be read") from error
    if len(content) > _LARGEST_FILE:
        raise BadFile(str(path), f"it is larger than {_LARGEST_FILE} bytes")
    return content.decode("utf-8-sig", "replace").splitlines()


def parse_lines(
    lines: Iterable[str], options: ProxyOptions, name: str = "proxy"
) -> list[ParsedProxy]:
    """Return the proxies of lines; empty ones and comments are skipped. `name` is for errors.

    Raises:
        BadOption: the tier or the country is invalid, or a line is not a proxy; the message has its
            number, not its text.
    """
    if not _TIER.fullmatch(options.tier):
        raise BadOption("tier", "write letters, digits, '.', '_' and '-', at most 64")
    if options.country is not None and not _COUNTRY.fullmatch(options.country.strip()):
        raise BadOption("country", "write two letters, such as BG")
    found = []
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        try:
            parsed = parse_proxy(
                line,
                tier=options.tier,
                country=options.country,
                is_rotating=options.is_rotating,
            )
        except BadProxy as error:
            raise BadOption(f"{name} {number}", f"{error.problem}. {error.hint}") from None
        if parsed.secret is None and options.credentials is not None:
            credentials = str(options.credentials)
            parsed = replace(parsed, proxy=replace(parsed.proxy, credentials=credentials))
        found.append(parsed)
    return found


async def add_proxies(
    settings: Settings, store: Store, clock: Clock, proxies: Sequence[ParsedProxy]
) -> list[str]:
    """Add proxies to the pool, unchecked; return the addresses of those that are new."""
    async with open_proxy_pool(settings, clock, store) as pool:
        added = await pool.add(proxies)
        await note_pool(store, clock, pool)
    return [one.address for one in added]


async def remove_proxies(
    settings: Settings, store: Store, clock: Clock, addresses: Sequence[str]
) -> list[str]:
    """Remove proxies with their scores and credentials; return their addresses.

    Raises:
        UnknownProxy: one is not in the pool; none is removed.
    """
    async with open_proxy_pool(settings, clock, store) as pool:
        names = [await _known_address(pool, one) for one in addresses]
        for name in names:
            await pool.remove(name)
        await note_pool(store, clock, pool)
    return names


async def check_proxies(
    settings: Settings,
    store: Store,
    clock: Clock,
    addresses: Sequence[str],
    *,
    options: CheckOptions | None = None,
) -> Checked:
    """Check proxies of the pool, all without `addresses`, and record the results.

    Raises:
        UnknownProxy: one is not in the pool.
        JudgeUnreachable: the judge does not respond.
        BadFile: the settings of proxies are invalid.
    """
    options = read_proxy_settings().check if options is None else options
    async with open_proxy_pool(settings, clock, store) as pool:
        names = {await _known_address(pool, one) for one in addresses}
        chosen = [one.proxy for one in await pool.all() if not names or one.address in names]
        async with open_proxy_checker(settings, clock, options) as checker:
            checked = await checker.check_all(chosen)
        for proxy, result in checked.results:
            await pool.record_check(proxy.address, result)
        await note_pool(store, clock, pool)
    return checked


async def refresh_proxies(
    settings: Settings,
    store: Store,
    clock: Clock,
    *,
    reason: str = "manual",
    on_progress: Callable[[Refresh], None] = lambda _: None,
) -> Refresh:
    """Refresh the pool, and return the refresh once it has ended.

    An open one is continued. Its steps are run here, and by servers and workers that have time.

    Raises:
        BadFile: the settings of proxies are invalid.
        BadOption: nothing could be refreshed.
    """
    begun = await start_refresh(settings, store, clock, reason=reason)
    tasks = ProxyTasks(store, clock, settings)
    current = begun
    while current.is_open and current.number == begun.number:
        on_progress(current)
        if not await tasks.run_next():
            await clock.sleep(_POLL)
        current = await store.proxy_refreshes.advance(clock.now()) or current
    return current


async def start_refresh(
    settings: Settings, store: Store, clock: Clock, *, reason: str = "manual"
) -> Refresh:
    """Begin a refresh, which a server continues; return it, or the open one.

    Raises:
        BadFile: the settings of proxies are invalid.
        BadOption: there are neither sources of candidates nor proxies in the pool.
    """
    if not any(one.enabled for one in read_proxy_settings().candidates.values()):
        async with open_proxy_pool(settings, clock, store) as pool:
            if not await pool.all():
                problem = "add sources to proxies.candidates in longline.yaml, or add proxies with"
                raise BadOption("proxies", f"nothing to refresh: {problem} `longline proxies add`")
    return await begin_refresh(store, clock.now(), reason)


async def note_pool(store: Store, clock: Clock, pool: ProxyPool) -> PoolSummary:
    """Store how many proxies are in each state, for alerts and metrics."""
    known = ProxySettings()
    with suppress(BadFile):  # the server logs it, and the doctor reports it
        known = read_proxy_settings()
    summary = summary_of(await pool.statistics(), known, clock.now())
    await store.proxy_refreshes.note_pool(summary)
    return summary


async def _known_address(pool: ProxyPool, text: str) -> str:
    """Return the address in the pool that a person has written, with or without a scheme.

    Raises:
        BadOption: it is not an address.
        UnknownProxy: the pool does not have it.
        AmbiguousProxy: without a scheme, it is that of several proxies.
    """
    try:
        wanted = parse_proxy(text).proxy
    except BadProxy as error:  # not quoted: it may have a password
        raise BadOption("PROXY", f"{error.problem}. {error.hint}") from None
    if "://" in text:
        if await pool.get(wanted.address) is None:
            raise UnknownProxy(wanted.address)
        return wanted.address
    place = (wanted.host, wanted.port)
    found = [one.address for one in await pool.all() if (one.proxy.host, one.proxy.port) == place]
    if len(found) > 1:
        raise AmbiguousProxy(f"{wanted.host}:{wanted.port}")
    if not found:
        raise UnknownProxy(f"{wanted.host}:{wanted.port}")
    return found[0]
