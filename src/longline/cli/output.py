"""What commands print: values as text, JSON, notes, and consoles that site text cannot control."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any, TextIO, cast

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.segment import Segment

from longline.core.clock import utc_datetime
from longline.core.json_text import as_text
from longline.core.output import SafeStream, sanitize, sanitize_json, trusted

MISSING = "—"
_HEIGHTS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LONGEST_LINE = 1000
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400

# ---------------- Values as text


def one_line(text: str, length: int = _LONGEST_LINE) -> str:
    """Return sanitised text as one line of at most `length` characters."""
    line = " ".join(sanitize(text).split())
    return line if len(line) <= length else f"{line[: length - 1].rstrip()}…"


def value_text(value: Any) -> str:
    """Return a field's value as text: a dash for None, JSON for nested values."""
    if value is None:
        return MISSING
    return value if isinstance(value, str) else as_text(value)


def number_text(value: float | None) -> str:
    """Return a number with thousands separators and at most two decimals."""
    if value is None:
        return MISSING
    if isinstance(value, int) or value.is_integer():
        return f"{value:,.0f}"
    return f"{value:,.2f}"


def size_text(size_bytes: int) -> str:
    """Return a size with a decimal unit: 512 bytes, 4.2 MB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}"
    return f"{size_bytes} bytes"


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun in the singular or plural."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def duration_text(seconds: float) -> str:
    """Return a duration in at most two units: 9.3s, 42s, 3m 05s, 2h 10m, 4d 15h."""
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{seconds:.1f}s" if seconds < 9.95 else f"{whole}s"  # noqa: PLR2004  # rounds to 10
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE:02}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h {whole % _HOUR // _MINUTE:02}m"
    return f"{whole // _DAY}d {whole % _DAY // _HOUR:02}h"


def time_text(at: float | None, *, seconds: bool = False) -> str:
    """Return a time in UTC, to the minute or the second; "now" for None."""
    if at is None:
        return "now"
    return f"{utc_datetime(at):{'%Y-%m-%d %H:%M:%S' if seconds else '%Y-%m-%d %H:%M'}}"


def iso_time(at: float | None) -> str | None:
    """Return a time as JSON output has it: ISO 8601 in UTC, to the second."""
    return None if at is None else utc_datetime(at).isoformat(timespec="seconds")


def sparkline(counts: Sequence[int]) -> str:
    """Return a one-line histogram; a count above zero is always visible."""
    highest = max(counts, default=0)
    if not highest:
        return ""
    steps = len(_HEIGHTS) - 1
    return "".join(_HEIGHTS[-(-count * steps // highest)] for count in counts)


def bar(share: float, width: int) -> str:
    """Return a bar for a share between 0 and 1, in eighths of a character."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


# ---------------- Lines on stdout and stderr


def print_json(value: Any, *, err: bool = False) -> None:
    """Print a value as one line of JSON."""
    click.echo(sanitize_json(as_text(value)), err=err)


def print_line(text: str) -> None:
    """Print text that may come from a site as one line."""
    line = sanitize(text, is_line=True)
    click.echo(line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…")


def print_note(text: str) -> None:
    """Print a note for people on stderr."""
    click.echo(f"note: {one_line(text)}", err=True)


# ---------------- Consoles


class SafeConsole(Console):
    """The only console: it sanitises text and never interprets it as markup, emoji or links."""

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = False) -> None:
        super().__init__(
            stderr=stderr, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False
        )

    @property  # type: ignore[misc]  # rich has a setter, which must not be used here
    def file(self) -> IO[str]:
        """The stream behind the safe ones, since this console adds escape sequences of its own."""
        stream: Any = sys.stderr if self.stderr else sys.stdout
        while isinstance(stream, SafeStream | FileProxy):
            stream = trusted(stream) if isinstance(stream, SafeStream) else stream.rich_proxied_file
        return cast("IO[str]", stream)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does, with sanitised text and without links."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            if control:  # rich's own cursor movements
                yield segment
            elif style is not None and style.link:
                yield Segment(sanitize(text), style.update_link(None))
            else:
                yield Segment(sanitize(text), style)


class SafeLive(Live):
    """A live display that sanitises what other code prints while it runs."""

    def start(self, refresh: bool = False) -> None:  # noqa: FBT001, FBT002  # as in rich
        super().start(refresh)
        for name in ("stdout", "stderr"):
            if isinstance(stream := getattr(sys, name), FileProxy):
                setattr(sys, name, SafeStream(cast("TextIO", stream)))


def stdout_console(*, soft_wrap: bool = False) -> SafeConsole:
    """Return a console on standard output."""
    return SafeConsole(soft_wrap=soft_wrap)


def stderr_console() -> SafeConsole:
    """Return a console on standard error."""
    return SafeConsole(stderr=True)
