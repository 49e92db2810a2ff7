"""Dates and times as people write them, in several languages.

A value that cannot be read in exactly one way raises ValueError with the reason.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

from longline.sources.parsing.numbers import HALF_DAYS as _CLDR_HALF_DAYS
from longline.sources.parsing.numbers import (
    LANGUAGES,
    MONTHS,
    RARE_HALF_DAYS,
    is_day_first,
    is_known,
    parts_of,
    plain,
)

# English, German, French, Spanish, Italian, Portuguese, Dutch, Polish, Swedish, Danish.
_NAMES = """
january jan januar jänner jaenner janvier janv enero ene gennaio gen janeiro januari stycznia
february feb februar feber février fevrier févr fevr febrero febbraio fevereiro fev februari lutego
march mar märz maerz mrz mär mars marzo março marco maart mrt marca marts
april apr avril avr abril abr aprile kwietnia
may mai mayo maggio mag maio mei maja maj
june jun juni juin junio giugno giu junho czerwca
july jul juli juillet juil julio luglio lug julho lipca
august aug août aout agosto ago augustus augusti sierpnia
september sep sept septembre septiembre settembre set setembro września
october oct oktober okt octobre octubre ottobre ott outubro out października
november nov novembre noviembre novembro
december dec dezember dez décembre decembre déc diciembre dic dicembre dezembro grudnia
"""
_MORE_NAMES = "ян:1 янв:1 фев:2 апр:4 авг:8 сеп:9 сент:9 окт:10 ное:11 нояб:11 дек:12 fév:2 fev:2"
_MONTHS: dict[str, int] = {
    **MONTHS,
    **{name: number for number, row in enumerate(_NAMES.split("\n")) for name in row.split()},
    **{name: int(number) for name, _, number in (w.partition(":") for w in _MORE_NAMES.split())},
}
# Before the last day of a range: 12-14 June 2021, 28 May to 3 June 2021.
_RANGE = re.compile(
    r"(?:(?<![\d:.])(?P<d>\d{1,2})(?:st|nd|rd|th|er|\.)?|(?P<m>[^\W\d_]{3,})\.?)"
    r"\s*(?:[-/&+]|\b(?:to|till|until|and|bis|und|et|au|al|y|do|po|по|до|и)\b)\s*$"
)
# The name of different months in two Slavic languages.
_BY_LANGUAGE = {"listopada": {"pl": 11, "hr": 10}}
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
    r"\s*(?P<half>[ap]\.?m\b\.?)?\s*[(\[]?(?P<zone>z\b|"
    r"(?:(?:utc|gmt)\s?)?[+-]\d{1,2}(?::?\d{2})?(?![./-]?\d)|"
    r"[a-z]+/[a-z_/]+|(?:[a-z]+ ){1,3}time\b|[a-z]{1,5}\b)?",
    re.IGNORECASE,
)
HALF_DAYS = {
    **_CLDR_HALF_DAYS,
    "m": "unclear",
    "晚": "pm",
    "晚间": "pm",
    "傍晚": "pm",
    "早": "am",
    "早晨": "am",
}
_NOON = 12
_SHORT = 2  # letters
_EXACT_HALVES = frozenset({"am", "pm", "a m", "p m"})
_LETTERS = re.compile(r"[^\W\d_]+")
_HALF_WORDS = frozenset(
    phrase
    for phrase in HALF_DAYS
    if phrase.isalpha() and (len(phrase) > len("mitt") or not phrase.isascii())
) - {"este", "afternoon", "то"}
# Half-days only with a point after them, or as the last word.
_COMMON = "de du to sa r em ch tr m min то"
_COMMON_WORDS = frozenset(_COMMON.split())
# Words of rare languages, except short ones and those that are common in other languages.
_RARE = frozenset(
    phrase.replace("\u02bc", "'")
    for phrase in RARE_HALF_DAYS
    if len(phrase) > _SHORT or not phrase.isascii()
) - {"comme", "too", "sub", "uhr nommendaachs"}
_LETTER_AFTER = re.compile(r"(?::\d{2}(?:[.,]\d+)?)?\s*[^\W\d_]")
_LETTER_BEFORE = re.compile(r"[^\s\d_,;:./()-][\s.]*$")  # vowel signs are not letters
_CLOCKS = "uhr h hr hrs o'clock heures heure horas ore uur ч часа часов год"
_CLOCK_WORDS = frozenset(_CLOCKS.split())
_CLOCKS_BEFORE = "at um à a alle las o kl klo в във о at:"
_CLOCK_WORDS_BEFORE = frozenset(_CLOCKS_BEFORE.split())
_SECONDS_AFTER = re.compile(r"^:\d{2}(?:[.,]\d+)?")
_SCRIPT = "|".join(
    sorted(
        (key for key in HALF_DAYS if "\u0e00" <= key[0] <= "\u0eff" or key[0] >= "\u3000"), key=len
    )[::-1]
)
_SCRIPT_AFTER = re.compile(rf"\s*({_SCRIPT})")
_SCRIPT_BEFORE = re.compile(rf"({_SCRIPT})\s*$")
_OTHER_SCRIPT = re.compile(r"(?::\d{2})?\s*(?![年月日時时分秒])[\u0530-\U0010ffff]")
_AM_BEFORE = re.compile(r"\bam\s*$")
_OFFSET = re.compile(r"(?P<name>utc|gmt)?\s?(?P<sign>[+-])(?P<h>\d{1,2}?):?(?P<min>\d{2})?")
_WORDS_AFTER_TIMES = """
    uhr h hr hrs hour hours heure ore uur godz kl klo local time on at am um le by
    mon tue wed thu fri sat sun mo di mi do fr sa so
