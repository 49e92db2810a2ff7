"""How the bytes of a page become text."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longline.http.charset import decode, encoding_of, header_encoding, prescan

LANGUAGES = {
    "bg": "Двустаен апартамент с изглед към морето, етаж трети, цена по договаряне.",
    "de": "Schöne Wohnung in ruhiger Straße, große Küche für Gäste, über den Dächern.",
    "el": "Διαμέρισμα δύο δωματίων με θέα στη θάλασσα, τρίτος όροφος.",
    "fr": "Appartement rénové à côté de l’école, près du marché, été très ensoleillé — 90 €.",
    "he": "דירת שני חדרים עם נוף לים, קומה שלישית, מחיר לפי סיכום.",
    "ja": "海の見える2部屋のマンション、3階、価格は応相談です。",
    "th": "อพาร์ตเมนต์สองห้องวิวทะเล ชั้นสาม ราคาต่อรองได้",
    "zh": "两居室海景公寓，三楼，价格面议，近地铁站。",
}


@pytest.mark.parametrize(
    ("label", "data", "text"),
    [
        ("ISO-8859-1", b"100 \x80", "100 €"),
        ("latin1", b"\x93a\x94", "“a”"),
        ("us-ascii", b"\x96", "–"),
        ("windows-1252", b"\x81\xe9", "\x81é"),
        ("gb2312", b"\xa8D", "―"),
        ("shift_jis", b"\x87\x40", "①"),
        ("iso-8859-8-i", b"\xf9", "ש"),
        ("tis-620", b"\xa1", "ก"),
        ("ks_c_5601-1987", b"\x8c\x63", "똠"),
        ("unicode-1-1-utf-8", "ф".encode(), "ф"),
        ("hz-gb-2312", b"~{VP~}", "中"),
    ],
)
def test_labels_have_their_meaning_on_the_web(label: str, data: bytes, text: str) -> None:
    decoded = decode(data, f"text/html; charset={label}")

    assert decoded.text == text


@pytest.mark.parametrize(
    "label",
    [
        *("utf-7", "U7", "unicode_escape", "raw_unicode_escape", "punycode", "undefined", "idna"),
        *(
            "base64",
            "hex",
            "rot13",
            "zlib",
            "mbcs",
            "oem",
            "utf-32",
            "cp037",
            "palmos",
            "ısо-8859-1",
        ),
    ],
)
def test_codecs_of_python_alone_are_unknown_labels(label: str) -> None:
    body = "Ж +ADw-b+AD4- \\u0041 xn--a".encode()

    decoded = decode(body, f"text/html; charset={label}")

    assert encoding_of(label) is None
    assert decoded == (body.decode(), "utf-8", None)


@pytest.mark.parametrize(
    ("content_type", "name"),
    [
        ('text/html; charset="ISO-8859-2"', "iso-8859-2"),
        ("text/html;Charset=utf-8; foo=bar", "utf-8"),
        ("text/html; xcharset=koi8-r", None),
        ('text/html; foo="a; charset=koi8-r"; charset=utf-8', "utf-8"),
        ("text/html; charset='koi8-r'", None),
        ("text/html; charset=koi8-r, text/html; charset=utf-8", "koi8-r"),
        ("", None),
    ],
)
def test_the_charset_is_a_parameter_of_the_header(content_type: str, name: str | None) -> None:
    found = header_encoding(content_type)

    assert (found and found.name) == name


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'<?xml version="1.0" encoding="windows-1251"?><rss>', "windows-1251"),
        (b"<meta charset=koi8-r>", "koi8-r"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=gb2312">', "gbk"),
        (b'<meta name=description content="Set charset=big5 in your editor">', None),
        (b"<p>write charset=big5 in the head", None),
        (b'<!-- <meta charset="big5"> --><meta charset="utf-8">', "utf-8"),
        (b"<meta charset=utf-16>", "utf-8"),
        (b"<meta charset=x-user-defined>", "windows-1252"),
        (b"<meta charset=utf-7><meta charset=koi8-r>", "koi8-r"),
    ],
)
def test_a_page_declares_its_encoding_in_tags_only(body: bytes, name: str | None) -> None:
    found = prescan(body)

    assert (found and found.name) == name


def test_the_header_wins_over_the_page() -> None:
    body = b'<meta charset="windows-1251">\xe9'

    assert decode(body, "text/html; charset=iso-8859-1").text[-1] == "é"


@pytest.mark.parametrize("codec", ["utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("start", ["", '<meta charset="utf-32">'])
@pytest.mark.parametrize("label", ["utf-32", "utf-32le", "utf-8", "windows-1252"])
def test_nul_characters_are_never_given_without_a_note(label: str, start: str, codec: str) -> None:
    decoded = decode(f"{start}<p>100</p>".encode(codec), f"text/html; charset={label}")

    assert "\0" in decoded.text
    assert decoded.problem is not None


def test_a_page_whose_header_says_utf_32_is_read_by_its_own_declaration() -> None:
    page = '<meta charset="windows-1251"><p>цена</p>'

    decoded = decode(page.encode("cp1251"), "text/html; charset=utf-32")

    assert decoded == (page, "windows-1251", None)


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_wins_over_the_header(codec: str) -> None:
    decoded = decode("<p>Жar €".encode(codec), "text/html; charset=windows-1251")

    assert decoded.text == "<p>Жar €"
    assert decoded.problem is None


def test_big_endian_marks_are_read() -> None:
    for codec in ("utf-16-be", "utf-32-be"):
        assert decode("\ufeffЖ".encode(codec), "text/html").text == "Ж"


def test_xml_in_utf_16_without_a_mark_is_read() -> None:
    text = '<?xml version="1.0" encoding="utf-16"?><a>Ж</a>'

    assert decode(text.encode("utf-16-le"), "text/xml").text == text


def test_utf_16_in_the_header_of_an_ascii_page_is_not_believed() -> None:
    decoded = decode(b"<p>even", "text/html; charset=utf-16")

    assert decoded.text == "<p>even"
    assert decoded.problem is not None


@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "text/html"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_bad_byte_is_replaced_and_the_rest_kept(language: str, content_type: str) -> None:
    page = f'<meta charset="utf-8"><p>{LANGUAGES[language]}</p>'

    decoded = decode(page.encode().replace(b"</p>", b"\xe9</p>"), content_type)

    assert decoded.text == page.replace("</p>", "\ufffd</p>")
    assert decoded.encoding == "utf-8"
    assert decoded.problem is not None


def test_a_replacement_character_of_the_site_is_no_problem() -> None:
    assert decode("a\ufffdb".encode(), "text/html; charset=utf-8").problem is None
    assert decode("\ufeffa\ufffdb".encode(), "text/html").problem is None


def test_a_page_in_another_encoding_than_declared_says_so() -> None:
    body = ("Продава се двустаен апартамент в центъра на града, етаж трети. " * 5).encode("cp1251")

    decoded = decode(body, "text/html; charset=utf-8")

    assert decoded.text.startswith("Продава се двустаен")
    assert decoded.problem is not None


def test_a_bad_byte_in_another_declared_encoding_is_replaced() -> None:
    body = "海の見える部屋".encode("euc_jp") + b"\xff" + "のマンション".encode("euc_jp")

    decoded = decode(body, "text/html; charset=euc-jp")

    assert decoded.text == "海の見える部屋\ufffdのマンション"
    assert decoded.problem is not None


def test_json_is_not_searched_for_tags() -> None:
    body = '{"html": "<meta charset=windows-1251>", "name": "Ж"}'.encode()

    assert decode(body, "application/json").text == body.decode()


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_read_in_either_order(codec: str) -> None:
    assert decode("<p>Ж".encode(codec), "text/html; charset=utf-16").text == "<p>Ж"


@pytest.mark.parametrize("data", [b"\x80", b"100\x80", b"\xa2\xe3", b"caf\xe9"])
def test_too_few_bytes_to_guess_from_are_replaced(data: bytes) -> None:
    decoded = decode(data, "text/html; charset=unknown")

    assert decoded.text.rstrip("\ufffd").isascii()
    assert "\ufffd" in decoded.text
    assert decoded.problem is not None


@given(
    st.sampled_from(sorted(LANGUAGES)),
    st.sampled_from(["text/html", "text/html; charset=utf-8"]),
    st.integers(min_value=0),
    st.integers(min_value=1, max_value=255),
)
@settings(max_examples=400, deadline=None)
@example("de", "text/html", 6, 0x80)
def test_a_flipped_byte_changes_only_its_neighbours(
    language: str, content_type: str, place: int, flip: int
) -> None:
    text = f'<html><meta charset="utf-8"><title>{LANGUAGES[language]}</title></html>'
    body = bytearray(text.encode())
    place %= len(body)
    body[place] ^= flip

    decoded = decode(bytes(body), content_type).text

    # The character of the byte, and one more on each side that it may join or cut.
    at = len(text.encode()[:place].decode("utf-8", "ignore"))
    assert decoded[: max(0, at - 1)] == text[: max(0, at - 1)]
    rest = text[at + 2 :]
    assert decoded.endswith(rest)
    assert len(decoded) <= len(text) + 3
