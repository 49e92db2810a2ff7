"""Destinations: what an export is to be, and where each sort of place leads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from longline.config.secrets import SecretRef
from longline.core.errors import BadOption
from longline.export.compressed import PACKINGS
from longline.export.destinations import postgres, s3
from longline.export.destinations.postgres import PostgresTable
from longline.export.destinations.s3 import S3Object
from longline.export.redaction import Redactor
from longline.export.writing import OUTPUT

TABLE = "longline_export"
STDOUT = "-"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user asks of an export.

    `output` is a file, a folder (with `partition`), s3://bucket/name.ending or postgresql://….
    `secret` says where the login of a storage or the password of a server is. With `is_numbered`
    the name gets the next free number, and nothing that is there is replaced. `tasks` are those of
    which the records have `enrichments`; None: the records have none. With `makes_folder`, folders
    above a file are made if they are missing.
    """

    output: str
    form: str | None = None
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
class Exported:
    """What was written where. `redacted` counts what was replaced; None when nothing had to be."""

    path: str
    format: str
    records: int
    parts: int = 1
    schema: str | None = None
    notes: tuple[str, ...] = ()
    redacted: dict[str, int] | None = None


Place = Path | S3Object | PostgresTable


def place_of(wish: Wish) -> Place:
    """Return where an export goes, with a number in its name if that was asked for.

    Raises:
        BadOption: an address is broken, or an option does not go with it.
        UnknownSecret: the login cannot be read.
        DestinationUnwritable: the numbers there cannot be looked up.
    """
    scheme = check(wish)
    secret = wish.secret.read().get_secret_value() if wish.secret else None
    if scheme in postgres.SCHEMES:
        table = PostgresTable(wish.output, wish.table or TABLE, secret)
        return table.numbered() if wish.is_numbered else table
    if scheme == s3.SCHEME:
        there = S3Object(wish.output, login=secret, endpoint=wish.endpoint)
        return _numbered_object(there) if wish.is_numbered else there
    path = Path(wish.output)
    return _numbered_path(path) if wish.is_numbered else path


def check(wish: Wish, *, option: str = OUTPUT) -> str:
    """See that all options go with where the export goes; return the scheme, '' of a file.

    `option` is the one that says where.

    Raises:
        BadOption: one does not, or the place is no address.
    """
    scheme = _scheme(wish.output, option)
    known = ("", s3.SCHEME, *postgres.SCHEMES)
    if scheme not in known:
        shown = f"{scheme}://… is neither a file nor s3:// nor postgresql://"
        raise BadOption(option, shown)
    refused: tuple[tuple[str, Any, bool], ...] = (
        ("--table", wish.table, scheme not in postgres.SCHEMES),
        ("--format", wish.form, scheme in postgres.SCHEMES),
        ("--endpoint", wish.endpoint, scheme != s3.SCHEME),
        ("--secret", wish.secret, scheme == ""),
        # Many objects or tables cannot come to be at once, and half an export is none.
        ("--partition", wish.partition, scheme != "" or wish.output == STDOUT),
    )
    for name, value, is_out_of_place in refused:
        if value is not None and is_out_of_place:
            place = "standard output" if wish.output == STDOUT else scheme or "a file"
            raise BadOption(name, f"that does not go with {place}")
    return scheme


def _scheme(output: str, option: str) -> str:
    if "://" not in output:
        return ""
    try:
        return urlsplit(output).scheme
    except ValueError:
        shown = output.partition("://")[0]  # the rest may hold a password
        raise BadOption(option, f"{shown}://… is not an address") from None


def _numbered_path(path: Path) -> Path:
    taken = (one.name for one in path.parent.iterdir()) if path.parent.is_dir() else ()
    return path.with_name(numbered(path.name, taken))


def _numbered_object(there: S3Object) -> S3Object:
    beginning, _ = _parted(there.name)
    return there.renamed(numbered(there.name, there.neighbours(f"{beginning}-")))


def numbered(name: str, taken: Iterable[str]) -> str:
    """Return a name with the number that follows those that are taken: a.csv, a-0001.csv."""
    beginning, ending = _parted(name)
    pattern = re.compile(rf"{re.escape(beginning)}-(\d{{4,}}){re.escape(ending)}", re.ASCII)
    numbers = [int(found[1]) for one in taken if (found := pattern.fullmatch(one))]
    return f"{beginning}-{max(numbers, default=0) + 1:04}{ending}"


def _parted(name: str) -> tuple[str, str]:
    path = Path(name)
    ending = path.suffix
    if ending.lstrip(".").lower() in PACKINGS:
        ending = Path(path.stem).suffix + ending
    return name.removesuffix(ending) if ending else name, ending
