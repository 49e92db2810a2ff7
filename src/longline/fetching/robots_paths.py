"""Paths as RFC 9309 compares them: one spelling for each address and each rule.

protego judges what comes out of here. Both sides are spelt alike before it sees them, because its
own spelling differs from the RFC's in places; docs/decisions/0015-robots.md lists them.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote, unquote_to_bytes

ANYWHERE = "http://any.test"
"""Rules know paths only, and protego wants whole addresses."""
END = "%%"
"""Marks where an address ends; in all the rest of it digits follow each percent sign."""
_PLAIN = re.compile(r"[a-z]+://[^/?#]+(/(?:[A-Za-z0-9_~/=-]|(?<!/)\.)*)").fullmatch
_AUTHORITY = re.compile(r"^[^/?]*")
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
# What needs no escape: letters, digits, - . _ ~ and, as protego has it, =
_NEEDLESS = re.compile(r"%(?:2D|2E|3[0-9D]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE])", re.IGNORECASE)
_HIGH_OCTETS = re.compile(r"(?:%[89A-F][0-9A-F])+", re.IGNORECASE)
_SLASH = re.compile("%2F", re.IGNORECASE)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.~/%=*-]")
_SURROGATES = ("\udc80", "\udcff")


def path_of(url: str) -> str:
    """Return the path and query of an address."""
    if plain := _PLAIN(url):
        return plain[1]
    rest = url.partition("#")[0].partition("://")[2]
    spelt = _spelt(_AUTHORITY.sub("", rest).replace("*", "%2A"))
    path, mark, query = spelt.partition("%3F")
    return (_without_dots(path) or "/") + mark + query


def pattern_of(rule: str, *, is_marked: bool) -> str:
    """Return the pattern of a rule; a marked one is for addresses with END behind them.

    Marked patterns are all one character longer than they were, so the longest stays the longest.
    """
    pattern = _spelt(rule.removesuffix("$").replace("$", "%24"))
    if not is_marked:
        return pattern
    return pattern + (END if rule.endswith("$") else "*")


def is_markworthy(rule: str, *, is_allowing: bool) -> bool:
    """Whether protego would read more into a rule than stands there, unless it is marked.

    To it a $ at the end may also be a plain character, and who allows /index.html allows /.
    """
    return rule.endswith("$") or (is_allowing and _spelt(rule).endswith("/index.html"))


def _spelt(text: str) -> str:
    path, mark, query = text.partition("?")
    # In a query a slash separates nothing, and is sent alike however it was written.
    return _escaped(path) + ("%3F" if mark else "") + _SLASH.sub("/", _escaped(query))


def _escaped(text: str) -> str:
    """Escape what needs it, in capitals, and nothing else."""
    text = _BARE_PERCENT.sub("%25", text)
    text = _UNSAFE.sub(lambda found: quote(found[0], safe="", errors="surrogatepass"), text)
    text = _NEEDLESS.sub(lambda found: unquote(found[0]), text)
    text = _HIGH_OCTETS.sub(lambda found: _octets(found[0]), text)
    return re.sub("%[0-9a-f]{2}", lambda found: found[0].upper(), text, flags=re.IGNORECASE)


def _octets(escapes: str) -> str:
    """Escape octets that are not UTF-8 twice, since protego takes all of them for the same."""
    text = unquote_to_bytes(escapes).decode("utf-8", "surrogateescape")
    low, high = _SURROGATES
    return "".join(
        f"%25{ord(one) - 0xDC00:02X}" if low <= one <= high else quote(one) for one in text
    )


def _without_dots(path: str) -> str:
    """Take out . and .., as it is done before an address is sent (RFC 3986 5.2.4)."""
    if "/." not in path:
        return path
    kept: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == "..":
            kept = kept[:1] + kept[1:-1]  # the root stays
        elif segment != ".":
            kept.append(segment)
    return "/".join([*kept, ""] if segments[-1] in {".", ".."} else kept)
