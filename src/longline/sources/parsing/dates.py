"""Dates and times as people write them, in several languages.

A value that cannot be read in exactly one way raises ValueError with the reason.
"""

from __future__ import annotations

import contextlib
import math
import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from functools import lru_cache
from typing import Any

from longline.sources.parsing.numbers import (
    HALF_DAYS,
    MONTHS,
    RARE_HALF_DAYS,
    is_day_first,
    is_known,
    parts_of,
    plain,
)

# Spellings that CLDR does not have.
_MORE_MONTHS = """
    jänner:1 jaenner:1 ян:1 feber:2 fevrier:2 fevr:2 fév:2 maerz:3 mrz:3 marco:3 aout:8 decembre:12
"""
_MONTHS: dict[str, int] = {
    **MONTHS,
    **{name: int(number) for name, _, number in (w.partition(":") for w in _MORE_MONTHS.split())},
}
# Before the last day of a range: 12-14 June 2021, 28 May to 3 June 2021.
_RANGE = re.compile(
    r"(?:(?<![\d:.])(?P<d>\d{1,2})(?:st|nd|rd|th|er|\.)?|(?P<m>[^\W\d_]{3,})\.?)"
    r"\s*(?:[-/&+]|\b(?:to|till|until|and|bis|und|et|au|al|y|do|po|по|до|и)\b)\s*$"
)
# The name of different months in two Slavic languages.
_BY_LANGUAGE = {("listopada", "pl"): 11, ("listopada", "hr"): 10}
_MONTH = r"[^\W\d_]{2,}"  # a word that is looked up
_NAMED = (
    re.compile(
        rf"(?<!\d)(?P<d>\d{{1,2}})(?:st|nd|rd|th|er|[.ºª°])?[\s.-]+(?:of\s+|de\s+|d[’'])?"
        rf"(?P<m>{_MONTH})\.?,?[\s.-]+(?:de\s+|del\s+)?(?P<y>\d{{4}})(?!\d)"
    ),
    re.compile(
        rf"(?<![^\W\d])(?P<m>{_MONTH})\.?\s+(?P<d>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<y>\d{{4}})(?!\d)"
    ),
    re.compile(rf"(?<!\d)(?P<y>\d{{4}})[\s-]+(?P<m>{_MONTH})\.?[\s-]+(?P<d>\d{{1,2}})(?!\d)"),
    # As ctime writes it: May 31 10:00:00 2024, with a zone or without.
    re.compile(
        rf"(?<![^\W\d])(?P<m>{_MONTH})\s+(?P<d>\d{{1,2}}),?\s+\d{{1,2}}:\d{{2}}(?::\d{{2}})?,?"
        rf"(?:\s+[a-z]{{1,5}}|\s+[+-]\d{{4}})?[\s,]+(?P<y>\d{{4}})(?!\d)"
    ),
)
_YEAR_FIRST = re.compile(
    r"(?<![\d./-])(?P<y>\d{4})(?:(?P<mark>[./-])|年\s?)(?P<m>\d{1,2})(?:(?P=mark)|月\s?)"
    r"(?P<d>\d{1,2})日?(?![\d./-]*\d)"
)
_YEAR_LAST = re.compile(
    r"(?<![\d./-])(?P<a>\d{1,2})(?P<mark>[./-])\s?(?P<b>\d{1,2})(?P=mark)\s?(?P<y>\d{4})(?![./-]?\d)"
)
_TIME = re.compile(
    r"(?<![\d:.])(?P<h>\d{1,2})(?::|h(?=\d\d(?!\d)))(?P<min>\d{2})(?::(?P<s>\d{2})(?:[.,](?!(?:19|20)\d\d(?!\d))(?P<f>\d{1,6})\d*)?)?(?![\d:])"
    r"\s*(?P<half>[ap]\.?\s?m\b\.?)?\s*[(\[]?(?P<zone>z\b|"
    r"(?:(?:utc|gmt)\s?)?[+-]\d{1,2}(?::?\d{2})?(?![./-]?\d)|"
    r"[a-z]+/[a-z_/]+|(?:[a-z]+ ){1,3}time\b|[a-z]{1,5}\b)?",
    re.IGNORECASE,
)
_NOON = 12
_SHORT = 2  # letters
# Words of rare languages are known, but not their meaning.
_HALVES: dict[str, str] = {
    **{
        phrase.replace("\u02bc", "'"): "unclear"
        for phrase in RARE_HALF_DAYS
        if len(phrase) > _SHORT or not phrase.isascii()
    },
    **HALF_DAYS,
    "m": "unclear",
    **dict.fromkeys(("晚", "晚间", "傍晚"), "pm"),
    **dict.fromkeys(("早", "早晨"), "am"),
}
for _word in ("comme", "too", "sub", "uhr nommendaachs"):
    _HALVES.pop(_word, None)  # common words of other languages
