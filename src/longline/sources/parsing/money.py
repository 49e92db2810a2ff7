"""Amounts of money: a number and its currency.

A value that cannot be read in exactly one way raises ValueError with the reason.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from longline.sources.parsing.numbers import (
    CODES,
    REGIONS,
    SYMBOLS,
    amount_of,
    only_signed,
    parts_of,
    plain,
    zeros_after,
)

CURRENCIES = frozenset((*REGIONS.values(), "ANG", "BTN", "HTG", "LSL", "NAD", "PAB", "ZWG"))
"""Codes of ISO 4217 that are in use."""
_WORDS = "ALL ANG BAM BOB COP CUP GEL ILS LAK MAD MOP MUR NAD PEN SAR SOS TOP TRY"
CODE_WORDS = frozenset(_WORDS.split())
"""Codes that are words as well, so that only one next to the number counts."""
# Not in CLDR: common spellings, and the main meaning of spellings that several currencies share.
_OWN_SIGNS = """
    GBP £ GBP ￡ VND đ CAD C$ CAD CAN$ CAD CAD$ AUD AUD$ USD USD$ JMD J$ GYD G$ GYD GY$ TTD TT$
    UYU $U ZWL Z$ EGP E£ RON lei BGN лева
"""
CURRENCY_SIGNS = {
    **{sign: codes[0] for sign, codes in SYMBOLS.items() if len(codes) == 1},
    **dict(zip(_OWN_SIGNS.split()[1::2], _OWN_SIGNS.split()[::2], strict=True)),
}
"""Signs and words that one currency has."""
_OWN_WORDS = """
    EUR: euro euros eur евро ευρώ
    RUB: руб рубль рубля рублей р rub rbl
    UAH: грн гривна гривень гривен гривні hrn
    PLN: zł zl zloty złoty złotych złote
    CZK: kč kc koruna korun koruny
    HUF: forint
    RON: lei leu
    BGN: лв лева лев
    TRY: tl lirası
    MYR: rm ringgit
    IDR: rp rupiah
    RSD: din дин dinara динара
    MKD: ден
    KZT: тг тенге
    GEL: lari ლარი ლ
    KGS: сом
    UZS: soʻm сўм so'm сум
    ILS: nis ש"ח ש״ח ש'ח
    KRW: 원 won
    JPY: 円 yen
    CNY: yuan rmb 人民币
    THB: บาท baht
    VND: đ vnđ
    CHF: sfr
    INR: र
    KES: ksh kshs
    AOA: kwz
    GHS: ₵
    KWD: kd
    BHD: bd
    JOD: jd د.ا
    IQD: ع.د
    LYD: ld ل.د
    DZD: دج
    GBP: stg
    BTC: btc ₿
"""
CURRENCY_WORDS = {
    word: code
    for line in _OWN_WORDS.strip().splitlines()
    for code, words in [line.strip().split(": ")]
    for word in words.split()
} | {"دينار كويتي": "KWD", "دينار أردني": "JOD", "دينار بحريني": "BHD", "دينار تونسي": "TND"}
"""Words for one currency, in lower case; they count next to the number."""
# Used by several countries: only the locale decides.
_SHARED_WORDS = """
    dollar dollars pound pounds franc francs frank franken krone kroner kronor krona krónur peso
    pesos rupee rupees rupia dinar dinars dirham dirhams riyal rial shilling shillings fr frs
    تومان ريال درهم جنيه دينار 元 圆 圓 bs rs sh cfa lira dh dhs