"""
_NO_ZONES = frozenset(_WORDS_AFTER_TIMES.split())
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
_MIN_TIMESTAMP = 1e8  # less is rather a count, a year or a day such as 20240531
_MILLISECONDS = 1e11  # as seconds, this would be the year 5138
_MAX_TIMESTAMP = 1e14
_DIGIT_FORMATS = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_LIKELY_YEARS = range(1900, 2101)
_MAIL_ZONE = re.compile(r":\d\d (?:gmt|utc|[ecmp][sd]t|[+-]\d{4})(?: \(.*\))?$", re.IGNORECASE)
_WEEK = re.compile(r"\d{4}-?W\d{2}(?!-?\d)")
# All of its parts differ, so that a format that loses one does not return it.
_SAMPLE = datetime(2023, 11, 27, 13, 14, tzinfo=UTC)


def read_date(value: Any, locale: str | None, form: str | None) -> str:
    """Return a day as 2024-05-31; `form` is a format of strptime."""
    if isinstance(value, int | float) and not form:
        return _timestamp(value).date().isoformat()
    text = _number_text(value)
    if form:
        check_format(form, is_day=True)
        return _parse_format(text, form).date().isoformat()
    exact = _exact(text)
    return (exact.date() if exact else _day_in(text, locale)).isoformat()


def read_datetime(value: Any, locale: str | None, form: str | None) -> str:
    """Return a time in ISO 8601, with an offset if the text has one; `form` is as for dates."""
    if isinstance(value, int | float) and not form:
        found = _timestamp(value)
        if found.tzinfo is None:
            raise ValueError("there is no time of day in it")
        return found.isoformat()
    text = _number_text(value)
    if form:
        check_format(form, is_day=False)
        return _parse_format(text, form).isoformat()
    exact = _exact(text)
    if exact and (":" in text or "T" in text):
        return exact.isoformat()
    return datetime.combine(_day_in(text, locale), _time_in(text, locale)).isoformat()


def _exact(text: str) -> datetime | None:
    """Return the time of a machine format: ISO 8601, or that of e-mail (RFC 5322)."""
    # Digits alone may look like a day, a separator and an hour; a week is not a day.
    if (text.isdecimal() and len(text) != len("20240531")) or _WEEK.match(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    try:
        # The library ignores zones that it does not know.
        is_mail = _TIME.search(text) and "," in text[:5] and _MAIL_ZONE.search(text)
        return parsedate_to_datetime(text) if is_mail else None
    except (ValueError, TypeError, IndexError):
        return None


def _number_text(value: Any) -> str:
    is_whole = isinstance(value, float) and value.is_integer()
    return plain(str(int(value) if is_whole else value))


def _timestamp(value: float) -> datetime:
    """Return the time of a timestamp, in UTC; or the day of 20240531, without a zone."""
    text = _number_text(value)
    try:
        digits = datetime.strptime(text, _DIGIT_FORMATS[len(text)])  # noqa: DTZ007  # has no zone
    except (KeyError, ValueError):
        digits = None
    if digits and len(text) == len("20240531"):
        return digits
    if digits and digits.year in _LIKELY_YEARS:
        raise ValueError("it may be a date in digits or milliseconds since 1970; set form")
    if not _MIN_TIMESTAMP <= abs(value) < _MAX_TIMESTAMP:
        raise ValueError(f"{text} is neither a date nor seconds or milliseconds since 1970")
    return datetime.fromtimestamp(value / 1000 if abs(value) >= _MILLISECONDS else value, UTC)


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
    low = text.lower()
    named = [
        _day(m["y"], month, m["d"])
        for kind in _NAMED
        for m in kind.finditer(low)
        if (month := _MONTHS.get(m["m"]) or _month_of(m["m"], locale)) and _is_alone(low, m)
    ]
    if named and _is_unknown(locale):
        raise ValueError(f"the month names of {locale} are unknown")
    found = set(named)
    found |= {_day(m["y"], m["m"], m["d"]) for m in _YEAR_FIRST.finditer(low) if _is_alone(low, m)}
    found |= {_in_order(m, locale) for m in _YEAR_LAST.finditer(low) if _is_alone(low, m)}
    if not found:
        raise ValueError("there is no date in it, with day, month and four-digit year")
    if len(found) > 1:
        raise ValueError(f"there are {len(found)} dates in it")
    return found.pop()


def _is_unknown(locale: str | None) -> bool:
    """Return whether the words of a locale for months and parts of the day are unknown."""
    return locale is not None and parts_of(locale)[0] not in LANGUAGES and not is_known(locale)


def _has_word_next_to(low: str, found: re.Match[str]) -> bool:
    after = _LETTER_AFTER.match(low, found.end("min"))
    return bool(after or _LETTER_BEFORE.search(low[: found.start()]))


def _is_alone(low: str, found: re.Match[str]) -> bool:
    """Return True; raise ValueError when the date is the end of a range such as 12-14 June 2021."""
    text = low[max(found.start() - 30, 0) : found.start()].rstrip()
    before = _RANGE.search(text) if text else None
    if before and (before["d"] or _MONTHS.get(before["m"])):
        raise ValueError("it is a range of days")
    return True


def _month_of(name: str, locale: str | None) -> int | None:
    meanings = _BY_LANGUAGE.get(name)
    return meanings.get(parts_of(locale)[0]) if meanings else None


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


def _time_in(text: str, locale: str | None) -> time:
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
        hour = _hour_in_words(text, match, hour, locale)
    fraction = int((match["f"] or "").ljust(6, "0"))
    zone = _zone(match["zone"], is_last=not text[match.end() :].strip(" .)]"))
    try:
        return time(hour, int(match["min"]), int(match["s"] or 0), fraction, zone)
    except ValueError:
        raise ValueError("there is no such time of day") from None


def _hour_in_words(text: str, time_found: re.Match[str], hour: int, locale: str | None) -> int:
    """Return the hour of the day, considering words for a part of the day next to the time."""
    low = text.lower().replace("\u2019", "'").replace("\u02bc", "'")
    if 0 < hour <= _NOON and _is_unknown(locale) and _has_word_next_to(low, time_found):
        raise ValueError(f"the words next to its time are unknown in {locale}")
    phrase = _phrase_after(low, time_found.end("min")) or _phrase_before(low, time_found.start())
    if not phrase:
        if 0 < hour <= _NOON and _OTHER_SCRIPT.match(low, time_found.end("min")):
            raise ValueError("the word after its time may name a half of the day")
        if 0 < hour <= _NOON and any(word in _HALF_WORDS for word in _LETTERS.findall(low)):
            raise ValueError("it names a part of the day, but not next to the time")
        return hour
    half = HALF_DAYS.get(phrase, "unclear")  # of a rare language
    if half == "noon" and hour == _NOON:
        return hour
    if hour > _NOON or hour == 0:
        if half in {"noon", "pm" if hour == 0 else "am"}:
            raise ValueError(f"{phrase!r} contradicts its hour")
        return hour
    is_exact = phrase in _EXACT_HALVES
    if half not in {"am", "pm"} or (hour == _NOON and not is_exact):
        raise ValueError(f"the half of the day that {phrase!r} means is unclear")
    return hour % _NOON + (_NOON if half == "pm" else 0)


def _phrase_after(low: str, end: int) -> str:
    rest = _SECONDS_AFTER.sub("", low[end : end + 60])
    if found := _SCRIPT_AFTER.match(rest):
        return found[1]
    words = rest.replace(".", " ").replace(",", " ").replace("(", " ").replace(")", " ").split()
    words = words[1:] if words and words[0] in _CLOCK_WORDS else words
    is_dotted = rest.lstrip()[2:3] == "."
    for count in range(min(4, len(words)), 0, -1):
        phrase = " ".join(words[:count])
        is_clear = is_dotted or count == len(words) or phrase not in _COMMON_WORDS
        if phrase in _RARE or (phrase in HALF_DAYS and is_clear):
            return phrase
    return ""


def _phrase_before(low: str, start: int) -> str:
    before = low[max(start - 40, 0) : start]
    if found := _SCRIPT_BEFORE.search(before):
        return found[1]
    words = before.replace(".", " ").replace(",", " ").replace("(", " ").split()
    words = words[:-1] if words and words[-1] in _CLOCK_WORDS_BEFORE else words
    for count in range(min(4, len(words)), 0, -1):
        phrase = " ".join(words[-count:])
        # A short word before a time is a preposition more often: am 1. Mai, 8:00.
        is_clear = phrase in {"pm", "p m", "a m"} or len(phrase) > _SHORT
        if phrase in _RARE or (phrase in HALF_DAYS and is_clear and phrase not in _COMMON_WORDS):
            return phrase
    if words and words[-1] == "am" and "pm" not in low and _AM_BEFORE.search(before):
        return "am"
    return ""


def _zone(word: str | None, *, is_last: bool) -> timezone | None:
    name = (word or "").lower()
    if name in _UNCLEAR_ZONES:
        raise ValueError(f"the time zone {word} is ambiguous")
    if name in _ZONES:
        return timezone(timedelta(hours=_ZONES[name]))
    if offset := _OFFSET.fullmatch(name):
        return _offset(offset)
    if not word or name in _NO_ZONES or name in _MONTHS or name in HALF_DAYS:
        return None
    if name == "local time":
        return None  # a word such as Uhr
    if is_last or word.isupper() or "/" in word or name.endswith(" time"):
        raise ValueError(f"the time zone {word} is unknown; only offsets and common ones are known")
    return None


def _offset(found: re.Match[str]) -> timezone:
    hours, minutes = int(found["h"]), int(found["min"] or 0)
    if len(found["h"]) == 1 and not found["min"] and not found["name"]:
        raise ValueError(f"{found[0]} may not be an offset; write +03:00")
    if hours >= 24 or minutes >= 60:  # noqa: PLR2004  # hours of a day, minutes of an hour
        raise ValueError(f"there is no offset {found[0]}")
    shift = timedelta(hours=hours, minutes=minutes)
    return timezone(-shift if found["sign"] == "-" else shift)
