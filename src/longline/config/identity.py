"""What a source shows of itself with every request: headers and cookies, as a user writes them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, PlainValidator

from longline.config.secrets import SecretRef, is_reference, pattern_of, text_or_reference
from longline.config.strict_model import invalid

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""What RFC 9110 allows as the name of a header, and RFC 6265 as that of a cookie."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
COOKIE_VALUE = re.compile(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*")
"""What RFC 6265 allows in a cookie: no spaces, quotes, commas, semicolons or backslashes."""
_OWN = frozenset({"host", "content-length", "transfer-encoding", "connection", "te", "upgrade"})
_SECRET = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "x-auth-token", "api-key"}
)

StartCookies = Mapping[str, Mapping[str, SecretRef | str]]
"""Cookies to begin with, by host and name."""


def merge_headers(*layers: Mapping[str, str]) -> dict[str, str]:
    """Return all headers; of two with one name, in whatever case, the later wins."""
    merged: dict[str, tuple[str, str]] = {}
    for layer in layers:
        merged.update({name.lower(): (name, value) for name, value in layer.items()})
    return dict(merged.values())


def check_cookies(cookies: bool | StartCookies | None) -> None:  # noqa: FBT001  # as it is written
    """See before the first request that every secret among the start cookies can be read.

    Raises:
        UnknownSecret: one cannot.
    """
    for values in cookies.values() if isinstance(cookies, Mapping) else ():
        for value in values.values():
            if isinstance(value, SecretRef):
                value.check()


def _headers(values: Any) -> dict[str, str]:
    if not isinstance(values, Mapping):
        raise invalid("headers are names and values, for example {Accept-Language: en}")
    return merge_headers(dict(_header(name, value) for name, value in values.items()))


def _header(name: object, value: object) -> tuple[str, str]:
    if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
        raise invalid("the name of a header has letters, digits and hyphens")
    if name.lower() in _OWN:
        raise invalid(f"{name} is set by longline itself")
    # Headers go to every host that a source asks, so no secret may stand among them.
    if name.lower() in _SECRET or is_reference(value):
        raise invalid(f"{name} holds a secret: write it under auth, which says where it may go")
    if name.lower() == "cookie":
        raise invalid("write cookies under cookies, by host")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise invalid(f"{name} must be text")
    if _CONTROL.search(str(value)):
        raise invalid(f"{name} has a line break or another sign that a header cannot hold")
    return name, str(value).strip()


def _cookies(values: Any) -> bool | dict[str, dict[str, SecretRef | str]]:
    if isinstance(values, bool):
        return values
    if not isinstance(values, Mapping):
        raise invalid("cookies are false, or hosts with names and values: {shop.test: {lang: en}}")
    return {_cookie_host(host): _cookies_of(host, them) for host, them in values.items()}


def _cookie_host(host: object) -> str:
    name = pattern_of(host)
    if name.startswith("*.") or ":" in name:
        raise invalid("a cookie is bound to one host: example.com, without a port or a *")
    return name


def _cookies_of(host: object, values: object) -> dict[str, SecretRef | str]:
    if not isinstance(values, Mapping):
        raise invalid(f"the cookies of {host} are names and values, for example {{lang: en}}")
    for name in values:
        if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
            raise invalid(f"a cookie of {host} has a name that cannot be one")
    cookies = {name: text_or_reference(value) for name, value in values.items()}
    for name, value in cookies.items():
        if isinstance(value, str) and not COOKIE_VALUE.fullmatch(value):
            raise invalid(f"the value of {name} has signs that a cookie cannot hold")
    return cookies


def _dump(cookies: bool | StartCookies) -> Any:  # noqa: FBT001  # pydantic's signature
    if isinstance(cookies, bool):
        return cookies
    return {
        host: {name: str(value) for name, value in them.items()} for host, them in cookies.items()
    }


Headers = Annotated[dict[str, str], PlainValidator(_headers, json_schema_input_type=dict[str, str])]
"""Headers that go with every request of a source, to every host; none of them is a secret."""

Cookies = Annotated[
    bool | dict[str, dict[str, SecretRef | str]],
    PlainValidator(_cookies, json_schema_input_type=bool | dict[str, dict[str, str]]),
    PlainSerializer(_dump),
]
"""False: keep none. Otherwise those to begin with, by host; values are text or references."""


# ---------------- `private_hosts`: the hosts that an operator allows requests to reach at private

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAME = re.compile(r"(?!-)[\w-]+(\.[\w-]+)*")
_NUMERIC = re.compile(r"(0x)?[0-9a-f]+(\.(0x)?[0-9a-f]+)*")
_EXAMPLES = "a host is written as wiki.corp, 10.0.0.7 or 10.0.0.0/8"


def normalized(host: str) -> str:
    """Return a host name as names are compared: in lower case, without a final dot."""
    return host.lower().rstrip(".")


def network_of(text: str) -> Network | None:
    """Return an address or a network in CIDR notation; None when the text is neither."""
    try:
        return ipaddress.ip_network(text.strip("[]"))
    except ValueError:
        return None


def _checked(value: object) -> str:
    text = normalized(value.strip()) if isinstance(value, str) else ""
    if network_of(text) is not None:
        return text.strip("[]")
    if not _NAME.fullmatch(text) or (_NUMERIC.fullmatch(text) and any(map(str.isdigit, text))):
        raise invalid(f"{_EXAMPLES}, without scheme and port")
    return text


def _several(value: Any) -> tuple[str, ...]:
    hosts = value.split(",") if isinstance(value, str) else value
    if not isinstance(hosts, Iterable):
        raise invalid(f"private_hosts is a list; {_EXAMPLES}")
    return tuple(dict.fromkeys(_checked(one) for one in hosts))


PrivateHosts = Annotated[tuple[str, ...], BeforeValidator(_several)]
"""Host names, addresses and networks; a text holds several with commas between them."""
