"""Redaction: secrets, e-mail addresses and telephone numbers leave a word in their place."""

from __future__ import annotations

import hashlib
import re
import secrets
import secrets as random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from longline.config.documents import read_document
from longline.config.errors import HomeUnwritable, UnknownSecret
from longline.config.secrets import SecretRef, is_reference
from longline.config.settings import Settings
from longline.core.errors import MissingExtra
from longline.core.model import Job
from longline.export.atomic_files import temporary_sibling
from longline.export.rows import Row
from longline.sources.library import yaml_files

# ---------------- What secrets, e-mail addresses and telephone numbers look like, in texts and in

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_SECRET_WORDS = frozenset(
    {"apikey", "auth", "authorization", "authtoken", "cookie", "credential", "jwt", "passphrase"}
    | {"passwd", "password", "passwort", "pw", "pwd", "secret", "sessionid", "token", "парола"}
)
_SECRET_PAIRS = frozenset({"access key", "api key", "private key", "session id", "signing key"})
# With one of these words, the name of a secret is that of a number.
_COUNT_WORDS = frozenset({"count", "length", "limit", "max", "min", "number", "size", "total"})
_TELEPHONE_WORDS = frozenset(
    {"cellphone", "fax", "gsm", "mobile", "phone", "tel", "telefon", "telefono", "telephone"}
    | {"whatsapp", "тел", "телефон", "телефони", "факс"}
)

_NAMED = (
    r"(?:(?:api|(?:secret[_-]?)?access|secret|private|signing)[_-]?key|access[_-]?token"
    r"|auth[_-]?token|token|passw(?:or)?d|pwd?|secret|sessionid)"
)
# Several are seldom a number: max_tokens is how many, and no secret.
_NAMES = rf"(?i:(?<![^\W_])(?:{_NAMED}|{_NAMED}s(?=[\\\"']*\s*[:=]\s*[^\d\s])))"
SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # a JSON Web Token
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[opsur]_\w{30,}|\bgithub_pat_\w{30,}|\bsk-[\w-]{20,}|\bxox[abprs]-[\w-]{10,}"
    r"|(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"  # a login in an address
    r"|(?i:\b(?:bearer|basic) )[\w.~+/-]{8,}=*"
    rf"|{_NAMES}(?:\\?[\"'])?\s*(?:=|:|(?i:%3D))\s*[^\s&;,\"'<>\[\]\\]+",
    re.DOTALL,
)
# In quotes, as JSON and programs have it: the name stays, and what is quoted goes.
QUOTED_SECRETS = re.compile(
    rf"(?P<mark>{_NAMES}(?:\\?[\"'])?\s*[:=]\s*)"
    r"(?:\[[^\]\n]*\]?|(?P<quote>\\?[\"'])(?:\\.|[^\\\n])+?(?:(?P=quote)|$))",
    re.MULTILINE,
)
# The @ may be written as an address has it; a name and a domain may be of any script. What parts
# the pieces of an address (/ ? & =) may stand in a name too, but hardly ever does.
EMAILS = re.compile(
    r"(?<![\w.+%-])(?:[\w.!#$'*+^`{|}~-]{1,64}|\\?\"[^\"\\\n]{1,64}\\?\")"
    r"(?:@|%40|\s?[\[(]at[\])]\s?)"
    r"(?:[^\W_](?:[\w-]{0,62})\.)+[^\W\d_][\w-]{1,62}"
)
_BETWEEN = r"[ \u00a0\u2009().\u2010-\u2015/-]"
_SEPARATED = rf"(?:{_BETWEEN}{{0,3}}\d)"
# Another number may follow at once: 0888 123 456/0888 123 457. Not so behind a code (030/0123456).
_NEXT = r"\s?[/,;]\s?(?=\(?0(?:[ ().-]?\d){6})"
_MORE = rf"{_SEPARATED}{{5}}(?:(?!{_NEXT}){_SEPARATED})"
_SIX_MORE, _SEVEN_MORE = rf"{_MORE}{{1,9}}", rf"{_MORE}{{2,9}}"
_CALLED = (
    r"(?:t[eé]l[eé]?(?:ph|f)on[^\W\d_]*|phones?|t[eé]l|tlf|mobile?|mob|gsm|fax|cell(?:phone)?|whats?app"
    r"|viber|handy|тел(?:ефон[^\W\d_]*)?|моб(?:илен)?|факс)"
)
_MARKED = (
    rf"(?P<mark>(?i:(?<![^\W_]){_CALLED}(?:[ _-]?(?:number|no|nr))?\.?(?:\\?[\"'])?\s*[:=]?\s*"
    rf"(?:\\?[\"'])?|wa\.me/))(?:\+|%2B)?\(?\d{_SIX_MORE}(?!\w)"
)
_ABROAD = rf"(?:(?<!\w)\+|%2B)\s?\(?\d{_SEVEN_MORE}(?!\w)"
_PARENTHESES = r"(?<!\w)\(\d{3}\) ?\d{3}[-. ]\d{4}(?![\w-])"
_REST = rf"(?P<rest>(?:{_NEXT}\(?0{_SIX_MORE}(?!\w))*)"
CLEAR_TELEPHONES = re.compile(rf"(?:{_MARKED}|{_ABROAD}|{_PARENTHESES}){_REST}")
"""Those that nothing else looks like."""

