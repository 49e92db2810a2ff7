"""Values that are read completely or refused."""

from __future__ import annotations

import contextlib
import re
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from babel import dates, numbers
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from longline.sources.html.content import node_text
from longline.sources.parsing.numbers import MARKS, decimal_mark
from longline.sources.parsing.values import read_value

_LOCALES = """
    en_US en_GB en_AU en_IN de_DE de_AT de_CH fr_FR fr_CA fr_CH es_ES es_MX es_AR it_IT pt_BR pt_PT
    nl_NL pl_PL sv_SE da_DK nb_NO fi_FI is_IS cs_CZ sk_SK hu_HU ro_RO bg_BG ru_RU uk_UA el_GR tr_TR
    hr_HR sl_SI sr_RS et_EE lv_LV lt_LT ja_JP zh_CN ko_KR he_IL ar_EG hi_IN id_ID ms_MY vi_VN th_TH
"""
_CODES = "EUR USD GBP JPY CHF PLN CZK HUF RON SEK NOK DKK RUB UAH TRY INR BRL CAD AUD KWD TND"
LOCALES, CODES = _LOCALES.split(), _CODES.split()


def read(kind: str, text: Any, locale: str | None = None, form: str | None = None) -> Any:
    """Return the value, or None when it is refused."""
    with contextlib.suppress(ValueError):
        return read_value(kind, text, locale=locale, form=form)
    return None


@pytest.mark.parametrize("kind", ["number", "integer"])
@pytest.mark.parametrize(
    "text",
    ["ISBN9783161484100", "RM50", "R8,499", "Price299", "площ120", "2½", "10²", "9百万", "x5.5"],
)
def test_digits_next_to_letters_are_not_a_part_of_a_number(kind: str, text: str) -> None:
    assert read(kind, text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("5万", 50_000), ("3億", 3e8), ("12 тыс", 12_000), ("A4 500", 500), ("\uff0d5", -5)],
)
def test_a_numeral_after_a_number_is_counted(text: str, number: float) -> None:
    assert read("number", text) == number


@pytest.mark.parametrize("text", ["Our price - 44.99", "- $44.99"])
def test_a_dash_is_not_a_minus(text: str) -> None:
    assert read("money", text) is None


def test_an_area_glued_to_its_label_is_refused() -> None:
    assert read("area", "площ120 кв.м") is None


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<b>Price</b>299.00 €", "Price 299.00 €"),
        ("<label>площ</label><span>120 кв.м</span>", "площ 120 кв.м"),
        ("<del>29</del><ins>19</ins>", "29 19"),
        ("19<sup>99</sup> €", "19 99 €"),
        ("<span>19</span><span>99</span> €", "19 99 €"),
        ("85 m<sup>2</sup>", "85 m2"),
        ("H<sub>2</sub>O", "H2O"),
        ("un<b>believ</b>able", "unbelievable"),
        ("12<b>34</b>", "1234"),
    ],
)
def test_the_text_of_inline_elements_is_what_a_reader_sees(html: str, text: str) -> None:
    node = LexborHTMLParser(f"<div>{html}</div>").css_first("div")

    assert node is not None
    assert node_text(node) == text


_AROUND = st.text(st.characters(categories=("L", "S", "P", "Z", "M", "No")), max_size=6)


@given(_AROUND, st.integers(0, 10**12), st.sampled_from(["", ".5", ",5"]), _AROUND)
def test_a_number_in_any_text_is_whole_or_refused(
    before: str, number: int, fraction: str, behind: str
) -> None:
    value = float(f"{number}{fraction.replace(',', '.')}")
    # A point, a comma or an apostrophe that touches the digits is part of the number.
    got = read("number", f"{before}{number}{fraction}{behind}")

    if got is not None and not _is_multiple(abs(got), value):
        assert (before[-1:] in {".", "\uff0e", "\u066b"}) is True
        assert abs(got) == float(f".{number}")


def _is_multiple(got: float, value: float) -> bool:
    """Return whether it is the value, as it is or times a word for a size such as k."""
    return any(got == pytest.approx(value * 10**zeros, rel=1e-12) for zeros in range(10))


