"""The browser process and its tabs: started on demand, recycled, and never left behind."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
import shutil
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil
from playwright.async_api import Browser, BrowserContext, Page, Playwright, Route, async_playwright
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page as Tab

from longline.config.expressions import user_pattern
from longline.core.clock import Clock
from longline.core.errors import ConnectFailed
from longline.core.files import make_private_file, make_private_folder
from longline.core.model import Usage
from longline.http.address_policy import AddressPolicy, hostname_of
from longline.http.browser.loading import FailedPages, Load, is_lost, translate_browser_error
from longline.http.browser.manifest import BrowserOptions, find_chromium, is_remote
from longline.http.browser.traffic import (
    BeforeSubrequest,
    Blocker,
    PausableTimeouts,
    Traffic,
    TrafficRules,
)
from longline.http.browser.transport import BrowserPage
from longline.http.errors import NeverReady, PrivateAddress, TimedOut
from longline.http.messages import Request

# ---------------- A SOCKS5 proxy that applies the address policy to every connection of the browser

_VERSION, _CONNECT = 5, 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_GRANTED, _NOT_ALLOWED, _UNREACHABLE, _UNSUPPORTED = 0, 2, 4, 7
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
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, TimeoutError, UnicodeError):
            pass  # either side may end a connection at any time
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_GREETING):
            _version, count = await reader.readexactly(2)
            await reader.readexactly(count)
            writer.write(bytes([_VERSION, 0]))
            asked = await _read_target(reader)
        if asked is None:
            _reply(writer, _UNSUPPORTED)
            return
        host, port = asked
        try:
            there_reader, there_writer = await self._connect(host, port)
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

    async def _connect(
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


async def _read_target(reader: asyncio.StreamReader) -> tuple[str, int] | None:
    """Read the requested host and port; None for other commands."""
    _version, command, _reserved, kind = await reader.readexactly(4)
    if kind == _NAME:
        (length,) = await reader.readexactly(1)
        host = (await reader.readexactly(length)).decode("ascii")
    elif kind in (_IPV4, _IPV6):
        packed = await reader.readexactly(4 if kind == _IPV4 else 16)
        host = str(ipaddress.ip_address(packed))
    else:
        return None
    (port,) = struct.unpack("!H", await reader.readexactly(2))
    return (host, port) if command == _CONNECT else None


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


# ---------------- Records of running browsers, by which orphans are found and ended

MARK = "--longline-browser="
"""The argument that marks our browsers; Chromium ignores it."""
_PROFILE = "--user-data-dir="
_OWN_PROFILES = "playwright_"  # Playwright names its profiles so
_ENDING = ".json"
_TERMINATION = 3.0  # seconds between SIGTERM and SIGKILL


@dataclass(frozen=True, slots=True)
class BrowserOwner:
    """The owner of a browser; with its start time, since a pid is reused."""

    host: str
    pid: int
    started: float

    @classmethod
    def here(cls) -> BrowserOwner:
        """Return this process."""
        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time())

    @property
    def is_dead(self) -> bool:
        """Whether it has certainly ended; of other hosts this is unknown."""
        if self.host != socket.gethostname():
            return False
        try:
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.started) < 0.02  # noqa: PLR2004  # two clock ticks
            return not is_same or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True
        except psutil.AccessDenied:
            return False


class BrowserRecord:
    """The file that records the owner of a browser, written before the browser starts."""

    def __init__(self, folder: Path) -> None:
        self._owner = asdict(BrowserOwner.here())
        self._file = folder / f"{os.getpid()}-{secrets.token_hex(8)}{_ENDING}"
        self.argument = MARK + self._file.stem
        make_private_folder(folder)
        make_private_file(self._file)
        self._file.write_bytes(orjson.dumps(self._owner))

    def add_profile(self) -> None:
        """Record the browser's profile folder, so that it can be removed after a crash."""
        for profile in _profiles(_marked_processes(self._file)):
            self._file.write_bytes(orjson.dumps({**self._owner, "profile": str(profile)}))

    def remove(self) -> None:
        """Remove the record of an ended browser, with its remaining processes and profile."""
        _remove_browser(self._file)


def sweep(folder: Path) -> int:
    """End browsers whose owners are dead, with their profiles; return the number of records.

    A browser usually ends with its owner; this is for orphans, and for folders after a power cut.
    """
    stale = [file for file in sorted(folder.glob(f"*{_ENDING}")) if _is_stale(file)]
    for file in stale:
        _remove_browser(file)
    return len(stale)


def _is_stale(file: Path) -> bool:
    values = _read_record(file)
    try:
        owner = BrowserOwner(str(values["host"]), int(values["pid"]), float(values["started"]))
    except (KeyError, TypeError, ValueError):
        return False  # being written, or not ours
    return owner.is_dead


