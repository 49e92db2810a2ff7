"""Dates and moments as people write them, in several languages; nothing is made up."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from longline.config.locales import is_day_first
from longline.sources.values_numbers import plain

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
november nov novembre noviembre novembro listopada
december dec dezember dez décembre decembre déc diciembre dic dicembre dezembro grudnia
"""
_BULGARIAN = "януари февруари март април май юни юли август септември октомври ноември декември"
_MONTHS = {
    **{name: number for number, row in enumerate(_NAMES.split("\n")) for name in row.split()},
    **{name: number for number, name in enumerate(_BULGARIAN.split(), start=1)},
}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_NAMED = (
    re.compile(
        rf"(?<!\d)(?P<d>\d{{1,2}})(?:st|nd|rd|th|er|[.ºª°])?[\s-]+(?:of\s+|de\s+)?"
        rf"(?P<m>{_MONTH})\.?,?[\s-]+(?:de\s+|del\s+)?(?P<y>\d{{4}})(?!\d)"
    ),
    re.compile(
        rf"(?<![^\W\d])(?P<m>{_MONTH})\.?\s+(?P<d>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<y>\d{{4}})(?!\d)"
    ),
    re.compile(rf"(?<!\d)(?P<y>\d{{4}})[\s-]+(?P<m>{_MONTH})\.?[\s-]+(?P<d>\d{{1,2}})(?!\d)"),
)
_YEAR_FIRST = re.compile(
    r"(?<![\d./-])(?P<y>\d{4})(?:(?P<mark>[./-])|年\s?)(?P<m>\d{1,2})(?:(?P=mark)|月\s?)"
    r"(?P<d>\d{1,2})日?(?![\d./-]*\d)"
)
_YEAR_LAST = re.compile(
    r"(?<![\d./-])(?P<a>\d{1,2})(?P<mark>[./-])\s?(?P<b>\d{1,2})(?P=mark)\s?(?P<y>\d{4})(?![./-]?\d)"
)
_TIME = re.compile(
    r"(?<![\d:.])(?P<h>\d{1,2}):(?P<min>\d{2})(?::(?P<s>\d{2})(?:[.,](?P<f>\d{1,6})\d*)?)?(?![\d:])"
    r"\s*(?P<half>[ap]\.?m\b\.?)?\s*[(\[]?(?P<zone>z\b|"
    r"(?:(?:utc|gmt)\s?)?[+-]\d{1,2}(?::?\d{2})?(?![./-]?\d)|"
    r"[a-z]+/[a-z_/]+|(?:[a-z]+ ){1,3}time\b|[a-z]{1,5}\b)?",
    re.IGNORECASE,
)
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
# Two or three parts of the world call their own time so.
_UNCLEAR_ZONES = frozenset({"cst", "cdt", "bst", "ist", "ast", "sst"})
_FIRST_MOMENT = 1e8  # fewer seconds are rather a count, a year or a day such as 20240531
_MILLISECONDS = 1e11  # as seconds, this would be the year 5138
_LAST_MOMENT = 1e14
_WRITTEN_TOGETHER = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_LIKELY_YEARS = range(1900, 2101)
_MAIL_ZONE = re.compile(r" (?:gmt|utc|[ecmp][sd]t|[+-]\d{4})(?: \(.*\))?$", re.IGNORECASE)
_WEEK = re.compile(r"\d{4}-?W\d{2}(?!-?\d)")
_DIRECTIVE = re.compile(r"%(.)")
_PARTS = {"year (%Y)": "YyGcx", "month (%m)": "mbBcx", "day (%d)": "dcx", "hour (%H)": "HIcX"}


def read_date(value: Any, locale: str | None, form: str | None) -> str:
    """Return a day as 2024-05-31. `form` is a format of strptime, for what only that explains.

    Raises:
        ValueError: there is not one date in it that can be read in one way.
    """
    if isinstance(value, int | float) and not form:
        return _moment(value).date().isoformat()
    text = _written(value)
    if form:
        _check_form(form, "year (%Y)", "month (%m)", "day (%d)")
        return _by_form(text, form).date().isoformat()
    exact = _exact(text)
    return (exact.date() if exact else _day_in(text, locale)).isoformat()


def read_datetime(value: Any, locale: str | None, form: str | None) -> str:
    """Return a moment in ISO 8601, with its offset when the text has one and without otherwise.

    Raises:
        ValueError: there is not one date and one time of day in it.
    """
    if isinstance(value, int | float) and not form:
        moment = _moment(value)
        if moment.tzinfo is None:
            raise ValueError("there is no time of day in it")
        return moment.isoformat()
    text = _written(value)
    if form:
        _check_form(form, *_PARTS)
        if "Z" in _DIRECTIVE.findall(form):
            raise ValueError("a form with %Z loses the zone; only offsets are kept, with %z")
        return _by_form(text, form).isoformat()
    exact = _exact(text)
    if exact and (":" in text or "T" in text):
        return exact.isoformat()
    return datetime.combine(_day_in(text, locale), _time_in(text)).isoformat()


