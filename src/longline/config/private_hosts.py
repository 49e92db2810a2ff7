"""`private_hosts`: the hosts that an operator allows requests to reach at private addresses."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator

from longline.config.written import wrong

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
        raise wrong(f"{_EXAMPLES}, without scheme and port")
    return text


def _several(value: Any) -> tuple[str, ...]:
    hosts = value.split(",") if isinstance(value, str) else value
    if not isinstance(hosts, Iterable):
        raise wrong(f"private_hosts is a list; {_EXAMPLES}")
    return tuple(dict.fromkeys(_checked(one) for one in hosts))


PrivateHosts = Annotated[tuple[str, ...], BeforeValidator(_several)]
"""Host names, addresses and networks; a text holds several with commas between them."""
