"""A command that prints JSON Lines as a source: every line becomes a record."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import orjson
from pydantic import Field, field_validator, model_validator

from longline.config.expressions import JsonPath, fill, find, names_in
from longline.config.strict_model import invalid
from longline.core.errors import BadSource, UnexpectedShape
from longline.core.json import read_json
from longline.core.model import Cursor, Item
from longline.sources.base import Options, RecordItems, RecordSource, Source, Visit, layer
from longline.sources.manifest import Discovered, Manifest, fail_if_empty, source_attributes


class CommandManifest(Manifest):
    """A program that is run once and prints one record per line, as JSON."""

    manifest: Literal["command"] = "command"
    command: tuple[str, ...] = Field(min_length=1)
    """The program and its arguments as a list; `{name}` stands for a parameter."""
    key: JsonPath | None = None
    """What identifies a record across runs; default: `id`, `key` or `url`."""
    fields: dict[str, JsonPath] = Field(default_factory=dict)
    """Fields to keep, each with its path in the line; default: all."""
    timeout: float | None = Field(default=None, gt=0)
    """Maximum run time in seconds."""
    silence: float | None = Field(default=None, gt=0)
    """Maximum seconds without output."""
    folder: str | None = None
    """Working directory, relative to the manifest; default: that of longline."""
    may_be_empty: bool = False
    """Allow a run without any output; default: it fails."""

    @field_validator("command", mode="before")
    @classmethod
    def _refuse_text(cls, command: object) -> object:
        if isinstance(command, str):
            raise invalid("write the command as a list: [python, scraper.py, --all]")
        return command

    @model_validator(mode="after")
    def _check_template_names(self) -> Self:
        for word in self.command:
            for name in names_in(word):
                if name not in self.parameters:
                    known = ", ".join(self.parameters) or "none"
                    raise invalid(
                        f"{{{name}}} in command is not a parameter; known: {known} "
                        "(a literal brace is written twice)"
                    )
        return self


MAX_LINE_BYTES = 10_000_000
"""Longer lines are quarantined."""
_STDERR = 2
_PIECE_BYTES = 65_536
_MAX_STDERR_BYTES = 2_000  # the end of stderr that an error repeats
_GRACE = 2.0  # seconds between SIGTERM and SIGKILL
_SHOWN_BYTES = 200  # of an overlong line
_SHELL = ("/bin/sh", "-c")
# A program does not notice that its reader was killed. So a subshell in its process group waits
# until our end of the pipe is closed, and then kills the group. It is reparented to init, so that a
# program that waits for all of its children does not wait for this one.
_WATCHED = """
exec 3<&0 0</dev/null
( ( trap '' HUP INT TERM; read -r _ <&3; kill -KILL "-$$" ) >/dev/null 2>&1 & )
exec 3<&- "$@"
"""


@dataclass(frozen=True, slots=True)
class Overlong:
    """A line that is too long, and how it starts."""

    start: bytes


async def lines_of(
    argv: Sequence[str],
    *,
    timeout: float | None = None,  # noqa: ASYNC109  # of the whole program, not of one wait
    silence: float | None = None,
    folder: str | None = None,
    longest: int = MAX_LINE_BYTES,
) -> AsyncGenerator[bytes | Overlong, None]:
    """Run a program and yield its lines; it and its children are killed when the generator closes.

    Raises:
        UnexpectedShape: it cannot be started, takes too long, or fails.
    """
    where = f"the command `{shlex.join(argv)}`"
    program = await _start_program(where, argv, folder)
    deadline = _Deadline(timeout, silence)
    try:
        splitter = _LineSplitter(longest)
        try:
            while piece := await deadline.wait_for(program.read()):
                for line in splitter.split(piece):
                    yield line
            code = await deadline.wait_for(program.wait())
        except TimeoutError as error:
            raise UnexpectedShape(where, f"{deadline.reason} and was killed") from error
        for line in splitter.rest():
            yield line
        if code:
            raise UnexpectedShape(where, _exit_problem(code, program.stderr_end))
    finally:
        await program.end()


def start_problem(argv: Sequence[str], folder: str | None = None) -> str | None:
    """Return why a program cannot be started; None if nothing is known against it."""
    if folder is not None and not Path(folder).is_dir():
        return f"there is no folder {folder}"
    program = argv[0]
    if os.sep not in program:
        return None if shutil.which(program) else f"there is no program {program}"
    path = Path(folder or ".") / program
    if not path.is_file():
        return f"there is no program {program}"
    return None if os.access(path, os.X_OK) else f"{program} may not be executed"


class _Protocol(SubprocessStreamProtocol):
    """Keeps the end of stderr, and kills the children of the program when it exits."""

    def __init__(self) -> None:
        super().__init__(limit=_PIECE_BYTES, loop=asyncio.get_running_loop())
        self.stderr_end = b""
        self.pid = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.pid = cast("asyncio.SubprocessTransport", transport).get_pid()

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        if fd == _STDERR:
            self.stderr_end = (self.stderr_end + cast("bytes", data))[-_MAX_STDERR_BYTES:]
        else:
            super().pipe_data_received(fd, data)

    def process_exited(self) -> None:
        _signal_group(self.pid, signal.SIGKILL)  # its children would keep the output open
        super().process_exited()


class _Program(Process):
    """A running program."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: _Protocol) -> None:
        super().__init__(transport, protocol, asyncio.get_running_loop())
        self._transport = transport
        self._protocol = protocol

    async def read(self) -> bytes:
        """Return the next piece of its output; b"" at the end."""
        return await self.stdout.read(_PIECE_BYTES) if self.stdout else b""

    @property
    def stderr_end(self) -> bytes:
        """The end of what it printed to stderr."""
        return self._protocol.stderr_end

    async def end(self) -> None:
        """Terminate it and its children; kill them after the grace period."""
        try:
            if self.returncode is None:
                _signal_group(self.pid, signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GRACE):
                        await self.wait()
        finally:
            _signal_group(self.pid, signal.SIGKILL)
            self._transport.close()
        async with asyncio.timeout(_GRACE):
            await self.wait()


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


