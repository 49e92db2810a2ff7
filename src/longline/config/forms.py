"""What `form` may say of a value: checked when it is read, not at the first page."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from longline.config.documents_words import nearest
from longline.config.units import AREAS, CURRENCIES, CURRENCY_SIGNS, SECONDS, SHARED_SIGNS
from longline.config.written import wrong

_CLOCKS = ("m:s", "h:m")
# No two parts of it are alike, so that a form which loses one gives another moment back.
_MOMENT = datetime(2023, 11, 27, 13, 14)  # noqa: DTZ001  # a form need not speak of zones


def check_form(kind: str | None, form: str | None) -> None:
    """See that a form says something about values of this kind.

    Raises:
        PydanticCustomError: it does not.
    """
    if form is None or kind is None:
        return
    if kind in {"date", "datetime"}:
        _check_moment(form, is_day=kind == "date")
    elif kind == "money" and form not in CURRENCY_SIGNS and form not in SHARED_SIGNS:
        _check_one_of(form.upper(), form, CURRENCIES, "a currency: three letters such as EUR")
    elif kind == "duration" and form not in _CLOCKS:
        _check_one_of(form.lower(), form, SECONDS, "a unit of time: minutes, or m:s, or h:m")
    elif kind == "area":
        _check_one_of(form.lower(), form, AREAS, "a unit of area such as m² or sqft")


def _check_one_of(meant: str, form: str, known: Iterable[str], wanted: str) -> None:
    names = sorted(known)
    if meant not in names:
        like = nearest(meant, names)
        raise wrong(f"form: {form!r} is not {wanted}{f'; did you mean {like!r}?' if like else ''}")


def _check_moment(form: str, *, is_day: bool) -> None:
    try:
        back = datetime.strptime(_MOMENT.strftime(form), form)  # noqa: DTZ007  # the same
    except ValueError as error:
        if "bad directive" in str(error) or "stray %" in str(error):
            problem = "it has a % that strptime does not know"
            raise wrong(f"form: {form!r} is no format such as %d.%m.%Y: {problem}") from None
        return  # a zone or a week that this moment does not have: the values will tell
    lacks_time = not is_day and (back.hour, back.minute) != (_MOMENT.hour, _MOMENT.minute)
    if back.date() != _MOMENT.date() or lacks_time:
        wanted = "a day with %d, %m and %Y" if is_day else "a day and a time, as %d.%m.%Y %H:%M"
        raise wrong(f"form: {form!r} does not hold all of {wanted}")
