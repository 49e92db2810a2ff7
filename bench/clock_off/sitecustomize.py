"""Sets the clock of one process wrong: by SHIFT_SECONDS, for all that asks Python for the time."""

from __future__ import annotations

import os
import time

_SHIFT = float(os.environ.get("SHIFT_SECONDS", "0"))
_time, _time_ns = time.time, time.time_ns


def _shifted() -> float:
    return _time() + _SHIFT


def _shifted_ns() -> int:
    return _time_ns() + int(_SHIFT * 1e9)


if _SHIFT:
    time.time, time.time_ns = _shifted, _shifted_ns
