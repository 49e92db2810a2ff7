"""What others should not see leaves a word in its place, everywhere, and is counted."""

from __future__ import annotations

import re
from typing import Any

import pytest

from longline.export.columns import export_row
from longline.export.redaction import Redactor
from tests.export.sample_rows import row


def cleaned(data: dict[str, Any], *secrets: str) -> dict[str, Any]:
    clean: dict[str, Any] = Redactor(secrets).clean(export_row(row("0", data)))["data"]
    return clean


@pytest.mark.parametrize(
    "text",
    [
        "ann@example.com",
        "Ann.O'Neil+ads@mail.example.co.uk",
        "анна@пример.рф",
        "ann%40example.com",
        "ann [at] example.com",
    ],
)
def test_e_mail_addresses_are_redacted(text: str) -> None:
    assert cleaned({"a": f"write to {text}, please"}) == {"a": "write to [e-mail], please"}


@pytest.mark.parametrize(
    "text",
    [
        *("+359 888 123 456", "+49 (0)30 1234-567", "+1-202-555-0143", "0888 123 456"),
        *("030/1234567", "06 12 34 56 78", "(202) 555-0143", "202-555-0143", "00359888123456"),
        *("1-800-555-0199", "(088) 812-3456", "0888-12-34-56", "01.23.45.67.89", "06/02/03/04/05"),
        *("01.12.45.67.89", "030/0123456"),
    ],
)
def test_telephone_numbers_are_redacted(text: str) -> None:
    assert cleaned({"a": f"call {text} today"}) == {"a": "call [telephone] today"}


@pytest.mark.parametrize(
    "text",
    [
        *(
            "2026-11-15T17:00:00+00:00",
            "15.11.2026",
            "05.11.2026",
            "05/11/2026 14:30",
            "0.12345678",
        ),
        *(
            "1 200 000 EUR",
            "ISBN 9783161484100",
            "item 00012",
            "65.5 m2",
            "100 200 3000",
            "0123456789",
            "a = b @ c",
            "3/6",
        ),
        *("https://shop.test/0012345678", "https://shop.test/a?id=0012345678"),
        *("01.02.2026-03.04.2026", "05.11.2026, 06.11.2026", "05/31/2026", "0123456789/0123456780"),
        *("the token of our esteem", "secretary: none", "passwords are dull", "max_tokens: 5"),
    ],
)
def test_similar_text_is_not_redacted(text: str) -> None:
    assert cleaned({"a": text}) == {"a": text}


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("https://u:pw1234@shop.test/x", "https://[secret]@shop.test/x"),
        ("https://a.test/?token=abc123&page=2", "https://a.test/?[secret]&page=2"),
        ("Authorization: Bearer abcdefghijkl", "Authorization: [secret]"),
        ("password: hunter2", "[secret]"),
        ("key AKIAABCDEFGHIJKLMNOP here", "key [secret] here"),
        ("https://wa.me/359888123456", "https://wa.me/[telephone]"),
        ("tel:+359888123456", "tel:[telephone]"),
        ("Tel:0888123456", "Tel:[telephone]"),
        ("тел.:0888123457", "тел.:[telephone]"),
        ("ТЕЛЕФОН 5551234", "ТЕЛЕФОН [telephone]"),
        ("тел. 0888-12-34-56", "тел. [telephone]"),
        ("Tél. 01.23.45.67.89", "Tél. [telephone]"),
        ("tel 06-12-34-56-78", "tel [telephone]"),
        ("tel: 02.98.76.54", "tel: [telephone]"),
        ("tel: 02.11.76.54", "tel: [telephone]"),
        ("0888 123 456/0888 123 457", "[telephone]/[telephone]"),
        ("tel 0888123456 / 0888123457", "tel [telephone] / [telephone]"),
        ("0888-12-34-56,0888-12-34-57", "[telephone],[telephone]"),
        ("05.11.2026/0888 123 456", "05.11.2026/[telephone]"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7", "aws_[secret]"),
        ("tokenCount: 5", "tokenCount: 5"),
        ('"john doe"@example.com', "[e-mail]"),
        ('{"password": "hunter2222", "a": 1}', '{"password": "[secret]", "a": 1}'),
        ('{\\"api_key\\": \\"a b\\"}', '{\\"api_key\\": \\"[secret]\\"}'),
        ('"tokens": ["abc", "def"]', '"tokens": [secret]'),
        ("mailto:ann@example.com?subject=x", "mailto:[e-mail]?subject=x"),
    ],
)
def test_addresses_and_texts_hold_them_in_forms_of_their_own(text: str, clean: str) -> None:
    assert cleaned({"a": text}) == {"a": clean}


