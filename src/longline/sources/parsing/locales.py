"""How people of a language and a country write numbers and dates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator

from longline.config.strict_model import invalid
from longline.config.validation_messages import nearest
from longline.sources.parsing.cldr import MARKS, ORDERS

_LOCALE = re.compile(r"(?P<language>[a-z]{2})(?:[-_](?P<region>[A-Z]{2}))?")
_COMMA_LANGUAGES = """
    bg ca cs da de el es et eu fi fr gl hr hu id is it lt lv nb nl nn no pl pt ro ru sk sl sq sr
    sv tr uk vi
"""
_COMMA = frozenset(_COMMA_LANGUAGES.split())
_POINT = frozenset({"en", "he", "hi", "ja", "ko", "ms", "th", "zh"})
# A country may write otherwise than the rest of its language.
_POINT_REGIONS = frozenset({"CH", "LI", "MX", "US", "PR", "GT", "HN", "NI", "PA", "PE", "SV", "DO"})
_MONTH_FIRST = frozenset({"US", "PH"})
# Where a bare `en` is from is unknown, and English is written both ways.
_UNKNOWN_ORDER = frozenset({"en"})
_YEAR_FIRST = frozenset({"ja", "ko", "zh", "hu", "lt"})


def parts_of(locale: str | None) -> tuple[str, str]:
    """Return language and region, "" for what is not said: `de-AT`, `de` or None."""
    found = _LOCALE.fullmatch(locale or "")
    return (found["language"], found["region"] or "") if found else ("", "")


def is_known(locale: str) -> bool:
    """Return whether we know how numbers are written there."""
    return parts_of(locale)[0] in _COMMA | _POINT


def decimal_mark(locale: str | None) -> str | None:
    """Return the sign before the decimals, or None when it is not known.

    Where CLDR has another one than the language is known for, both are in use: it is not known.
    """
    language, region = parts_of(locale)
    if language not in _POINT and language not in _COMMA:
        return None
    mark = "." if language in _POINT or region in _POINT_REGIONS else ","
    return mark if _of_cldr(MARKS, language, region) in {None, mark} else None


def is_day_first(locale: str | None) -> bool | None:
    """Return whether 1/2/2024 is in February; None when it is not known."""
    language, region = parts_of(locale)
    if not language or language in _YEAR_FIRST:
        return None
    if language in _UNKNOWN_ORDER and not region:
        return None
    order = _of_cldr(ORDERS, language, region)
    if not region and order != "mdy":
        order = None
    if region in _MONTH_FIRST:
        return False if order in {None, "mdy"} or language == "en" else None
    return True if order in {None, "dmy"} else None


def _of_cldr(table: Mapping[str, str], language: str, region: str) -> str | None:
    return table.get(f"{language}-{region}") or table.get(language)


# ---------------- Currencies and units as people write them: what values are read by, and `form`

_ISO_4217 = """
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP
    BYN BZD CAD CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP
    GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR
    KMF KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN
    MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD
    SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX
    USD UYU UZS VES VND VUV WST XAF XCD XOF XPF YER ZAR ZMW ZWG
"""
CURRENCIES = frozenset(_ISO_4217.split())
"""Codes of ISO 4217."""
_WORDS = "ALL ANG BAM BOB COP CUP GEL ILS LAK MAD MOP MUR NAD PEN SAR SOS TOP TRY"
CODE_WORDS = frozenset(_WORDS.split())
"""Codes that are words as well, so that only one next to the number counts."""
# What CLDR has not: common spellings, and the meaning of those that it gives to several currencies.
_OWN_SIGNS = """
    EUR € GBP £ GBP ￡ INR ₹ KRW ₩ TRY ₺ UAH ₴ ILS ₪ VND ₫ VND đ THB ฿ RUB ₽ KZT ₸ NGN ₦ PHP ₱
    CRC ₡ BRL R$ USD US$ CAD C$ CAD CA$ CAD CAN$ CAD CAD$ AUD A$ AUD AU$ AUD AUD$ NZD NZ$ HKD HK$
    SGD S$ MXN MX$ TWD NT$ USD USD$ JMD J$ GYD G$ GYD GY$ TTD TT$ UYU $U ZWL Z$ EGP E£
    PLN zł CZK Kč HUF Ft RON lei BGN лв BGN лева
