"""A command that prints JSON Lines as a source: every line becomes a record as it comes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import orjson
from pydantic import Field, field_validator, model_validator

from longline.config.json_paths import JsonPath, find
from longline.config.strict_model import invalid
from longline.config.templates import fill, names_in
from longline.core.errors import BadSource, UnexpectedShape
from longline.core.json_text import read_json
from longline.core.model import Cursor, Item
from longline.sources.adapters.records import Keying, RecordSource
from longline.sources.base import Options, Source, layer
from longline.sources.manifest import Discovered, Manifest, fail_if_empty, source_attributes
from longline.sources.visit import Visit

# ---------------- A manifest for a command that prints records, one JSON object a line


class CommandManifest(Manifest):
    """Any program as a source: it is run once, and every line that it prints is a record."""

    manifest: Literal["command"] = "command"
    command: tuple[str, ...] = Field(min_length=1)
    """The program and its arguments, each for itself; `{name}` stands for a parameter."""
    key: JsonPath | None = None
    """What makes a record the same one next time; else its `id`, `key` or `url`."""
    fields: dict[str, JsonPath] = Field(default_factory=dict)
    """What a record keeps, and where it stands in a line; without any, all of it."""
    timeout: float | None = Field(default=None, gt=0)
    """Seconds for the whole command."""
    silence: float | None = Field(default=None, gt=0)
    """Seconds without a line after which it is taken for dead."""
    folder: str | None = None
    """Where it is run, from the folder of the manifest; where longline was started, unless said."""
    may_be_empty: bool = False
    """Whether printing no line at all is fine; otherwise it is taken for a failure."""

    @field_validator("command", mode="before")
    @classmethod
    def _as_list(cls, command: object) -> object:
        if isinstance(command, str):
            raise invalid("write the command as a list, a word each: [python, scraper.py, --all]")
        return command

    @model_validator(mode="after")
    def _know_names(self) -> Self:
        for word in self.command:
            for name in names_in(word):
                if name not in self.parameters:
                    known = ", ".join(self.parameters) or "none"
                    raise invalid(
                        f"the command speaks of {{{name}}}, which is no parameter; there is {known}"
                        " (a plain brace is written twice)"
                    )
        return self


# ---------------- A program whose output is read line by line, and which never outlives its reader

LONGEST_LINE = 10_000_000
"""Bytes; a longer line is nobody's record."""
_STDOUT = 1
_MOST_PIECES = 64  # pieces of output that wait to be read before the program has to
_LONGEST_COMPLAINT = 2_000  # bytes of what it complained about last that an error repeats
_GRACE = 2.0  # seconds between asking it to end and ending it
_SHOWN = 200  # bytes of an overlong line
_SHELL = ("/bin/sh", "-c")
# A program does not notice that its reader was killed. So somebody in its group waits for the end
# of our end of the pipe, and then ends the group, itself included; it is nobody's child, so that a
# program that waits for all of its children does not wait for this one.
_WATCHED = """
exec 3<&0 0</dev/null
( ( trap '' HUP INT TERM; read -r _ <&3; kill -KILL "-$$" ) >/dev/null 2>&1 & )
exec 3<&- "$@"
"""


@dataclass(frozen=True, slots=True)
class Overlong:
    """A line of more bytes than anyone can use; how it begins."""

    start: bytes


async def lines_of(
    argv: Sequence[str],
    *,
    timeout: float | None = None,  # noqa: ASYNC109  # of the whole program, not of one wait
    silence: float | None = None,
    folder: str | None = None,
    longest: int = LONGEST_LINE,
) -> AsyncGenerator[bytes | Overlong, None]:
    """Run a program and yield the lines it prints; when they are left, it and all it began ends.

    Raises:
        UnexpectedShape: it cannot be started, takes too long, or says that it failed.
    """
    where = f"the command `{shlex.join(argv)}`"
    program = await _start(where, argv, folder)
    patience = _Patience(timeout, silence)
    try:
        cutter = _Cutter(longest)
        try:
            while piece := await patience.wait_for(program.pieces.get()):
                program.go_on()
                for line in cutter.cut(piece):
                    yield line
            await patience.wait_for(program.exited.wait())
        except TimeoutError as error:
            raise UnexpectedShape(where, f"{patience.told}, and was ended") from error
        for line in cutter.rest():
            yield line
        if program.code:
            raise UnexpectedShape(where, _ended(program.code, program.complaints))
    finally:
        await program.end()