def _exact(text: str) -> datetime | None:
    """Return what is written for programs: ISO 8601, or the way of mails (RFC 5322)."""
    # Digits alone may look like a day, any mark and an hour; a week is no day.
    if (text.isdecimal() and len(text) != len("20240531")) or _WEEK.match(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    try:
        # Of zones it does not know, the library makes none.
        is_mail = _TIME.search(text) and "," in text[:5] and _MAIL_ZONE.search(text)
        return parsedate_to_datetime(text) if is_mail else None
    except (ValueError, TypeError, IndexError):
        return None


def _written(value: Any) -> str:
    is_whole = isinstance(value, float) and value.is_integer()
    return plain(str(int(value) if is_whole else value))


def _moment(value: float) -> datetime:
    """Return when a number is: in UTC, or without a zone the day that its digits write."""
    text = _written(value)
    together = _together(text)
    if together and len(text) == len("20240531"):
        return together
    if together:
        raise ValueError("it is a date in digits or milliseconds since 1970; say which with form")
    if not _FIRST_MOMENT <= abs(value) < _LAST_MOMENT:
        raise ValueError(f"{text} is no moment in seconds or milliseconds since 1970, and no date")
    seconds = value / 1000 if abs(value) >= _MILLISECONDS else value
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError) as error:
        raise ValueError("it is no moment in seconds since 1970") from error


def _together(text: str) -> datetime | None:
    try:
        # As in a form: none of these has a zone.
        found = datetime.strptime(text, _WRITTEN_TOGETHER[len(text)])  # noqa: DTZ007
    except (KeyError, ValueError):
        return None
    return found if len(text) == len("20240531") or found.year in _LIKELY_YEARS else None


def _check_form(form: str, *parts: str) -> None:
    """See that a form has these parts; strptime makes up what it has not: 1900, or January."""
    said = set(_DIRECTIVE.findall(form))
    has_weekday = bool(said & set("aAwu"))
    is_day = "j" in said or (has_weekday and bool(said & set("UWV")))
    lacking = [part for part in parts if not said & set(_PARTS[part])]
    if is_day:
        lacking = [part for part in lacking if part[0] not in "md"]
    if "hour (%H)" in parts and "I" in said and not said & set("pHcX"):
        lacking.append("half of the day (%p)")
    if lacking:
        raise ValueError(f"the form {form} lacks {', '.join(lacking)}")


def _by_form(text: str, form: str) -> datetime:
    try:
        # The zone is the form's to read; without %z there is none, and none is made up.
        return datetime.strptime(text, form)  # noqa: DTZ007
    except ValueError:
        raise ValueError(f"it is not written as {form}") from None


def _day_in(text: str, locale: str | None) -> date:
    low = text.lower()
    found = {_day(m["y"], _MONTHS[m["m"]], m["d"]) for kind in _NAMED for m in kind.finditer(low)}
    found |= {_day(m["y"], m["m"], m["d"]) for m in _YEAR_FIRST.finditer(low)}
    found |= {_in_order(m, locale) for m in _YEAR_LAST.finditer(low)}
    if not found:
        raise ValueError("there is no date in it, with day, month and four-digit year")
    if len(found) > 1:
        raise ValueError(f"there are {len(found)} dates in it")
    return found.pop()


def _in_order(found: re.Match[str], locale: str | None) -> date:
    first, second = int(found["a"]), int(found["b"])
    # Where points stand between the parts, the day comes first everywhere.
    is_first = True if found["mark"] == "." else is_day_first(locale)
    if is_first is None:
        if first <= 12 and second <= 12 and first != second:  # noqa: PLR2004  # months of a year
            raise ValueError("day and month may be either way round; say locale, such as en-GB")
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
        if not 1 <= hour <= 12:  # noqa: PLR2004  # hours on a clock's face
            raise ValueError("there is no such time of day")
        hour = hour % 12 + (12 if half[0] in "pP" else 0)
    fraction = int((match["f"] or "").ljust(6, "0"))
    zone = _zone(match["zone"], is_last=not text[match.end() :].strip(" .)]"))
    try:
        return time(hour, int(match["min"]), int(match["s"] or 0), fraction, zone)
    except ValueError:
        raise ValueError("there is no such time of day") from None


def _zone(word: str | None, *, is_last: bool) -> timezone | None:
    name = (word or "").lower()
    if name in _UNCLEAR_ZONES:
        raise ValueError(f"which zone {word} is, is not clear")
    if name in _ZONES:
        return timezone(timedelta(hours=_ZONES[name]))
    if offset := _OFFSET.fullmatch(name):
        return _offset(offset)
    if not word or name in _NO_ZONES or name in _MONTHS or name == "local time":
        return None  # a word such as Uhr
    if is_last or word.isupper() or "/" in word or name.endswith(" time"):
        raise ValueError(f"which zone {word} is, is not known; only offsets and common ones are")
    return None


def _offset(found: re.Match[str]) -> timezone:
    hours, minutes = int(found["h"]), int(found["min"] or 0)
    if len(found["h"]) == 1 and not found["min"] and not found["name"]:
        raise ValueError(f"whether {found[0]} is an offset is not clear; one is written +03:00")
    if hours >= 24 or minutes >= 60:  # noqa: PLR2004  # hours of a day, minutes of an hour
        raise ValueError(f"there is no offset {found[0]}")
    shift = timedelta(hours=hours, minutes=minutes)
    return timezone(-shift if found["sign"] == "-" else shift)