@pytest.mark.parametrize("locale", [None, "en-US", "de"])
@pytest.mark.parametrize(
    ("text", "currency"),
    [
        ("100 руб.", "RUB"),
        ("1500 грн", "UAH"),
        ("100 TL", "TRY"),
        ("RM 50", "MYR"),
        ("RM50", "MYR"),
        ("R8,50", "ZAR"),
        ("100 pln", "PLN"),
        ("50 Lei", "RON"),
        ("EC$ 5", "XCD"),
        ("CUC$5", "CUC"),
        ("E£ 45", "EGP"),
        ("J$5", "JMD"),
        ("RD$5", "DOP"),
        ("AU $5", "AUD"),
        ("CAN$5", "CAD"),
        ("5 Kč", "CZK"),
        ("5 Ft", "HUF"),
        ("5 лв", "BGN"),
        ("5 ЛВ", "BGN"),
        ("Rp 5", "IDR"),
        ("5 zł", "PLN"),
        ("XQ$5", "XQ$"),
        ("5 ₶", "₶"),
        ("DEM 170", "DEM"),
        ("5 ש״ח", "ILS"),
        ("12 円", "JPY"),
        ("CN¥ 97’670", "CNY"),
        ("51 щ.д.", "USD"),
        ("570 R", "R"),
    ],
)
def test_the_currency_of_the_text_is_never_overruled(
    text: str, currency: str, locale: str | None
) -> None:
    text = text.replace(",", ".") if locale == "en-US" else text

    assert read("money", text, locale, "EUR")["currency"] == currency
    assert read("money", text, locale)["currency"] == currency


@pytest.mark.parametrize("text", ["40% OFF", "% 40", "16.00 ft", "1 K", "50 GBp", "5 kg"])
def test_what_is_not_money_is_refused(text: str) -> None:
    assert read("money", text, form="EUR") is None


def test_a_percentage_next_to_an_amount_is_left_out() -> None:
    assert read("money", "129,00 € (-15%)") == {"amount": 129.0, "currency": "EUR"}


@pytest.mark.parametrize("currency", ["KD", "KWD", "BHD", "TND", "OMR", "د.ك", "dinar"])
def test_three_decimals_are_read_as_the_locale_says_or_refused(currency: str) -> None:
    assert read("money", f"423.923 {currency}", "en")["amount"] == 423.923
    assert read("money", f"423.923 {currency}", "de")["amount"] == 423923
    assert read("money", f"423.923 {currency}") is None


def test_words_of_a_price_are_not_currencies() -> None:
    assert read("money", "ALL FOR 12 €")["currency"] == "EUR"
    assert read("money", "Le 12", form="EUR")["currency"] == "EUR"


@pytest.mark.parametrize(
    "text",
    [
        "31 May 2024 PM 8:00",
        "31. Mai 2024, 8:00 Uhr abends",
        "31 mai 2024 8:00 du soir",
        "31 май 2024 8:00 вечерта",
        "31 May 2024 8:00 in the evening",
        "2024年5月31日下午8:00",
        "31 de mayo de 2024 8:00 p. m.",
        "Fri May 31 20:00:00 2024",
        "31 mai 2024 à 20h00",
        "Fri, 31 May 2024 8:00 PM",
    ],
)
def test_words_for_half_a_day_are_read(text: str) -> None:
    assert read("datetime", text) == "2024-05-31T20:00:00"


@pytest.mark.parametrize(
    ("text", "time"),
    [("AM 12:30", "00:30"), ("PM 12:30", "12:30"), ("12:30 p. m.", "12:30"), ("12:30 am", "00:30")],
)
def test_the_hour_after_noon_and_midnight_is_twelve(text: str, time: str) -> None:
    assert read("datetime", f"2024-05-31 {text}") == f"2024-05-31T{time}:00"


def test_a_half_day_in_the_date_of_a_mail_is_not_lost() -> None:
    text = "Fri, 31 May 2024 8:00:00 PM GMT"

    assert read("datetime", text) == "2024-05-31T20:00:00+00:00"


@pytest.mark.parametrize(
    "text",
    [
        "31 May 2024 12:00 midnight",
        "31 May 2024 2:00 at night",
        "31 May 2024 20:00 in the morning",
        "heute Abend, 31. Mai 2024, 8:00 Uhr",
    ],
)
def test_words_for_half_a_day_that_leave_a_doubt_are_refused(text: str) -> None:
    assert read("datetime", text) is None


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("15 fév 2013", "2013-02-15"),
        ("15 ян 2013", "2013-01-15"),
        ("15 сеп 2013", "2013-09-15"),
        ("3 lipca 2024", "2024-07-03"),
        ("Wed Aug 05 12:00:00 2015", "2015-08-05"),
        ("20 ноября 2013", "2013-11-20"),
    ],
)
def test_names_of_months_are_known_in_many_languages(text: str, day: str) -> None:
    assert read("date", text) == day


