"""Replace secrets, e-mail addresses and telephone numbers in exported records."""

from __future__ import annotations

import hashlib
import re
import secrets as random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from longline.config.documents import read_document
from longline.config.settings import Settings
from longline.core.errors import BadOption, HomeUnwritable, MissingExtra, UnknownSecret
from longline.core.model import Job
from longline.export.atomic_files import temporary_sibling
from longline.export.columns import Row
from longline.sources.loader import secret_references, yaml_files

# ---------------- Patterns of secrets, e-mail addresses and telephone numbers

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_SECRET_WORDS = frozenset(
    {"apikey", "auth", "authorization", "authtoken", "cookie", "credential", "jwt", "passphrase"}
    | {"passwd", "password", "passwort", "pw", "pwd", "secret", "sessionid", "token", "парола"}
)
_SECRET_PAIRS = frozenset({"access key", "api key", "private key", "session id", "signing key"})
# With one of these words, a field is a count of secrets.
_COUNT_WORDS = frozenset({"count", "length", "limit", "max", "min", "number", "size", "total"})
_TELEPHONE_WORDS = frozenset(
    {"cellphone", "fax", "gsm", "mobile", "phone", "tel", "telefon", "telefono", "telephone"}
    | {"whatsapp", "тел", "телефон", "телефони", "факс"}
)

_NAMED = (
    r"(?:(?:api|(?:secret[_-]?)?access|secret|private|signing)[_-]?key|access[_-]?token"
    r"|auth[_-]?token|token|passw(?:or)?d|pwd?|secret|sessionid)"
)
# A plural followed by a number is a count: max_tokens is not a secret.
_NAMES = rf"(?i:(?<![^\W_])(?:{_NAMED}|{_NAMED}s(?=[\\\"']*\s*[:=]\s*[^\d\s])))"
_SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # a JSON Web Token
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[opsur]_\w{30,}|\bgithub_pat_\w{30,}|\bsk-[\w-]{20,}|\bxox[abprs]-[\w-]{10,}"
    r"|(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"  # a login in an address
    r"|(?i:\b(?:bearer|basic) )[\w.~+/-]{8,}=*"
    rf"|{_NAMES}(?:\\?[\"'])?\s*(?:=|:|(?i:%3D))\s*[^\s&;,\"'<>\[\]\\]+",
    re.DOTALL,
)
# In quotes, as in JSON and code: the name stays, the quoted value is replaced.
_QUOTED_SECRETS = re.compile(
    rf"(?P<mark>{_NAMES}(?:\\?[\"'])?\s*[:=]\s*)"
    r"(?:\[[^\]\n]*\]?|(?P<quote>\\?[\"'])(?:\\.|[^\\\n])+?(?:(?P=quote)|$))",
    re.MULTILINE,
)
# The @ may be percent-encoded; a name and a domain may be in any script. The separators of a URL
# (/ ? & =) are legal in a name, but hardly ever used.
_EMAILS = re.compile(
    r"(?<![\w.+%-])(?:[\w.!#$'*+^`{|}~-]{1,64}|\\?\"[^\"\\\n]{1,64}\\?\")"
    r"(?:@|%40|\s?[\[(]at[\])]\s?)"
    r"(?:[^\W_](?:[\w-]{0,62})\.)+[^\W\d_][\w-]{1,62}"
)
_BETWEEN = r"[ \u00a0\u2009().\u2010-\u2015/-]"
_SEPARATED = rf"(?:{_BETWEEN}{{0,3}}\d)"
# Another number may follow: 0888 123 456/0888 123 457. Not after an area code (030/0123456).
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
_CLEAR_TELEPHONES = re.compile(rf"(?:{_MARKED}|{_ABROAD}|{_PARENTHESES}){_REST}")
"""Numbers that cannot be anything else."""

_TELEPHONES = re.compile(
    rf"(?:{_MARKED}|{_ABROAD}|{_PARENTHESES}"
    rf"|(?<![\w/=.,:\u2010-\u2015-])(?P<home>\(?0{_SEVEN_MORE})(?:(?={_NEXT})|(?![\w/-]))"
    r"|(?<![\w/=.,-])(?:1[-. ])?[2-9]\d\d(?P<sign>[-.])\d{3}(?P=sign)\d{4}(?![\w-])"
    rf"){_REST}"
)
_FOLLOWING = re.compile(rf"(?P<between>{_NEXT})(?P<number>\(?0{_SIX_MORE})")
"""The numbers in the `rest` of a match."""
_MIN_DIGITS, _MIN_MARKED_DIGITS, _MAX_DIGITS = 8, 7, 15
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