"""
CURRENCY_SIGNS = dict(zip(_OWN_SIGNS.split()[1::2], _OWN_SIGNS.split()[::2], strict=True))
"""Signs and words that one currency has, as they are written most often."""
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
    RSD: din dinara дин динара
    MKD: ден
    KZT: тг тенге
    GEL: lari ლარი ლ
    UZS: soʻm so'm сум сўм
    KGS: сом
    ILS: nis ש"ח ש״ח ש'ח
    KRW: 원 won
    JPY: 円 yen
    CNY: yuan rmb 人民币
    THB: บาท baht
    VND: đ vnđ
    CHF: sfr
    INR: र
    LKR: රු
    ETB: ብር
    KES: ksh kshs
    AOA: kwz
    GHS: ₵
    KWD: kd د.ك
    BHD: bd د.ب
    TND: د.ت
    JOD: jd د.أ د.ا
    IQD: ع.د د.ع
    LYD: ld ل.د د.ل
    DZD: دج د.ج
    MAD: د.م
    AED: د.إ
    SAR: ر.س
    QAR: ر.ق
    OMR: ر.ع
    YER: ر.ي
    EGP: ج.م
    SDG: ج.س
    LBP: ل.ل
    SYP: ل.س
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
# Several countries use these; which is meant, only the locale can say.
_SHARED_WORDS = """
    dollar dollars pound pounds franc francs frank franken krone kroner kronor krona krónur peso
    pesos rupee rupees rupia dinar dinars dirham dirhams riyal rial shilling shillings fr frs
    تومان ريال درهم جنيه دينار 元 圆 圓 bs rs sh cfa lira dh dhs
"""
ELSEWHERE = {("RUB", "BY"): "BYN", ("RON", "MD"): "MDL", ("CAD", "NI"): "NIO"}
"""What a word for a currency means in a region that uses it for its own."""
# Names whose code is not decided here: they are kept as they are written.
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

SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "sek", "sekunde", "sekunden"), 1),
    **dict.fromkeys(("seconde", "secondes", "segundo", "segundos", "secondi", "sekund"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes", "minuten", "minuto", "minutos"), 60),
    **dict.fromkeys(("minuti", "minuut", "minut", "minuty"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "std", "stunde", "stunden"), 3600),
    **dict.fromkeys(("heure", "heures", "hora", "horas", "ora", "ore", "uur", "godz"), 3600),
    **dict.fromkeys(("d", "day", "days", "tag", "tage", "tagen", "jour", "jours"), 86400),
    **dict.fromkeys(("día", "días", "dia", "dias", "giorno", "giorni", "dag", "dagen"), 86400),
    **dict.fromkeys(("w", "week", "weeks", "woche", "wochen", "semaine", "semaines"), 604800),
    **dict.fromkeys(("semana", "semanas", "settimana", "settimane", "weken"), 604800),
}
"""Seconds of a unit of time."""

AREAS = {
    **dict.fromkeys(("m²", "m2", "m^2", "qm", "sqm", "sq m", "sq.m", "sq. m", "mq", "m.q."), "m²"),
    **dict.fromkeys(("square metres", "square meters", "square metre", "square meter"), "m²"),
    **dict.fromkeys(("quadratmeter", "mètres carrés", "metros cuadrados"), "m²"),
    **dict.fromkeys(("кв.м", "кв. м", "кв м", "м²", "м2", "квадратни метра"), "m²"),
    **dict.fromkeys(("km²", "km2", "sq km", "square kilometres", "square kilometers"), "km²"),
    **dict.fromkeys(("cm²", "cm2"), "cm²"),
    **dict.fromkeys(("ha", "hectare", "hectares", "hektar", "hectáreas", "ettari"), "ha"),
    **dict.fromkeys(("ft²", "ft2", "sqft", "sq ft", "sq. ft", "sq.ft", "square feet"), "ft²"),
    **dict.fromkeys(("square foot", "sf"), "ft²"),
    **dict.fromkeys(("yd²", "yd2", "sq yd", "square yards"), "yd²"),
    **dict.fromkeys(("mi²", "mi2", "sq mi", "square miles"), "mi²"),
    **dict.fromkeys(("acre", "acres", "ac"), "acre"),
}
"""The usual name of a unit of area."""


# ---------------- What `form` may say of a value: checked when it is read, not at the first page

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
        raise invalid(
            f"form: {form!r} is not {wanted}{f'; did you mean {like!r}?' if like else ''}"
        )


def _check_moment(form: str, *, is_day: bool) -> None:
    try:
        back = datetime.strptime(_MOMENT.strftime(form), form)  # noqa: DTZ007  # the same
    except ValueError as error:
        if "bad directive" in str(error) or "stray %" in str(error):
            problem = "it has a % that strptime does not know"
            raise invalid(f"form: {form!r} is no format such as %d.%m.%Y: {problem}") from None
        return  # a zone or a week that this moment does not have: the values will tell
    lacks_time = not is_day and (back.hour, back.minute) != (_MOMENT.hour, _MOMENT.minute)
    if back.date() != _MOMENT.date() or lacks_time:
        wanted = "a day with %d, %m and %Y" if is_day else "a day and a time, as %d.%m.%Y %H:%M"
        raise invalid(f"form: {form!r} does not hold all of {wanted}")


def _locale(text: str) -> str:
    if not is_known(text):
        raise invalid(f"{text!r} is not a locale known here; write a language such as de, or en-US")
    return text


Locale = Annotated[str, AfterValidator(_locale)]
"""How numbers and dates are written: a language such as de, or with its country: en-US."""
