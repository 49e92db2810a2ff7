"""Redaction: secrets, e-mail addresses and telephone numbers leave a word in their place."""

from __future__ import annotations

import hashlib
import re
import secrets as random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from longline.exports.base import Row
from longline.exports.sensitive import (
    CLEAR_TELEPHONES,
    EMAILS,
    FOLLOWING,
    QUOTED_SECRETS,
    SECRETS,
    TELEPHONES,
    digits,
    is_date_or_decimal,
    is_telephone,
    is_usual,
    says_count,
    says_secret,
    says_telephone,
)

SECRET, EMAIL, TELEPHONE = "secret", "e-mail", "telephone"
_IDENTITY = ("source", "key", "url")
_SHORTEST = 6  # characters; what is shorter stands in ordinary words too
_FEWEST_KEYED = 5  # digits, where the name of the field says that it is a number to call
_DATE = re.compile(
    r"[12]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?"
    r"(?: ?(?:Z|[+-]\d\d:?\d\d))?)?"
)
_STAND_IN_BYTES = 8  # so that a million stand-ins still differ


class Redactor:
    """Takes out of records what others should not see, and counts it.

    It cannot know every secret: what looks like one, what stands under a name like `password`, and
    the values in `secrets` go. What tells records apart (source, key, address) stays different
    where it was: a word there has a stand-in with it, which only who has `key` can try to guess.
    Without a key, the stand-ins of two redactors differ.
    """

    def __init__(self, secrets: Iterable[str] = (), *, key: bytes | None = None) -> None:
        self.replaced: Counter[str] = Counter()
        known = sorted({one for one in secrets if len(one) >= _SHORTEST}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None
        self._key = key or random.token_bytes(32)

    def clean(self, row: Row) -> Row:
        """Return a record without them; the one given stays as it is."""
        return {
            name: self._identity(value) if name in _IDENTITY else self._value(value)
            for name, value in row.items()
        }

    def text(self, text: str) -> str:
        """Return a text without them."""
        return self._without(text, TELEPHONES, self._word)

    def _identity(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return self._without(value, CLEAR_TELEPHONES, self._stand_in)

    def _without(
        self, text: str, telephones: re.Pattern[str], shown: Callable[[str, str], str]
    ) -> str:
        if self._known:
            text = self._known.sub(lambda found: shown(SECRET, found[0]), text)
        text = QUOTED_SECRETS.sub(lambda found: _quoted(found, shown), text)
        text = SECRETS.sub(lambda found: shown(SECRET, found[0]), text)
        text = EMAILS.sub(lambda found: shown(EMAIL, found[0]), text)
        return telephones.sub(lambda found: _called(found, shown), text)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self._fields(value, self._named)
        return [self._value(one) for one in value] if isinstance(value, list | tuple) else value

    def _fields(self, fields: dict[str, Any], seen: Callable[[str, Any], Any]) -> dict[str, Any]:
        clean: dict[str, Any] = {}
        for name, value in fields.items():
            shown = self.text(name)
            number = 1
            while shown in clean:  # two addresses that were names of fields
                number += 1
                shown = f"{self.text(name)} {number}"
            clean[shown] = seen(name, value)
        return clean

    def _named(self, name: str, value: Any) -> Any:
        if value is None or isinstance(value, bool) or value in ("", [], {}):
            return value
        if says_secret(name) and not (isinstance(value, int | float) and says_count(name)):
            return self._word(SECRET)
        return self._number(value) if says_telephone(name) else self._value(value)

    def _number(self, value: Any) -> Any:
        """Return what stands under a name such as `phone`, at any depth, without the numbers."""
        if isinstance(value, list):
            return [self._number(one) for one in value]
        if isinstance(value, dict):
            return self._fields(value, self._below_number)
        # A column with gaps makes 5551234.0 of a number; 4.25 may be anything.
        is_number = isinstance(value, str | int) or (isinstance(value, float) and value % 1 == 0)
        if is_number and digits(str(value)) >= _FEWEST_KEYED:
            return self._value(value) if _DATE.fullmatch(str(value)) else self._word(TELEPHONE)
        return self._value(value)

    def _below_number(self, name: str, value: Any) -> Any:
        return self._named(name, value) if says_secret(name) else self._number(value)

    def _word(self, kind: str, _found: str = "") -> str:
        self.replaced[kind] += 1
        return f"[{kind}]"

    def _stand_in(self, kind: str, found: str) -> str:
        self.replaced[kind] += 1
        made = hashlib.blake2b(
            found.encode(errors="surrogatepass"), key=self._key, digest_size=_STAND_IN_BYTES
        )
        return f"[{kind} {made.hexdigest()}]"


def _quoted(found: re.Match[str], shown: Callable[[str, str], str]) -> str:
    mark, quote = found["mark"], found["quote"] or ""
    return f"{mark}{quote}{shown(SECRET, found[0].removeprefix(mark))}{quote}"


def _called(found: re.Match[str], shown: Callable[[str, str], str]) -> str:
    mark, rest = found["mark"] or "", found["rest"]
    first = found[0].removeprefix(mark).removesuffix(rest)
    is_called = is_telephone(found)
    clean = shown(TELEPHONE, first) if is_called else first

    def following(one: re.Match[str]) -> str:
        number = one["number"]
        is_one = not is_date_or_decimal(number) and (is_called or is_usual(number))
        return one["between"] + (shown(TELEPHONE, number) if is_one else number)

    return mark + clean + FOLLOWING.sub(following, rest)