"""
ELSEWHERE = {("RUB", "BY"): "BYN", ("RON", "MD"): "MDL", ("CAD", "NI"): "NIO"}
"""What a word for a currency means in a region that uses it for its own."""
# Names without a code here: they are kept as they are written.
_OTHER_NAMES = """
    afghani ariary balboa birr bolivar bolivars bolívar bolívares boliviano bolivianos cedi
    cedis colones colón córdoba cordobas dalasi denar denars dram drams escudo escudos florin
    florins gourde gourdes guarani guaraní guaranies guaraníes guilder guilders gulden hryvnia
    hryvnias hryvnya kina koruna korunas króna kuna kunas kwacha kwanza kyat lari lats lek
    lempira lempiras leone leones leva litas loti manat metical meticais naira nairas nakfa
    ngultrum ouguiya pataca patacas peseta pesetas pula quetzal quetzales quid rand rands
    reais riel riels ringgit rouble roubles rubel ruble rubles rufiyaa rupiah rupie rupien
    roupie roupies schilling schillinge shekel shekels sheqel sheqalim soles somoni taka tala
    tenge tögrög tugrik vatu yen yuan zloty zlotys złotys доллар доллара долларов долара
    доларів фунт фунта фунтов франк франка франков крон крона кроны тенге сум сумов сомони
    манат драм драмов лари шекель шекеля шекелей юань юаня юаней иена иены иен злотый злотых
    форинт форинтов
