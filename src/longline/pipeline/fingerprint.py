"""The stage that tells whether a record is still the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import orjson


def fingerprint(data: Mapping[str, Any], *, volatile: AbstractSet[str] = frozenset()) -> str:
    """Return a short hash of the data without its volatile fields, whatever the fields' order."""
    steady = {n: v for n, v in data.items() if n not in volatile} if volatile else dict(data)
    text = orjson.dumps(steady, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str)
    return hashlib.blake2b(text, digest_size=16).hexdigest()
