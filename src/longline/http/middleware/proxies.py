"""Proxy middleware: send a request through a proxy, and through another if that fails.

It tells three kinds of failures apart. One of the proxy is not the site's: another proxy is tried,
and neither the breaker of the site nor the attempts of the item notice. A response of the site is
not the proxy's fault, whatever its status. A ban is about the pair of both.

Where a failure may be the proxy's or the site's (a timeout, a response that was cut off, a gateway
that did not reach the site), other proxies decide: if one succeeds, the earlier ones are at fault;
if several that work fail alike, the site is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from longline.core.clock import Clock
from longline.core.errors import Blocked, ConnectFailed, Deferred, FailureKind, FetchError
from longline.core.model import Usage
from longline.http.errors import BadCertificate, BodyCut, NoProxy, ProxyFailed, TimedOut
from longline.http.messages import Middleware, Page, Request
from longline.http.proxies.choice import Choice, Result
from longline.http.proxies.proxy import Proxy
from longline.http.proxies.rotation import ProxyRotation

_MOST_TRIES = 5
"""Proxies that one request tries; then its domain waits a little."""
_PAUSE = 2.0  # seconds for which a domain waits after that
_OWN_BAN = 900.0  # seconds for which an item waits whose URL alone is answered with a ban
_UNCERTAIN = (BodyCut, ConnectFailed, TimedOut, BadCertificate)
_PROVEN, _UNPROVEN = 1.0, 0.6  # how much the failure of a proxy says about the site
_ENOUGH = 3.0  # with this sum, the site is at fault
_ENOUGH_TIMEOUTS = 2.0  # the same if the last one timed out, since each takes long
_ENOUGH_BANS = 3  # proxies that worked and are all banned for a URL: it is about the URL


@dataclass(slots=True)
class _Trial:
    """What the proxies that one request has tried returned.

    `uncertain` and `banned` have what was not recorded yet, by address.
    """

    tried: set[str] = field(default_factory=set)
    uncertain: dict[str, FetchError] = field(default_factory=dict)
    banned: dict[str, Blocked] = field(default_factory=dict)
    weight: float = 0.0


class ProxyMiddleware(Middleware):
    """Chooses a proxy for each request to a site, and records how it did.

    It is inside the breaker, and outside the limits: each attempt takes its own slot of the domain.
    """

    def __init__(self, inner: Middleware, rotation: ProxyRotation, clock: Clock) -> None:
        self._inner = inner
        self._rotation = rotation
        self._clock = clock
        self._suspects: dict[str, str] = {}

    async def __call__(self, request: Request, usage: Usage) -> Page:
        trial = _Trial()
        while len(trial.tried) < _MOST_TRIES:
            choice = await self._rotation.choose(request.domain, frozenset(trial.tried))
            if choice.address is None:
                break
            proxy = await self._rotation.find(choice.address)
            trial.tried.add(choice.address)
            if proxy is None or not await self._rotation.charge(proxy):
                continue
            if (page := await self._try(request, usage, proxy, trial)) is not None:
                return page
        await self._blame(request, usage, trial)
        raise self._no_proxy(request, await self._rotation.choose(request.domain), trial)

    async def _try(
        self, request: Request, usage: Usage, proxy: Proxy, trial: _Trial
    ) -> Page | None:
        """Send the request through a proxy; return None if another one should be tried.

        Raises:
            FetchError: the site is at fault, or the request was not sent.
        """
        usage.proxied += 1
        self._rotation.begin(proxy.address)
        try:
            page = await self._inner(replace(request, proxy=proxy), usage)
        except ProxyFailed as error:
            usage.proxy_failures += 1
            if not error.is_certain:
                await self._doubt(request, proxy, error, trial)
                return None
            await self._record_failure(request, usage, proxy.address, Result.REFUSED, error)
            return None
        except Blocked as error:
            usage.proxy_bans += 1
            await self._note_ban(request, usage, proxy, error, trial)
            return None
        except _UNCERTAIN as error:
            usage.proxy_failures += 1
            await self._doubt(request, proxy, error, trial)
            return None
        finally:
            self._rotation.end(proxy.address)
        self._suspects.pop(request.domain, None)
        await self._rotation.record_success(request.domain, proxy.address, page.seconds, usage)
        await self._blame(request, usage, trial)
        return page

    async def _doubt(
        self, request: Request, proxy: Proxy, error: FetchError, trial: _Trial
    ) -> None:
        """Note a failure that may be the proxy's or the site's.

        Raises:
            FetchError: proxies that work failed alike: it is the site's.
        """
        trial.uncertain[proxy.address] = error
        known = await self._rotation.candidate(request.domain, proxy.address)
        is_known = known is not None and (known.is_proven or known.latency is not None)
        trial.weight += _PROVEN if is_known else _UNPROVEN
        if trial.weight < (_ENOUGH_TIMEOUTS if isinstance(error, TimedOut) else _ENOUGH):
            return
        if isinstance(error, ProxyFailed):
            problem = f"through {len(trial.uncertain)} proxies; the last one: {error.problem}"
            raise ConnectFailed(request.url, problem) from error
        raise error

    async def _note_ban(
        self, request: Request, usage: Usage, proxy: Proxy, error: Blocked, trial: _Trial
    ) -> None:
        """Note a ban.

        Raises:
            Deferred: proxies that work elsewhere on the site are banned for this URL.
        """
        known = await self._rotation.candidate(request.domain, proxy.address)
        if known is None or not known.is_proven:
            await self._record_failure(request, usage, proxy.address, Result.BANNED, error)
            return
        trial.banned[proxy.address] = error
        if len(trial.banned) < _ENOUGH_BANS:
            return
        # The same for a second URL, and no success between them: it is about the site.
        if self._suspects.setdefault(request.domain, request.url) != request.url:
            return
        until = self._clock.now() + _OWN_BAN
        problem = f"{len(trial.banned)} proxies are banned for {request.url} ({error.evidence})"
        raise Deferred(request.url, until, problem, FailureKind.BLOCKED) from error

    async def _blame(self, request: Request, usage: Usage, trial: _Trial) -> None:
        """Record failures of proxies that nothing has shown to be the site's."""
        for address, error in trial.uncertain.items():
            await self._record_failure(request, usage, address, Result.FAILED, error)
        for address, ban in trial.banned.items():
            await self._record_failure(request, usage, address, Result.BANNED, ban)
        trial.uncertain.clear()
        trial.banned.clear()

    async def _record_failure(
        self, request: Request, usage: Usage, address: str, result: Result, error: FetchError
    ) -> None:
        reason = error.evidence if isinstance(error, Blocked) else _problem_of(error)
        await self._rotation.record_failure(request.domain, address, result, reason, usage)

    def _no_proxy(self, request: Request, choice: Choice, trial: _Trial) -> FetchError:
        """Return the error for a request that no proxy could send; `choice` is for the next one."""
        url = request.url
        if choice.is_banned:
            return Blocked(url, f"all proxies are banned; {choice.reason}")
        if choice.address is not None:  # others can be tried, but not without end
            reason = f"{len(trial.tried)} proxies in a row failed for {url}"
        else:
            reason = f"no proxy can request {request.domain}: {choice.reason}"
        until = self._clock.now() + _PAUSE if choice.until is None else choice.until
        return NoProxy(url, until, reason, FailureKind.NETWORK, is_for_domain=True)


def _problem_of(error: FetchError) -> str:
    return error.problem if isinstance(error, ProxyFailed) else str(error)