@pytest.mark.parametrize(
    "text",
    [
        "12-14 June 2021",
        "12.-14. Juni 2021",
        "12 – 14.06.2021",
        "28 May - 3 June 2021",
        "12 to 14 June 2021",
        "12 bis 14. Juni 2021",
    ],
)
def test_a_range_of_days_is_not_its_last_day(text: str) -> None:
    assert read("date", text) is None


def test_a_year_after_a_time_is_not_its_fraction() -> None:
    assert read("datetime", "Tue Jan 5 10:00:00,2021") == "2021-01-05T10:00:00"


def test_a_name_of_two_months_needs_a_locale() -> None:
    assert read("date", "3 listopada 2024") is None
    assert read("date", "3 listopada 2024", "pl") == "2024-11-03"
    assert read("date", "3 listopada 2024", "hr") == "2024-10-03"


@pytest.mark.parametrize("locale", sorted(MARKS))
def test_decimal_marks_are_those_of_cldr_or_unknown(locale: str) -> None:
    assert decimal_mark(locale) in {None, MARKS[locale]}


@settings(deadline=None, max_examples=400)  # the data of a locale takes its time to load
@given(
    st.sampled_from(LOCALES),
    st.sampled_from(CODES),
    st.integers(-(10**9), 10**9),
    st.booleans(),
    st.booleans(),
)
def test_money_as_babel_formats_it_is_read_back_or_refused(
    name: str,
    code: str,
    thousandths: int,
    is_code: bool,  # noqa: FBT001  # drawn
    has_locale: bool,  # noqa: FBT001  # drawn
) -> None:
    digits = numbers.get_currency_precision(code)
    amount = round(Decimal(thousandths) / 1000, digits)
    form = "#,##0.00 ¤¤" if is_code else None
    text = numbers.format_currency(amount, code, form, locale=name)
    got = read("money", text, name.replace("_", "-") if has_locale else None)

    if got is not None:
        assert got["amount"] == float(amount), text
        shared = {"$", "kr", "kr.", "¥", "Rs", "£", None}
        assert got["currency"] == code or got["currency"] in shared, text


@settings(deadline=None, max_examples=400)  # the data of a locale takes its time to load
@given(
    st.sampled_from(LOCALES),
    st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),  # noqa: DTZ001  # without zones
    st.sampled_from(["short", "medium", "long", "full"]),
    st.booleans(),
)
def test_dates_as_babel_formats_them_are_read_back_or_refused(
    name: str,
    moment: datetime,
    form: str,
    has_locale: bool,  # noqa: FBT001  # drawn
) -> None:
    locale = name.replace("_", "-") if has_locale else None
    day = dates.format_date(moment, form, locale=name)
    time_of_day = dates.format_time(moment, "short", locale=name)

    assert read("date", day, locale) in {None, moment.date().isoformat()}, day
    minute = moment.replace(second=0, microsecond=0).isoformat()
    for text in (f"{day} {time_of_day}", f"{time_of_day} {day}"):
        assert read("datetime", text, locale) in {None, minute}, text


RARE = """
    bas be_TARASK bem brx dav dua ee fr_CA gaa guz iu kcg ksh lb lij lu mfe naq rn se smn sr_Latn st
    sv teo trv ts vi yo
"""


@pytest.mark.parametrize("name", RARE.split())
def test_dates_of_rare_locales_are_read_back_or_refused(name: str) -> None:
    locale = name.replace("_", "-")
    for month in range(1, 13):
        for hour in (0, 8, 12, 20):
            moment = datetime(2021, month, 3, hour, 5)  # noqa: DTZ001  # without a zone
            for form in ("short", "medium", "d MMM y", "d MMMM y"):
                day = dates.format_date(moment, form, locale=name)
                assert read("date", day, locale) in {None, moment.date().isoformat()}, day
            for form in ("short", "medium", "y-MM-dd h:mm a", "d MMM y, h:mm B", "d MMM y HH:mm"):
                text = dates.format_datetime(moment, form, locale=name)
                assert read("datetime", text, locale) in {None, moment.isoformat()}, text


