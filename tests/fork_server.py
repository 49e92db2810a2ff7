"""Run the command line many times, each time in a process of its own that is forked warm.

`ForkServer` starts one clean Python process that has imported every command. For each invocation
it forks a child, connects its stdin, stdout and stderr as asked, and waits with a timeout. A child
costs milliseconds where a new interpreter costs a second; it has its own signals and descriptors.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import io
import json
import os
import pty
import resource
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_PIECE = 65536
_MOST = 20_000_000  # bytes of output that are kept
_OPEN_DESCRIPTORS = 256


@dataclass(frozen=True, slots=True)
class Invocation:
    """One call of the command line.

    Attributes:
        words: the arguments; surrogates stand for bytes that are not UTF-8.
        output: where stdout goes: `pipe`, `terminal` (stderr and stdin, too), `full` (a device
            without room), `closed` (no descriptor), `left` (a pipe that is not read).
        interrupt_at: send ctrl-c to the terminal when this text has been printed.
        memory: the most address space in bytes; None for no limit.
        is_fresh: start a new interpreter instead of forking.
    """

    words: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "."
    stdin: str | None = None
    output: str = "pipe"
    interrupt_at: str | None = None
    memory: int | None = None
    is_fresh: bool = False
    timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class Result:
    """What an invocation left behind; `code` is negative for a signal."""

    code: int
    out: bytes
    err: bytes
    is_hung: bool
    seconds: float


class ForkServer:
    """A warm process that runs invocations one after another."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        """The process whose children are the invocations."""
        return self._process.pid

    def run(self, *words: str, **how: Any) -> Result:
        """Run one invocation."""
        return self.invoke(Invocation(words, **how))

    def invoke(self, one: Invocation) -> Result:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        values = {name: getattr(one, name) for name in one.__slots__}
        self._process.stdin.write(json.dumps(values).encode() + b"\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        told["out"], told["err"] = (base64.b64decode(told[name]) for name in ("out", "err"))
        return Result(**told)


def _serve(lines: Iterable[str]) -> None:
    _warm()
    for line in lines:
        values = json.loads(line)
        values["words"] = tuple(values["words"])
        result = _run(Invocation(**values))
        told = {name: getattr(result, name) for name in result.__slots__}
        told["out"], told["err"] = (
            base64.b64encode(told[name]).decode() for name in ("out", "err")
        )
        sys.stdout.write(f"{json.dumps(told)}\n")
        sys.stdout.flush()


def _warm() -> None:
    from longline.cli.main import COMMANDS, load_command  # noqa: PLC0415  # only the server needs it

    for name in COMMANDS:
        load_command(name)


def _run(one: Invocation) -> Result:
    started = time.monotonic()
    master, slave = pty.openpty() if one.output == "terminal" else (-1, -1)
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    pid = os.fork()
    if not pid:
        _become(one, slave, out_write, err_write)
    for end in (slave, out_write, err_write):
        if end >= 0:
            os.close(end)
    if one.output == "left":
        os.close(out_read)
        out_read = -1
    ends = {"terminal": master, "out": out_read, "err": err_read}
    reading = {end: bytearray() for end in ends.values() if end >= 0}
    is_hung = _read(one, reading, pid, started)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # what it may have left
    for end in reading:
        os.close(end)
    out = reading.get(master) if one.output == "terminal" else reading.get(out_read)
    seconds = time.monotonic() - started
    return Result(code, bytes(out or b""), bytes(reading[err_read]), is_hung, seconds)


def _read(one: Invocation, reading: dict[int, bytearray], pid: int, started: float) -> bool:
    """Read all output until the process has ended; kill one that takes too long."""
    left = set(reading)
    has_interrupted = has_ended = False
    while left:
        rest = started + one.timeout - time.monotonic()
        ready, _, _ = select.select(list(left), [], [], min(max(rest, 0), 0.1))
        for end in ready:
            piece = _piece(end)
            if len(reading[end]) < _MOST:
                reading[end] += piece
            if not piece:
                left.discard(end)
            elif not has_interrupted and _is_time(one, reading[end]):
                has_interrupted = True
                os.write(end, b"\x03")
        if rest <= 0:
            os.killpg(pid, signal.SIGKILL)
            return True
        if not ready and has_ended:
            return False  # grandchildren may hold the other ends
        has_ended = _has_ended(pid)  # what it wrote before that is there in the next round
    return False


def _is_time(one: Invocation, printed: bytearray) -> bool:
    is_terminal = one.output == "terminal"
    return is_terminal and one.interrupt_at is not None and one.interrupt_at.encode() in printed


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _piece(end: int) -> bytes:
    try:
        return os.read(end, _PIECE)
    except OSError as error:
        if error.errno == errno.EIO:  # the other end of a terminal is closed
            return b""
        raise


def _become(one: Invocation, slave: int, out: int, err: int) -> None:
    """Turn this child into the command line; never returns."""
    code = 70
    try:
        os.setsid()
        _connect(one, slave, out, err)
        os.chdir(one.cwd)
        os.environ.clear()
        os.environ.update(one.env)
        if one.is_fresh:
            _start(one)
        if one.memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (one.memory, one.memory))
        code = _call(one.words)
    except BaseException:  # noqa: BLE001  # as the interpreter would
        with suppress(BaseException):
            traceback.print_exc()
        code = 1
    finally:
        os._exit(code)


def _start(one: Invocation) -> None:
    """Become a new interpreter; a small shell sets the limit, since this process is larger."""
    limit = "unlimited" if one.memory is None else str(one.memory // 1024)
    program = str(Path(sys.executable).with_name("longline"))
    words = [b"sh", b"-c", b'ulimit -v "$0" && exec "$@"', limit.encode(), program.encode()]
    os.execv("/bin/sh", [*words, *map(os.fsencode, one.words)])  # noqa: S606  # ours


def _connect(one: Invocation, slave: int, out: int, err: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if one.output == "terminal":
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for number in range(3):
            os.dup2(slave, number)
    else:
        os.dup2(_given(one.stdin) if one.stdin is not None else null, 0)
        os.dup2(os.open("/dev/full", os.O_WRONLY) if one.output == "full" else out, 1)
        os.dup2(err, 2)
        if one.output == "closed":
            os.close(0)
            os.close(1)
    os.closerange(3, _OPEN_DESCRIPTORS)


def _given(text: str) -> int:
    read, write = os.pipe()
    os.write(write, text.encode("utf-8", "surrogateescape"))
    os.close(write)
    return read


def _call(words: tuple[str, ...]) -> int:
    from longline.cli.main import main  # noqa: PLC0415  # only the server needs it

    sys.addaudithook(_refuse_internet)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["longline", *words]
    streams = [_stream(number, "r" if not number else "w") for number in range(3)]
    sys.stdin, sys.stdout, sys.stderr = streams
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does at its end
    for stream in streams[1:]:
        if stream is not None:
            stream.flush()
    return code


def _refuse_internet(event: str, words: tuple[Any, ...]) -> None:
    """Make every address but those of this machine unknown."""
    if event == "socket.getaddrinfo":
        host = words[0]
    elif event == "socket.connect" and isinstance(words[1], tuple):
        host = words[1][0]
    else:
        return
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if name not in {None, "", "localhost", "::1"} and not str(name).startswith("127."):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def _stream(number: int, mode: str) -> io.TextIOWrapper | None:
    try:
        os.fstat(number)
    except OSError:
        return None
    errors = {0: "surrogateescape", 1: "surrogateescape", 2: "backslashreplace"}[number]
    raw = open(number, f"{mode}b", buffering=-1 if number < 2 else 0, closefd=False)  # noqa: SIM115  # a descriptor
    return io.TextIOWrapper(raw, "utf-8", errors, line_buffering=number == 2 or os.isatty(number))


if __name__ == "__main__":
    _serve(sys.stdin)
