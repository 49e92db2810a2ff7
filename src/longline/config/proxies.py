"""Which proxies and sessions requests use, as users write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from longline.config.identity import Headers
from longline.config.validation import StrictModel, invalid

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


def _parse_country(value: Any) -> Any:
    return value.strip().upper() if isinstance(value, str) else value


Country = Annotated[str, BeforeValidator(_parse_country), Field(pattern=r"^[A-Z]{2}$")]
"""Two letters, such as BG."""


def _parse_several(value: Any) -> Any:
    """Accept one value in place of a list."""
    return [value] if isinstance(value, str) else value


class ProxySpec(StrictModel):
    """Which proxies of the pool requests use."""

    enabled: bool = True
    tiers: Annotated[tuple[_Name, ...], BeforeValidator(_parse_several)] = ()
    """Tiers in the order in which they are used; default: all."""
    country: Annotated[tuple[Country, ...], BeforeValidator(_parse_several)] = ()
    """Countries of the proxies, such as BG; default: any."""
    minimum: int = Field(default=1, ge=1)
    """With fewer usable proxies, requests wait."""
    per_proxy: bool = False
    """Apply the rate limit to each proxy, not to the domain: N proxies send N times as much."""


def _parse_proxies(value: Any) -> Any:
    """Accept `true`, `false`, `any`, `none`, and tiers: `datacentre,residential` or a list."""
    if isinstance(value, bool):
        return {"enabled": value}
    if isinstance(value, str):
        words = [word.strip() for word in value.split(",")]
        if words in (["any"], ["none"]):
            return {"enabled": words == ["any"]}
        if {"any", "none"} & {*words}:
            raise invalid("write any, none, or the names of tiers, such as datacentre,residential")
        return {"tiers": words}
    if isinstance(value, list | tuple):
        return {"tiers": value}
    if value is not None and not isinstance(value, Mapping | ProxySpec):
        raise invalid("write true, false, a list of tiers, or {tiers: […], country: […]}")
    return value


Proxies = Annotated[ProxySpec, BeforeValidator(_parse_proxies)]
"""Which proxies are used; `true` is any."""


class SessionSpec(StrictModel):
    """Sessions: cookies, a proxy and headers that belong together.

    A session is that of an `item`, of a `login` (all requests of a process), or one of `size` per
    domain that serve `uses` requests each.
    """

    per: Literal["item", "login", "uses"] = "item"
    uses: int = Field(default=50, ge=1)
    size: int = Field(default=10, ge=1, le=1000)
    """Sessions per domain, with `per: uses`."""
    errors: int = Field(default=3, ge=1)
    """A session with this many errors ends; a success makes up for half an error."""
    headers: tuple[Headers, ...] = ()
    """Sets of headers; each session has one of them."""


def _parse_sessions(value: Any) -> Any:
    """Accept `item` or `login`, and a number of uses."""
    if isinstance(value, str):
        return {"per": value}
    if isinstance(value, int) and not isinstance(value, bool):
        return {"per": "uses", "uses": value}
    if isinstance(value, Mapping) and "uses" in value and "per" not in value:
        return {"per": "uses", **value}
    return value


Sessions = Annotated[SessionSpec, BeforeValidator(_parse_sessions)]
"""How sessions are shared by requests; `item` is one for each item."""