def _name_words(name: str) -> list[str]:
    return [word.lower().removesuffix("s") for word in _WORDS.findall(name)]


def _is_secret_name(name: str) -> bool:
    words = _name_words(name)
    pairs = {f"{one} {other}" for one, other in pairwise(words)}
    return bool(_SECRET_WORDS.intersection(words) or _SECRET_PAIRS & pairs)


def _is_count_name(name: str) -> bool:
    """Return whether the name is that of a count of secrets: tokens, tokenCount."""
    words = {word.lower() for word in _WORDS.findall(name)}
    is_plural = not words & _SECRET_WORDS and name.lower().endswith("s")
    return is_plural or bool(words & _COUNT_WORDS)


def _has_usual_groups(text: str) -> bool:
    """Return whether a number that begins with 0 has the usual groups."""
    return bool(_ABROAD_BARE.fullmatch(text) or _USUAL.fullmatch(text))


def _count_digits(text: str) -> int:
    return sum(letter.isdigit() for letter in text)


_SECRET, _TELEPHONE = "secret", "telephone"
_IDENTITY = ("source", "key", "url")
_MIN_SECRET = 6  # characters; a shorter secret would be found in ordinary words
_MIN_NAMED_DIGITS = 5  # where the name of the field says that it is a telephone number
_DATE = re.compile(
    r"[12]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?"
    r"(?: ?(?:Z|[+-]\d\d:?\d\d))?)?"
)
_PSEUDONYM_BYTES = 8  # so that a million pseudonyms still differ