async def _start_program(where: str, argv: Sequence[str], folder: str | None) -> _Program:
    if problem := start_problem(argv, folder):
        raise UnexpectedShape(where, f"it cannot be started: {problem}")
    try:
        transport, protocol = await asyncio.get_running_loop().subprocess_exec(
            _Protocol,
            *(*_SHELL, _WATCHED, "watched", *argv),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=folder,
            start_new_session=True,  # a process group, to kill its children, too
        )
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise UnexpectedShape(where, f"it cannot be started: {problem}") from error
    return _Program(transport, protocol)


class _Deadline:
    """The maximum run time, and the maximum time without output."""

    def __init__(self, total: float | None, silence: float | None) -> None:
        self._total = total
        self._silence = silence
        self._until = None if total is None else asyncio.get_running_loop().time() + total
        self.reason = ""

    async def wait_for(self, waiting: Any) -> Any:
        """Wait for something; raise TimeoutError when the deadline has passed."""
        left = None
        if self._until is not None:
            left = max(0.0, self._until - asyncio.get_running_loop().time())
            self.reason = f"it took more than {self._total:g} s"
        if self._silence is not None and (left is None or self._silence < left):
            left = self._silence
            self.reason = f"it printed nothing for {self._silence:g} s"
        async with asyncio.timeout(left):
            return await waiting


class _LineSplitter:
    """Splits a stream into lines of limited length."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._partial = b""
        self._is_skipping = False

    def split(self, piece: bytes) -> list[bytes | Overlong]:
        """Return the lines that another piece completes."""
        *ended, rest = piece.split(b"\n")
        lines = [line for one in ended for line in self._complete_line(one)]
        self._partial += b"" if self._is_skipping else rest
        if len(self._partial) > self._longest:
            lines.append(Overlong(self._partial[:_SHOWN_BYTES]))
            self._partial, self._is_skipping = b"", True
        return lines

    def rest(self) -> list[bytes | Overlong]:
        """Return the last line if it has no line end."""
        return self._complete_line(b"") if self._partial else []

    def _complete_line(self, part: bytes) -> list[bytes | Overlong]:
        line, self._partial = self._partial + part, b""
        if self._is_skipping:
            self._is_skipping = False
            return []
        return [Overlong(line[:_SHOWN_BYTES]) if len(line) > self._longest else line]


def _exit_problem(code: int, stderr: bytes) -> str:
    how = f"it exited with code {code}" if code > 0 else f"it was killed by signal {-code}"
    words = stderr.decode(errors="replace").strip()
    return f"{how}; stderr: {words}" if words else how


def command_source(manifest: CommandManifest) -> type[Source]:
    """Return the source class of a manifest."""
    values = {
        **source_attributes(manifest),
        "__doc__": manifest.about or f"The output of `{shlex.join(manifest.command)}`.",
        "kind": "command",
        "manifest": manifest,
    }
    return type(manifest.name, (_CommandSource,), values)


class _CommandSource(RecordSource):
    """Runs the command once; after a crash again, and known records are not queued again."""

    manifest: ClassVar[CommandManifest]

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        manifest = self.manifest
        self._argv = [fill(word, self.options.model_dump()) for word in manifest.command]
        # Checked before there is a job, since a retry does not help.
        if problem := start_problem(self._argv, manifest.folder):
            command = shlex.join(self._argv)
            raise BadSource(manifest.name, f"`{command}` cannot be started: {problem}")

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield an item for each line; invalid lines are quarantined."""
        stream = self._stream(visit)
        if not self.manifest.may_be_empty:
            stream = fail_if_empty(stream, self.name, "the command printed nothing")
        async with aclosing(stream) as found:
            async for one in found:
                yield one

    async def _stream(self, visit: Visit) -> Discovered:
        manifest = self.manifest
        key = None if manifest.key is None else partial(find, manifest.key)
        items = RecordItems(f"command://{self.name}", key, visit)
        running = lines_of(
            self._argv,
            timeout=manifest.timeout,
            silence=manifest.silence,
            folder=manifest.folder,
        )
        async with aclosing(running) as lines:
            async for line in lines:
                if isinstance(line, Overlong):
                    text = line.start.decode(errors="replace")
                    yield items.make_invalid(text, f"the line has more than {MAX_LINE_BYTES} bytes")
                elif line.strip():
                    yield _item_of_line(items, line)

    @layer()
    async def record(self, visit: Visit) -> Mapping[str, Any]:
        """Return the fields of a line that the manifest names; default: all."""
        data = await super().record(visit)
        if not self.manifest.fields:
            return data
        found = {name: find(path, data) for name, path in self.manifest.fields.items()}
        for name in (name for name, value in found.items() if value is None):
            visit.note(name, f"there is nothing at {self.manifest.fields[name]}")
        return found


def _item_of_line(items: RecordItems, line: bytes) -> Item:
    try:
        return items.make(read_json(line))
    except orjson.JSONDecodeError as error:
        text = line.decode(errors="replace")
        return items.make_invalid(text, f"the line is not JSON ({error})")
