"""Errors of requests and responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from longline.core.errors import ConfigError, Deferred, FailureKind, FetchError


class NoBrowser(ConfigError):
    problem: str
    message = "no Chromium was found: {problem}"
    hint = (
        "Install one (apt install chromium, or playwright install chromium), or set "
        "LONGLINE_CHROMIUM to its path or to the address of a running one."
    )


class UnknownHost(FetchError):
    """No host has this name, and it has not answered before: a retry would not help."""

    kind = FailureKind.REFUSED
    problem: str
    message = "the host {host} of {url} was not found ({problem})"


class PrivateAddress(FetchError):
    """A site on a public host led to a private address; nothing was sent."""

    kind = FailureKind.REFUSED
    address: str
    message = "{url} was not requested: it leads to {address}, which is not a public address"
    hint = "If the source may request it, add the host to its private_hosts."


class BadCertificate(FetchError):
    kind = FailureKind.REFUSED
    problem: str
    message = "{url} was not requested: the TLS certificate of {host} is not trusted ({problem})"
    hint = (
        "Check the address; if your own certificate authority signed it, set ca_file to the "
        "certificate of that authority."
    )


class TimedOut(FetchError):
    kind = FailureKind.TIMEOUT
    seconds: float
    message = "{url} did not respond completely within {seconds:g} s"


class NeverReady(FetchError):
    """A page loaded, but what the browser waited for did not appear on it."""

    kind = FailureKind.TIMEOUT
    what: str
    seconds: float
    message = "{url} loaded, but {what} did not appear within {seconds:g} s"


class BodyCut(FetchError):
    received_bytes: int
    message = "the response from {url} was cut off after {received_bytes} bytes"


class BadAnswer(FetchError):
    """A response that cannot be used: too large, undecodable, or a redirect loop."""

    kind = FailureKind.INVALID
    problem: str
    message = "the response from {url} cannot be used: {problem}"


class Rejected(FetchError):
    """A response that a rule of the source calls a failure; `kind` is given by the rule."""

    reason: str
    kind: FailureKind = FailureKind.REFUSED  # type: ignore[misc]  # each error has its own
    message = "the response from {url} is a failure: {reason}"


class RobotsDisallowed(FetchError):
    kind = FailureKind.REFUSED
    exit_code = 4
    reason: str
    message = "the robots.txt of {host} does not allow {url} ({reason})"
    hint = (
        "Use a mirror, or, if you have the right to, add --ignore-robots {host}; the override is "
        "recorded in the job."
    )


class AuthFailed(FetchError):
    """No token, or the login did not work."""

    kind = FailureKind.REFUSED
    problem: str
    message = "{host} refused the credentials: {problem}"


class ProxyFailed(FetchError):
    """A request did not reach its site through a proxy, whose address is `proxy`.

    With `is_certain`, the fault is the proxy's own, whatever the site; otherwise another proxy
    shows whether it is the site's.
    """

    proxy: str
    problem: str
    is_certain: bool = False
    message = "{url} could not be requested through the proxy {proxy} ({problem})"


class NoProxy(Deferred):
    """No proxy can be used for a domain now; its items wait."""

    hint = "See `longline proxies`."


class SessionEnded(Deferred):
    """The session of a request cannot be used any longer; another session sends it again."""


class NotArchived(FetchError):
    kind = FailureKind.INVALID
    method: str = "GET"
    message = "the archive has no response to {method} {url}"


# ---------------- Stored errors, in archives and recorded cases


def encode_error(error: FetchError, rewrite: Callable[[str], str] = str) -> dict[str, Any]:
    """Return an error as JSON: its class and its fields, with texts passed through `rewrite`."""
    arguments = [
        {"kind": one.value}
        if isinstance(one, FailureKind)
        else rewrite(one)
        if isinstance(one, str)
        else one
        for one in error.args
    ]
    return {"error": type(error).__name__, "arguments": arguments}


def decode_error(
    values: Mapping[str, Any], rewrite: Callable[[str], str] = str
) -> FetchError | None:
    """Return a stored error; None for one of a later version of longline."""
    kind = _fetch_errors().get(values["error"])
    if kind is None:
        return None
    arguments = (
        FailureKind(one["kind"])
        if isinstance(one, dict)
        else rewrite(one)
        if isinstance(one, str)
        else one
        for one in values["arguments"]
    )
    return kind(*arguments)


def _fetch_errors(base: type[FetchError] = FetchError) -> dict[str, type[FetchError]]:
    known = {base.__name__: base}
    for kind in base.__subclasses__():
        known |= _fetch_errors(kind)
    return known
