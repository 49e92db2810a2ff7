"""Locale data of the Unicode CLDR, from `cldr.json`, which `tools/cldr.py` writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import orjson

_DATA = orjson.loads(Path(__file__).with_name("cldr.json").read_bytes())

MONTHS: Mapping[str, int] = _DATA["months"]
"""Month number by name; names that two languages use for different months are left out."""
HALF_DAYS: Mapping[str, str] = _DATA["half_days"]
"""Part of the day (am, pm, noon, unclear) by phrase."""
RARE_HALF_DAYS: frozenset[str] = frozenset(_DATA["rare_half_days"])
"""Phrases for parts of the day in all other languages."""
LANGUAGES: frozenset[str] = frozenset(_DATA["languages"])
"""Languages whose month names and phrases are known."""
SYMBOLS: Mapping[str, tuple[str, ...]] = {k: tuple(v) for k, v in _DATA["symbols"].items()}
"""Currency codes by symbol, over all locales."""
MARKS: Mapping[str, str] = _DATA["marks"]
"""Decimal mark of a language; of a locale where it differs."""
ORDERS: Mapping[str, str] = _DATA["orders"]
"""Order of day, month and year of a language; of a locale where it differs."""
REGIONS: Mapping[str, str] = _DATA["regions"]
"""Currency of a region that has one."""
CODES: frozenset[str] = frozenset(_DATA["codes"])
"""Currency codes, including historical ones."""
