"""Terminal output: sanitise text from outside, so that it cannot control the terminal.

`protected_output` replaces stdout and stderr by streams that sanitise everything written to them,
so a command cannot bypass it. Colours and cursor movements come only from `SafeConsole` of the
CLI, which sanitises each piece of text before it adds its own.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from html import escape
from typing import Any, BinaryIO, TextIO, cast

_REPLACEMENT = "�"
# C0 but for tab and newline, DEL and C1: with ESC, CSI and OSC among them, what a terminal obeys.
# Marks, embeddings, overrides and isolates of direction; invisible characters that hide or split
# words; line and paragraph separators; surrogates; noncharacters; tags. The joiners U+200C and
# U+200D stay: Persian, Indic scripts and emoji are written with them.
_UNSAFE_CLASS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\U000e0000-\U000e007f"
)
_UNSAFE = re.compile(f"[{_UNSAFE_CLASS}]")
_UNSAFE_IN_LINE = re.compile(f"[\t\n{_UNSAFE_CLASS}]")
_STDERR = 2
_LONGEST_ERROR = 4000  # characters of one error; the rest is cut


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun in the singular or plural."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def size_text(size_bytes: int) -> str:
    """Return a size with a decimal unit: 512 bytes, 4.2 MB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}"
    return f"{size_bytes} bytes"


def sanitize(text: str, *, is_line: bool = False) -> str:
    """Return text that cannot control a terminal; each unsafe character becomes U+FFFD.

    With `is_line`, newlines and tabs are unsafe, too: the text stays one line.
    """
    return (_UNSAFE_IN_LINE if is_line else _UNSAFE).sub(_REPLACEMENT, text)


def sanitize_error(error: object) -> str:
    """Return the text of an error as it may be shown: safe, and not endless."""
    text = sanitize(str(error))
    return text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]}…"


def sanitize_json(text: str) -> str:
    """Return the same JSON document with unsafe characters written as escapes.

    Nothing is lost: a JSON parser reads the same value. JSON escapes C0 by itself.
    """
    return _UNSAFE.sub(_escape_character, text)


def _escape_character(found: re.Match[str]) -> str:
    units = found.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


class StandardStream(io.TextIOBase):
    """Standard output or error of the process.

    What cannot be written to standard error is dropped.
    """

    def __init__(self, stream: TextIO, *, drops_errors: bool = False) -> None:
        super().__init__()
        self.stream = stream
        self._drops_errors = drops_errors

    def write(self, text: str) -> int:
        with self._translated_errors():
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._translated_errors():
            self.stream.flush()

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Keep the stream open: it belongs to the interpreter."""

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a plain attribute in typeshed
        return getattr(self.stream, "encoding", None) or "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]  # a plain attribute in typeshed
        return getattr(self.stream, "errors", None) or "strict"

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            if not self._drops_errors:
                raise  # click ends the command quietly
        except OSError as error:
            if not self._drops_errors:
                raise OutputFailed(error.errno, error.strerror) from error


class OutputFailed(OSError):
    """Standard output cannot be written."""


class SafeStream(StandardStream):
    """A text stream that sanitises what is written to it, and to its `buffer`."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.buffer = _SafeBytes(self)

    def write(self, text: str) -> int:
        super().write(sanitize(text))
        return len(text)


@contextmanager
def protected_output() -> Iterator[TextIO]:
    """Sanitise all that is written to stdout and stderr in this block; yield the new stdout."""
    before = sys.stdin, sys.stdout, sys.stderr
    if None in before:
        # Else the next file or connection gets a closed standard descriptor, and is written to as
        # if it were stderr.
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
            pass
        os.close(descriptor)
    if sys.stdin is None:
        sys.stdin = io.StringIO()
    # A stream whose descriptor was closed before this process began is None.
    with open(os.devnull, "w", encoding="utf-8") as null:  # noqa: PTH123  # a device
        sys.stdout = stdout = _protect(sys.stdout or null)
        sys.stderr = _protect(sys.stderr or null, drops_errors=True)
        try:
            yield stdout
        finally:
            sys.stdin, sys.stdout, sys.stderr = before


def _protect(stream: TextIO, *, drops_errors: bool = False) -> TextIO:
    if isinstance(stream, io.TextIOWrapper):  # ASCII cannot show everything, and must not raise
        with suppress(ValueError, OSError):
            stream.reconfigure(errors="replace")
    outlet = cast("TextIO", StandardStream(stream, drops_errors=drops_errors))
    return cast("TextIO", SafeStream(outlet))


def trusted(stream: Any) -> TextIO:
    """Return the stream behind all safe ones, for text that is sanitised already."""
    while isinstance(stream, SafeStream):
        stream = stream.stream
    return cast("TextIO", stream)


@contextmanager
def closed_stdout_ignored() -> Iterator[None]:
    """Continue the command when the reader of stdout has closed it, as `| head -1` does."""
    try:
        yield
    except OSError:
        discard_stdout()


def discard_stdout() -> None:
    """Redirect stdout to the null device, or Python reports a closed pipe when it exits."""
    with suppress(OSError):  # stdout is not a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def binary_stdout() -> BinaryIO:
    """Return standard output for bytes, such as an export.

    A file or a program gets them unchanged; a terminal gets sanitised text.
    """
    stream: Any = sys.stdout
    if stream.isatty():
        return cast("BinaryIO", stream.buffer)
    while isinstance(stream, StandardStream):
        stream = stream.stream
    return cast("BinaryIO", stream.buffer)


class _SafeBytes(io.RawIOBase):
    """Bytes of UTF-8 text on their way to a stream that sanitises them."""

    def __init__(self, stream: SafeStream) -> None:
        super().__init__()
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(self._decoder.decode(bytes(data)))
        return len(data)

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """Keep the stream open: it belongs to the interpreter."""


# ---------------- HTML tables, for notebooks


def html_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return an HTML table; every text is escaped."""
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table>"
