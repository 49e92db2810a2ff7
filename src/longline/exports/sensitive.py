"""What secrets, e-mail addresses and telephone numbers look like, in texts and in names."""

from __future__ import annotations

import re
from itertools import pairwise

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
