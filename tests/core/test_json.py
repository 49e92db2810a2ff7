"""JSON as it was written: whole numbers of any length keep their digits."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.core.errors import UnexpectedShape
from longline.core.json import read_json
from longline.http.messages import Page


@given(st.integers())
def test_no_whole_number_loses_a_digit(number: int) -> None:
    found = read_json(f'{{"a": [{number}, 1.5]}}')

    assert str(found["a"][0]) == str(number)
    assert orjson.loads(orjson.dumps(found)) == found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", "18446744073709551616"),
        ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", "-9223372036854775809"),
        ("9" * 300, "9" * 300),
        ('"12345678901234567890123"', "12345678901234567890123"),
        ("0.12345678901234567890123", 0.12345678901234568),
    ],
)
def test_what_64_bits_cannot_hold_is_text(text: str, value: object) -> None:
    assert read_json(text) == value
    assert Page("https://a.test/", 200, {}, text.encode()).json == value


@pytest.mark.parametrize("text", ["12345678901234567890123,"])
def test_what_is_no_json_stays_none(text: str) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        read_json(text)


def test_a_long_nested_number_is_reported() -> None:
    with pytest.raises(orjson.JSONDecodeError):
        read_json("[" * 1023 + "12345678901234567890123" + "]" * 1023)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'["\ud800", "sound"]', ["\ufffd", "sound"]),
        (r'["\uDC00 at the end \uD83D"]', ["\ufffd at the end \ufffd"]),
        (r'["\ud83d\ud83d\ude00", "\\ud800"]', ["\ufffd\U0001f600", r"\ud800"]),
        (r'{"\ud800": 12345678901234567890123}', {"\ufffd": "12345678901234567890123"}),
    ],
)
def test_half_a_character_does_not_take_the_others_along(text: str, value: object) -> None:
    assert read_json(text) == value
    assert Page("https://a.test/", 200, {}, text.encode()).json == value


@pytest.mark.parametrize("text", [r'["\ud800"', r'["\ud8"]', rb'["\ud800", "' + b'\xff"]'])
def test_invalid_json_with_a_lone_surrogate_stays_invalid(text: str | bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        read_json(text)


def test_json_of_too_many_values_is_refused_before_it_is_read() -> None:
    thin = b"[" + b'{"a":1,"b":2},' * 700_000 + b"0]"
    ordinary = b"[" + (b'{"a":"' + b"x" * 500 + b'"},') * 20_000 + b"0]"

    with pytest.raises(UnexpectedShape):
        _ = Page("https://a.test/", 200, {}, thin).json
    assert len(Page("https://a.test/", 200, {}, ordinary).json) == 20_001
