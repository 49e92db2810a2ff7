"""Headers, cookies and private hosts as users write them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, PlainValidator

from longline.config.secrets import SecretRef, host_pattern, is_reference, text_or_reference
from longline.config.validation import invalid

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header name by RFC 9110; a cookie name by RFC 6265."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
COOKIE_VALUE = re.compile(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*")
"""A cookie value by RFC 6265: no spaces, quotes, commas, semicolons or backslashes."""
_RESERVED = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "te", "upgrade"}
)
_SECRET_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "x-auth-token", "api-key"}
)

StartCookies = Mapping[str, Mapping[str, SecretRef | str]]
"""Initial cookies by host and name."""


def merge_headers(*layers: Mapping[str, str]) -> dict[str, str]:
    """Return all headers; of two with the same name, ignoring case, the later wins."""
    merged: dict[str, tuple[str, str]] = {}
    for layer in layers:
        merged.update({name.lower(): (name, value) for name, value in layer.items()})
    return dict(merged.values())


def check_cookies(cookies: bool | StartCookies | None) -> None:  # noqa: FBT001  # the type of the setting
    """Check that every secret in the initial cookies can be read.

    Raises:
        UnknownSecret: one cannot.
    """
    for values in cookies.values() if isinstance(cookies, Mapping) else ():
        for value in values.values():
            if isinstance(value, SecretRef):
                value.check()


def _parse_headers(values: Any) -> dict[str, str]:
    if not isinstance(values, Mapping):
        raise invalid("headers are names and values, for example {Accept-Language: en}")
    return merge_headers(dict(_parse_header(name, value) for name, value in values.items()))


def _parse_header(name: object, value: object) -> tuple[str, str]:
    if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
        raise invalid("a header name consists of letters, digits and hyphens")
    if name.lower() in _RESERVED:
        raise invalid(f"{name} is set by longline")
    # Headers are sent to every host, so they must not contain secrets.
    if name.lower() in _SECRET_HEADERS or is_reference(value):
        raise invalid(
            f"{name} is a secret: write it under auth, with the hosts that may receive it"
        )
    if name.lower() == "cookie":
        raise invalid("write cookies under cookies, by host")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise invalid(f"{name} must be text")
    if _CONTROL.search(str(value)):
        raise invalid(f"{name} contains a line break or another control character")
    return name, str(value).strip()


def _parse_cookies(values: Any) -> bool | dict[str, dict[str, SecretRef | str]]:
    if isinstance(values, bool):
        return values
    if not isinstance(values, Mapping):
        raise invalid("cookies are false, or hosts with names and values: {shop.test: {lang: en}}")
    cookies = {}
    for host, them in values.items():
        name = host_pattern(host)
        if name.startswith("*.") or ":" in name:
            raise invalid("a cookie belongs to one host, such as example.com, without a port or *")
        cookies[name] = _parse_host_cookies(host, them)
    return cookies


def _parse_host_cookies(host: object, values: object) -> dict[str, SecretRef | str]:
    if not isinstance(values, Mapping):
        raise invalid(f"the cookies of {host} are names and values, for example {{lang: en}}")
    cookies = {}
    for name, written in values.items():
        if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
            raise invalid(f"a cookie of {host} has an invalid name")
        value = cookies[name] = text_or_reference(written)
        if isinstance(value, str) and not COOKIE_VALUE.fullmatch(value):
            raise invalid(
                f"the value of {name} contains characters that RFC 6265 does not allow in a cookie"
            )
    return cookies


def _dump_cookies(cookies: bool | StartCookies) -> Any:  # noqa: FBT001  # pydantic's signature
    if isinstance(cookies, bool):
        return cookies
    return {
        host: {name: str(value) for name, value in them.items()} for host, them in cookies.items()
    }


Headers = Annotated[
    dict[str, str], PlainValidator(_parse_headers, json_schema_input_type=dict[str, str])
]
"""Headers of every request to every host; secrets are refused."""

Cookies = Annotated[
    bool | dict[str, dict[str, SecretRef | str]],
    PlainValidator(_parse_cookies, json_schema_input_type=bool | dict[str, dict[str, str]]),
    PlainSerializer(_dump_cookies),
]
"""False: keep none. Otherwise the initial cookies by host; values are texts or references."""


Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAME = re.compile(r"(?!-)[\w-]+(\.[\w-]+)*")
_NUMERIC = re.compile(r"(0x)?[0-9a-f]+(\.(0x)?[0-9a-f]+)*")
_EXAMPLES = "a host is written as wiki.corp, 10.0.0.7 or 10.0.0.0/8"


def normalize_host(host: str) -> str:
    """Return a host name in lower case, without a final dot."""
    return host.lower().rstrip(".")


def network_of(text: str) -> Network | None:
    """Return an IP address or a network in CIDR notation; None when the text is neither."""
    try:
        return ipaddress.ip_network(text.strip("[]"))
    except ValueError:
        return None


def _check_private_host(value: object) -> str:
    text = normalize_host(value.strip()) if isinstance(value, str) else ""
    if network_of(text) is not None:
        return text.strip("[]")
    if not _NAME.fullmatch(text) or (_NUMERIC.fullmatch(text) and any(map(str.isdigit, text))):
        raise invalid(f"{_EXAMPLES}, without scheme and port")
    return text


def _parse_private_hosts(value: Any) -> tuple[str, ...]:
    hosts = value.split(",") if isinstance(value, str) else value
    if not isinstance(hosts, Iterable):
        raise invalid(f"private_hosts is a list; {_EXAMPLES}")
    return tuple(dict.fromkeys(_check_private_host(one) for one in hosts))


PrivateHosts = Annotated[tuple[str, ...], BeforeValidator(_parse_private_hosts)]
"""Host names, IP addresses and networks; a text is a comma-separated list."""