"""
SHARED_WORDS = frozenset((_SHARED_WORDS + _OTHER_NAMES).split()) - frozenset(CURRENCY_WORDS)
"""Words for the currencies of several countries, in lower case; they count next to the number."""
UNCLEAR_DECIMALS = frozenset(["dinar", "dinars", "دينار", "rial", "riyal", "ریال", "ريال"])
"""Shared words for currencies of which some have three decimals."""
_DOLLARS = "US CA AU NZ SG HK TW"
_PESOS = {"MX": "MXN", "AR": "ARS", "CL": "CLP", "CO": "COP"}
SHARED_SIGNS: Mapping[str, Mapping[str, str]] = {
    "$": {**{region: f"{region}D" for region in _DOLLARS.split()}, **_PESOS},
    "kr": {"sv": "SEK", "da": "DKK", "nb": "NOK", "nn": "NOK", "no": "NOK", "is": "ISK"},
    "¥": {"ja": "JPY", "zh": "CNY"},
}
"""Signs that several countries use, with the currency of each language or country."""

_THREE_DECIMALS = frozenset({"BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"}) | UNCLEAR_DECIMALS
_LOW_THREE = frozenset(currency.lower() for currency in _THREE_DECIMALS)
# Signs: all currency symbols of Unicode, with the capitals that belong to a dollar or a pound.
_SIGN = re.compile(
    r"(?:(?<![A-Za-z])(?:[A-Z]{1,4}|Bds)|(?<![A-Za-z])(?:AU|CAN?|HK|NZ|SG?|US|NT|MX) )?[$£¥￥]"
    r"(?: ?(?:US|CA|AU|NZ|HK|SG|MX)(?![A-Za-z])|[A-Z]{1,2}(?![A-Za-z])|b(?![A-Za-z]))?"
    r"|GH₵|R₣|[¤€\u20a0-\u20cf฿৳៛֏؋﷼￦￡]"
)
_WORD = re.compile(r"[^\W\d_]+")
_DOTTED = re.compile(
    "|".join(
        rf"(?<![^\W\d_]){re.escape(word)}(?![^\W\d_])"
        for word in sorted(
            {word for word in [*CURRENCY_WORDS, *SYMBOLS] if not word.isalpha() and len(word) > 1},
            key=len,
            reverse=True,
        )
        if _WORD.match(word) and not _SIGN.search(word)
    )
)
_TAKEN = re.compile("\0+")
_NUMBER_BEHIND = re.compile(r"[\s.:]*[-+]?\s?\.?\d")
_NUMBER_BEFORE = re.compile(r"\d[\s.]*$")
# Short names that are also common words: they count only after the number.
_BEHIND = frozenset({"Le", "DA", "UP", "den", "mk", "CF", "Ls", "LS", "FB", "SR", "FC", "Ar", "UM"})
_LETTERS = frozenset("BDEFGLQRS")  # of several currencies each; K and M are sizes, P is pence
_PERCENT = re.compile(r"[(\[]?[-+]?\s?\d+(?:[.,]\d+)*\s?[%٪‰][)\]]?")
_NO_CENTS = re.compile(r"(?<=\d)[.,]\s?-{1,2}(?!\d)")  # 19,- is 19
_CENTS = re.compile(
    r"¢|\bGB[pX]\b|(?<=\d)\s?(?:cents?|cts?|pence|p|kop|коп|gr|groszy|st|øre|öre)\b", re.IGNORECASE
)
_MEASURE = re.compile(
    r"\s?(?:[mk]?g|lbs?|oz|[mck]?m|ft|[mc]?l|k?wh?|[kmgt]b|[mck]?m[²2]|km/h)(?![^\W_]|\.\w)"
)
_THREE_LETTERS = re.compile(r"[A-Za-z]{3}")
# Nothing but a number and three capitals, as a code is written; these say what a price includes.
_NO_CODES = "TTC UVP RRP PVP PVC IVA TVA VAT MWS UST GST NET NEW TAX DDV DPH KDV MVA PDV BTW"
_UNKNOWN_CODE = re.compile(
    rf"(?!.*(?:{_NO_CODES.replace(' ', '|')}))"
    r"(?:[A-Z]{3}\s?[\d.,'\s]*\d|\d[\d.,'\s]*[A-Z]{3})\.?"
)
_AMOUNTS = ("amount", "price", "value", "lowPrice")
_CURRENCIES = ("currency", "priceCurrency", "currencyCode")


def read_money(value: Any, locale: str | None, form: str | None) -> dict[str, Any]:
    """Return amount and currency: an ISO 4217 code, or the sign where several countries use it.

    `form` is the currency of amounts without one. An object with an amount and a currency, as in
    JSON-LD, is money too.
    """
    unsaid = _currency_of(form, locale)
    if isinstance(value, Mapping):
        return _from_object(value, locale, form)
    if isinstance(value, int | float):
        if isinstance(value, bool) or not abs(value) <= sys.float_info.max:
            raise ValueError("it is not a finite number, or too large")
        return {"amount": float(value), "currency": unsaid}
    text = plain(str(value))
    if "-" in text:
        text = _NO_CENTS.sub("", text)
    if any(sign in text for sign in "%٪‰"):
        text = _PERCENT.sub(" ", text).strip()
        if "%" in text or not any(char.isdecimal() for char in text):
            raise ValueError("it is a percentage, or one of its numbers is")
    named, text = _take_currency(text, locale)
    if _CENTS.search(text):
        raise ValueError("it is an amount in cents")
    token = only_signed(text)
    zeros = zeros_after(text, token)
    if not named and (text[token.end :].lstrip()[:1] == "K" or _MEASURE.match(text, token.end)):
        raise ValueError("there is a unit after the number, not a currency")
    if not named and unsaid and _UNKNOWN_CODE.fullmatch(text):
        raise ValueError(f"its code may belong to a currency other than {unsaid}")
    currency = named or unsaid
    is_whole = not zeros and (currency or "").lower() not in _LOW_THREE
    amount = amount_of(token, locale, is_whole=is_whole, zeros=zeros)
    return {"amount": amount, "currency": currency}


def _from_object(value: Mapping[str, Any], locale: str | None, form: str | None) -> dict[str, Any]:
    amount = next((value[name] for name in _AMOUNTS if value.get(name) is not None), None)
    if amount is None or isinstance(amount, Mapping | list):
        raise ValueError(f"it has none of {', '.join(_AMOUNTS)}")
    named = next((value[name] for name in _CURRENCIES if value.get(name)), None)
    # Machine formats have a decimal point.
    money = read_money(amount, locale if isinstance(amount, str) and "," in amount else "en", form)
    return {**money, "currency": str(named)} if named else money


def _currency_of(form: str | None, locale: str | None) -> str | None:
    if form is None or form in CURRENCY_SIGNS:
        return form and CURRENCY_SIGNS[form]
    if form in SHARED_SIGNS:
        return _shared(form, locale)
    if not _THREE_LETTERS.fullmatch(form):
        raise ValueError(f"{form!r} is not a currency; write its sign, or a code such as EUR")
    return form.upper()


def _take_currency(text: str, locale: str | None) -> tuple[str | None, str]:
    """Return the currency that a text names, and the text without the words and signs for it."""
    found: set[str] = set()
    rest = text
    for pattern in (_SIGN, _DOTTED, _WORD):
        for match in pattern.finditer(rest):
            if pattern is _SIGN:
                currency: str | None = _of_sign(match[0], locale)
            elif pattern is _WORD:
                currency = _of_named(rest, match, locale)
            else:
                is_next = _NUMBER_BEFORE.search(rest[: match.start()])
                is_next = is_next or _NUMBER_BEHIND.match(rest, match.end())
                currency = (_of_word(match[0], locale) or match[0]) if is_next else None
            if currency:
                found.add(currency)
                # Of the same length, so that later matches keep their places.
                taken = "\0" * len(match[0])
                rest = rest[: match.start()] + taken + rest[match.end() :]
    for sign in list(found):  # "$12 USD" names one currency
        if found & ({*SHARED_SIGNS.get(sign, {}).values(), *SYMBOLS.get(sign, ())} - {sign}):
            found.discard(sign)
    if len(found) > 1:
        raise ValueError(f"there are {len(found)} currencies in it")
    return next(iter(found), None), _TAKEN.sub(" ", rest).strip()


def _of_sign(sign: str, locale: str | None) -> str:
    sign = sign.replace(" ", "").replace("￥", "¥").replace("￦", "₩")
    if sign in SHARED_SIGNS:
        return _shared(sign, locale)
    if code := CURRENCY_SIGNS.get(sign):
        return ELSEWHERE.get((code, parts_of(locale)[1]), code) if sign == "C$" else code
    prefix = sign.rstrip("$£¥")
    if prefix in CODES:
        return prefix
    return _of_word(sign, locale) or sign


def _of_word(word: str, locale: str | None) -> str | None:
    """Return the currency of a word or a sign; the word itself where it is one of several."""
    region = parts_of(locale)[1]
    code = CURRENCY_SIGNS.get(word) or CURRENCY_WORDS.get(word.lower())
    if code:
        return ELSEWHERE.get((code, region), code)
    if word.lower() in SHARED_SIGNS:
        return _shared(word.lower(), locale)
    codes = SYMBOLS.get(word, ())
    if (own := REGIONS.get(region)) and own in codes:
        return own
    if word.lower() in SHARED_WORDS:
        return word
    active = [code for code in codes if code in CURRENCIES] or list(codes)
    return (active[0] if len(active) == 1 else word) if active else None


def _of_named(text: str, match: re.Match[str], locale: str | None) -> str | None:
    """Return the currency that a word in a text names, or None if it is not a currency."""
    word = match[0]
    is_code = len(word) == len("EUR") and word.isascii() and word.upper() in CODES
    is_code = is_code and word != "GBp"  # pence
    if is_code and word.isupper() and word in CURRENCIES and word not in CODE_WORDS:
        return word
    if word in _LETTERS:
        is_rand = word == "R" and _NUMBER_BEHIND.match(text, match.end())
        is_last = not text[match.end() :].strip(" .") and _NUMBER_BEFORE.search(
            text[: match.start()]
        )
        return "ZAR" if is_rand else word if is_last else None
    currency = _of_word(word, locale)
    if not is_code and currency is None:
        return None
    is_behind = _NUMBER_BEFORE.search(text[: match.start()]) is not None
    is_before = not is_behind and _NUMBER_BEHIND.match(text, match.end()) is not None
    if not (is_behind or (is_before and word not in _BEHIND)):
        return None
    if currency or word.isupper():
        return currency or word
    code = word.upper()
    is_word = code in CODE_WORDS and (is_before or text[match.end() :].strip(" .") != "")
    return code if code in CURRENCIES and not is_word else None


def _shared(sign: str, locale: str | None) -> str:
    language, region = parts_of(locale)
    meanings = SHARED_SIGNS[sign]
    if (own := REGIONS.get(region)) and own in SYMBOLS.get(sign, ()):
        return own
    return meanings.get(region) or meanings.get(language) or sign