@pytest.mark.parametrize(
    "text",
    [
        "2021-01-03 8:05 akasuba",
        "2021-01-03 8:05 эк",
        "2021-01-03 8:05 m",
        "2021-01-03 8:05 kyiukonyi",
        "2021-01-03 8:05 po\u202fpołedniu",
        "2021-01-03 8:05 e.b.",
        "2021-01-03 8:05 Z.MW.",
    ],
)
def test_words_of_rare_languages_for_half_a_day_are_not_ignored(text: str) -> None:
    assert read("datetime", text) is None


def test_names_of_months_need_a_locale_whose_names_are_known() -> None:
    assert read("date", "3 out 2021") == "2021-10-03"
    assert read("date", "3 out 2021", "pt-BR") == "2021-10-03"
    assert read("date", "3 out 2021", "mfe") is None
    assert read("date", "3 oktober 2021", "no") == "2021-10-03"
    assert read("date", "2021-10-03", "mfe") == "2021-10-03"


@pytest.mark.parametrize(
    "text",
    ["100 rubles", "100 tenge", "100 крон", "100 Schilling", "100 quid", "100 Naira", "100 ¤"],
)
def test_a_currency_without_a_known_code_is_kept_as_it_is_written(text: str) -> None:
    expected = {"amount": 100.0, "currency": text.split()[1]}

    assert read("money", text, "de", "EUR") == expected
    assert read("money", text) == expected


@pytest.mark.parametrize("text", ["100 XYZ", "XYZ 100", "1.234,50 QQQ", "QQQ 5"])
def test_an_unknown_code_is_not_replaced_by_the_currency_of_the_form(text: str) -> None:
    assert read("money", text, "de", "EUR") is None
    assert read("money", text, "de")["currency"] is None


@pytest.mark.parametrize("text", ["100 TTC", "UVP 100", "ab 100", "100 inkl. MwSt", "Preis: 100"])
def test_words_that_are_no_currency_leave_that_of_the_form(text: str) -> None:
    assert read("money", text, "de", "EUR") == {"amount": 100.0, "currency": "EUR"}


@pytest.mark.parametrize(
    ("kind", "value", "form", "read"),
    [
        ("date", 20240531, None, "2024-05-31"),
        ("date", 20240531.0, None, "2024-05-31"),
        ("date", 310524, "%d%m%y", "2024-05-31"),
        ("date", 20240531, "%Y%m%d", "2024-05-31"),
        ("date", 1714557600, None, "2024-05-01"),
        ("date", 2024152, "%Y%j", "2024-05-31"),
        ("datetime", 20240531103000, "%Y%m%d%H%M%S", "2024-05-31T10:30:00"),
        ("datetime", 1714557600000, None, "2024-05-01T10:00:00+00:00"),
    ],
)
def test_a_number_is_read_as_a_day_or_a_timestamp(
    kind: str, value: Any, form: str | None, read: str
) -> None:
    assert read_value(kind, value, form=form) == read


@pytest.mark.parametrize(
    ("kind", "value", "form", "reason"),
    [
        ("date", 2024, None, "2024"),
        ("date", 0, None, "1970"),
        ("date", 20241399, None, "20241399"),
        ("date", 10**15, None, "1970"),
        ("date", float("nan"), None, "1970"),
        ("date", float("inf"), None, "1970"),
        ("datetime", 20240531, None, "time"),
        ("datetime", 20240531103000, None, "form"),
        ("date", 1714557600, "%d.%m.%Y", "%d.%m.%Y"),
        ("date", "1712010151234", None, "date"),
        ("date", "2024-W05", None, "date"),
    ],
)
def test_a_number_that_is_not_a_timestamp_is_refused(
    kind: str, value: Any, form: str | None, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        read_value(kind, value, form=form)


@pytest.mark.parametrize(
    ("kind", "text", "form"),
    [
        ("date", "31.05.", "%d.%m."),
        ("date", "2024", "%Y"),
        ("date", "05/2024", "%m/%Y"),
        ("date", "10:30", "%H:%M"),
        ("datetime", "31.05.2024", "%d.%m.%Y"),
        ("datetime", "31.05.2024 10", "%d.%m.%Y %I"),
        ("datetime", "31.05.2024 10 GMT", "%d.%m.%Y %H %Z"),
        ("date", "2024 5 %d", "%Y %m %%d"),
    ],
)
def test_an_incomplete_format_is_refused(kind: str, text: str, form: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(form))):
        read_value(kind, text, form=form)


