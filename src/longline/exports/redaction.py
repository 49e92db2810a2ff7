"""Redaction: secrets, e-mail addresses and telephone numbers leave a word in their place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from longline.exports.base import Row

SECRET, EMAIL, TELEPHONE = "secret", "e-mail", "telephone"
_SHORTEST = 6  # characters; what is shorter stands in ordinary words too
_FEWEST_DIGITS, _MOST_DIGITS = 8, 15
_FEWEST_KEYED = 5  # digits, where the name of the field says that it is a number to call

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORDS = frozenset(
    {"apikey", "auth", "authorization", "authtoken", "cookie", "credential", "credentials", "jwt"}
    | {"passphrase", "passwd", "password", "passwort", "pwd", "secret", "sessionid", "token"}
)
_SECRET_PAIRS = frozenset({"access key", "api key", "private key", "session id", "signing key"})
_TELEPHONE_WORDS = frozenset(
    {"cellphone", "fax", "mobile", "phone", "phones", "tel", "telefon", "telefono", "telephone"}
    | {"telephones", "whatsapp"}
)

_NAMED = r"(?:api[_-]?key|access[_-]?token|auth[_-]?token|token|passw(?:or)?d|pwd|secret|sessionid)"
_SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # a JSON Web Token
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[opsur]_\w{30,}|\bgithub_pat_\w{30,}|\bsk-[\w-]{20,}|\bxox[abprs]-[\w-]{10,}"
    r"|(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"  # a login in an address
    r"|(?i:\b(?:bearer|basic) )[\w.~+/-]{8,}=*"
    rf"|(?i:(?<![^\W_]){_NAMED}\s*(?:=|:|%3D)\s*)[^\s&;,\"'<>]+",
    re.DOTALL,
)
# The @ may be written as an address has it; a name and a domain may be of any script. What parts
# the pieces of an address (/ ? & =) may stand in a name too, but hardly ever does.
_EMAILS = re.compile(
    r"(?<![\w.+%-])[\w.!#$'*+^`{|}~-]{1,64}(?:@|%40|\s?[\[(]at[\])]\s?)"
    r"(?:[^\W_](?:[\w-]{0,62})\.)+[^\W\d_][\w-]{1,62}"
)
_SEPARATED = r"(?:[ \u00a0\u2009().\u2010-\u2015/-]{0,3}\d)"
_TELEPHONES = re.compile(
    rf"(?:(?<=tel:)|(?<=wa\.me/)|(?<=phone=))(?:\+|%2B)?\d{_SEPARATED}{{6,14}}"
    rf"|(?:(?<!\w)\+|%2B)\s?\(?\d{_SEPARATED}{{7,14}}(?!\w)"
    rf"|(?<![\w/=.,:\u2010-\u2015-])\(?0{_SEPARATED}{{7,14}}(?![\w/-])"
    r"|(?<![\w/=.,:-])(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]\d{4}(?![\w-])"
)
_DATE_OR_DECIMAL = re.compile(r"\d{1,2}[./-]\d{1,2}[./-](?:\d{4}|\d{2})\b.*|\d+\.\d+")


class Redactor:
    """Takes out of records what others should not see, and counts it.

    It cannot know every secret: what looks like one, what stands under a name like `password`, and
    the values in `secrets` go.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.replaced: Counter[str] = Counter()
        known = sorted({one for one in secrets if len(one) >= _SHORTEST}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def clean(self, row: Row) -> Row:
        """Return a record without them; the one given stays as it is."""
        return {name: self._value(value) for name, value in row.items()}

    def text(self, text: str) -> str:
        """Return a text without them."""
        if self._known:
            text = self._known.sub(self._word(SECRET), text)
        text = _SECRETS.sub(self._word(SECRET), text)
        text = _EMAILS.sub(self._word(EMAIL), text)
        return _TELEPHONES.sub(self._telephone, text)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self._fields(value)
        return [self._value(one) for one in value] if isinstance(value, list | tuple) else value

    def _fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        clean: dict[str, Any] = {}
        for name, value in fields.items():
            shown = self.text(name)
            number = 1
            while shown in clean:  # two addresses that were names of fields
                number += 1
                shown = f"{self.text(name)} {number}"
            clean[shown] = self._named(name, value)
        return clean

    def _named(self, name: str, value: Any) -> Any:
        if value is None or isinstance(value, bool) or value in ("", [], {}):
            return value
        words = [word.lower() for word in _WORDS.findall(name)]
        pairs = {f"{one} {other}" for one, other in pairwise(words)}
        if _SECRET_WORDS.intersection(words) or _SECRET_PAIRS & pairs:
            return self._word(SECRET)(None)
        if _TELEPHONE_WORDS.intersection(words):
            return self._called(value)
        return self._value(value)

    def _called(self, value: Any) -> Any:
        """Return what stands under a name such as `phone`, without the numbers."""
        if isinstance(value, list):
            return [self._called(one) for one in value]
        if isinstance(value, str | int) and _digits(str(value)) >= _FEWEST_KEYED:
            return self._word(TELEPHONE)(None)
        return self._value(value)

    def _telephone(self, found: re.Match[str]) -> str:
        text = found[0]
        if not _FEWEST_DIGITS <= _digits(text) <= _MOST_DIGITS or _DATE_OR_DECIMAL.fullmatch(text):
            return text
        return self._word(TELEPHONE)(found)

    def _word(self, kind: str) -> Callable[[re.Match[str] | None], str]:
        def replace(_found: re.Match[str] | None) -> str:
            self.replaced[kind] += 1
            return f"[{kind}]"

        return replace


def _digits(text: str) -> int:
    return sum(letter.isdigit() for letter in text)
