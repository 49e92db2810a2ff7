"""Amounts of money: a number and the currency that stands beside it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from longline.config.locales import parts_of
from longline.config.units import CURRENCIES, CURRENCY_SIGNS, SHARED_SIGNS
from longline.sources.values_numbers import amount_of, only_signed, plain, zeros_after

_THREE_DECIMALS = frozenset({"BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"})
_SYMBOL = re.compile(
    "|".join(
        rf"(?<![^\W\d_]){re.escape(sign)}(?![^\W\d_])" if sign.isalpha() else re.escape(sign)
        for sign in sorted([*CURRENCY_SIGNS, *SHARED_SIGNS], key=len, reverse=True)
    )
)
_CODE = re.compile(r"(?<![A-Za-z])[A-Z]{3}(?![A-Za-z])")
_NO_CENTS = re.compile(r"(?<=\d)[.,]\s?-{1,2}(?!\d)")  # 19,- is 19
_CENTS = re.compile(r"¢|(?<=\d)\s?(?:cents?|cts?|pence|p)\b", re.IGNORECASE)
_THREE_LETTERS = re.compile(r"[A-Za-z]{3}")
_AMOUNTS = ("amount", "price", "value", "lowPrice")
_CURRENCIES = ("currency", "priceCurrency", "currencyCode")


def read_money(value: Any, locale: str | None, form: str | None) -> dict[str, Any]:
    """Return amount and currency: a code of ISO 4217, or the sign where several countries use it.

    `form` is the currency of amounts that name none; without it, theirs is None. An object with
    an amount and a currency, as in JSON-LD, is money too.

    Raises:
        ValueError: there is not one amount in it, or two currencies; or `form` is no currency.
    """
    unsaid = _currency_of(form, locale)
    if isinstance(value, Mapping):
        return _from_object(value, locale, form)
    if isinstance(value, int | float):
        return {"amount": _finite(value), "currency": unsaid}
    text = _NO_CENTS.sub("", plain(str(value)))
    if _CENTS.search(text):
        raise ValueError("it counts cents, not the currency itself")
    currency = _currency_in(text, locale) or unsaid
    # A code may stand right before the number, where no other letters may.
    text = _CODE.sub(lambda found: " " if found[0] in CURRENCIES else found[0], text)
    text = _SYMBOL.sub(" ", text).strip()
    token = only_signed(text)
    zeros = zeros_after(text, token)
    is_whole = not zeros and currency not in _THREE_DECIMALS
    amount = amount_of(token, locale, is_whole=is_whole, zeros=zeros)
    return {"amount": amount, "currency": currency}


def _from_object(value: Mapping[str, Any], locale: str | None, form: str | None) -> dict[str, Any]:
    amount = next((value[name] for name in _AMOUNTS if value.get(name) is not None), None)
    if amount is None or isinstance(amount, Mapping | list):
        raise ValueError(f"it has none of {', '.join(_AMOUNTS)}")
    named = next((value[name] for name in _CURRENCIES if value.get(name)), None)
    # What programs write for programs has a point before the decimals.
    money = read_money(amount, locale if isinstance(amount, str) and "," in amount else "en", form)
    return {**money, "currency": str(named)} if named else money


def _finite(value: float) -> float:
    try:
        amount = float(value)
    except OverflowError:
        raise ValueError("it is too large") from None
    if isinstance(value, bool) or not math.isfinite(amount):
        raise ValueError("it is not a finite number")
    return amount


def _currency_of(form: str | None, locale: str | None) -> str | None:
    if form is None or form in CURRENCY_SIGNS:
        return form and CURRENCY_SIGNS[form]
    if form in SHARED_SIGNS:
        return _shared(form, locale)
    if not _THREE_LETTERS.fullmatch(form):
        raise ValueError(f"{form!r} is no currency: write three letters such as EUR, or its sign")
    return form.upper()


def _currency_in(text: str, locale: str | None) -> str | None:
    found = {CURRENCY_SIGNS.get(sign) or _shared(sign, locale) for sign in _SYMBOL.findall(text)}
    found |= {code for code in _CODE.findall(text) if code in CURRENCIES}
    # "$12 USD" names one currency twice.
    found -= {
        sign for sign in found & SHARED_SIGNS.keys() if found & set(SHARED_SIGNS[sign].values())
    }
    if len(found) > 1:
        raise ValueError(f"there are {len(found)} currencies in it")
    return next(iter(found), None)


def _shared(sign: str, locale: str | None) -> str:
    language, region = parts_of(locale)
    meanings = SHARED_SIGNS[sign]
    return meanings.get(region) or meanings.get(language) or sign
