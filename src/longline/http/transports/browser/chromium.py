"""The browser process: started on demand, its contexts recycled, and never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil
from playwright.async_api import Browser, BrowserContext, Page, Playwright, Route, async_playwright
from playwright.async_api import Error as PlaywrightError

from longline.core.clock import Clock
from longline.core.files import make_private_file, make_private_folder
from longline.http.address_policy import hostname_of
from longline.http.errors import PrivateAddress
from longline.http.transports.browser.options import BrowserOptions, find_chromium, is_remote
from longline.http.transports.browser.proxy import BrowserProxy

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
        owner = BrowserOwner.here()
        self.token = f"{owner.pid}-{secrets.token_hex(8)}"
        self._file = folder / f"{self.token}{_ENDING}"
        make_private_folder(folder)
        make_private_file(self._file)
        self._file.write_bytes(orjson.dumps(asdict(owner)))

    @property
    def argument(self) -> str:
        """The argument to start the browser with."""
        return MARK + self.token

    def add_profile(self) -> None:
        """Record the browser's profile folder, so that it can be removed after a crash."""
        profiles = [path for one in _marked_processes(self.token) if (path := _profile_of(one))]
        if profiles:
            values = {**asdict(BrowserOwner.here()), "profile": str(profiles[0])}
            self._file.write_bytes(orjson.dumps(values))

    def remove(self) -> None:
        """Remove the record of an ended browser, with its remaining processes and profile."""
        _terminate(_marked_processes(self.token))
        for profile in _recorded_profile(self._file):
            shutil.rmtree(profile, ignore_errors=True)
        self._file.unlink(missing_ok=True)


def sweep(folder: Path) -> int:
    """End browsers whose owners are dead, with their profiles; return the number of records.

    A browser usually ends with its owner; this is for orphans, and for folders after a power cut.
    """
    stale = [file for file in sorted(folder.glob(f"*{_ENDING}")) if _is_stale(file)]
    for file in stale:
        token = file.name.removesuffix(_ENDING)
        left = _marked_processes(token)
        profiles = {path for one in left if (path := _profile_of(one))} | _recorded_profile(file)
        _terminate(left)
        for profile in profiles:
            shutil.rmtree(profile, ignore_errors=True)
        file.unlink(missing_ok=True)
    return len(stale)


def _is_stale(file: Path) -> bool:
    values = _read_record(file)
    try:
        owner = BrowserOwner(str(values["host"]), int(values["pid"]), float(values["started"]))
    except (KeyError, TypeError, ValueError):
        return False  # being written, or not ours
    return owner.is_dead


def _read_record(file: Path) -> dict[str, Any]:
    try:
        values = orjson.loads(file.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return values if isinstance(values, dict) else {}


def _recorded_profile(file: Path) -> set[Path]:
    path = Path(str(_read_record(file).get("profile", "")))
    # The file may have been edited: only profiles are removed.
    return {path} if path.name.startswith(_OWN_PROFILES) else set()


def _marked_processes(token: str) -> list[psutil.Process]:
    """Return the processes with our mark."""
    return [process for process, words in _command_lines() if MARK + token in words]


def _command_lines() -> Iterator[tuple[psutil.Process, list[str]]]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            yield process, process.cmdline()


def _profile_of(process: psutil.Process) -> Path | None:
    with contextlib.suppress(psutil.Error):
        for word in process.cmdline():
            path = Path(word.removeprefix(_PROFILE))
            if word.startswith(_PROFILE) and path.name.startswith(_OWN_PROFILES):
                return path
    return None


def _terminate(processes: Iterable[psutil.Process]) -> None:
    """Terminate processes and their children; kill those that remain."""
    every: set[psutil.Process] = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            every |= {process, *process.children(recursive=True)}
    for process in every:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _gone, alive = psutil.wait_procs(every, timeout=_TERMINATION)
    for process in alive:
        with contextlib.suppress(psutil.Error):
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
    with contextlib.suppress(PlaywrightError):
        await route.abort("blockedbyclient")


async def _close_quietly(close: Callable[[], Awaitable[None]]) -> None:
    """Close something that may already be broken, with a timeout."""
    with contextlib.suppress(PlaywrightError, TimeoutError):
        async with asyncio.timeout(_CLOSING):
            await close()
