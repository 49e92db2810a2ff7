"""Proxy middleware: send a request through a proxy, and through another if that fails.

It tells three kinds of failures apart. One of the proxy is not the site's: another proxy is tried,
and neither the breaker of the site nor the attempts of the item notice. A response of the site is
not the proxy's fault, whatever its status. A ban is about the pair of both.

Where a failure may be the proxy's or the site's (a timeout, a response that was cut off, a gateway
that did not reach the site), other proxies decide: if one succeeds, the earlier ones are at fault;
if several that work fail alike, the site is.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from longline.core.clock import Clock
from longline.core.errors import Blocked, ConnectFailed, Deferred, FailureKind, FetchError
from longline.core.model import Usage
from longline.http.errors import (
    BadAnswer,
    BadCertificate,
    BodyCut,
    NoProxy,
    ProxyFailed,
    SessionEnded,
    TimedOut,
)
from longline.http.messages import Middleware, Page, Request
from longline.http.proxies.choice import Choice, Result
from longline.http.proxies.proxy import Proxy
from longline.http.proxies.rotation import ProxyRotation
from longline.http.proxies.sessions import Session, SessionPool

_LOG = logging.getLogger(__name__)
_WARN_EVERY = 60.0  # seconds between warnings about one domain
_MOST_TRIES = 5
"""Proxies that one request tries; then its domain waits a little."""
_PAUSE = 2.0  # seconds for which a domain waits after that
_OWN_BAN = 900.0  # seconds for which an item waits whose URL alone is answered with a ban
_MOST_TRIALS = 1000  # requests that wait for another session
_MOST_ROUNDS = 3
"""How often a domain waits for a URL for which all proxies fail while other URLs succeed; then only
the item of the URL waits.
"""
_OWN_WAIT = 60.0  # seconds, at least, for which it waits then
_MOST_URLS = 1000  # whose rounds are counted
_FIRST_REDIRECT = 300
_LONGEST_MESSAGE = 2_000  # bytes of a text that a proxy sends in place of a page
_STRANGE = "the page has none of the expected elements"
_UNCERTAIN = (BodyCut, ConnectFailed, TimedOut, BadCertificate)
_PROVEN, _UNPROVEN = 1.0, 0.6  # how much the failure of a proxy says about the site
_ENOUGH = 3.0  # with this sum, the site is at fault
_ENOUGH_TIMEOUTS = 2.0  # the same if the last one timed out, since each takes long
_ENOUGH_BANS = 3  # proxies that worked and are all banned for a URL: it is about the URL


@dataclass(slots=True)
class _Trial:
    """What the proxies that one request has tried returned; a rotating one may be tried again.

    `uncertain` and `banned` have what was not recorded yet, by address.
    """

    count: int = 0
    tried: set[str] = field(default_factory=set)
    uncertain: dict[str, FetchError] = field(default_factory=dict)
    banned: dict[str, Blocked] = field(default_factory=dict)
    weight: float = 0.0


@dataclass(slots=True)
class _Rounds:
    """How often all proxies failed for a URL after others of its domain had succeeded.

    `successes` are those of the domain at the last time.
    """

    successes: int
    count: int = 0


class ProxyMiddleware(Middleware):
    """Chooses a proxy for each request to a site, and records how it did.

    It is inside the breaker, and outside the limits: each attempt takes its own slot of the domain.
    A request of a session uses the proxy of the session; if that fails, the session has ended.
    `expects` are CSS selectors of which every HTML page of the source matches at least one.
    """

    def __init__(
        self,
        inner: Middleware,
        rotation: ProxyRotation,
        clock: Clock,
        sessions: SessionPool | None = None,
        *,
        expects: Sequence[str] = (),
    ) -> None:
        self._inner = inner
        self._rotation = rotation
        self._clock = clock
        self._sessions = sessions
        self._expects = tuple(expects)
        self._suspects: dict[str, str] = {}
        self._warned_at: dict[str, float] = {}
        self._trials: OrderedDict[tuple[int, str], _Trial] = OrderedDict()
        self._rounds: OrderedDict[str, _Rounds] = OrderedDict()
        self._successes: Counter[str] = Counter()

    async def __call__(self, request: Request, usage: Usage) -> Page:
        session = None if self._sessions is None else self._sessions.find(request.session)
        trial = self._trials.pop((id(usage), request.url), None) or _Trial()
        while trial.count < _MOST_TRIES:
            address = await self._pick(request, usage, session, trial)
            if address is None:
                break
            trial.count += 1
            proxy = await self._rotation.find(address)
            if proxy is None or not proxy.is_rotating:
                trial.tried.add(address)
            if proxy is None or not await self._rotation.charge(proxy):
                if session is not None and session.proxy == address:
                    raise self._ended(request, usage, trial, "is gone, or its budget is spent")
                continue
            if session is not None:
                session.proxy = address
            if (page := await self._try(request, usage, proxy, trial)) is not None:
                return page
            if session is not None and trial.count < _MOST_TRIES:
                raise self._ended(request, usage, trial, "failed")
        doubt = next(reversed(trial.uncertain.values()), None)
        await self._blame(request, usage, trial)
        choice = await self._rotation.choose(request.domain)
        if doubt is not None and self._is_stuck(request):
            raise self._deferred(request, choice, doubt)
        raise self._no_proxy(request, choice, trial)

    async def _pick(
        self, request: Request, usage: Usage, session: Session | None, trial: _Trial
    ) -> str | None:
        """Return the address of the proxy to use next; None if there is none.

        Raises:
            SessionEnded: that of the session cannot be used now.
        """
        if session is None or session.proxy is None:
            choice = await self._rotation.choose(request.domain, frozenset(trial.tried))
            return choice.address
        own = await self._rotation.candidate(request.domain, session.proxy)
        if own is None or own.held_until(self._clock.now()) is not None:
            raise self._ended(request, usage, trial, "cannot be used now")
        return session.proxy

    def _ended(self, request: Request, usage: Usage, trial: _Trial, problem: str) -> SessionEnded:
        # The same request comes again in another session, and what was tried is still known.
        self._trials[id(usage), request.url] = trial
        while len(self._trials) > _MOST_TRIALS:
            self._trials.popitem(last=False)
        problem = f"the proxy of the session {problem}"
        return SessionEnded(request.url, self._clock.now(), problem, FailureKind.NETWORK)

    async def _try(
        self, request: Request, usage: Usage, proxy: Proxy, trial: _Trial
    ) -> Page | None:
        """Send the request through a proxy; return None if another one should be tried.

        Raises:
            FetchError: the site is at fault, or the request was not sent.
        """
        usage.proxied += 1
        page, began = None, self._clock.now()
        self._rotation.begin(proxy.address)
        try:
            page = await self._inner(replace(request, proxy=proxy), usage)
        except Blocked as error:
            usage.proxy_bans += 1
            await self._note_ban(request, usage, proxy, error, trial)
            return None
        except (ProxyFailed, BadAnswer, *_UNCERTAIN) as error:
            if isinstance(error, BadAnswer) and not request.url.startswith("http:"):
                raise  # no proxy can change what is in a tunnel
            fault: FetchError = error
        else:
            if not self._is_strange(request, page):
                seconds = page.seconds or self._clock.now() - began
                await self._succeed(request, usage, proxy, seconds, trial)
                return page
            fault = ProxyFailed(request.url, proxy.address, _STRANGE)
        finally:
            self._rotation.end(proxy.address)
        usage.proxy_failures += 1
        if isinstance(fault, ProxyFailed) and fault.is_certain:
            await self._record_failure(request, usage, proxy.address, Result.REFUSED, fault)
            return None
        return await self._doubt(request, proxy, fault, page, trial)

    def _is_strange(self, request: Request, page: Page) -> bool:
        """Return whether a page may be an insertion of the proxy: it has no expected element."""
        if not self._expects or page.status >= _FIRST_REDIRECT:
            return False
        if "html" not in page.headers.get("content-type", "").lower():
            return _may_be_message(request, page)
        return not any(page.first(selector) is not None for selector in self._expects)

    async def _succeed(
        self, request: Request, usage: Usage, proxy: Proxy, seconds: float, trial: _Trial
    ) -> None:
        self._suspects.pop(request.domain, None)
        self._successes[request.domain] += 1
        self._rounds.pop(request.url, None)
        await self._rotation.record_success(request.domain, proxy.address, seconds, usage)
        await self._blame(request, usage, trial)

    async def _doubt(
        self, request: Request, proxy: Proxy, fault: FetchError, page: Page | None, trial: _Trial
    ) -> Page | None:
        """Note a failure that may be the site's, too; return the page if it is.

        Raises:
            FetchError: it is the site's, and there is no page.
        """
        trial.uncertain[proxy.address] = fault
        known = await self._rotation.candidate(request.domain, proxy.address)
        is_known = known is not None and (known.is_proven or known.latency is not None)
        if not (proxy.is_rotating and isinstance(fault, ProxyFailed)):  # its own, behind it
            trial.weight += _PROVEN if is_known else _UNPROVEN
        if trial.weight < (_ENOUGH_TIMEOUTS if isinstance(fault, TimedOut) else _ENOUGH):
            return None
        if page is None and isinstance(fault, ProxyFailed):
            problem = f"through {len(trial.uncertain)} proxies; the last one: {fault.problem}"
            raise ConnectFailed(request.url, problem) from fault
        if page is None:
            raise fault
        return page

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

    def _is_stuck(self, request: Request) -> bool:
        """Count that all proxies failed for a URL; return whether only it fails, and repeatedly."""
        successes = self._successes[request.domain]
        known = self._rounds.pop(request.url, None) or _Rounds(successes)
        known.count += successes > known.successes
        known.successes = successes
        self._rounds[request.url] = known
        while len(self._rounds) > _MOST_URLS:
            self._rounds.popitem(last=False)
        return known.count >= _MOST_ROUNDS

    def _deferred(self, request: Request, choice: Choice, doubt: FetchError) -> Deferred:
        """Return the error for a URL that too few proxies have tried to tell whose fault it is.

        It is deferred as often as an item may be, and its domain does not wait.
        """
        until = max(self._clock.now() + _OWN_WAIT, choice.until or 0.0)
        problem = f"all proxies that can be used failed for {request.url}: {_problem_of(doubt)}"
        return Deferred(request.url, until, problem, doubt.kind)

    def _no_proxy(self, request: Request, choice: Choice, trial: _Trial) -> FetchError:
        """Return the error for a request that no proxy could send; `choice` is for the next one."""
        url = request.url
        if choice.is_banned:
            return Blocked(url, f"all proxies are banned; {choice.reason}")
        if choice.address is not None:  # others can be tried, but not without end
            reason = f"{trial.count} requests in a row through proxies failed for {url}"
        else:
            reason = f"no proxy can request {request.domain}: {choice.reason}"
        now = self._clock.now()
        until = now + _PAUSE if choice.until is None else choice.until
        if now - self._warned_at.get(request.domain, -_WARN_EVERY) >= _WARN_EVERY:
            self._warned_at[request.domain] = now
            _LOG.warning("requests to %s wait: %s", request.domain, reason)
        return NoProxy(url, until, reason, FailureKind.NETWORK, is_for_domain=True)


def _problem_of(error: FetchError) -> str:
    return error.problem if isinstance(error, ProxyFailed) else str(error)


def _may_be_message(request: Request, page: Page) -> bool:
    """Return whether a page may be a short text of the proxy; data and files are texts, too."""
    if request.method != "GET" or request.sink is not None:
        return False
    url, start = urlsplit(request.url), page.body.lstrip()[:1]
    if url.scheme != "http" or url.path.endswith(".txt") or len(page.body) > _LONGEST_MESSAGE:
        return False
    is_text = "text/plain" in page.headers.get("content-type", "").lower()
    return is_text and start not in (b"", b"{", b"[", b"<")
