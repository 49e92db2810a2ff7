"""Decode the bytes of a response by the Encoding Standard of the WHATWG."""

from __future__ import annotations

import codecs
import re
from functools import lru_cache
from typing import NamedTuple

import webencodings

_PRESCAN_BYTES = 4096  # browsers read 1,024 bytes first, but also obey a later `meta`
_MOST_BAD = 3  # bad sequences that a declared encoding may have without further evidence
_OTHERS_PER_BAD = 12  # bytes above 7F for each bad sequence
_GUESSED_BYTES = 65536
_LEAST_TO_GUESS = 8  # bytes above 7F; from fewer, the encoding cannot be guessed
_NEVER_GUESSED = ["utf_7", "utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be", "utf_32_le"]

_HEADER_PARAMETER = re.compile(
    r'(?:^|;)[ \t]*([^\s;=]+)=(?:"((?:[^"\\]|\\.)*)"|([^;,\s"]*))(?![^\s;,])'
)
_LABEL = re.compile(r"[\w.:-]+", re.ASCII)
_PRESCAN = re.compile(
    rb"""
      <!--.*?(?:-->|\Z)
    | <\s*meta(?=[\s/])(?P<meta>(?:[^<>=]|=\s*(?:"[^"]*"|'[^']*')?)*)
    | <\?xml\s(?P<xml>[^<>]*)
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_ATTRIBUTE = re.compile(r"""([^\s/>="']+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']*)))?""")
_CONTENT_CHARSET = re.compile(r"""charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE | re.ASCII)
_CONTENT_TYPE = re.compile(r"content[-_ ]?type", re.IGNORECASE)
_JSON = re.compile(r"\s*application/(?:[\w.-]+\+)?json", re.IGNORECASE)
_PLAIN = re.compile(r"\s*text/(?:plain|csv)", re.IGNORECASE)
_ASCII = bytes(range(128))


class _Encoding(NamedTuple):
    """An encoding by its name in the standard.

    `errors` adds what the standard defines and the Python codec does not.
    """

    name: str
    codec: str
    errors: str = "replace"


class Decoded(NamedTuple):
    """The text of a body, its encoding, and doubts about it.

    `problem` is one sentence if characters were replaced or the encoding was guessed.
    """

    text: str
    encoding: str
    problem: str | None = None


_UTF8 = _Encoding("utf-8", "utf-8")
_WINDOWS_1252 = _Encoding("windows-1252", "cp1252", "longline.c1")
_UTF16_LE = _Encoding("utf-16le", "utf-16-le")
_UTF16_BE = _Encoding("utf-16be", "utf-16-be")
_UTF16 = (_UTF16_LE.name, _UTF16_BE.name)
_BOMS = (
    (codecs.BOM_UTF8, _UTF8),
    # The standard has no UTF-32; as UTF-16, these pages would be half zeros.
    (codecs.BOM_UTF32_LE, _Encoding("utf-32le", "utf-32-le")),
    (codecs.BOM_UTF32_BE, _Encoding("utf-32be", "utf-32-be")),
    (codecs.BOM_UTF16_LE, _UTF16_LE),
    (codecs.BOM_UTF16_BE, _UTF16_BE),
)
_FIRST_BYTES = frozenset(mark[0] for mark, _ in _BOMS)
# A declaration that can be read as ASCII is not in UTF-16.
_IN_PAGES = {"utf-16le": _UTF8, "utf-16be": _UTF8, "x-user-defined": _WINDOWS_1252}
_XML_STARTS = tuple(("<?x".encode(one.codec), one) for one in (_UTF16_LE, _UTF16_BE))
# The standard replaces the whole body for these. They are safe here: nothing is executed.
_REPLACED = {"iso-2022-kr": "iso2022_kr", "csiso2022kr": "iso2022_kr", "hz-gb-2312": "hz"}


def decode(body: bytes, content_type: str) -> Decoded:
    """Decode a body: by its byte order mark, the header, its own declaration, else as UTF-8.

    Declarations may be wrong. A declared encoding is used if every byte is valid, or all but a few,
    which become U+FFFD; otherwise the next one is tried, and finally the encoding is guessed from
    the bytes. Only the first case has no `problem`, unless the text has NUL characters: then the
    page is in an undeclared encoding, such as UTF-32, which is not a label.
    """
    decoded = _decode(body, content_type)
    if "\0" not in decoded.text:
        return decoded
    problem = f"the page was read as {decoded.encoding}, but the text has NUL characters"
    return decoded._replace(problem=f"{decoded.problem}; {problem}" if decoded.problem else problem)


def _decode(body: bytes, content_type: str) -> Decoded:
    if not body:
        return Decoded("", "utf-8")
    if body[0] in _FIRST_BYTES:
        for mark, encoding in _BOMS:
            if body.startswith(mark):
                marked = body[len(mark) :].decode(encoding.codec, "replace")
                return Decoded(marked, encoding.name, _replaced_problem(encoding, body, marked))
    header = header_encoding(content_type)
    if header is not None and (text := _decode_strictly(header, body)) is not None:
        return Decoded(text, header.name)  # the usual case
    if _JSON.match(content_type):
        declared: _Encoding | None = _UTF8  # by definition
    else:
        declared = None if _PLAIN.match(content_type) else prescan(body)
    return _decode_declared(body, header, declared)


def _decode_declared(body: bytes, header: _Encoding | None, declared: _Encoding | None) -> Decoded:
    for one in (declared, _UTF8):
        text = _decode_strictly(one, body) if one is not None else None
        if one is not None and text is not None:
            return Decoded(text, one.name, _contradiction(header or declared, one.name))
    for one in (_UTF8, header, declared):
        if one is not None:
            almost = _decode_nearly(one, body, is_declared=one in (header, declared))
            if almost is not None:
                return almost
    return _decode_guessed(body, header or declared)


def _contradiction(declared: _Encoding | None, used: str) -> str | None:
    if declared is None or declared.name == used:
        return None
    return f"{_invalid(declared)}; it was read as {used}"


def _invalid(declared: _Encoding) -> str:
    return f"the page declares {declared.name}, but its bytes are not valid {declared.name}"


@lru_cache(maxsize=256)
def header_encoding(content_type: str) -> _Encoding | None:
    """Return the encoding in a Content-Type header; None without a known one."""
    for found in _HEADER_PARAMETER.finditer(content_type):
        name, quoted, token = found.groups()
        label = token if quoted is None else quoted
        if name.lower() == "charset" and _LABEL.fullmatch(label):
            return encoding_of(label)
    return None


def prescan(body: bytes) -> _Encoding | None:
    """Return the encoding that a page declares by `meta` or an XML declaration."""
    for start, encoding in _XML_STARTS:
        if body.startswith(start):
            return encoding
    for found in _PRESCAN.finditer(body, 0, _PRESCAN_BYTES):
        if named := _declared_by(found["meta"], found["xml"]):
            return named
    return None


@lru_cache(maxsize=256)
def _declared_by(meta: bytes | None, xml: bytes | None) -> _Encoding | None:
    if meta is None and xml is None:
        return None
    text = (meta or xml or b"").decode("latin-1")
    attributes = [(name.lower(), "".join(values)) for name, *values in _ATTRIBUTE.findall(text)]
    wanted = "charset" if meta else "encoding"
    found = (_LABEL.match(value.strip()) for name, value in attributes if name == wanted)
    labels = [label[0] for label in found if label]
    if meta:
        is_pragma = any(
            name.replace("-", "").replace("_", "") == "httpequiv" and _CONTENT_TYPE.search(value)
            for name, value in attributes
        )
        content = next((value for name, value in attributes if name == "content"), "")
        if is_pragma and (charset := _CONTENT_CHARSET.search(content)):
            labels.append(charset[1])
    named = encoding_of(labels[0]) if labels else None
    return _IN_PAGES.get(named.name, named) if named is not None else None


@lru_cache(maxsize=512)
def encoding_of(label: str) -> _Encoding | None:
    """Return the encoding of a label by the standard; never one that only Python has."""
    if not label.isascii():
        return None
    label = label.strip("\t\n\f\r ").lower()
    if label in _REPLACED:
        return _Encoding(label, _REPLACED[label])
    found = webencodings.lookup(label)
    if found is None or found.name == "replacement":
        return None
    if found.name == "x-user-defined":
        return _WINDOWS_1252
    codec = "gb18030" if found.name == "gbk" else found.codec_info.name
    return _Encoding(
        found.name, codec, "longline.c1" if found.name.startswith("windows-") else "replace"
    )


def _decode_strictly(encoding: _Encoding, body: bytes) -> str | None:
    if encoding.name in _UTF16:
        start = body[:_PRESCAN_BYTES]
        if b"\0" not in start:
            return None  # markup in UTF-16 has zeros
        is_big = start[::2].count(0) > start[1::2].count(0)  # the label is used for both
        encoding = _UTF16_BE if is_big else _UTF16_LE
    try:
        return body.decode(encoding.codec)
    except UnicodeError:
        return None


def _decode_nearly(encoding: _Encoding, body: bytes, *, is_declared: bool) -> Decoded | None:
    if encoding.name in _UTF16 and b"\0" not in body[:_PRESCAN_BYTES]:
        return None
    text = body.decode(encoding.codec, encoding.errors)
    bad = _count_bad(encoding, body, text)
    others = len(body.translate(None, _ASCII))
    if (is_declared and bad <= _MOST_BAD) or bad * _OTHERS_PER_BAD <= others:
        return Decoded(text, encoding.name, _replaced_problem(encoding, body, text))
    return None


def _count_bad(encoding: _Encoding, body: bytes, text: str) -> int:
    """Return how many sequences became U+FFFD; it may also be in the body itself."""
    is_unicode = encoding.name.startswith("utf-")
    own = body.count("\ufffd".encode(encoding.codec)) if is_unicode else 0
    return text.count("\ufffd") - own


def _replaced_problem(encoding: _Encoding, body: bytes, text: str) -> str | None:
    bad = _count_bad(encoding, body, text)
    if bad <= 0:
        return None
    what = "1 sequence of bytes was" if bad == 1 else f"{bad:,} sequences of bytes were"
    return f"{what} not valid {encoding.name} and became U+FFFD"


def _decode_guessed(body: bytes, declared: _Encoding | None) -> Decoded:
    if len(body.translate(None, _ASCII)) < _LEAST_TO_GUESS:
        text = body.decode("utf-8", "replace")
        return Decoded(text, "utf-8", _replaced_problem(_UTF8, body, text))
    # Slow to import and rarely needed.
    from charset_normalizer import from_bytes  # noqa: PLC0415

    best = from_bytes(body[:_GUESSED_BYTES], cp_exclusion=_NEVER_GUESSED).best()
    name = best.encoding if best else "utf-8"
    reason = "the page does not declare its encoding" if declared is None else _invalid(declared)
    problem = f"{reason}; the encoding was guessed: {name}"
    return Decoded(body.decode(name, "replace"), name, problem)


def _c1(error: UnicodeError) -> tuple[str, int]:
    """Decode the bytes 80 to 9F that a Windows code page does not define as control characters."""
    assert isinstance(error, UnicodeDecodeError)  # noqa: S101  # a decoder calls it
    byte = error.object[error.start]
    return chr(byte) if byte <= 0x9F else "\ufffd", error.start + 1  # noqa: PLR2004


codecs.register_error("longline.c1", _c1)
