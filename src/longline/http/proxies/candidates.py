"""Candidates: where proxies that may work are listed, and how such lists are read.

A list is a file, the output of a command, or the response of a URL. It has a proxy per line, or it
is JSON, such as the response of a provider's API, with paths to the list and its fields.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from longline.config.expressions import JsonPath, find
from longline.config.secrets import SecretRef, TextOrRef, reveal
from longline.config.times import Seconds
from longline.config.validation import StrictModel, check_exactly_one, invalid
from longline.core.errors import FetchError, LonglineError, error_text
from longline.core.json import read_json
from longline.core.logging import redact_text
from longline.core.model import Usage
from longline.http.messages import Middleware, Redacted, Request, origin_of
from longline.http.proxies.proxy import (
    DEFAULT_TIER,
    BadProxy,
    CredentialFiles,
    ParsedProxy,
    Proxy,
    Scheme,
    parse_proxy,
)

LARGEST_LIST = 20_000_000
"""Bytes of a list."""
_MOST = 100_000  # candidates of one source
_URL_TIMEOUT, _COMMAND_TIMEOUT = 60.0, 3600.0  # seconds
_PIECE = 65_536  # bytes that are read from a command together
_LONGEST_PROBLEM = 200


class CandidateError(LonglineError):
    """A list of candidates cannot be read."""

    source: str
    problem: str
    message = "the candidates of {source} cannot be read: {problem}"


class CandidateFields(StrictModel):
    """Where the objects of a JSON list have what is known about a proxy.

    `address` is a whole line, such as `http://host:port`; without it, `host` and `port` are read.
    """

    address: JsonPath | None = None
    host: JsonPath = "host"
    port: JsonPath = "port"
    scheme: JsonPath | None = None
    country: JsonPath | None = None
    user: JsonPath | None = None
    password: JsonPath | None = None


def _check_url(value: SecretRef | str) -> SecretRef | str:
    if isinstance(value, str) and not value.startswith(("http://", "https://")):
        raise invalid("write a URL that begins with http:// or https://, or a reference to one")
    return value


def _check_command(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError:
        raise invalid("a quotation mark is not closed") from None
    if not words:
        raise invalid("it must not be empty")
    return text


class CandidateSource(StrictModel):
    """A source of candidates: a file, a command or a URL.

    `output` is the file that a command writes; without it, its standard output is read. `list` and
    `fields` are those of a JSON document; without `fields`, a list has a proxy per line. `country`,
    `tier` and `credentials` are those of proxies that name none, and `scheme` that of lines without
    one. `rotating` proxies are gateways that change their exit themselves.
    """

    file: Path | None = None
    command: Annotated[str, AfterValidator(_check_command)] | None = None
    output: Path | None = None
    url: Annotated[TextOrRef, AfterValidator(_check_url)] | None = None
    headers: Mapping[str, TextOrRef] = Field(default_factory=dict)
    list: JsonPath = "@"
    fields: CandidateFields | None = None
    scheme: Scheme = "http"
    tier: str = Field(default=DEFAULT_TIER, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    country: str | None = Field(default=None, pattern=r"^[A-Za-z]{2}$")
    credentials: SecretRef | None = None
    rotating: bool = False
    timeout: Seconds | None = Field(default=None, gt=0)
    enabled: bool = True

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        check_exactly_one(self, ("file", "command", "url"))
        if self.output is not None and self.command is None:
            raise invalid("output is the file that a command writes; add command")
        if self.headers and self.url is None:
            raise invalid("headers are sent to a url; add url")
        if self.list != "@" and self.fields is None:
            raise invalid("list is a path in JSON; add fields, such as fields: {host: ip}")
        return self

    def relative_to(self, folder: Path) -> CandidateSource:
        """Return it with paths relative to a folder."""
        paths = {
            name: folder / path.expanduser()
            for name in ("file", "output")
            if (path := getattr(self, name)) is not None
        }
        return self.model_copy(update=paths)


@dataclass(slots=True)
class Candidates:
    """What sources list: each address once, and per source what was skipped or failed.

    `invalid` counts entries that are not proxies.
    """

    proxies: dict[str, Proxy] = field(default_factory=dict)
    listed: dict[str, int] = field(default_factory=dict)
    invalid: dict[str, int] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


async def collect(
    sources: Mapping[str, CandidateSource],
    http: Middleware,
    files: CredentialFiles,
    *,
    without: Collection[str] = (),
) -> Candidates:
    """Read all sources; a source that fails is noted, and the others are read.

    Args:
        sources: by name.
        http: sends the requests for lists at URLs.
        files: keeps the user names and passwords that lists have.
        without: addresses that are left out, since a person has added them.
    """
    found = Candidates()
    enabled = {name: source for name, source in sources.items() if source.enabled}
    results = await asyncio.gather(*(read_source(name, one, http) for name, one in enabled.items()))
    for name, result in zip(enabled, results, strict=True):
        if isinstance(result, CandidateError):
            found.problems[name] = result.problem
            continue
        parsed, skipped = result
        found.listed[name], found.invalid[name] = len(parsed), skipped
        for one in parsed:
            if one.proxy.address not in found.proxies and one.proxy.address not in without:
                found.proxies[one.proxy.address] = await asyncio.to_thread(files.keep, one)
        if skipped and not parsed:
            found.problems[name] = f"none of its {skipped} entries is a proxy"
        elif not parsed:
            found.problems[name] = "its list is empty"
    return found


async def read_source(
    name: str, source: CandidateSource, http: Middleware
) -> tuple[list[ParsedProxy], int] | CandidateError:
    """Return the proxies of a source and how many entries are none, or why it cannot be read."""
    try:
        async with asyncio.timeout(_timeout_of(source)):
            content = await _read_list(name, source, http)
        # In a thread: parsing a large list would block the loop.
        return await asyncio.to_thread(parse_list, name, source, content)
    except CandidateError as error:
        return error
    except TimeoutError:
        return CandidateError(name, f"it took longer than {_timeout_of(source):g} s")
    except OSError as error:
        return CandidateError(name, error.strerror or type(error).__name__)
    except LonglineError as error:
        return CandidateError(name, redact_text(str(error))[:_LONGEST_PROBLEM])


def parse_list(name: str, source: CandidateSource, content: bytes) -> tuple[list[ParsedProxy], int]:
    """Return the proxies of a list, and how many of its entries are none.

    Raises:
        CandidateError: it is not JSON, or has no list at the path.
    """
    entries = _lines(content) if source.fields is None else _objects(name, source, content)
    found: list[ParsedProxy] = []
    skipped = 0
    for entry in entries:
        if len(found) >= _MOST:
            break
        try:
            found.append(_parse_entry(name, source, entry))
        except (BadProxy, ValueError):
            skipped += 1
    return found, skipped


def _timeout_of(source: CandidateSource) -> float:
    return source.timeout or (_URL_TIMEOUT if source.command is None else _COMMAND_TIMEOUT)


async def _read_list(name: str, source: CandidateSource, http: Middleware) -> bytes:
    if source.command is not None:
        written = await asyncio.to_thread(_stamp, source.output)
        content = await _run(name, source.command, keep=source.output is None)
        if source.output is None:
            return content
        if written is not None and written == await asyncio.to_thread(_stamp, source.output):
            raise CandidateError(name, f"the command has not written {source.output}, which is old")
    if source.url is not None:
        return await _fetch(name, source, reveal(source.url), http)
    path = source.output or source.file
    assert path is not None  # noqa: S101  # the model has checked it
    return await asyncio.to_thread(_read_file, name, path)


def _stamp(path: Path | None) -> tuple[int, ...] | None:
    """Return what changes when a file is written; None: there is no such file."""
    try:
        found = None if path is None else path.stat()
    except FileNotFoundError:
        return None
    return None if found is None else (found.st_ino, found.st_mtime_ns, found.st_size)


async def _fetch(name: str, source: CandidateSource, url: str, http: Middleware) -> bytes:
    headers = Redacted({key: reveal(value) for key, value in source.headers.items()})
    try:
        page = await http(Request(url, headers=headers, timeout=_timeout_of(source)), Usage())
    except FetchError as error:
        # Not chained: URLs of providers contain keys, and the problem is an event.
        scheme, host = origin_of(url)
        raise CandidateError(name, str(error).replace(url, f"{scheme}://{host}/…")) from None
    if page.status != 200:  # noqa: PLR2004  # the only status with a list
        raise CandidateError(name, f"its URL responded with status {page.status}")
    return page.body


def _read_file(name: str, path: Path) -> bytes:
    if not path.is_file():  # reading a pipe or a device may block
        raise CandidateError(name, f"{path} does not exist, or is not a file")
    with path.open("rb") as file:
        content = file.read(LARGEST_LIST + 1)
    if len(content) > LARGEST_LIST:
        raise CandidateError(name, f"{path} is larger than {LARGEST_LIST} bytes")
    return content


async def _run(name: str, command: str, *, keep: bool) -> bytes:
    """Run a command without a terminal; return its standard output if it is kept.

    When this is cancelled, the command and all that it has started are killed.
    """
    output = asyncio.subprocess.PIPE if keep else asyncio.subprocess.DEVNULL
    words = shlex.split(command)
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        problem = f"the command {words[0]} cannot be run: {error.strerror}"
        raise CandidateError(name, problem) from error
    try:
        content = b"" if process.stdout is None else await _read_output(name, process.stdout)
        status = await process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    if status:
        raise CandidateError(name, f"the command ended with exit status {status}")
    return content


async def _read_output(name: str, stream: asyncio.StreamReader) -> bytes:
    pieces, size = [], 0
    while piece := await stream.read(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST_LIST:
            raise CandidateError(name, f"the command printed more than {LARGEST_LIST} bytes")
    return b"".join(pieces)


def _lines(content: bytes) -> Iterator[str]:
    for line in content.decode("utf-8-sig", "replace").splitlines():
        text = line.strip()
        if text and not text.startswith("#"):
            yield text


def _objects(name: str, source: CandidateSource, content: bytes) -> Sequence[Any]:
    try:
        found = find(source.list, read_json(content))
    except ValueError as error:
        problem = error_text(error) if "path" in str(error) else "it is not JSON"
        raise CandidateError(name, problem[:_LONGEST_PROBLEM]) from None
    if not isinstance(found, list):
        raise CandidateError(name, f"the path {source.list!r} selects no list")
    return found


def _parse_entry(name: str, source: CandidateSource, entry: Any) -> ParsedProxy:
    parsed = (
        _parse_line(source, str(entry), source.country, name)
        if source.fields is None
        else _parse_object(name, source, source.fields, entry)
    )
    if parsed.secret is None and source.credentials is not None:
        parsed = replace(parsed, proxy=replace(parsed.proxy, credentials=str(source.credentials)))
    return parsed


def _parse_line(
    source: CandidateSource, line: str, country: str | None, name: str, scheme: Any = None
) -> ParsedProxy:
    parsed = parse_proxy(
        line, tier=source.tier, origin=name, country=country, is_rotating=source.rotating
    )
    if "://" in line:
        return parsed
    # The scheme of a list is checked by parsing a line that has it.
    known = parse_proxy(f"{scheme or source.scheme}://{parsed.proxy.host}:{parsed.proxy.port}")
    return replace(parsed, proxy=replace(parsed.proxy, scheme=known.proxy.scheme))


def _parse_object(
    name: str, source: CandidateSource, fields: CandidateFields, entry: Any
) -> ParsedProxy:
    def text_at(path: str | None) -> str | None:
        value = None if path is None else find(path, entry)
        is_text = isinstance(value, str | int) and not isinstance(value, bool)
        return (str(value).strip() or None) if is_text else None

    line = text_at(fields.address)
    if line is None:
        host = text_at(fields.host) or ""
        line = f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host
        line = f"{line}:{text_at(fields.port)}"
    country = (text_at(fields.country) or "").upper() or source.country
    country = country if country is None or (len(country) == 2 and country.isalpha()) else None  # noqa: PLR2004  # letters
    parsed = _parse_line(source, line, country, name, text_at(fields.scheme))
    user, password = text_at(fields.user), text_at(fields.password)
    if parsed.secret is None and user is not None:
        if ":" in user:
            raise BadProxy("its user name contains a colon")
        parsed = replace(parsed, secret=SecretStr(f"{user}:{password or ''}"))
    return parsed
