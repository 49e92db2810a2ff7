"""The `browser` section of a manifest, and the options of the browser."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag
from selectolax.lexbor import LexborHTMLParser

from longline.config.expressions import Pattern, fill, user_pattern
from longline.config.validation import StrictModel, invalid, one_or_several, short_for
from longline.core.errors import MissingExtra
from longline.http.address_policy import AddressPolicy
from longline.http.errors import NoBrowser

# ---------------- Actions

_BY_TEXT = "text="
_MOST_REPEATS = 1000
_LONGEST_PAUSE = 60.0  # seconds


def _selector(text: str) -> str:
    stripped = text.strip()
    if stripped.startswith(_BY_TEXT) and stripped != _BY_TEXT:
        return stripped
    try:
        LexborHTMLParser("<p>").css(stripped)
    except Exception:  # noqa: BLE001  # the library does not document its errors
        stripped = ""
    if not stripped:
        raise invalid(
            f"{text!r} is not a CSS selector; write one such as `button.more`, or text=Show more"
        )
    return stripped


Selector = Annotated[str, AfterValidator(_selector)]
"""A CSS selector, or `text=` and the text that an element shows."""


class Replacing(StrictModel):
    """An action that may replace the content of the page."""

    replaces: bool = False
    """Whether earlier items are expected to disappear, as after a search or a filter."""


class Click(Replacing):
    """Click on an element."""

    click: Selector
    optional: bool = False
    """Whether the element may be missing, as a cookie banner may."""
    repeat: int = Field(default=1, ge=1, le=_MOST_REPEATS)
    """Click until the element is gone, at most this many times: for "load more"."""


class Fill(Replacing):
    """Write into a field of a form."""

    fill: Selector
    value: str


class Press(Replacing):
    """Press a key, such as Enter or Control+A."""

    press: str = Field(min_length=1)
    at: Selector | None = None
    """The element that gets the key; by default the focused one."""


class Select(Replacing):
    """Choose an option of a list, by its value or by what it shows."""

    select: Selector
    value: str


class Scroll(StrictModel):
    """Scroll down: this many times, or to the end until the page no longer grows."""

    scroll: Literal["end"] | Annotated[int, Field(ge=1, le=_MOST_REPEATS)]
    most: int = Field(default=100, ge=1, le=_MOST_REPEATS)
    """Maximum number of times to scroll."""


def _wait_for(value: float | str) -> float | str:
    if isinstance(value, str):
        return _selector(value)
    if not 0 < value <= _LONGEST_PAUSE:
        raise invalid(f"a pause is more than 0 and at most {_LONGEST_PAUSE:g} seconds")
    return value


class WaitFor(StrictModel):
    """Wait for an element, or for this many seconds."""

    wait: Annotated[float | str, AfterValidator(_wait_for)]


_KINDS = ("click", "fill", "press", "select", "scroll", "wait")


def _kind(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return next((kind for kind in _KINDS if hasattr(value, kind)), None)
    named = [kind for kind in _KINDS if kind in value]
    return named[0] if len(named) == 1 else None


Action = Annotated[
    Annotated[Click, Tag("click")]
    | Annotated[Fill, Tag("fill")]
    | Annotated[Press, Tag("press")]
    | Annotated[Select, Tag("select")]
    | Annotated[Scroll, Tag("scroll")]
    | Annotated[WaitFor, Tag("wait")],
    Discriminator(
        _kind,
        custom_error_type="invalid",
        custom_error_message=(
            "an action is one of click, fill, press, select, scroll, wait: `click: button.more`"
        ),
    ),
]


def action_text(action: Action) -> str:
    """Return an action as a manifest writes it, without its value."""
    kind = _kind(action)
    return f"{kind}: {getattr(action, kind or '')}"


RESOURCE_TYPES = frozenset(
    {
        *("stylesheet", "image", "media", "font", "script", "xhr", "fetch"),
        *("texttrack", "eventsource", "websocket", "manifest", "ping", "other"),
    }
)
"""Types of requests, as the browser names them, besides `document`."""
TRACKERS = "trackers"
"""The word in `block` for known trackers."""
BLOCKED = ("image", "media", "font", TRACKERS)
"""Blocked by default."""

_HOST = re.compile(r"(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)+(:\d+)?")


def _blockable(text: str) -> str:
    word = text.strip().lower()
    if word == TRACKERS or word in RESOURCE_TYPES or _HOST.fullmatch(word):
        return word
    raise invalid(
        f"{text!r} cannot be blocked: write `{TRACKERS}`, a host such as ads.example.com or "
        f"*.example.com, or one of {', '.join(sorted(RESOURCE_TYPES))}"
    )


Blockable = Annotated[str, AfterValidator(_blockable)]


class Wait(StrictModel):
    """When a page is ready: all conditions must hold."""

    selector: Selector | None = None
    """An element that must exist."""
    idle: bool = False
    """Whether to wait until no request has been in flight for half a second."""
    script: str | None = Field(default=None, min_length=1)
    """A JavaScript expression that must become true, such as `window.items.length > 0`."""
    timeout: float = Field(default=10.0, gt=0, le=300)
    """Seconds; time that requests wait for the rate limit does not count."""


class Steps(StrictModel):
    """Steps after a page has loaded: first the wait, then the actions in order."""

    wait: Annotated[Wait, short_for("selector")] | None = None
    actions: tuple[Action, ...] = ()


class PageSteps(Steps):
    """Steps of some pages only."""

    match: Pattern
    """A regular expression for the URLs of these pages."""


class BrowserSpec(Steps):
    """How pages are rendered in the browser."""

    pages: tuple[PageSteps, ...] = ()
    """Steps for matching URLs, instead of the default ones; the first match applies."""
    block: Annotated[tuple[Blockable, ...], BeforeValidator(one_or_several)] = BLOCKED
    """Request types and hosts to block; `trackers` are known trackers."""
    tabs: int = Field(default=2, ge=1, le=50)
    """Maximum pages open at the same time."""
    recycle_pages: int = Field(default=50, ge=1)
    """Start a new browser after this many pages, which frees memory."""
    screenshots: int = Field(default=20, ge=0, le=1000)
    """Maximum number of failed pages that are kept, as screenshot and HTML."""

    def steps_for(self, url: str) -> Steps:
        """Return the steps for a URL."""
        matching = (one for one in self.pages if user_pattern(one.match).search(url))
        return next(matching, self)

    def filled(self, values: Mapping[str, Any]) -> BrowserSpec:
        """Return the spec with the `{name}` templates in values of actions filled in.

        Raises:
            KeyError: a name has no value.
        """

        def fill_steps(steps: Steps) -> tuple[Action, ...]:
            return tuple(
                action.model_copy(update={"value": fill(action.value, values)})
                if isinstance(action, Fill | Select)
                else action
                for action in steps.actions
            )

        pages = tuple(one.model_copy(update={"actions": fill_steps(one)}) for one in self.pages)
        return self.model_copy(update={"actions": fill_steps(self), "pages": pages})

    def templates(self) -> list[str]:
        """Return all texts that may contain `{name}` templates."""
        actions = (action for steps in (self, *self.pages) for action in steps.actions)
        return [action.value for action in actions if isinstance(action, Fill | Select)]


# ---------------- Options, and how the program is found

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_REMOTE = ("ws://", "wss://", "http://", "https://")


@dataclass(frozen=True, slots=True)
class BrowserOptions:
    """Options of the browser.

    `chromium` is the path of a browser or the URL of a remote one; None is the one that is found.
    Failed pages are kept in `failures`; None keeps none. A local browser connects only where
    `addresses` allows; for a remote one, the hosts are checked beforehand.
    """

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
    if importlib.util.find_spec("playwright") is None:
        raise MissingExtra("browser", "a browser")
    if is_remote(named) or find_chromium(named):
        return
    downloads = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    folder = Path(downloads) if downloads else Path.home() / ".cache" / "ms-playwright"
    if not any(folder.glob("chromium*")):
        raise NoBrowser("none is installed")
