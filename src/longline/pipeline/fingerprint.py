"""The stage that tells whether a record is still the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import orjson

from longline.sources.plain import to_json


def fingerprint(data: Mapping[str, Any], *, volatile: AbstractSet[str] = frozenset()) -> str:
    """Return a short hash of the data without its volatile fields, whatever the fields' order.

    Raises:
        TypeError: a field, volatile or not, cannot be stored; it is named.
    """
    steady = {n: v for n, v in data.items() if n not in volatile} if volatile else dict(data)
    if volatile:
        to_json({n: v for n, v in data.items() if n in volatile})
    text = to_json(steady, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=16).hexdigest()
