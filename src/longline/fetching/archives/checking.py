"""Whether the files of an archive still hold what was written to them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from longline.fetching.archives.base import Findings
from longline.fetching.archives.files import SUFFIX, is_cut, members
from longline.fetching.archives.records import RESPONSE, REVISIT, body_of, digest_of, parse


def check(folder: Path, ends: Mapping[str, int], lost: Mapping[str, int]) -> Findings:
    """Read every record, and say what is wrong or gone.

    Args:
        folder: where the files are.
        ends: where, by the index, the last answer in a file ends.
        lost: how many answers that the index knew are no longer in a file.
    """
    checking = _Checking(ends)
    for name, count in lost.items():
        checking.problems.append(f"{name}: {_answers(count)} written to it, and gone from it")
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        checking.read(path)
    return checking.findings()


class _Checking:
    """What was found so far; a record may refer to a body in any other file."""

    def __init__(self, ends: Mapping[str, int]) -> None:
        self.problems: list[str] = []
        self._notes: list[str] = []
        self._ends = ends
        self._bodies: set[str] = set()
        self._referred: dict[str, str] = {}  # digests that records refer to, and one that does

    def read(self, path: Path) -> None:
        size, end = path.stat().st_size, 0
        for offset, length, text in members(path):
            self._read_record(f"{path.name} at {offset}", text)
            end = offset + length
        if end < size:
            self._judge_rest(path, end, size - end)

    def findings(self) -> Findings:
        lost = (where for digest, where in self._referred.items() if digest not in self._bodies)
        missing = (f"{where}: refers to a body that is in no file" for where in lost)
        return Findings((*self.problems, *missing), tuple(self._notes))

    def _read_record(self, where: str, text: bytes) -> None:
        try:
            record = parse(text)
        except ValueError:
            self.problems.append(f"{where}: not a WARC record")
            return
        if record.kind == REVISIT:
            self._referred.setdefault(record.digest, where)
        elif record.kind == RESPONSE and digest_of(body_of(record)) != record.digest:
            self.problems.append(f"{where}: the body is not what its digest says")
        elif record.kind == RESPONSE:
            self._bodies.add(record.digest)

    def _judge_rest(self, path: Path, end: int, size: int) -> None:
        where = f"{path.name} at {end}"
        if end >= self._ends.get(path.name, 0) and is_cut(path, end):
            # Nobody has relied on it: an answer counts as kept when its record is whole.
            self._notes.append(f"{where}: the last record was cut when its process ended")
        else:
            self.problems.append(f"{where}: {size} bytes that are no whole record")


def _answers(count: int) -> str:
    return "1 answer was" if count == 1 else f"{count} answers were"