@pytest.mark.parametrize("kind", ["number", "integer", "money"])
@pytest.mark.parametrize(
    "text", ["(5)", "($5)", "(5 €)", "$(5)", "(EUR 5)", "(5k)", "5-", "5 €-", "0x1F", "12abc"]
)
def test_what_may_be_negative_or_no_number_is_never_read_as_one(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"negative|number"):
        read_value(kind, text)


@pytest.mark.parametrize(
    ("text", "number"),
    [("Reviews (5)", 5), ("(5 reviews)", 5), ("-$5", -5), ("(-5)", -5), ("12kg", 12), ("12個", 12)],
)
def test_brackets_and_units_around_a_number_do_not_hide_it(text: str, number: float) -> None:
    assert read_value("number", text) == number


@pytest.mark.parametrize(
    ("value", "form", "reason"),
    [
        ("50¢", None, "cents"),
        ("50 cents", None, "cents"),
        ("€5M", None, "'M'"),
        (float("nan"), None, "finite"),
        ({"price": float("inf")}, None, "finite"),
        ({"price": True}, None, "finite"),
        (10**400, None, "large"),
        ("5", "%d", "currency"),
        ("5", "euros", "currency"),
    ],
)
def test_what_is_no_amount_of_a_currency_is_refused(
    value: Any, form: str | None, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        read_value("money", value, form=form)


@pytest.mark.parametrize(
    ("text", "form", "amount", "currency"),
    [
        ("1.5k €", None, 1500.0, "EUR"),
        ("2.3 Mio €", None, 2_300_000.0, "EUR"),
        ("-US$5", None, -5.0, "USD"),
        ("5", "€", 5.0, "EUR"),
        ("5", "eur", 5.0, "EUR"),
        ("5", "kr", 5.0, "kr"),
    ],
)
def test_sizes_and_signs_of_money_are_read(
    text: str, form: str | None, amount: float, currency: str
) -> None:
    assert read_value("money", text, form=form) == {"amount": amount, "currency": currency}


@pytest.mark.parametrize("kind", ["number", "integer"])
@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 12345678901234567890])
def test_a_long_whole_number_keeps_its_digits(kind: str, value: int) -> None:
    assert read_value(kind, value) == value
    assert read_value(kind, str(value)) == value


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("31 May 2024 10:00 +05", "2024-05-31T10:00:00+05:00"),
        ("31 May 2024 10:00 GMT-3", "2024-05-31T10:00:00-03:00"),
        ("31 May 2024 10:00 (CET)", "2024-05-31T10:00:00+01:00"),
        ("10:00 May 31, 2024", "2024-05-31T10:00:00"),
        ("31 May 2024 10:00 by Joe", "2024-05-31T10:00:00"),
        ("Fri, 31 May 2024 10:00:00 +0530", "2024-05-31T10:00:00+05:30"),
        ("Fri, 31 May 2024 10:00:00 +05", "2024-05-31T10:00:00+05:00"),
        (
            "Fri May 31 2024 10:00:00 GMT+0200 (Central European Summer Time)",
            "2024-05-31T10:00:00+02:00",
        ),
    ],
)
def test_a_zone_is_kept(text: str, moment: str) -> None:
    assert read_value("datetime", text) == moment


@pytest.mark.parametrize(
    "day", ["31 May 2024 10:00", "Fri, 31 May 2024 10:00:00", "2024-05-31T10:00"]
)
@pytest.mark.parametrize(
    ("zone", "reason"),
    [
        ("AEST", "AEST"),
        ("PT", "PT"),
        ("pt", "pt"),
        ("(PT)", "PT"),
        ("Pacific Time", "Pacific Time"),
        ("Europe/Berlin", "Europe/Berlin"),
        ("-3", "-3"),
        ("+25:00", r"\+25:00"),
    ],
)
def test_a_zone_that_is_not_known_is_not_lost(day: str, zone: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_value("datetime", f"{day} {zone}")


@pytest.mark.parametrize("text", ["5 min 5 min", "1 h and 2 hours"])
def test_two_durations_are_not_added_up(text: str) -> None:
    with pytest.raises(ValueError, match=r"min|hours"):
        read_value("duration", text)


@pytest.mark.parametrize("kind", ["number", "integer"])
def test_a_number_too_long_to_keep_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        read_value(kind, "123456789012345678901234567890", locale="en")
