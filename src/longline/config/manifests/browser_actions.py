"""What a browser may do on a page: click, fill, press, select, scroll, wait; run no script."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag
from selectolax.lexbor import LexborHTMLParser

from longline.config.written import Written, wrong

_BY_TEXT = "text="
_MOST_REPEATS = 1000
_LONGEST_PAUSE = 60.0  # seconds


def _selector(text: str) -> str:
    stripped = text.strip()
    if stripped.startswith(_BY_TEXT) and stripped != _BY_TEXT:
        return stripped
    try:
        LexborHTMLParser("<p>").css(stripped)
    except Exception:  # noqa: BLE001  # the library raises its own kinds, none of them documented
        stripped = ""
    if not stripped:
        raise wrong(
            f"{text!r} is no CSS selector; write one such as `button.more`, or text=Show more"
        )
    return stripped


Selector = Annotated[str, AfterValidator(_selector)]
"""A CSS selector, or `text=` and the text that an element shows."""


class Replacing(Written):
    """What all actions have that may put other content in place of the page's."""

    replaces: bool = False
    """Whether the items that were shown before are meant to go, as after a search or a filter."""


class Click(Replacing):
    """Click on an element."""

    click: Selector
    optional: bool = False
    """Whether the element may be missing, as a cookie banner may."""
    repeat: int = Field(default=1, ge=1, le=_MOST_REPEATS)
    """Click until the element is gone, at most so often: for "load more"."""


class Fill(Replacing):
    """Write into a field of a form."""

    fill: Selector
    value: str


class Press(Replacing):
    """Press a key, such as Enter or Control+A."""

    press: str = Field(min_length=1)
    at: Selector | None = None
    """The element that has the keyboard; without it, whichever has it now."""


class Select(Replacing):
    """Choose an option of a list, by its value or by what it shows."""

    select: Selector
    value: str


class Scroll(Written):
    """Scroll down: so many times, or to the end until the page no longer grows."""

    scroll: Literal["end"] | Annotated[int, Field(ge=1, le=_MOST_REPEATS)]
    most: int = Field(default=100, ge=1, le=_MOST_REPEATS)
    """How often a page may grow before it is enough."""


def _wait_for(value: float | str) -> float | str:
    if isinstance(value, str):
        return _selector(value)
    if not 0 < value <= _LONGEST_PAUSE:
        raise wrong(f"a pause is more than 0 and at most {_LONGEST_PAUSE:g} seconds")
    return value


class WaitFor(Written):
    """Wait for an element, or for so many seconds."""

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
        custom_error_type="written",
        custom_error_message=(
            "an action is one of click, fill, press, select, scroll, wait: `click: button.more`"
        ),
    ),
]


def named(action: Action) -> str:
    """Return an action as a manifest writes it, without what is filled in."""
    kind = next(kind for kind in _KINDS if hasattr(action, kind))
    return f"{kind}: {getattr(action, kind)}"


def filled_action(action: Action, fill: Callable[[str], str]) -> Action:
    """Return an action with its value filled in; those without one stay as they are."""
    if isinstance(action, Fill | Select):
        return action.model_copy(update={"value": fill(action.value)})
    return action