_HALF_WORDS = frozenset(
    phrase
    for phrase in HALF_DAYS
    if phrase.isalpha() and (len(phrase) > len("mitt") or not phrase.isascii())
) - {"este", "afternoon", "то"}
# Half-days only with a point after them, or as the last word.
_COMMON_WORDS = frozenset(("de", "du", "to", "sa", "r", "em", "ch", "tr", "m", "min", "то"))
_EXACT_HALVES = frozenset(("am", "pm", "a m", "p m"))
_AFTER_HOURS = "uhr h hr hrs o'clock heures heure horas ore uur ч часа часов год"
_CLOCKS_AFTER = frozenset(_AFTER_HOURS.split())
_BEFORE_HOURS = "at um à a alle las o kl klo в във о at:"
_CLOCKS_BEFORE = frozenset(_BEFORE_HOURS.split())
_LETTERS = re.compile(r"[^\W\d_]+")
_PUNCTUATION = re.compile(r"[.,()]")
# Scripts without spaces between words.
_SCRIPT = "|".join(
    sorted(
        (one for one in _HALVES if "\u0e00" <= one[0] <= "\u0eff" or one[0] >= "\u3000"), key=len
    )[::-1]
)
_SCRIPT_AFTER = re.compile(rf"\s*({_SCRIPT})")
_SCRIPT_BEFORE = re.compile(rf"({_SCRIPT})\s*$")
_OTHER_SCRIPT = re.compile(r"\s*(?![年月日時时分秒])[\u0530-\U0010ffff]")
_OFFSET = re.compile(r"(?P<name>utc|gmt)?\s?(?P<sign>[+-])(?P<h>\d{1,2}?):?(?P<min>\d{2})?")
_NO_ZONES = """
    uhr h hr hrs hour hours heure ore uur godz kl klo local time on at am um le by
    mon tue wed thu fri sat sun mo di mi do fr sa so
"""
_WORDS_AFTER_TIMES = frozenset((*_NO_ZONES.split(), "local time"))
_HOURS = {
    0: "z utc gmt",
    1: "cet mez",
    2: "cest mesz eet",
    3: "eest msk",
    9: "jst",
    -4: "edt",
    -5: "est",
    -6: "mdt",
    -7: "mst pdt",
    -8: "pst",
}
_ZONES = {name: hours for hours, names in _HOURS.items() for name in names.split()}
# Abbreviations of several time zones.
_UNCLEAR_ZONES = frozenset({"cst", "cdt", "bst", "ist", "ast", "sst"})
_SECONDS_DIGITS, _MILLISECONDS_DIGITS = (9, 10), (13,)  # since 1970, up to the year 2286
_WEEK = re.compile(r"\d{4}-?W\d{2}(?!-?\d)")
# All of its parts differ, so that a format that loses one does not return it.
_SAMPLE = datetime(2023, 11, 27, 13, 14, tzinfo=UTC)


def read_date(value: Any, locale: str | None, form: str | None) -> str:
    """Return a day as 2024-05-31; `form` is a format of strptime."""
    exact = _exact_time(value, form, is_day=True)
    return (exact.date() if exact else _day_in(_number_text(value), locale)).isoformat()


def read_datetime(value: Any, locale: str | None, form: str | None) -> str:
    """Return a time in ISO 8601, with an offset if the text has one; `form` is as for dates."""
    if exact := _exact_time(value, form, is_day=False):
        return exact.isoformat()
    text = _number_text(value)
    return datetime.combine(_day_in(text, locale), _time_in(text)).isoformat()


def _exact_time(value: Any, form: str | None, *, is_day: bool) -> datetime | None:
    """Return the time of a number, or of a text in `form` or ISO 8601; None of other texts."""
    if isinstance(value, int | float) and not form:
        found = _time_of_number(value)
        if found.tzinfo is None and not is_day:
            raise ValueError("there is no time of day in it")
        return found
    text = _number_text(value)
    if form:
        check_format(form, is_day=is_day)
        return _parse_format(text, form)
    return _iso_time(text) if is_day or ":" in text or "T" in text else None


