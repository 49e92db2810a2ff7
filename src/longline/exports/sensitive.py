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
_TELEPHONE_WORDS = frozenset(
    {"cellphone", "fax", "gsm", "mobile", "phone", "tel", "telefon", "telefono", "telephone"}
    | {"whatsapp", "тел", "телефон", "телефони", "факс"}
)

_NAMED = (
    r"(?:api[_-]?key|access[_-]?token|auth[_-]?token|token|passw(?:or)?d|pwd?|secret|sessionid)"
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
_CALLED = (
    r"(?:tele?(?:ph|f)on[^\W\d_]*|phones?|tel|tlf|mobile?|mob|gsm|fax|cell(?:phone)?|whats?app"
    r"|viber|handy|тел(?:ефон[^\W\d_]*)?|моб(?:илен)?|факс)"
)
_MARKED = (
    rf"(?P<mark>(?i:(?<![^\W_]){_CALLED}(?:[ _-]?(?:number|no|nr))?\.?(?:\\?[\"'])?\s*[:=]?\s*"
    rf"(?:\\?[\"'])?|wa\.me/))(?:\+|%2B)?\(?\d{_SEPARATED}{{6,14}}(?!\w)"
)
_ABROAD = rf"(?:(?<!\w)\+|%2B)\s?\(?\d{_SEPARATED}{{7,14}}(?!\w)"
_PARENTHESES = r"(?<!\w)\(\d{3}\) ?\d{3}[-. ]\d{4}(?![\w-])"
CLEAR_TELEPHONES = re.compile(rf"{_MARKED}|{_ABROAD}|{_PARENTHESES}")
"""Those that nothing else looks like."""

TELEPHONES = re.compile(
    rf"{_MARKED}|{_ABROAD}|{_PARENTHESES}"
    rf"|(?<![\w/=.,:\u2010-\u2015-])(?P<home>\(?0{_SEPARATED}{{7,14}})(?![\w/-])"
    r"|(?<![\w/=.,-])(?:1[-. ])?[2-9]\d\d(?P<sign>[-.])\d{3}(?P=sign)\d{4}(?![\w-])"
)
_FEWEST_DIGITS, _FEWEST_MARKED, _MOST_DIGITS = 8, 7, 15
_DATE_OR_DECIMAL = re.compile(
    r"\d{1,2}[./-]\d{1,2}[./-](?:\d{4}|\d{2})\b.*|\d{1,2} \d{1,2} \d{4}|\d{4}-\d\d-\d\d.*|\d+\.\d+"
)
_ABROAD_BARE = re.compile(r"00[1-9]\d+")
_USUAL = re.compile(r"\(?0\d{0,4}\)?(?:[^\d]{1,3}\d{2,8})+")


def says_secret(name: str) -> bool:
    """Return whether a field of this name holds a secret."""
    words = _words(name)
    pairs = {f"{one} {other}" for one, other in pairwise(words)}
    return bool(_SECRET_WORDS.intersection(words) or _SECRET_PAIRS & pairs)


def says_several(name: str) -> bool:
    """Return whether it is secret only as the name of several, of which a number is a count."""
    singular = {word.lower() for word in _WORDS.findall(name)}
    return not singular & _SECRET_WORDS and name.lower().endswith("s")


def says_telephone(name: str) -> bool:
    """Return whether a field of this name holds a number to call."""
    return bool(_TELEPHONE_WORDS.intersection(_words(name)))


def is_telephone(found: re.Match[str]) -> bool:
    """Return whether what was found is one: no date, of a fitting length, in usual groups."""
    mark = found["mark"] or ""
    text = found[0].removeprefix(mark)
    fewest = _FEWEST_MARKED if mark else _FEWEST_DIGITS
    if not fewest <= digits(text) <= _MOST_DIGITS or _DATE_OR_DECIMAL.fullmatch(text):
        return False
    home = found.groupdict().get("home")
    return home is None or bool(_ABROAD_BARE.fullmatch(home) or _USUAL.fullmatch(home))


def digits(text: str) -> int:
    """Return how many digits a text has."""
    return sum(letter.isdigit() for letter in text)


def _words(name: str) -> list[str]:
    return [word.lower().removesuffix("s") for word in _WORDS.findall(name)]