def problem_of(argv: Sequence[str], folder: str | None = None) -> str | None:
    """Return why a program cannot be started, as far as that is known before; None when it can."""
    if folder is not None and not Path(folder).is_dir():
        return f"there is no folder {folder}"
    program = argv[0]
    if os.sep not in program:
        return None if shutil.which(program) else f"there is no program {program}"
    path = Path(folder or ".") / program
    if not path.is_file():
        return f"there is no program {program}"
    return None if os.access(path, os.X_OK) else f"{program} may not be executed"


async def _start(where: str, argv: Sequence[str], folder: str | None) -> _Program:
    loop = asyncio.get_running_loop()
    if problem := problem_of(argv, folder):
        raise UnexpectedShape(where, f"it cannot be started ({problem})")
    try:
        _, program = await loop.subprocess_exec(
            _Program,
            *_SHELL,
            _WATCHED,
            "watched",
            *argv,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=folder,
            start_new_session=True,  # a group: whatever it starts can be ended together with it
        )
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise UnexpectedShape(where, f"it cannot be started ({problem})") from error
    return program


class _Program(asyncio.SubprocessProtocol):
    """What a program prints, in pieces; the end of what it complained about; how it ended."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self.complaints = b""
        self.exited = asyncio.Event()
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd != _STDOUT:
            self.complaints = (self.complaints + data)[-_LONGEST_COMPLAINT:]
            return
        self.pieces.put_nowait(data)
        if self.pieces.qsize() >= _MOST_PIECES:
            self._pipe.pause_reading()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        del exc
        if fd == _STDOUT:
            self.pieces.put_nowait(b"")

    def process_exited(self) -> None:
        self._kill(signal.SIGKILL)  # what it left behind would keep its output open for ever
        self.exited.set()

    def go_on(self) -> None:
        """Let it print more, once what it has printed was read."""
        if not self.pieces.qsize() and not self._pipe.is_closing():
            self._pipe.resume_reading()

    @property
    def code(self) -> int:
        """How it ended: 0 is well, a negative number is the signal that killed it."""
        assert self._transport is not None  # noqa: S101  # made before anyone has the program
        return self._transport.get_returncode() or 0

    async def end(self) -> None:
        """End it and all that it started, politely first."""
        assert self._transport is not None  # noqa: S101  # the same
        try:
            await self._ask_to_end()
        finally:
            self._kill(signal.SIGKILL)
            self._transport.close()
        async with asyncio.timeout(_GRACE):
            await self.exited.wait()

    async def _ask_to_end(self) -> None:
        if self.exited.is_set():
            return
        self._kill(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                await self.exited.wait()

    def _kill(self, number: signal.Signals) -> None:
        assert self._transport is not None  # noqa: S101  # the same
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._transport.get_pid(), number)

    @property
    def _pipe(self) -> asyncio.ReadTransport:
        assert self._transport is not None  # noqa: S101  # the same
        return cast("asyncio.ReadTransport", self._transport.get_pipe_transport(_STDOUT))


class _Patience:
    """How long a program may take in all, and between two signs of life."""

    def __init__(self, whole: float | None, silence: float | None) -> None:
        self._whole = whole
        self._silence = silence
        self._until = None if whole is None else asyncio.get_running_loop().time() + whole
        self.told = ""

    async def wait_for(self, waiting: Any) -> Any:
        """Wait for something, for as long as there is patience.

        Raises:
            TimeoutError: there is no more; `told` says why.
        """
        left = None
        if self._until is not None:
            left = max(0.0, self._until - asyncio.get_running_loop().time())
            self.told = f"it took more than {self._whole:g} s"
        if self._silence is not None and (left is None or self._silence < left):
            left = self._silence
            self.told = f"it was silent for {self._silence:g} s"
        async with asyncio.timeout(left):
            return await waiting


class _Cutter:
    """Cuts a stream into lines, none of which can fill the memory."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._begun = b""
        self._is_skipping = False

    def cut(self, piece: bytes) -> list[bytes | Overlong]:
        """Return the lines that a further piece ends."""
        *ended, begun = piece.split(b"\n")
        lines = [line for one in ended for line in self._end(one)]
        self._begun += b"" if self._is_skipping else begun
        if len(self._begun) > self._longest:
            lines.append(Overlong(self._begun[:_SHOWN]))
            self._begun, self._is_skipping = b"", True
        return lines

    def rest(self) -> list[bytes | Overlong]:
        """Return the last line, when nothing ended it."""
        return self._end(b"") if self._begun else []

    def _end(self, part: bytes) -> list[bytes | Overlong]:
        line, self._begun = self._begun + part, b""
        if self._is_skipping:
            self._is_skipping = False
            return []
        return [Overlong(line[:_SHOWN]) if len(line) > self._longest else line]


