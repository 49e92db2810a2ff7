"""What an export is to write, and where."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from longline.config.secrets import SecretRef
from longline.core.errors import BadOption
from longline.export.destinations import postgres, s3
from longline.export.destinations.postgres import PostgresTable
from longline.export.destinations.s3 import S3Object
from longline.export.formats.registry import COMPRESSIONS, OUTPUT
from longline.export.redaction import Redactor

TABLE = "longline_export"
STDOUT = "-"
Destination = Path | S3Object | PostgresTable


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The options of an export.

    Args:
        output: a file, a folder (with `partition`), s3://bucket/name.ending or postgresql://….
        format: the name of a format; None: by the ending of the file.
        columns: the columns to write; empty: all.
        partition: the field whose values become folders.
        table: the table in PostgreSQL.
        secret: the login of a storage, or the password of a server.
        endpoint: the address of an S3-compatible storage.
        redactor: replaces personal data.
        has_schema: write a JSON Schema next to the records.
        is_numbered: add the next free number to the name, and replace nothing.
        tasks: the enrichment tasks to include; None: none, and no column for them.
        makes_folder: create missing folders above a file.
    """

    output: str
    format: str | None = None
    columns: tuple[str, ...] = ()
    partition: str | None = None
    table: str | None = None
    secret: SecretRef | None = None
    endpoint: str | None = None
    redactor: Redactor | None = None
    has_schema: bool = True
    is_numbered: bool = False
    tasks: tuple[str, ...] | None = None
    makes_folder: bool = False


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What was written. `redacted` counts replacements; None without a redactor."""

    path: str
    format: str
    records: int
    parts: int = 1
    schema: str | None = None
    notes: tuple[str, ...] = ()
    redacted: dict[str, int] | None = None


def find_destination(request: ExportRequest) -> Destination:
    """Return the destination of an export, numbered if requested.

    Raises:
        BadOption: the address is malformed, or an option does not apply to it.
        UnknownSecret: the login cannot be read.
        DestinationUnwritable: the existing names cannot be listed.
    """
    scheme = check_request(request)
    secret = request.secret.read().get_secret_value() if request.secret else None
    if scheme in postgres.SCHEMES:
        table = PostgresTable(request.output, request.table or TABLE, secret)
        return table.numbered() if request.is_numbered else table
    if scheme == s3.SCHEME:
        target = S3Object(request.output, login=secret, endpoint=request.endpoint)
        if not request.is_numbered:
            return target
        beginning, _ = _split_ending(target.name)
        return target.renamed(_numbered_name(target.name, target.neighbours(f"{beginning}-")))
    path = Path(request.output)
    if not request.is_numbered:
        return path
    taken = (one.name for one in path.parent.iterdir()) if path.parent.is_dir() else ()
    return path.with_name(_numbered_name(path.name, taken))


def check_request(request: ExportRequest, *, option: str = OUTPUT) -> str:
    """Check that all options apply to the destination; return its scheme, '' for a file.

    `option` is the name of the option with the destination.

    Raises:
        BadOption: an option does not apply, or the destination is malformed.
    """
    scheme = _scheme(request.output, option)
    if scheme not in ("", s3.SCHEME, *postgres.SCHEMES):
        raise BadOption(option, f"{scheme}://… is neither a file nor s3:// nor postgresql://")
    is_stdout = request.output == STDOUT
    refused: tuple[tuple[str, Any, bool], ...] = (
        ("--table", request.table, scheme not in postgres.SCHEMES),
        ("--format", request.format, scheme in postgres.SCHEMES),
        ("--endpoint", request.endpoint, scheme != s3.SCHEME),
        ("--secret", request.secret, scheme == ""),
        # Several objects or tables cannot be replaced atomically.
        ("--partition", request.partition, scheme != "" or is_stdout),
    )
    for name, value, is_refused in refused:
        if value is not None and is_refused:
            place = "standard output" if is_stdout else scheme or "a file"
            raise BadOption(name, f"does not apply to {place}")
    return scheme


def _scheme(output: str, option: str) -> str:
    if "://" not in output:
        return ""
    try:
        return urlsplit(output).scheme
    except ValueError:
        shown = output.partition("://")[0]  # the rest may contain a password
        raise BadOption(option, f"{shown}://… is not an address") from None


def _numbered_name(name: str, taken: Iterable[str]) -> str:
    """Return a name with the number after those that are taken: a.csv, a-0001.csv."""
    beginning, ending = _split_ending(name)
    pattern = re.compile(rf"{re.escape(beginning)}-(\d{{4,}}){re.escape(ending)}", re.ASCII)
    numbers = [int(found[1]) for one in taken if (found := pattern.fullmatch(one))]
    return f"{beginning}-{max(numbers, default=0) + 1:04}{ending}"


def _split_ending(name: str) -> tuple[str, str]:
    path = Path(name)
    ending = path.suffix
    if ending.lstrip(".").lower() in COMPRESSIONS:
        ending = Path(path.stem).suffix + ending
    return name.removesuffix(ending) if ending else name, ending