TELEPHONES = re.compile(
    rf"(?:{_MARKED}|{_ABROAD}|{_PARENTHESES}"
    rf"|(?<![\w/=.,:\u2010-\u2015-])(?P<home>\(?0{_SEVEN_MORE})(?:(?={_NEXT})|(?![\w/-]))"
    r"|(?<![\w/=.,-])(?:1[-. ])?[2-9]\d\d(?P<sign>[-.])\d{3}(?P=sign)\d{4}(?![\w-])"
    rf"){_REST}"
)
FOLLOWING = re.compile(rf"(?P<between>{_NEXT})(?P<number>\(?0{_SIX_MORE})")
"""The numbers in the `rest` of what was found."""
_FEWEST_DIGITS, _FEWEST_MARKED, _MOST_DIGITS = 8, 7, 15
_DAY, _MONTH = r"(?:0?[1-9]|[12]\d|3[01])", r"(?:0?[1-9]|1[0-2])"
_DAYS = rf"(?:{_DAY}[./-]{_MONTH}|{_MONTH}[./-]{_DAY})[./-]"
_DATE_OR_DECIMAL = re.compile(
    rf"{_DAYS}(?:19|20)\d\d(?:[ T\u2010-\u2015-].*)?"  # to another one, perhaps
    rf"|{_DAYS}(?:\d{{4}}|\d\d)(?:[ T].*)?"
    rf"|{_DAY} {_MONTH} \d{{4}}"
    rf"|[12]\d{{3}}-{_MONTH}-{_DAY}(?:[ T].*)?"
    r"|\d+\.\d+"
)
_ABROAD_BARE = re.compile(r"00[1-9]\d+")
_USUAL = re.compile(r"\(?0\d{0,4}\)?(?:[^\d]{1,3}\d{2,8})+")


def says_secret(name: str) -> bool:
    """Return whether a field of this name holds a secret."""
    words = _words(name)
    pairs = {f"{one} {other}" for one, other in pairwise(words)}
    return bool(_SECRET_WORDS.intersection(words) or _SECRET_PAIRS & pairs)


def says_count(name: str) -> bool:
    """Return whether a number of this name only says how many secrets: tokens, tokenCount."""
    words = {word.lower() for word in _WORDS.findall(name)}
    is_plural = not words & _SECRET_WORDS and name.lower().endswith("s")
    return is_plural or bool(words & _COUNT_WORDS)


def says_telephone(name: str) -> bool:
    """Return whether a field of this name holds a number to call."""
    return bool(_TELEPHONE_WORDS.intersection(_words(name)))


def is_telephone(found: re.Match[str]) -> bool:
    """Return whether what was found is one: of a fitting length, no date, in usual groups.

    What is called one is no date, whatever it looks like.
    """
    mark = found["mark"] or ""
    text = found[0].removeprefix(mark).removesuffix(found["rest"])
    if mark:
        return _FEWEST_MARKED <= digits(text) <= _MOST_DIGITS
    if not _FEWEST_DIGITS <= digits(text) <= _MOST_DIGITS or is_date_or_decimal(text):
        return False
    home = found.groupdict().get("home")
    return home is None or is_usual(home)


def is_usual(text: str) -> bool:
    """Return whether a number that begins with 0 is in the groups that people write."""
    return bool(_ABROAD_BARE.fullmatch(text) or _USUAL.fullmatch(text))


def is_date_or_decimal(text: str) -> bool:
    """Return whether digits and signs are a date or a decimal number rather than one to call."""
    return bool(_DATE_OR_DECIMAL.fullmatch(text))


def digits(text: str) -> int:
    """Return how many digits a text has."""
    return sum(letter.isdigit() for letter in text)


def _words(name: str) -> list[str]:
    return [word.lower().removesuffix("s") for word in _WORDS.findall(name)]


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


# ---------------- The secrets that a home refers to, so that no export shows them

KEY_FILE = "redaction.key"
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class KnownSecrets:
    """What the references of a home stand for, and those that cannot be read now."""

    values: frozenset[str]
    unreadable: tuple[str, ...]


def known_secrets(settings: Settings, jobs: Iterable[Job]) -> KnownSecrets:
    """Return what stands behind the references of all manifests, job files and past jobs.

    Raises:
        BadFile: a file cannot be read, so that nobody knows which secrets it refers to.
    """
    references: set[SecretRef] = set()
    for path in yaml_files(place for place in settings.sources if place.exists()):
        for loc, text in read_document(path).texts():
            references.update(_references(str(loc[-1]) if loc else "", text))
    for job in jobs:
        for name, text in _texts(job.settings):
            references.update(_references(name, text))
    found, unreadable = set(), []
    for reference in sorted(references, key=str):
        try:
            found.add(reference.read().get_secret_value())
        except (UnknownSecret, MissingExtra):
            unreadable.append(str(reference))
    return KnownSecrets(frozenset(found), tuple(unreadable))


def pseudonym_key(home: Path) -> bytes:
    """Return what the stand-ins of a home are made with, the same in every export.

    Raises:
        HomeUnwritable: it can be neither read nor made.
    """
    path = home / KEY_FILE
    try:
        if not path.exists():
            _make_key(path)
        return path.read_bytes()[:_KEY_BYTES]
    except OSError as error:
        raise HomeUnwritable(str(path), error.strerror or str(error)) from error


def _make_key(path: Path) -> None:
    with temporary_sibling(path) as made:
        made.chmod(0o600)
        made.write_bytes(secrets.token_bytes(_KEY_BYTES))
        with suppress(FileExistsError):  # of two exports, one makes it
            path.hardlink_to(made)


def _references(name: str, text: str) -> Iterator[SecretRef]:
    """Yield the reference that a text is, written as env:NAME or as {env: NAME}."""
    for written in (text, f"{name}:{text}"):
        if is_reference(written):
            with suppress(ValueError, RuntimeError):  # it only looked like one
                yield SecretRef.parse(written)


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for inner, one in value.items():
            yield from _texts(one, str(inner))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)
