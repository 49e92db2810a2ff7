"""The browser itself: started when it is needed, its contexts recycled, ended without a trace."""

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

# ---------------- Browsers that outlived whoever started them: each is written down, found again

MARK = "--longline-browser="
"""The argument by which our browsers are known; Chromium itself does not look at it."""
_PROFILE = "--user-data-dir="
_OWN_PROFILES = "playwright_"  # the library makes the profiles, and calls them so
_ENDING = ".json"
_GOODBYE = 3.0  # seconds between asking and killing


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that a browser belongs to; its start time, since a pid is used again."""

    host: str
    pid: int
    started: float

    @classmethod
    def here(cls) -> Owner:
        """Return this process."""
        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time())

    @property
    def is_dead(self) -> bool:
        """Whether it surely is no more; of other hosts nothing is known."""
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


class Note:
    """The note that says whose browser this is, made before the browser starts."""

    def __init__(self, folder: Path) -> None:
        owner = Owner.here()
        self.token = f"{owner.pid}-{secrets.token_hex(8)}"
        self._file = folder / f"{self.token}{_ENDING}"
        make_private_folder(folder)
        make_private_file(self._file)
        self._file.write_bytes(orjson.dumps(asdict(owner)))

    @property
    def argument(self) -> str:
        """What to start the browser with."""
        return MARK + self.token

    def note_profile(self) -> None:
        """Write down the browser's profile folder, too, so that it can be removed after a crash."""
        profiles = [path for one in _marked(self.token) if (path := _profile_of(one))]
        if profiles:
            values = {**asdict(Owner.here()), "profile": str(profiles[0])}
            self._file.write_bytes(orjson.dumps(values))

    def remove(self) -> None:
        """Forget the browser, which has ended; what is left of it is ended now."""
        _end(_marked(self.token))
        for profile in _noted_profile(self._file):
            shutil.rmtree(profile, ignore_errors=True)
        self._file.unlink(missing_ok=True)


def sweep(folder: Path) -> int:
    """End the browsers whose owners are dead, remove what they left; return how many notes.

    A browser ends with its owner by itself; this is for the one that could not, and for folders
    that a power cut left behind.
    """
    stale = [file for file in sorted(folder.glob(f"*{_ENDING}")) if _is_stale(file)]
    for file in stale:
        token = file.name.removesuffix(_ENDING)
        left = _marked(token)
        profiles = {path for one in left if (path := _profile_of(one))} | _noted_profile(file)
        _end(left)
        for profile in profiles:
            shutil.rmtree(profile, ignore_errors=True)
        file.unlink(missing_ok=True)
    return len(stale)


def _is_stale(file: Path) -> bool:
    values = _read(file)
    try:
        owner = Owner(str(values["host"]), int(values["pid"]), float(values["started"]))
    except (KeyError, TypeError, ValueError):
        return False  # being written at this moment, or not ours
    return owner.is_dead


def _read(file: Path) -> dict[str, Any]:
    try:
        values = orjson.loads(file.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return values if isinstance(values, dict) else {}


def _noted_profile(file: Path) -> set[Path]:
    path = Path(str(_read(file).get("profile", "")))
    # A note is a file that anybody may edit: nothing else is ever removed.
    return {path} if path.name.startswith(_OWN_PROFILES) else set()


def _marked(token: str) -> list[psutil.Process]:
    """Return the processes that were started with our mark."""
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


def _end(processes: Iterable[psutil.Process]) -> None:
    """End processes and all that they started: gently, then surely."""
    every: set[psutil.Process] = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            every |= {process, *process.children(recursive=True)}
    for process in every:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _gone, alive = psutil.wait_procs(every, timeout=_GOODBYE)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=_GOODBYE)


_STARTING = 60.0  # seconds
_CLOSING = 10.0
_MOST_CONTEXTS = 10  # the library's own process grows, too; a new one begins small
_FLAGS = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",  # /dev/shm is tiny in containers, and a full one crashes tabs
    "--disk-cache-size=1",  # intercepted requests are never cached; this keeps the profile small
)


@dataclass(slots=True)
class _Room:
    """One context: a browser as good as new, with cookies of its own."""

    context: BrowserContext
    opened_at: float
    pages: int = 0
    in_use: int = 0


