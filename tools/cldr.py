"""Write the CLDR tables of longline from Babel; run it after an update of Babel.

The tables are kept in a file because loading the data of all languages takes a second or more.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from babel import Locale, localedata
from babel import __version__ as babel_version
from babel.core import get_global
from babel.numbers import get_territory_currencies

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "src" / "longline" / "sources" / "parsing" / "cldr.json"
_LANGUAGES = """
    af am ar az be bg bn bs ca cs cy da de el en es et eu fa fi fil fr ga gl gu he hi hr hu hy id is
    it ja ka kk km kn ko ky lo lt lv mk ml mn mr ms my nb ne nl nn pa pl pt ro ru si sk sl sq sr sv
    sw ta te th tk tr uk ur uz vi zh zu
"""
_PLAIN = re.compile(r"[a-z]{2}(?:_[A-Z]{2})?")  # locales as manifests name them
_HALVES = {
    **dict.fromkeys(("am", "morning"), "am"),
    **dict.fromkeys(("pm", "afternoon", "evening"), "pm"),
    "noon": "noon",
    **dict.fromkeys(("night", "midnight"), "unclear"),  # on both sides of midnight
}


def main() -> None:
    """Write the file."""
    TARGET.write_text(f"{json.dumps(tables(), ensure_ascii=False, indent=1)}\n", "utf-8")
    sys.stdout.write(f"{TARGET.relative_to(ROOT)} is written\n")


def tables() -> dict[str, object]:
    """Return the tables of `longline.sources.parsing.numbers` by name."""
    return {
        "babel": babel_version,
        "months": _sorted(_months()),
        "half_days": _sorted(_half_days()),
        "rare_half_days": _rare_half_days(),
        "symbols": _sorted(_symbols()),
        "marks": _sorted(_marks()),
        "orders": _sorted(_orders()),
        "regions": _sorted(_regions()),
        "codes": _codes(),
    }


def _sorted(table: dict[str, object]) -> dict[str, object]:
    return dict(sorted(table.items()))


def _words(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        word = name.lower().removeprefix("de ").removeprefix("d\u2019").strip(" .")
        if word.isalpha():
            yield word


def _months() -> dict[str, object]:
    found: defaultdict[str, set[int]] = defaultdict(set)
    for language in _LANGUAGES.split():
        for widths in Locale.parse(language).months.values():
            for width in ("wide", "abbreviated"):
                for number, name in widths[width].items():
                    for word in _words([name]):
                        found[word].add(number)
    return {word: numbers.pop() for word, numbers in found.items() if len(numbers) == 1}


def _half_days() -> dict[str, object]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for identifier in localedata.locale_identifiers():
        if identifier.split("_")[0] in _LANGUAGES.split():
            for period, phrase in _phrases(identifier):
                found[phrase].add(_HALVES[period])
    return {key: kinds.pop() if len(kinds) == 1 else "unclear" for key, kinds in found.items()}


def _rare_half_days() -> list[str]:
    known = _half_days()
    every = {
        phrase
        for identifier in localedata.locale_identifiers()
        for _, phrase in _phrases(identifier)
    }
    return sorted(phrase for phrase in every if phrase not in known)


def _phrases(identifier: str) -> Iterator[tuple[str, str]]:
    """Yield the words of a locale for the parts of a day, with the name of the part in CLDR."""
    for widths in Locale.parse(identifier).day_periods.values():
        for width in ("wide", "abbreviated"):
            for period, phrase in widths.get(width, {}).items():
                words = phrase.lower().replace(".", " ").replace("\u2019", "'")
                words = words.replace("\u200b", "")
                yield period.rstrip("0123456789"), " ".join(words.split())


def _symbols() -> dict[str, object]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for identifier in localedata.locale_identifiers():
        for code, symbol in Locale.parse(identifier).currency_symbols.items():
            visible = "".join(char for char in symbol if char.isprintable() or char == "\xa0")
            key = " ".join(visible.split()).strip(".")
            is_code = len(key) == len("EUR") and key.isascii() and key.isalpha()
            is_code = is_code and key.isupper()
            is_letter = len(key) == 1 and key.isalpha()  # one letter says too little
            if key and not is_code and not is_letter and code != "XXX":
                found[key].add(code)
    return {key: tuple(sorted(codes)) for key, codes in found.items()}


def _marks() -> dict[str, object]:
    found: dict[str, object] = {}
    for identifier in sorted(localedata.locale_identifiers(), key=len):
        mark = Locale.parse(identifier).number_symbols["latn"]["decimal"]
        if (
            _PLAIN.fullmatch(identifier)
            and mark in {".", ","}
            and found.get(identifier[:2]) != mark
        ):
            found[identifier.replace("_", "-")] = mark
    return found


def _orders() -> dict[str, object]:
    found: dict[str, object] = {}
    for identifier in sorted(localedata.locale_identifiers(), key=len):
        pattern = Locale.parse(identifier).date_formats["short"].pattern
        letters = "".join(dict.fromkeys(char.lower() for char in pattern if char in "dMLy"))
        order = letters.replace("l", "m")
        if _PLAIN.fullmatch(identifier) and found.get(identifier[:2]) != order:
            found[identifier.replace("_", "-")] = order
    return found


def _regions() -> dict[str, object]:
    found: dict[str, object] = {}
    for region in sorted(get_global("territory_currencies")):
        codes = get_territory_currencies(region)
        if len(region) == len("DE") and len(codes) == 1:
            found[region] = codes[0]
    return found


def _codes() -> list[str]:
    return sorted(code for code in Locale.parse("en").currencies if code != "XXX")


if __name__ == "__main__":
    main()
