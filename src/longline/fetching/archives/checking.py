"""Whether the files of an archive still hold what was written to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from longline.fetching.archives.files import SUFFIX, members
from longline.fetching.archives.records import RESPONSE, REVISIT, body_of, digest_of, parse


def problems_in(folder: Path) -> list[str]:
    """Read every record; return what is wrong, a sentence each."""
    bodies: set[str] = set()
    referred: dict[str, str] = {}  # digests that records refer to, and one place that does
    found: list[str] = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        found += _problems_of(path, bodies, referred)
    lost = (where for digest, where in referred.items() if digest not in bodies)
    return found + [f"{where}: refers to a body that is in no file" for where in lost]


def _problems_of(path: Path, bodies: set[str], referred: dict[str, str]) -> Iterator[str]:
    size, end = path.stat().st_size, 0
    for offset, length, text in members(path):
        where = f"{path.name} at {offset}"
        try:
            record = parse(text)
        except ValueError:
            yield f"{where}: not a WARC record"
            continue
        end = offset + length
        if record.kind == REVISIT:
            referred.setdefault(record.digest, where)
        elif record.kind == RESPONSE and digest_of(body_of(record)) != record.digest:
            yield f"{where}: the body is not what its digest says"
        elif record.kind == RESPONSE:
            bodies.add(record.digest)
    if end < size:
        # The end of a process may cut its last record; nobody has relied on that one yet.
        yield f"{path.name} at {end}: {size - end} bytes that are no whole record"
