"""Options of the browser, and how its program is found."""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from longline.core.errors import MissingExtra
from longline.http.address_policy import AddressPolicy
from longline.http.errors import NoBrowser
from longline.http.transports.browser.manifest import BrowserSpec

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_REMOTE = ("ws://", "wss://", "http://", "https://")
_LIBRARY = ("browser", "playwright")


@dataclass(frozen=True, slots=True)
class BrowserOptions:
    """Options of the browser.

    `folder` records running browsers, so that none is left behind. `chromium` is the path of a
    browser or the URL of a remote one; None is the one that is found. Failed pages are kept in
    `failures`; None keeps none. A local browser connects only where `addresses` allows; for a
    remote one, the hosts are checked beforehand.
    """

    folder: Path
    spec: BrowserSpec = field(default_factory=BrowserSpec)
    chromium: str | None = None
    failures: Path | None = None
    timeout: float = 60.0
    largest_body: int = 50_000_000
    user_agent: str | None = None
    keeps_cookies: bool = True
    addresses: AddressPolicy | None = None


def is_remote(chromium: str | None) -> bool:
    """Return whether this is the URL of a remote browser, not a program."""
    return chromium is not None and chromium.startswith(_REMOTE)


def find_chromium(named: str | None = None) -> str | None:
    """Return the path of the browser to start; None when Playwright uses its own.

    Raises:
        NoBrowser: the named program does not exist.
    """
    if named is not None:
        if found := shutil.which(named):
            return found
        raise NoBrowser(f"{named} is not an executable program")
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def check_browser(named: str | None = None) -> None:
    """Check, without starting anything, that pages can be opened in a browser.

    Raises:
        MissingExtra: Playwright is not installed.
        NoBrowser: there is no browser.
    """
    extra, module = _LIBRARY
    if importlib.util.find_spec(module) is None:
        raise MissingExtra(extra, "a browser")
    if is_remote(named) or find_chromium(named) or _has_own():
        return
    raise NoBrowser("none is installed")


def _has_own() -> bool:
    """Return whether Playwright has installed its own browser."""
    named = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    folder = Path(named) if named else Path.home() / ".cache" / "ms-playwright"
    return any(folder.glob("chromium*"))
