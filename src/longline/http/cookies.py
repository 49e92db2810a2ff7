"""Cookies by RFC 6265: which ones a response may set, and which ones a request sends."""

from __future__ import annotations

import re
from functools import cache
from http.cookies import Morsel
from itertools import accumulate
from typing import TYPE_CHECKING

import aiohttp
from yarl import URL

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

_DOMAIN = re.compile(r";\s*domain\s*(?:=\s*([^;]*))?(?=;|$)", re.IGNORECASE)


class CookieJar(aiohttp.CookieJar):
    """A jar that sends each cookie exactly as it came, and all cookies of one name."""

    def _build_morsel(self, cookie: Morsel[str]) -> Morsel[str]:
        # The library would put quotes around unusual values, which no browser does.
        return cookie

    def fitting(self, url: URL) -> list[Morsel[str]]:
        """Return the cookies to send to an address, the longest paths first (RFC 6265 5.4).

        Of equal paths the cookie of the more specific domain comes first, then the older one.
        """
        chosen = self.filter_cookies(url)  # one per name: the most specific
        if not chosen:
            return []
        host, is_secure = url.raw_host or "", url.scheme in {"https", "wss"}
        domains = list(accumulate(reversed(host.split(".")), lambda right, left: f"{left}.{right}"))
        if host not in domains or _is_address(host):
            domains = [host]
        paths = list(accumulate(url.path.split("/"), lambda left, right: f"{left}/{right}"))
        found: list[Morsel[str]] = []
        for path in reversed(paths):
            for domain in reversed(domains):
                for name, cookie in self._cookies.get((domain, path), {}).items():
                    is_elsewhere = (
                        domain != host and (domain, path, name) in self._host_only_cookies
                    )
                    is_deeper = len(cookie["path"]) > len(url.path)
                    if not (is_elsewhere or is_deeper or (cookie["secure"] and not is_secure)):
                        found.append(cookie)
        if len({cookie.key for cookie in found}) > len(chosen):  # over the size of a header
            return list(chosen.values())
        return found


def checked_set_cookie(line: str, host: str) -> str | None:
    """Return a Set-Cookie line with its Domain in canonical form, or None if it is not allowed.

    A cookie for a public suffix (`org`, `co.uk`, `github.io`) would go to unrelated sites. It is
    refused, unless the host itself is that suffix: then the cookie is for this host only.
    """
    given = [(found[1] or "").strip() for found in _DOMAIN.finditer(line)]
    if not given:
        return line
    line = _DOMAIN.sub("", line)
    domain = _canonical(given[-1])  # of several, the last counts
    if not domain:
        return line
    if is_public_suffix(domain) or _is_address(domain):
        return line if domain == host.lower() else None
    return f"{line}; Domain={domain}"


def is_public_suffix(domain: str) -> bool:
    """Whether unrelated parties register names below a domain, by the public suffix list.

    A domain with one label is always a public suffix, in the list or not.
    """
    return _suffixes().is_public(domain)


@cache
def _suffixes() -> PublicSuffixList:
    # Reading the list takes about 0.1 s; most runs never need it.
    from publicsuffixlist import PublicSuffixList  # noqa: PLC0415

    return PublicSuffixList()


def _canonical(domain: str) -> str:
    domain = domain.strip('"').removeprefix(".").lower()
    if domain.isascii():
        return domain
    try:
        return URL.build(scheme="http", host=domain).raw_host or ""
    except ValueError:
        return domain


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()
