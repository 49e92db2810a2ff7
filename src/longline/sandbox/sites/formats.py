"""Amounts and dates as written in several languages."""

from __future__ import annotations

from datetime import date

_MONTHS = {
    "en": ("January February March April May June July August September October November December"),
    "de": ("Januar Februar März April Mai Juni Juli August September Oktober November Dezember"),
    "fr": ("janvier février mars avril mai juin juillet août septembre octobre novembre décembre"),
    "bg": ("януари февруари март април май юни юли август септември октомври ноември декември"),
}
_DATES = {
    "en": "{day} {month} {year}",
    "de": "{day}. {month} {year}",
    "fr": "{day} {month} {year}",
    "bg": "{day} {month} {year} г.",  # noqa: RUF001  # Bulgarian
}
# The thousands separator and the decimal mark.
_SIGNS = {"en": (",", "."), "de": (".", ","), "fr": ("\N{NO-BREAK SPACE}", ","), "bg": (" ", ",")}
_MONEY = {"en": "€{0}", "de": "{0} €", "fr": "{0}\N{NO-BREAK SPACE}€", "bg": "{0} лв."}


def written_date(day: date, language: str) -> str:
    """Return a date such as 14. März 2026."""
    month = _MONTHS[language].split()[day.month - 1]
    return _DATES[language].format(day=day.day, month=month, year=day.year)


def written_money(cents: int, language: str) -> str:
    """Return an amount such as €1,234.50 or 1.234,50 €."""
    thousands, point = _SIGNS[language]
    plain = f"{cents // 100:,}".replace(",", thousands)
    return _MONEY[language].format(f"{plain}{point}{cents % 100:02d}")
