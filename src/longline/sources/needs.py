"""Whether all that a source needs is there, before it makes its first request."""

from __future__ import annotations

import importlib.util

from longline.errors import MissingExtra
from longline.fetching.transports.browser_options import check_browser
from longline.sources.base import Source

_BROWSER = ("browser", "playwright")


def check_needs(source: type[Source], chromium: str | None = None) -> None:
    """See that a source has what it declares; `chromium` names the browser to use, if one is.

    Raises:
        MissingExtra: a package is not installed.
        NoBrowser: there is no browser.
        UnknownSecret: a secret cannot be read.
    """
    needs = source.needs
    wanted = dict(needs.extras)
    if needs.browser or source.transport != "http":
        wanted.setdefault(*_BROWSER)
    for extra, module in wanted.items():
        if importlib.util.find_spec(module) is None:
            raise MissingExtra(extra, f"the source {source.name}")
    if _BROWSER[0] in wanted:
        check_browser(chromium)
    for secret in needs.secrets:
        secret.check()
