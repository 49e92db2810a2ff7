"""Runs longline and kills its own process with SIGKILL at one point: a child of `proof_flows`.

The arguments are a file, the name of a point (a dash is none), and those of longline. Each point
that the process passes is appended to the file, also the last one, so it is known where it ended.
The points are those of the tests (before and after each write of a flow and each effect), and
further ones in the middle of transactions, exports, jobs, checks and commands.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from children import BENCH

sys.path.append(str(BENCH.parent))
from tests.scheduling.crash_points import CrashPoints

from longline.cli.main import main
from longline.export.postgres import PostgresTable
from longline.storage.scheduling.flows import Flows

EXPORTS = "out"
"""The folder of the exports of the flow."""
_BEFORE = "before "
_COMMITTING = "committing "
_RANDOM = re.compile(r"[0-9a-f]{8,12}")  # in names of temporary and kept files
_DATABASE = re.compile(r"warehouse_\w+")  # each stage of the proof has one of its own
_JOB = ("after attach", "before finish")  # between them, the job of the flow runs


class KillPoints(CrashPoints):
    """Reports each point, with its number among those of the same name, and kills at one."""

    def __init__(self, report: Path, target: str) -> None:
        super().__init__()
        self._file = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._target = target
        self._passed: Counter[str] = Counter()
        self._lock = threading.Lock()

    def pass_by(self, name: str) -> None:
        """Report a point; kill this process if it is the one."""
        name = _DATABASE.sub("warehouse", name)
        with self._lock:
            self.names.append(name)
            self._passed[name] += 1
            point = f"{name} #{self._passed[name]}"
            os.write(self._file, f"{point}\n".encode())
            if point == self._target:
                os.kill(os.getpid(), signal.SIGKILL)

    def instrument_more(self) -> None:
        """Add points in the middle of transactions and exports."""
        self.watch(Flows, "create", setattr)
        self.watch(PostgresTable, "_make_room", setattr)
        self.watch(PostgresTable, "_drop_ours", setattr)
        event.listen(Engine, "commit", self._commit)
        for name in ("replace", "rename"):
            setattr(Path, name, self._watched_move(name, getattr(Path, name)))

    def _commit(self, _connection: Any) -> None:
        """Pass by when everything of a transaction is done, except its commit."""
        last = self.names[-1] if self.names else ""
        if last.startswith((_BEFORE, _COMMITTING)):  # an operation may have several transactions
            about = last.removeprefix(_BEFORE).removeprefix(_COMMITTING)
            self.pass_by(f"{_COMMITTING}{about}")
        elif _JOB[0] in self.names and _JOB[1] not in self.names:
            self.pass_by(f"{_COMMITTING}in the job")

    def _watched_move(self, name: str, move: Any) -> Any:
        def watched(path: Path, target: Path) -> Any:
            if path.parent.name != EXPORTS:
                return move(path, target)
            about = f"{name} {_RANDOM.sub('*', path.name)}"
            self.pass_by(f"before {about}")
            result = move(path, target)
            self.pass_by(f"after {about}")
            return result

        return watched


if __name__ == "__main__":
    POINTS = KillPoints(Path(sys.argv[1]), sys.argv[2])
    pass_by = POINTS.pass_by  # called by the source and the check of the flow
    POINTS.instrument(setattr)
    POINTS.instrument_more()
    sys.argv[:] = ["longline", *sys.argv[3:]]
    main()
