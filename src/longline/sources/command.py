"""A command that prints JSON Lines as a source: every line becomes a record."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

import orjson
from pydantic import Field, field_validator, model_validator

from longline.config.expressions import JsonPath, fill, find, names_in
from longline.config.validation import invalid
from longline.core.errors import BadSource, UnexpectedShape
from longline.core.json import read_json
from longline.core.model import Cursor, Item
from longline.sources.base import Options, RecordItems, RecordSource, Source, Visit, layer
from longline.sources.manifest import Discovered, Manifest, fail_if_empty, source_attributes

_T = TypeVar("_T")


class CommandManifest(Manifest):
    """A program that is run once and prints one record per line, as JSON."""

    manifest: Literal["command"] = "command"
    command: tuple[str, ...] = Field(min_length=1)
    """The program and its arguments as a list; `{name}` is replaced by a parameter."""
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
    def _check_command_words(self) -> Self:
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
    environment: Mapping[str, str] | None = None,
    longest: int = MAX_LINE_BYTES,
) -> AsyncGenerator[bytes | Overlong, None]:
    """Run a program and yield its lines; it and its children are killed when the generator closes.

    `environment` has variables besides those of this process.

    Raises:
        UnexpectedShape: it cannot be started, takes too long, or fails.
    """
    where = f"the command `{shlex.join(argv)}`"
    loop = asyncio.get_running_loop()
    end = None if timeout is None else loop.time() + timeout

    async def wait_for(waiting: Awaitable[_T]) -> _T:
        deadlines = [] if end is None else [end]
        deadlines += [] if silence is None else [loop.time() + silence]
        async with asyncio.timeout_at(min(deadlines, default=None)):
            return await waiting

    async with _running_program(where, argv, folder, environment, longest) as (program, protocol):
        try:
            while (line := await wait_for(_read_line(protocol.output))) is not None:
                yield line
            code = await wait_for(program.wait())
        except TimeoutError as error:
            is_over = end is not None and loop.time() >= end
            reason = (
                f"took more than {timeout} s" if is_over else f"printed nothing for {silence} s"
            )
            raise UnexpectedShape(where, f"it {reason} and was killed") from error
        if code:
            how = f"it exited with code {code}" if code > 0 else f"it was killed by signal {-code}"
            words = protocol.stderr_end.decode(errors="replace").strip()
            raise UnexpectedShape(where, f"{how}; stderr: {words}" if words else how)


async def _read_line(output: asyncio.StreamReader) -> bytes | Overlong | None:
    """Return the next line; None at the end of the output."""
    start = None
    while True:
        try:
            line = await output.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            piece = await output.readexactly(error.consumed)
            start = start or piece[:_SHOWN_BYTES]
        except asyncio.IncompleteReadError as error:  # the last line has no line end
            return error.partial or None if start is None else Overlong(start)
        else:
            return line[:-1] if start is None else Overlong(start)


def start_problem(argv: Sequence[str], folder: str | None = None) -> str | None:
    """Return why a program cannot be started; None if nothing is known against it."""
    if folder is not None and not Path(folder).is_dir():
        return f"there is no folder {folder}"
    program = argv[0] if os.sep not in argv[0] else str(Path(folder or ".").absolute() / argv[0])
    return None if shutil.which(program) else f"there is no executable program {argv[0]}"


class _Protocol(SubprocessStreamProtocol):
    """Keeps the end of stderr, and kills the children of the program when it exits."""

    def __init__(self, longest: int) -> None:
        super().__init__(limit=longest, loop=asyncio.get_running_loop())
        self.stderr_end = b""
        self.pid = 0

    @property
    def output(self) -> asyncio.StreamReader:
        return cast("asyncio.StreamReader", self.stdout)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.pid = cast("asyncio.SubprocessTransport", transport).get_pid()

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        if fd == _STDERR:
            self.stderr_end = (self.stderr_end + cast("bytes", data))[-_MAX_STDERR_BYTES:]
        else:
            super().pipe_data_received(fd, data)

    def process_exited(self) -> None:
        self.signal_group(signal.SIGKILL)  # its children would keep the output open
        super().process_exited()

    def signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


@asynccontextmanager
async def _running_program(
    where: str,
    argv: Sequence[str],
    folder: str | None,
    environment: Mapping[str, str] | None,
    longest: int,
) -> AsyncIterator[tuple[Process, _Protocol]]:
    """Start a program; at the end terminate it and its children, and kill them after a grace."""
    loop = asyncio.get_running_loop()
    if problem := start_problem(argv, folder):
        raise UnexpectedShape(where, f"it cannot be started: {problem}")
    try:
        transport, protocol = await loop.subprocess_exec(
            lambda: _Protocol(longest),
            *(*_SHELL, _WATCHED, "watched", *argv),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=folder,
            env=None if environment is None else {**os.environ, **environment},
            start_new_session=True,  # a process group, to kill its children, too
        )
    except (OSError, ValueError) as error:
        raise UnexpectedShape(where, f"it cannot be started: {error}") from error
    program = Process(transport, protocol, loop)
    try:
        yield program, protocol
    finally:
        try:
            if program.returncode is None:
                protocol.signal_group(signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GRACE):
                        await program.wait()
        finally:
            protocol.signal_group(signal.SIGKILL)
            transport.close()
        async with asyncio.timeout(_GRACE):
            await program.wait()


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

    def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield an item for each line; invalid lines are quarantined."""
        stream, may_be_empty = self._items_of_lines(visit), self.manifest.may_be_empty
        advice = "the command printed nothing"
        return fail_if_empty(stream, self.name, advice, may_be_empty=may_be_empty)

    async def _items_of_lines(self, visit: Visit) -> Discovered:
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
                    try:
                        yield items.make(read_json(line))
                    except orjson.JSONDecodeError as error:
                        text = line.decode(errors="replace")
                        yield items.make_invalid(text, f"the line is not JSON ({error})")

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