def _remove_browser(file: Path) -> None:
    left = _marked_processes(file)
    profiles = {*_profiles(left), Path(str(_read_record(file).get("profile", "")))}
    _terminate(left)
    for profile in profiles:
        if profile.name.startswith(_OWN_PROFILES):  # the file may have been edited
            shutil.rmtree(profile, ignore_errors=True)
    file.unlink(missing_ok=True)


def _read_record(file: Path) -> dict[str, Any]:
    try:
        values = orjson.loads(file.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return values if isinstance(values, dict) else {}


def _marked_processes(file: Path) -> list[psutil.Process]:
    """Return the processes with the mark of a record."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if MARK + file.stem in process.cmdline():
                found.append(process)
    return found


def _profiles(processes: Iterable[psutil.Process]) -> set[Path]:
    """Return the profile folders of browsers."""
    found = set()
    for process in processes:
        with suppress(psutil.Error):
            words = (word for word in process.cmdline() if word.startswith(_PROFILE))
            found |= {Path(word.removeprefix(_PROFILE)) for word in words}
    return {path for path in found if path.name.startswith(_OWN_PROFILES)}


def _terminate(processes: Iterable[psutil.Process]) -> None:
    """Terminate processes and their children; kill those that remain."""
    every: set[psutil.Process] = set()
    for process in processes:
        with suppress(psutil.Error):
            every |= {process, *process.children(recursive=True)}
    for process in every:
        with suppress(psutil.Error):
            process.terminate()
    _gone, alive = psutil.wait_procs(every, timeout=_TERMINATION)
    for process in alive:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=_TERMINATION)


_STARTING = 60.0  # seconds
_CLOSING = 10.0
_MOST_CONTEXTS = 10  # the driver process of Playwright grows, too
_FLAGS = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",  # /dev/shm is tiny in containers, and a full one crashes tabs
    "--disk-cache-size=1",  # intercepted requests are never cached; this keeps the profile small
)


@dataclass(slots=True)
class _Context:
    """A browser context with its own cookies."""

    context: BrowserContext
    opened_at: float
    pages: int = 0
    in_use: int = 0


class Chromium:
    """A running browser; its context is replaced from time to time."""

    def __init__(
        self,
        browser: Browser,
        options: BrowserOptions,
        clock: Clock,
        ends: AsyncExitStack,
        proxy: BrowserProxy | None = None,
    ) -> None:
        self._browser = browser
        self._proxy = proxy
        self._options = options
        self._clock = clock
        self._ends = ends
        self._context: _Context | None = None
        self._moving = asyncio.Lock()
        self._contexts = 0
        self.pages = 0
        """The number of open pages."""

    @classmethod
    async def start(cls, options: BrowserOptions, clock: Clock) -> Chromium:
        """Start a browser, or connect to a remote one.

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
            browser = await _browser(playwright, options, ends, proxy.flags if proxy else ())
            ends.push_async_callback(_close_quietly, browser.close)
            return cls(browser, options, clock, ends.pop_all(), proxy)

    @property
    def is_alive(self) -> bool:
        """Whether it is running and connected."""
        return self._browser.is_connected()

    @property
    def is_worn(self) -> bool:
        """Whether it had so many contexts that it should be replaced."""
        last = self._context
        return self._contexts >= _MOST_CONTEXTS and last is not None and self._is_full(last)

    def refusal(self, url: str) -> PrivateAddress | None:
        """Return why the browser may not connect to the host of a URL; None when it may."""
        return self._proxy.refusal(hostname_of(url)) if self._proxy else None

    async def close(self) -> None:
        """Close it, with its processes."""
        await self._ends.aclose()

    @asynccontextmanager
    async def page(self) -> AsyncIterator[Page]:
        """Open a tab during the block."""
        tab_context = await self._enter()
        try:
            page = await tab_context.context.new_page()
            try:
                yield page
            finally:
                await _close_quietly(page.close)
        finally:
            tab_context.in_use -= 1
            await self._leave(tab_context)

    async def _enter(self) -> _Context:
        async with self._moving:
            if self._context is None or self._is_full(self._context):
                full, self._context = self._context, await self._new_context()
                if full is not None:
                    await self._leave(full)
            self._context.pages += 1
            self._context.in_use += 1
            return self._context

    async def _leave(self, tab_context: _Context) -> None:
        """Close a replaced context once it has no pages."""
        if tab_context is not self._context and tab_context.in_use == 0:
            await _close_quietly(tab_context.context.close)

    def _is_full(self, tab_context: _Context) -> bool:
        spec = self._options.spec
        age = self._clock.now() - tab_context.opened_at
        return tab_context.pages >= spec.recycle_pages or age >= spec.recycle_seconds

    async def _new_context(self) -> _Context:
        context = await self._browser.new_context(
            user_agent=self._options.user_agent,
            locale=self._options.spec.locale,
            service_workers="block",  # their requests could not be rate-limited or blocked
            accept_downloads=False,
        )
        context.set_default_timeout(0)  # every wait has our own timeout, which can pause
        # A tab routes its own requests; this is for windows that a page opens.
        await context.route("**/*", _refuse)
        self._contexts += 1
        return _Context(context, self._clock.now())


async def _browser(
    playwright: Playwright,
    options: BrowserOptions,
    ends: AsyncExitStack,
    flags: tuple[str, ...] = (),
) -> Browser:
    if options.chromium is not None and is_remote(options.chromium):
        return await playwright.chromium.connect_over_cdp(options.chromium)
    await asyncio.to_thread(sweep, options.folder)
    record = BrowserRecord(options.folder)
    ends.push_async_callback(asyncio.to_thread, record.remove)
    browser = await playwright.chromium.launch(
        executable_path=find_chromium(options.chromium),
        args=[*_FLAGS, *flags, record.argument],
        chromium_sandbox=os.geteuid() != 0,  # not available to root
        # The run handles signals: after the first ctrl-c, open pages are completed.
        handle_sigint=False,
        handle_sigterm=False,
        handle_sighup=False,
    )
    await asyncio.to_thread(record.add_profile)
    return browser


async def _refuse(route: Route) -> None:
    with suppress(PlaywrightError):
        await route.abort("blockedbyclient")


async def _close_quietly(close: Callable[[], Awaitable[None]]) -> None:
    """Close something that may already be broken, with a timeout."""
    with suppress(PlaywrightError, TimeoutError):
        async with asyncio.timeout(_CLOSING):
            await close()


# ---------------- Tabs

KEPT = "browser.kept"
"""The event when a failed page was kept."""


class Tabs:
    """Opens pages, as many concurrently as the options allow."""

    def __init__(
        self, options: BrowserOptions, clock: Clock, before: BeforeSubrequest | None
    ) -> None:
        spec = options.spec
        self._options = options
        self._clock = clock
        self._rules = TrafficRules(
            Blocker(spec.block),
            tuple(user_pattern(one) for one in spec.capture),
            before,
            options.largest_body,
        )
        self._failures = FailedPages(options.failures, spec.screenshots, clock)
        self._free = asyncio.Semaphore(spec.tabs)
        self._starting = asyncio.Lock()
        self._chromium: Chromium | None = None
        self._retired: list[Chromium] = []
        self._is_lost = False
        self.subrequests = 0

    async def open(self, request: Request, usage: Usage) -> BrowserPage:
        """Return the rendered page of a URL.

        Raises:
            NoBrowser: there is no browser to start.
            FetchError: the page could not be loaded.
        """
        async with usage.waiting.to_enter(self._free), self._browser(request) as chromium:
            try:
                async with chromium.page() as tab:
                    return await self._load(tab, request, usage)
            except ConnectFailed as error:
                if (refusal := chromium.refusal(request.url)) is not None:
                    raise PrivateAddress(request.url, refusal.address) from error
                raise
            except PlaywrightError as error:
                if is_lost(error) and chromium is self._chromium:
                    self._is_lost = True  # it may notice that later
                raise translate_browser_error(request.url, error) from None

    async def close(self) -> None:
        """Close the browser."""
        async with self._starting:
            chromium, self._chromium = self._chromium, None
            for one in (chromium, *self._retired):
                if one is not None:
                    await one.close()
            self._retired.clear()

    @asynccontextmanager
    async def _browser(self, request: Request) -> AsyncIterator[Chromium]:
        """Yield the running browser; a replaced one is closed with its last page."""
        async with self._starting:
            chromium = await self._running(request)
            chromium.pages += 1
        try:
            yield chromium
        finally:
            chromium.pages -= 1
            if chromium in self._retired and chromium.pages == 0:
                self._retired.remove(chromium)
                await chromium.close()

    async def _running(self, request: Request) -> Chromium:
        current = self._chromium
        if current is not None:
            if current.is_alive and not self._is_lost and not current.is_worn:
                return current
            self._chromium = None
            if current.pages:
                self._retired.append(current)
            else:
                await current.close()
        try:
            self._chromium = await Chromium.start(self._options, self._clock)
        except (PlaywrightError, TimeoutError, OSError) as error:
            words = (str(error) or type(error).__name__).splitlines()[0]
            raise ConnectFailed(request.url, f"the browser did not start: {words}") from None
        self._is_lost = False
        return self._chromium

    async def _load(self, tab: Tab, request: Request, usage: Usage) -> BrowserPage:
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
            await self._keep(tab, request, usage)
            raise TimedOut(request.url, seconds) from None
        except NeverReady:
            await self._keep(tab, request, usage)
            raise
        finally:
            self.subrequests += traffic.subrequests
            await traffic.stop()
            if not self._options.keeps_cookies:
                with suppress(PlaywrightError):
                    await tab.context.clear_cookies()

    async def _keep(self, tab: Tab, request: Request, usage: Usage) -> None:
        kept = await self._failures.keep(tab, request.url)
        if kept is not None:
            usage.add_event(KEPT, url=request.url, file=f"{kept}.html")