@pytest.mark.parametrize("name", ["passwords", "api_keys", "apiKeys", "pw"])
def test_several_secrets_are_secret_too(name: str) -> None:
    assert cleaned({name: ["plain"]}) == {name: "[secret]"}


@pytest.mark.parametrize(
    "name", ["password", "apiKey", "API_KEY", "X-Auth-Token", "session_id", "tokens"]
)
def test_any_value_under_a_secret_name_is_redacted(name: str) -> None:
    assert cleaned({name: "plain"}) == {name: "[secret]"}
    assert cleaned({name: {"deep": [1]}}) == {name: "[secret]"}


@pytest.mark.parametrize(
    "name", ["max_tokens", "tokenCount", "tokenizer", "secretary", "author", "keyboard"]
)
def test_names_that_only_hold_such_words_stay(name: str) -> None:
    assert cleaned({name: 5}) == {name: 5}


def test_nothing_stays_nothing() -> None:
    data = {"password": None, "token": "", "phone": None, "is_secret": False}

    assert cleaned(data) == data


def test_numbers_under_a_telephone_name_are_redacted() -> None:
    data = {
        "phone": 359888123456,
        "phones": ["12 34 56", "by mail", "0888-12-34-56", "0170-12-34-567"],
        "tel": 5551234.0,
        "mobile": "n/a",
    }

    assert cleaned(data) == {
        "phone": "[telephone]",
        "phones": ["[telephone]", "by mail", "[telephone]", "[telephone]"],
        "tel": "[telephone]",
        "mobile": "n/a",
    }


def test_nested_values_names_and_own_columns_are_redacted() -> None:
    redactor = Redactor(["hunter22"])
    stored = row(
        "ann@example.com",
        {"list": [{"deep": "x hunter22 y"}], "bob@example.com": 1, "eve@example.com": 2},
        url="https://shop.test/?mail=ann%40example.com",
    )

    clean = redactor.clean(export_row(stored))

    assert re.fullmatch(r"\[e-mail [0-9a-f]{16}\]", clean["key"])
    assert re.fullmatch(r"https://shop\.test/\?mail=\[e-mail [0-9a-f]{16}\]", clean["url"])
    assert clean["data"] == {"list": [{"deep": "x [secret] y"}], "[e-mail]": 1, "[e-mail] 2": 2}
    assert redactor.replaced["secret"] == 1
    assert redactor.replaced["e-mail"] >= 4
    assert stored["data"]["list"] == [{"deep": "x hunter22 y"}]


def test_short_secrets_are_not_searched_for() -> None:
    assert cleaned({"a": "a cat sat"}, "cat") == {"a": "a cat sat"}


def test_types_and_order_are_kept() -> None:
    data = {"n": 1, "f": 0.5, "b": True, "none": None, "list": [1, "x"]}

    assert list(cleaned(data).items()) == list(data.items())


def test_a_telephone_name_applies_to_nested_values() -> None:
    data = {
        "phone": {"number": "5551234", "since": "2026-11-15"},
        "contact": {"phone": {"value": "5551234"}},
        "телефон": "5551234",
    }

    assert cleaned(data) == {
        "phone": {"number": "[telephone]", "since": "2026-11-15"},
        "contact": {"phone": {"value": "[telephone]"}},
        "телефон": "[telephone]",
    }


@pytest.mark.parametrize("key", ["0306406100", "00359888123456", "0888 123 456", "202-555-0143"])
def test_a_key_of_digits_is_no_telephone_number(key: str) -> None:
    clean = Redactor().clean(export_row(row(key, {})))

    assert (clean["source"], clean["key"]) == ("shop", key)
    assert clean["url"] == f"https://shop.test/{key}"


def test_pseudonyms_are_distinct_and_the_same_in_every_export() -> None:
    keys = ["ann@example.com", "bob@example.com", "+359888123456", "+359888123457"]
    stored = [export_row(row(key, {})) for key in keys]

    once = [Redactor(key=b"k" * 32).clean(one) for one in stored]
    again = [Redactor(key=b"k" * 32).clean(one) for one in stored]
    elsewhere = [Redactor(key=b"x" * 32).clean(one) for one in stored]

    assert once == again
    assert len({one["key"] for one in once + elsewhere}) == 2 * len(keys)
    assert len({one["url"] for one in once}) == len(keys)
    assert not any("888" in one["key"] + one["url"] for one in once[2:])
