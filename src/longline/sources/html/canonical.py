"""Canonical URLs: what identifies a page, however a site writes the link to it."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import BeforeValidator
from yarl import URL

from longline.config.validation import StrictModel, one_or_several

_TRACKING = (
    *("utm_*", "mtm_*", "pk_campaign", "pk_kwd", "gclid", "gclsrc", "dclid", "gbraid", "wbraid"),
    *("fbclid", "msclkid", "yclid", "twclid", "ttclid", "igshid", "li_fat_id", "mc_cid", "mc_eid"),
    *("_ga", "_gl", "_hsenc", "_hsmi", "mkt_tok"),
)
_SESSIONS = (
    *("phpsessid", "jsessionid", "aspsessionid*", "sessionid", "session_id", "sessid"),
    *("cfid", "cftoken", "zenid", "oscsid", "xtcsid"),
)
_DROPPED = _TRACKING + _SESSIONS
_MAYBE_SESSIONS = frozenset({"s", "sid", "sess", "session"})
_SESSION_VALUE = re.compile(r"(?=.*\d)[0-9A-Za-z,_-]{16,}").fullmatch
_SESSION_IN_PATH = re.compile(
    r";[a-z_]*sess(?:ion)?_?id=[^/;?]*|/\((?:[A-Z]\([^()/]*\))+\)", re.IGNORECASE
)
_LONG_TOKEN = re.compile(r"(?=[^/]*\d)[0-9a-fA-F-]{12,}")
_DIGITS = re.compile(r"\d+")

_Names = Annotated[tuple[str, ...], BeforeValidator(one_or_several)]


class UrlRules(StrictModel):
    """Which query parameters do not identify a page; `*` stands for any text."""

    drop: _Names = ()
    """Parameters that are removed, besides tracking parameters and session ids."""
    keep: _Names = ()
    """Parameters that are kept although they look like tracking or a session id."""
    sort: bool = True
    """Whether the order of parameters is ignored."""

    def clean(self, url: str) -> str | None:
        """Return the URL to request; None if it is not a valid URL.

        Without fragment, default port, tracking parameters and session ids; host, dots in the path
        and percent-encoding in their normal form.
        """
        try:
            parts = URL(_SESSION_IN_PATH.sub("", url))
            origin = parts.origin()
        except ValueError:
            return None
        query = "&".join(self._kept(parts.raw_query_string))
        return f"{origin}{parts.raw_path}" + (f"?{query}" if query else "")

    def canonical(self, cleaned: str) -> str:
        """Return what identifies the page of a URL that `clean` returned."""
        base, _, query = cleaned.partition("?")
        return f"{base}?{'&'.join(sorted(query.split('&')))}" if query and self.sort else cleaned

    def _kept(self, query: str) -> list[str]:
        return [pair for pair in query.split("&") if pair and not self._is_dropped(pair)]

    def _is_dropped(self, pair: str) -> bool:
        name, _, value = pair.partition("=")
        name = name.lower()
        if any(fnmatchcase(name, one.lower()) for one in self.keep):
            return False
        if any(fnmatchcase(name, one.lower()) for one in self.drop):
            return True
        if name in _MAYBE_SESSIONS:
            return bool(_SESSION_VALUE(value))
        return any(fnmatchcase(name, one) for one in _DROPPED)


def pattern_of(cleaned: str) -> str:
    """Return the pattern of a URL: without scheme, numbers and the values of parameters."""
    base, _, query = cleaned.partition("://")[2].partition("?")
    host, slash, path = base.partition("/")
    path = _DIGITS.sub("{n}", _LONG_TOKEN.sub("{id}", path))
    names = sorted({pair.partition("=")[0] for pair in query.split("&")}) if query else ()
    return host + slash + path + (f"?{'&'.join(names)}" if names else "")
