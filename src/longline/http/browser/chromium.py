"""The browser process and its tabs: started on demand, recycled, and never left behind."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
import struct
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from playwright.async_api import (
    Browser,
    BrowserContext,
    Page,
    ProxySettings,
    Route,
    async_playwright,
)
from playwright.async_api import Error as PlaywrightError

from longline.core.clock import Clock
from longline.core.errors import ConnectFailed
from longline.core.model import Usage
from longline.http.address_policy import AddressPolicy, hostname_of
from longline.http.browser.loading import Load, is_lost, keep_failed_page, translate_browser_error
from longline.http.browser.manifest import BrowserOptions, find_chromium, is_remote
from longline.http.browser.traffic import (
    BeforeSubrequest,
    Blocker,
    PausableTimeouts,
    Traffic,
    TrafficRules,
)
from longline.http.browser.transport import BrowserPage
from longline.http.errors import NeverReady, PrivateAddress, ProxyFailed, TimedOut
from longline.http.messages import Request
from longline.http.proxies.connections import read_credentials
from longline.http.proxies.proxy import Proxy

# ---------------- A SOCKS5 proxy that applies the address policy to every connection of the browser

_VERSION, _CONNECT = 5, 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_GRANTED, _NOT_ALLOWED, _UNREACHABLE = 0, 2, 4
_CHUNK = 65_536  # bytes
_GREETING = 10.0  # seconds for the SOCKS handshake
_MOST_REFUSALS = 1000


class BrowserProxy:
    """A proxy on a local port, for one browser.

    A browser resolves names and follows redirects of a page's parts by itself, so its connections
    can only be checked when they are made. It uses this proxy for everything, loopback included.
    """

    def __init__(self, addresses: AddressPolicy) -> None:
        self._addresses = addresses
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._refusals: dict[str, PrivateAddress] = {}

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def close(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that make Chromium use it, for loopback and WebRTC as well."""
        assert self._server is not None  # noqa: S101  # it was started
        port = self._server.sockets[0].getsockname()[1]
        return (
            f"--proxy-server=socks5://127.0.0.1:{port}",
            "--proxy-bypass-list=<-loopback>",
            "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
        )

    def refusal(self, host: str) -> PrivateAddress | None:
        """Return why a connection to a host was refused; None when it was not."""
        return self._refusals.get(host)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # asyncio calls this in a task
        self._connections.add(task)
        try:
            await self._serve_client(reader, writer)
        except (OSError, asyncio.IncompleteReadError, TimeoutError, UnicodeError):
            pass  # either side may end a connection at any time
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async with asyncio.timeout(_GREETING):
            _version, count = await reader.readexactly(2)
            await reader.readexactly(count)
            writer.write(bytes([_VERSION, 0]))
            host, port = await _read_target(reader)
        try:
            there_reader, there_writer = await self._connect_checked(host, port)
        except PrivateAddress as error:
            if len(self._refusals) >= _MOST_REFUSALS:
                self._refusals.clear()  # only the last ones matter
            self._refusals[host.lower().rstrip(".")] = error
            _reply(writer, _NOT_ALLOWED)
            return
        except OSError:
            _reply(writer, _UNREACHABLE)
            return
        _reply(writer, _GRANTED)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, there_writer))
                both.create_task(_pump(there_reader, writer))
        finally:
            there_writer.close()

    async def _connect_checked(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first allowed address of a host that accepts."""
        problem: Exception = OSError("unknown host")
        bracketed = f"[{host}]" if ":" in host else host
        for address in await self._addresses.addresses_of(host):
            try:
                self._addresses.check(f"http://{bracketed}:{port}/", address)
                return await asyncio.open_connection(address, port)
            except (PrivateAddress, OSError) as error:
                problem = error
        raise problem


async def _read_target(reader: asyncio.StreamReader) -> tuple[str, int]:
    """Read the requested host and port.

    Raises:
        OSError: it is not a request to connect.
    """
    _version, command, _reserved, kind = await reader.readexactly(4)
    if command != _CONNECT or kind not in (_NAME, _IPV4, _IPV6):
        raise OSError("not supported")
    if kind == _NAME:
        (length,) = await reader.readexactly(1)
        host = (await reader.readexactly(length)).decode("ascii")
    else:
        packed = await reader.readexactly(4 if kind == _IPV4 else 16)
        host = str(ipaddress.ip_address(packed))
    (port,) = struct.unpack("!H", await reader.readexactly(2))
    return host, port


def _reply(writer: asyncio.StreamWriter, code: int) -> None:
    writer.write(bytes([_VERSION, code, 0, _IPV4]) + bytes(6))


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
    with suppress(OSError, RuntimeError):
        if target.can_write_eof():
            target.write_eof()


# ---------------- The browser and its tabs

MARK = "--longline-browser="
"""The argument that marks our browsers; Chromium ignores it."""
KEPT = "browser.kept"
"""The event when a failed page was kept."""
_STARTING = 60.0  # seconds
_CLOSING = 10.0
_MOST_CONTEXTS = 8  # of proxies and sessions; idle ones are closed
_PROXY_AUTH_REQUIRED = 407
_ContextKey = tuple[str | None, str | None]
_FLAGS = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",  # /dev/shm is tiny in containers, and a full one crashes tabs
    "--disk-cache-size=1",  # intercepted requests are never cached; this keeps the profile small
)


class Chromium:
    """A running browser with one context, whose pages share their cookies.

    Each proxy and session has a further context.
    """

    def __init__(
        self,
        context: BrowserContext,
        proxy: BrowserProxy | None,
        ends: AsyncExitStack,
        options: BrowserOptions,
    ) -> None:
        self.context = context
        self.proxy = proxy
        self._ends = ends
        self._options = options
        self._contexts: OrderedDict[_ContextKey, BrowserContext] = OrderedDict()
        self.opened_pages = 0
        self.open_pages = 0
        self.is_lost = False

    @classmethod
    async def start(cls, options: BrowserOptions) -> Chromium:
        """Start a browser, or connect to a remote one.

        It ends with this process, even after a `kill -9`: the driver of Playwright closes it.

        Raises:
            NoBrowser: there is none.
            PlaywrightError: it did not start.
            TimeoutError: the same.
        """
        async with AsyncExitStack() as ends, asyncio.timeout(_STARTING):
            proxy = None
            if options.addresses is not None and not is_remote(options.chromium):
                proxy = BrowserProxy(options.addresses)
                await proxy.start()
                ends.push_async_callback(proxy.close)
            playwright = await async_playwright().start()
            ends.push_async_callback(_close_quietly, playwright.stop)
            if options.chromium is not None and is_remote(options.chromium):
                browser = await playwright.chromium.connect_over_cdp(options.chromium)
            else:
                mark = f"{MARK}{os.getpid()}-{secrets.token_hex(8)}"
                browser = await playwright.chromium.launch(
                    executable_path=find_chromium(options.chromium),
                    args=[*_FLAGS, *(proxy.flags if proxy else ()), mark],
                    chromium_sandbox=os.geteuid() != 0,  # not available to root
                    # The run handles signals: after the first Ctrl-C, open pages are completed.
                    handle_sigint=False,
                    handle_sigterm=False,
                    handle_sighup=False,
                )
            ends.push_async_callback(_close_quietly, browser.close)
            context = await _new_context(browser, options)
            return cls(context, proxy, ends.pop_all(), options)

    async def context_of(self, request: Request) -> BrowserContext:
        """Return the context of a request: that of its proxy and session, or the usual one.

        Raises:
            ProxyFailed: Chromium cannot use the proxy.
        """
        browser, proxy = self.context.browser, request.proxy
        if browser is None or (proxy is None and request.session is None):
            return self.context
        key = (None if proxy is None else proxy.address, request.session)
        if key not in self._contexts:
            settings = None if proxy is None else _proxy_settings(request.url, proxy)
            self._contexts[key] = await _new_context(browser, self._options, settings)
        self._contexts.move_to_end(key)
        context = self._contexts[key]
        idle = [one for one, other in self._contexts.items() if one != key and not other.pages]
        for one in idle[: max(0, len(self._contexts) - _MOST_CONTEXTS)]:
            await _close_quietly(self._contexts.pop(one).close)
        return context

    @property
    def is_alive(self) -> bool:
        """Whether it is running and connected."""
        browser = self.context.browser
        return not self.is_lost and browser is not None and browser.is_connected()

    async def close(self) -> None:
        """Close it, with its processes."""
        await self._ends.aclose()


async def _new_context(
    browser: Browser, options: BrowserOptions, proxy: ProxySettings | None = None
) -> BrowserContext:
    context = await browser.new_context(
        user_agent=options.user_agent,
        service_workers="block",  # their requests could not be rate-limited or blocked
        accept_downloads=False,
        proxy=proxy,
    )
    context.set_default_timeout(0)  # every wait has our own timeout, which can pause
    # A tab routes its own requests; this is for windows that a page opens.
    await context.route("**/*", _abort_route)
    return context


def _proxy_settings(url: str, proxy: Proxy) -> ProxySettings:
    credentials = read_credentials(url, proxy)
    # Without the bypass, Chromium would request loopback directly.
    settings = ProxySettings(server=proxy.address, bypass="<-loopback>")
    if credentials is None:
        return settings
    if proxy.scheme not in {"http", "https"}:
        problem = "a browser cannot log in to SOCKS proxies"
        raise ProxyFailed(url, proxy.address, problem)
    return ProxySettings(**settings, username=credentials[0], password=credentials[1])


async def _abort_route(route: Route) -> None:
    with suppress(PlaywrightError):
        await route.abort("blockedbyclient")


async def _close_quietly(close: Callable[[], Awaitable[None]]) -> None:
    """Close something that may already be broken, with a timeout."""
    with suppress(PlaywrightError, TimeoutError):
        async with asyncio.timeout(_CLOSING):
            await close()


class Tabs:
    """Opens pages, as many concurrently as the options allow."""

    def __init__(
        self, options: BrowserOptions, clock: Clock, before: BeforeSubrequest | None
    ) -> None:
        self._options = options
        self._clock = clock
        self._rules = TrafficRules(Blocker(options.spec.block), before, options.largest_body)
        self._free = asyncio.Semaphore(options.spec.tabs)
        self._starting = asyncio.Lock()
        self._chromium: Chromium | None = None
        self._retired: list[Chromium] = []

    async def open(self, request: Request, usage: Usage) -> BrowserPage:
        """Return the rendered page of a URL.

        Raises:
            NoBrowser: there is no browser to start.
            FetchError: the page could not be loaded.
        """
        async with usage.waiting.to_enter(self._free), self._browser(request.url) as chromium:
            try:
                context = await chromium.context_of(request)
                tab = await context.new_page()
                try:
                    page = await self._load_tab(tab, request, usage)
                    if request.proxy is not None and page.status == _PROXY_AUTH_REQUIRED:
                        problem = "it refused the credentials (status 407)"
                        raise ProxyFailed(
                            request.url, request.proxy.address, problem, is_certain=True
                        )
                    return page
                finally:
                    await _close_quietly(tab.close)
            except ConnectFailed as error:
                proxy = chromium.proxy
                refusal = proxy.refusal(hostname_of(request.url)) if proxy else None
                if refusal is not None:
                    raise PrivateAddress(request.url, refusal.address) from error
                raise
            except PlaywrightError as error:
                # The browser itself may notice its end later.
                chromium.is_lost = chromium.is_lost or is_lost(error)
                raise translate_browser_error(request.url, error) from None

    async def close(self) -> None:
        """Close the browser."""
        async with self._starting:
            for one in (self._chromium, *self._retired):
                if one is not None:
                    await one.close()
            self._chromium = None
            self._retired.clear()

    @asynccontextmanager
    async def _browser(self, url: str) -> AsyncIterator[Chromium]:
        """Yield the running browser; a replaced one is closed with its last page."""
        async with self._starting:
            chromium = await self._running(url)
            chromium.opened_pages += 1
            chromium.open_pages += 1
        try:
            yield chromium
        finally:
            chromium.open_pages -= 1
            if chromium in self._retired and chromium.open_pages == 0:
                self._retired.remove(chromium)
                await chromium.close()

    async def _running(self, url: str) -> Chromium:
        current = self._chromium
        if current is not None:
            if current.is_alive and current.opened_pages < self._options.spec.recycle_pages:
                return current
            self._chromium = None
            if current.open_pages:
                self._retired.append(current)
            else:
                await current.close()
        try:
            self._chromium = await Chromium.start(self._options)
        except (PlaywrightError, TimeoutError, OSError) as error:
            problem = (str(error) or type(error).__name__).splitlines()[0]
            raise ConnectFailed(url, f"the browser did not start: {problem}") from None
        return self._chromium

    async def _load_tab(self, tab: Page, request: Request, usage: Usage) -> BrowserPage:
        seconds = request.timeout or self._options.timeout
        if request.clicks is not None:  # each page has its own timeout
            seconds *= request.clicks.skip + request.clicks.most
        timeouts = PausableTimeouts()
        traffic = Traffic(tab, self._rules, usage, timeouts, request.headers, request.permit)
        load = Load(tab, request, traffic, self._options.spec.steps_for(request.url), self._clock)
        try:
            async with asyncio.timeout(seconds) as deadline:
                with timeouts.pausing(deadline):
                    return await load.run()
        except TimeoutError:
            await self._keep_failed(tab, request, usage)
            raise TimedOut(request.url, seconds) from None
        except NeverReady:
            await self._keep_failed(tab, request, usage)
            raise
        finally:
            await traffic.stop()
            if not self._options.keeps_cookies:
                with suppress(PlaywrightError):
                    await tab.context.clear_cookies()

    async def _keep_failed(self, tab: Page, request: Request, usage: Usage) -> None:
        folder, most = self._options.failures, self._options.spec.screenshots
        if folder is None or not most:
            return
        now = self._clock.now()
        kept = await keep_failed_page(folder, tab, request.url, most=most, now=now)
        if kept is not None:
            usage.add_event(KEPT, url=request.url, file=str(kept))