class Redactor:
    """Replaces secrets and personal data in records, and counts the replacements.

    It replaces what looks like a secret, values of fields such as `password`, and the values in
    `secrets`; it cannot recognise every secret. In source, key and url, which identify a record,
    the replacement has a pseudonym, so that they stay distinct; guessing the original needs `key`.
    Without a key, the pseudonyms of two redactors differ.
    """

    def __init__(self, secrets: Iterable[str] = (), *, key: bytes | None = None) -> None:
        self.replaced: Counter[str] = Counter()
        known = sorted({one for one in secrets if len(one) >= _MIN_SECRET}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None
        self._key = key or random.token_bytes(32)

    def clean(self, row: Row) -> Row:
        """Return a redacted copy of a record."""
        return {
            name: self._replace_all(value, _CLEAR_TELEPHONES, self._pseudonym)
            if name in _IDENTITY and isinstance(value, str)
            else self._redact_value(value)
            for name, value in row.items()
        }

    def _replace_all(
        self, text: str, telephones: re.Pattern[str], shown: Callable[[str, str], str]
    ) -> str:
        if self._known:
            text = self._known.sub(lambda found: shown(_SECRET, found[0]), text)

        def replace_quoted(found: re.Match[str]) -> str:
            mark, quote = found["mark"], found["quote"] or ""
            return f"{mark}{quote}{shown(_SECRET, found[0].removeprefix(mark))}{quote}"

        text = _QUOTED_SECRETS.sub(replace_quoted, text)
        text = _SECRETS.sub(lambda found: shown(_SECRET, found[0]), text)
        text = _EMAILS.sub(lambda found: shown("e-mail", found[0]), text)
        return telephones.sub(lambda found: _replace_telephone(found, shown), text)

    def _redact_text(self, text: str) -> str:
        return self._replace_all(text, _TELEPHONES, self._word)

    def _redact_value(self, value: Any, *, is_telephone: bool = False) -> Any:
        """Redact a value at any depth; `is_telephone` is True below a name such as `phone`."""
        if isinstance(value, dict):
            return self._redact_fields(value, is_telephone=is_telephone)
        if isinstance(value, list | tuple):
            return [self._redact_value(one, is_telephone=is_telephone) for one in value]
        # A table with gaps turns 5551234 into 5551234.0; 4.25 may be anything.
        is_number = isinstance(value, str | int) or (isinstance(value, float) and value % 1 == 0)
        if (
            is_telephone
            and is_number
            and _count_digits(str(value)) >= _MIN_NAMED_DIGITS
            and not _DATE.fullmatch(str(value))
        ):
            return self._word(_TELEPHONE)
        return self._redact_text(value) if isinstance(value, str) else value

    def _redact_fields(self, fields: dict[str, Any], *, is_telephone: bool) -> dict[str, Any]:
        clean: dict[str, Any] = {}
        for name, value in fields.items():
            shown = self._redact_text(name)
            number = 1
            while shown in clean:  # two redacted names may be equal
                number += 1
                shown = f"{self._redact_text(name)} {number}"
            is_count = isinstance(value, int | float) and _is_count_name(name)
            if value is None or isinstance(value, bool) or value in ("", [], {}):
                clean[shown] = value
            elif _is_secret_name(name) and not is_count:
                clean[shown] = self._word(_SECRET)
            else:
                is_below = is_telephone or bool(_TELEPHONE_WORDS.intersection(_name_words(name)))
                clean[shown] = self._redact_value(value, is_telephone=is_below)
        return clean

    def _word(self, kind: str, _found: str = "") -> str:
        self.replaced[kind] += 1
        return f"[{kind}]"

    def _pseudonym(self, kind: str, found: str) -> str:
        self.replaced[kind] += 1
        made = hashlib.blake2b(
            found.encode(errors="surrogatepass"), key=self._key, digest_size=_PSEUDONYM_BYTES
        )
        return f"[{kind} {made.hexdigest()}]"


def _replace_telephone(found: re.Match[str], shown: Callable[[str, str], str]) -> str:
    mark, rest = found["mark"] or "", found["rest"]
    first = found[0].removeprefix(mark).removesuffix(rest)
    home = found.groupdict().get("home")
    if mark:  # a number with a mark such as `Tel.` is not a date
        is_number = _MIN_MARKED_DIGITS <= _count_digits(first) <= _MAX_DIGITS
    else:
        is_number = (
            _MIN_DIGITS <= _count_digits(first) <= _MAX_DIGITS
            and not _DATE_OR_DECIMAL.fullmatch(first)
            and (home is None or _has_usual_groups(home))
        )

    def replace_following(one: re.Match[str]) -> str:
        number = one["number"]
        is_one = not _DATE_OR_DECIMAL.fullmatch(number) and (is_number or _has_usual_groups(number))
        return one["between"] + (shown(_TELEPHONE, number) if is_one else number)

    clean = shown(_TELEPHONE, first) if is_number else first
    return mark + clean + _FOLLOWING.sub(replace_following, rest)


# ---------------- The secrets that a home refers to

KEY_FILE = "redaction.key"
_KEY_BYTES = 32


def _known_secrets(settings: Settings, jobs: Iterable[Job]) -> tuple[set[str], list[str]]:
    """Return the secrets of all manifests, job files and past jobs, and those it cannot read."""
    files = yaml_files(place for place in settings.sources if place.exists())
    documents = [*(read_document(path).values for path in files), *(job.settings for job in jobs)]
    references = {one for values in documents for _, one in secret_references(values)}
    found: set[str] = set()
    unreadable: list[str] = []
    for reference in sorted(references, key=str):
        try:
            found.add(reference.read().get_secret_value())
        except (UnknownSecret, MissingExtra):
            unreadable.append(str(reference))
    return found, unreadable


def home_redactor(
    settings: Settings, jobs: Iterable[Job], *, ignore_unreadable: bool = False
) -> tuple[Redactor, list[str]]:
    """Return a redactor that knows the secrets of a home, and notes on those it cannot read.

    Raises:
        BadFile: a file cannot be read, so its references are unknown.
        BadOption: a secret cannot be read, unless that is ignored.
    """
    values, unreadable = _known_secrets(settings, jobs)
    if unreadable and not ignore_unreadable:
        they, them = ("it", "it") if len(unreadable) == 1 else ("they", "them")
        problem = f"{', '.join(unreadable)} cannot be read, so {they} cannot be redacted"
        raise BadOption("--redact", f"{problem}; provide {them}, or use --ignore-unreadable")
    notes = [f"{one} cannot be read and was not redacted" for one in unreadable]
    return Redactor(values, key=_pseudonym_key(settings.home)), notes


def _pseudonym_key(home: Path) -> bytes:
    """Return the key of all pseudonyms of a home; raise HomeUnwritable if it cannot be created."""
    path = home / KEY_FILE
    try:
        if not path.exists():
            with temporary_sibling(path) as temporary:
                temporary.chmod(0o600)
                temporary.write_bytes(random.token_bytes(_KEY_BYTES))
                with suppress(FileExistsError):  # another export was first
                    path.hardlink_to(temporary)
        return path.read_bytes()[:_KEY_BYTES]
    except OSError as error:
        raise HomeUnwritable(str(path), error.strerror or str(error)) from error