def _ended(code: int, complaints: bytes) -> str:
    how = f"it ended with exit code {code}" if code > 0 else f"it was killed by signal {-code}"
    words = complaints.decode(errors="replace").strip()
    return f"{how}; it said last: {words}" if words else f"{how} and said nothing"


def source_of_command(argv: Sequence[str], *, name: str, **said: Any) -> type[Source]:
    """Make a source of a command; `said` are fields of a command's manifest (key, timeout, …).

    Raises:
        ValidationError: something does not fit.
    """
    return command_source(CommandManifest(name=name, command=tuple(argv), **said))


def command_source(manifest: CommandManifest) -> type[Source]:
    """Make a source of the manifest of a command."""
    values = {
        **source_attributes(manifest),
        "__doc__": manifest.about or f"What `{shlex.join(manifest.command)}` prints.",
        "kind": "command",
        "manifest": manifest,
    }
    return type(manifest.name, (_CommandSource,), values)


class _CommandSource(RecordSource):
    """Runs the command once. After a crash it is run anew; what is there is not queued again."""

    manifest: ClassVar[CommandManifest]

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        said = self.manifest
        self._argv = [fill(word, self.options.model_dump()) for word in said.command]
        # Now, before there is a job: nothing that is tried again later makes up for it.
        if problem := problem_of(self._argv, said.folder):
            raise BadSource(said.name, f"`{shlex.join(self._argv)}` cannot be started: {problem}")

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield an item for each line; one that is no record is going to be quarantined.

        Raises:
            DiscoveryFailed: there was none, and the manifest does not say that this is fine.
        """
        stream = self._stream(visit)
        if not self.manifest.may_be_empty:
            stream = fail_if_empty(stream, self.name, "the command printed nothing; look at it")
        async with aclosing(stream) as found:
            async for one in found:
                yield one

    async def _stream(self, visit: Visit) -> Discovered:
        said = self.manifest
        path = said.key
        key = None if path is None else partial(find, path)
        keying = Keying(f"command://{self.name}", key, visit)
        running = lines_of(
            self._argv, timeout=said.timeout, silence=said.silence, folder=said.folder
        )
        async with aclosing(running) as lines:
            async for line in lines:
                if isinstance(line, Overlong):
                    text = line.start.decode(errors="replace")
                    yield keying.unusable(text, f"the line has more than {LONGEST_LINE} bytes")
                elif line.strip():
                    yield _item(keying, line)

    @layer()
    async def record(self, visit: Visit) -> Mapping[str, Any]:
        """Return the fields of a line that the manifest names; all, when it names none."""
        data = await super().record(visit)
        if not self.manifest.fields:
            return data
        found = {name: find(path, data) for name, path in self.manifest.fields.items()}
        for name in (name for name, value in found.items() if value is None):
            visit.note(name, f"the line has nothing at {self.manifest.fields[name]}")
        return found


def _item(keying: Keying, line: bytes) -> Item:
    try:
        return keying.item(read_json(line))
    except orjson.JSONDecodeError as error:
        text = line.decode(errors="replace")
        return keying.unusable(text, f"the line is not JSON ({error})")