class Chromium:
    """A running browser. `pages` open one tab each, in a context that is changed now and then."""

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
        self._room: _Room | None = None
        self._moving = asyncio.Lock()
        self._contexts = 0
        self.pages = 0
        """How many pages are open now."""

    @classmethod
    async def start(cls, options: BrowserOptions, clock: Clock) -> Chromium:
        """Start a browser, or connect to the one that was named.

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
            ends.push_async_callback(_patiently, playwright.stop)
            browser = await _browser(playwright, options, ends, proxy.flags if proxy else ())
            ends.push_async_callback(_patiently, browser.close)
            return cls(browser, options, clock, ends.pop_all(), proxy)

    @property
    def is_alive(self) -> bool:
        """Whether it still runs and listens."""
        return self._browser.is_connected()

    @property
    def is_worn(self) -> bool:
        """Whether it has had so many contexts that a new browser should follow."""
        room = self._room
        return self._contexts >= _MOST_CONTEXTS and room is not None and self._is_full(room)

    def refusal(self, url: str) -> PrivateAddress | None:
        """Return why the browser may not connect to the host of an address; None when it may."""
        return self._proxy.refusal(hostname_of(url)) if self._proxy else None

    async def close(self) -> None:
        """End it, and whatever it started."""
        await self._ends.aclose()

    @asynccontextmanager
    async def page(self) -> AsyncIterator[Page]:
        """Open a tab for the time of a block."""
        room = await self._enter()
        try:
            page = await room.context.new_page()
            try:
                yield page
            finally:
                await _patiently(page.close)
        finally:
            room.in_use -= 1
            await self._leave(room)

    async def _enter(self) -> _Room:
        async with self._moving:
            if self._room is None or self._is_full(self._room):
                full, self._room = self._room, await self._furnish()
                if full is not None:
                    await self._leave(full)
            self._room.pages += 1
            self._room.in_use += 1
            return self._room

    async def _leave(self, room: _Room) -> None:
        """Close a context that is no longer ours once nobody is in it."""
        if room is not self._room and room.in_use == 0:
            await _patiently(room.context.close)

    def _is_full(self, room: _Room) -> bool:
        spec = self._options.spec
        age = self._clock.now() - room.opened_at
        return room.pages >= spec.recycle_pages or age >= spec.recycle_seconds

    async def _furnish(self) -> _Room:
        context = await self._browser.new_context(
            user_agent=self._options.user_agent,
            locale=self._options.spec.locale,
            service_workers="block",  # what they fetch could be neither paced nor blocked
            accept_downloads=False,
        )
        context.set_default_timeout(0)  # every wait has a deadline of our own, which can pause
        # A tab routes its own requests; this is for windows that a page opens by itself.
        await context.route("**/*", _refuse)
        self._contexts += 1
        return _Room(context, self._clock.now())


async def _browser(
    playwright: Playwright,
    options: BrowserOptions,
    ends: AsyncExitStack,
    flags: tuple[str, ...] = (),
) -> Browser:
    if options.chromium is not None and is_remote(options.chromium):
        return await playwright.chromium.connect_over_cdp(options.chromium)
    await asyncio.to_thread(sweep, options.folder)
    note = Note(options.folder)
    ends.push_async_callback(asyncio.to_thread, note.remove)
    browser = await playwright.chromium.launch(
        executable_path=find_chromium(options.chromium),
        args=[*_FLAGS, *flags, note.argument],
        chromium_sandbox=os.geteuid() != 0,  # root cannot have one
        # The run decides when to end: at the first ctrl-c, pages under way are still finished.
        handle_sigint=False,
        handle_sigterm=False,
        handle_sighup=False,
    )
    await asyncio.to_thread(note.note_profile)
    return browser


async def _refuse(route: Route) -> None:
    with contextlib.suppress(PlaywrightError):
        await route.abort("blockedbyclient")


async def _patiently(close: Callable[[], Awaitable[None]]) -> None:
    """Close something that may be broken already; what does not close ends with the browser."""
    with contextlib.suppress(PlaywrightError, TimeoutError):
        async with asyncio.timeout(_CLOSING):
            await close()