def _iso_time(text: str) -> datetime | None:
    """Return the time of a text in ISO 8601; None if it is written in another way."""
    # Digits alone may look like a day, a separator and an hour; a week is not a day.
    if (text.isdecimal() and len(text) != len("20240531")) or _WEEK.match(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _number_text(value: Any) -> str:
    is_whole = isinstance(value, float) and value.is_integer()
    return plain(str(int(value) if is_whole else value))


def _time_of_number(value: float) -> datetime:
    """Return the time of a timestamp, in UTC; or the day of 20240531, without a zone."""
    text = _number_text(value)
    if len(text) == len("20240531"):
        with contextlib.suppress(ValueError):
            return datetime.strptime(text, "%Y%m%d")  # noqa: DTZ007  # it has no zone
    # Numbers of other sizes may be a count, a year or a time in digits.
    size = math.floor(math.log10(abs(value))) + 1 if value and math.isfinite(value) else 0
    if size not in (*_SECONDS_DIGITS, *_MILLISECONDS_DIGITS):
        problem = f"{text} is neither a date nor seconds or milliseconds since 1970"
        raise ValueError(f"{problem}; set form")
    return datetime.fromtimestamp(value if size in _SECONDS_DIGITS else value / 1000, UTC)


@lru_cache(maxsize=256)
def check_format(form: str, *, is_day: bool) -> None:
    """Raise ValueError if a format of strptime is invalid, or loses a part of a day or time."""
    try:
        parsed = datetime.strptime(_SAMPLE.strftime(form), form)  # noqa: DTZ007  # may have no zone
    except ValueError:
        raise ValueError(f"{form!r} is not a format such as %d.%m.%Y") from None
    has_time = (parsed.hour, parsed.minute) == (_SAMPLE.hour, _SAMPLE.minute)
    if parsed.date() != _SAMPLE.date() or not (is_day or has_time):
        expected = "a day with %d, %m and %Y" if is_day else "a day and a time: %d.%m.%Y %H:%M"
        raise ValueError(f"{form!r} does not have all parts of {expected}")
    if "%Z" in form and not is_day:
        raise ValueError(f"{form!r} loses the zone: only offsets are kept, with %z")


def _parse_format(text: str, form: str) -> datetime:
    try:
        return datetime.strptime(text, form)  # noqa: DTZ007  # without %z there is no zone
    except ValueError:
        raise ValueError(f"it does not have the format {form}") from None


def _day_in(text: str, locale: str | None) -> date:
    if locale is not None and not is_known(locale):
        raise ValueError(f"the words of {locale} for dates are unknown")
    low, language = text.lower(), parts_of(locale)[0]
    found: set[date] = set()
    for kind in (*_NAMED, _YEAR_FIRST, _YEAR_LAST):
        for match in kind.finditer(low):
            if kind is _YEAR_LAST:
                day = _in_order(match, locale)
            else:
                name = match["m"]
                month = _MONTHS.get(name) or _BY_LANGUAGE.get((name, language))
                if not (month or name.isdecimal()):
                    continue
                day = _day(match["y"], month or name, match["d"])
            _refuse_range(low, match.start())
            found.add(day)
    if not found:
        raise ValueError("there is no date in it, with day, month and four-digit year")
    if len(found) > 1:
        raise ValueError(f"there are {len(found)} dates in it")
    return found.pop()


def _refuse_range(low: str, start: int) -> None:
    """Raise ValueError when the date is the end of a range such as 12-14 June 2021."""
    before = _RANGE.search(low[max(start - 30, 0) : start].rstrip())
    if before and (before["d"] or _MONTHS.get(before["m"])):
        raise ValueError("it is a range of days")


def _in_order(found: re.Match[str], locale: str | None) -> date:
    first, second = int(found["a"]), int(found["b"])
    # With points between the parts, the day comes first everywhere.
    is_first = True if found["mark"] == "." else is_day_first(locale)
    if is_first is None:
        if first <= 12 and second <= 12 and first != second:  # noqa: PLR2004  # months of a year
            raise ValueError("the order of day and month is unclear; set locale, such as en-GB")
        is_first = first > 12  # noqa: PLR2004  # the same
    day, month = (first, second) if is_first else (second, first)
    return _day(found["y"], month, day)


def _day(year: str | int, month: str | int, day: str | int) -> date:
    try:
        return date(int(year), int(month), int(day))
    except ValueError:
        raise ValueError("there is no such day") from None


def _time_in(text: str) -> time:
    found = list(_TIME.finditer(text))
    if len(found) != 1:
        raise ValueError("there is no time of day in it" if not found else "it has several times")
    match = found[0]
    hour = int(match["h"])
    if half := match["half"]:
        if not 1 <= hour <= _NOON:
            raise ValueError("there is no such time of day")
        hour = hour % _NOON + (_NOON if half[0] in "pP" else 0)
    else:
        hour = _hour_in_words(text, match, hour)
    fraction = int((match["f"] or "").ljust(6, "0"))
    zone = _zone(match["zone"], is_last=not text[match.end() :].strip(" .)]"))
    try:
        return time(hour, int(match["min"]), int(match["s"] or 0), fraction, zone)
    except ValueError:
        raise ValueError("there is no such time of day") from None


def _hour_in_words(text: str, found: re.Match[str], hour: int) -> int:
    """Return the hour of the day, considering words for a part of the day next to the time."""
    low = text.lower().replace("\u2019", "'").replace("\u02bc", "'")
    end = max(found.end("min"), found.end("s"), found.end("f"))
    phrase = _half_of_day(low[max(found.start() - 40, 0) : found.start()], low[end : end + 60])
    is_half = 0 < hour <= _NOON
    if not phrase:
        has_half_word = any(word in _HALF_WORDS for word in _LETTERS.findall(low))
        if is_half and (has_half_word or _OTHER_SCRIPT.match(low, end)):
            raise ValueError("a word in it may mean a.m. or p.m.")
        return hour
    half = _HALVES[phrase]
    if not is_half and half not in {"noon", "am" if hour else "pm"}:
        return hour
    if half == "noon" and hour == _NOON:
        return hour
    is_exact = 0 < hour < _NOON or (hour == _NOON and phrase in _EXACT_HALVES)
    if half not in {"am", "pm"} or not is_exact:
        raise ValueError(f"{phrase!r} next to its time is unclear, or contradicts its hour")
    return hour % _NOON + (_NOON if half == "pm" else 0)


def _half_of_day(before: str, after: str) -> str:
    """Return the phrase for a part of the day next to a time; "" if there is none."""
    if found := _SCRIPT_AFTER.match(after) or _SCRIPT_BEFORE.search(before):
        return found[1]
    is_dotted = after.lstrip()[2:3] == "."
    behind = _PUNCTUATION.sub(" ", after).split()
    behind = behind[1:] if behind and behind[0] in _CLOCKS_AFTER else behind
    for count in range(min(4, len(behind)), 0, -1):
        phrase = " ".join(behind[:count])
        is_clear = is_dotted or count == len(behind) or phrase not in _COMMON_WORDS
        if phrase in _HALVES and is_clear:
            return phrase
    ahead = _PUNCTUATION.sub(" ", before).split()
    ahead = ahead[:-1] if ahead and ahead[-1] in _CLOCKS_BEFORE else ahead
    for count in range(min(4, len(ahead)), 0, -1):
        phrase = " ".join(ahead[-count:])
        # Other short words before a time are prepositions more often.
        is_half = len(phrase) > _SHORT or _HALVES.get(phrase) == "unclear"
        is_known = phrase in _HALVES and phrase not in _COMMON_WORDS
        if phrase in _EXACT_HALVES or (is_known and is_half):
            return phrase
    return ""


def _zone(word: str | None, *, is_last: bool) -> timezone | None:
    name = (word or "").lower()
    if name in _UNCLEAR_ZONES:
        raise ValueError(f"the time zone {word} is ambiguous")
    if name in _ZONES:
        return timezone(timedelta(hours=_ZONES[name]))
    if offset := _OFFSET.fullmatch(name):
        hours, minutes = int(offset["h"]), int(offset["min"] or 0)
        if len(offset["h"]) == 1 and not offset["min"] and not offset["name"]:
            raise ValueError(
                f"it is unclear whether {offset[0]} is a UTC offset; +03:00 and UTC+3 are"
            )
        if hours >= 24 or minutes >= 60:  # noqa: PLR2004  # hours of a day, minutes of an hour
            raise ValueError(f"there is no offset {offset[0]}")
        shift = timedelta(hours=hours, minutes=minutes)
        return timezone(-shift if offset["sign"] == "-" else shift)
    if not word or name in _WORDS_AFTER_TIMES or name in _MONTHS or name in HALF_DAYS:
        return None
    if is_last or word.isupper() or "/" in word or name.endswith(" time"):
        raise ValueError(f"the time zone {word} is unknown; only offsets and common ones are known")
    return None
