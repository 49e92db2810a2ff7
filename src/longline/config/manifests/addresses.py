"""Addresses in manifests: what can be known to be wrong before anyone is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import PydanticCustomError

from longline.config.manifests.base import Parameter
from longline.config.manifests.templates import names_in
from longline.config.written import wrong

_SCHEMES = ("http://", "https://")
_KNOWN = re.compile(r"\{\{|\}\}|\{[A-Za-z_][A-Za-z0-9_.]*\}")
_STAND_IN = "1"  # for a name: a host may be called so, and a port may be this


def check_braces(text: str) -> str:
    """See that every brace of a text is closed, and holds a name.

    Raises:
        PydanticCustomError: one is not.
    """
    left = _KNOWN.sub("", text)
    if "{" in left or "}" in left:
        brace, other = ("{", "}") if "{" in left else ("}", "{")
        raise wrong(
            f"a {brace} has no {other} that belongs to it, or no plain name between; {{name}} "
            f"stands for a parameter, and a brace that is meant is written twice: {brace * 2}"
        )
    return text


def check_address(text: str) -> str:
    """See that an address, with or without names in braces, can be one of a page.

    Raises:
        PydanticCustomError: it cannot.
    """
    check_braces(text)
    filled = _KNOWN.sub(_STAND_IN, text)
    if not filled.startswith(_SCHEMES):
        return text  # it begins with a name, or below another address
    host = re.split(r"[/?#\\]", filled.partition("://")[2], maxsplit=1)[0]
    if "@" in host:
        raise wrong(
            "an address holds no user and no password: everyone who sees a record would see them; "
            "write auth: {kind: basic, user: …, password: env:NAME, hosts: […]}"
        )
    _check_host(filled, host)
    return text


def check_with_defaults(text: str, parameters: Mapping[str, Parameter]) -> None:
    """See that an address is one with the values that its names have unless others are set.

    Raises:
        PydanticCustomError: it is not.
    """
    defaults = {name: one.default for name, one in parameters.items() if one.default is not None}
    if problem := problem_with(text, defaults):
        raise wrong(f"{text} with its defaults: {problem}")


def problem_with(text: str, values: Mapping[str, Any]) -> str | None:
    """Return what is wrong with an address that begins with a name, once that has a value."""
    first = next(iter(names_in(text)), None)
    if first is None or first not in values or not text.startswith("{"):
        return None
    address = str(values[first]) + text.partition("}")[2]
    if not address.startswith(_SCHEMES):
        return f"{{{first}}} must begin with http:// or https://"
    try:
        check_address(address)
    except PydanticCustomError as error:
        return error.message()
    return None


def _check_host(address: str, host: str) -> None:
    try:
        parts = urlsplit(address)
        is_possible = parts.port != 0
    except ValueError:
        is_possible = False
        if "[" in host or "]" in host:
            raise wrong(
                f"{host!r} is no host: only an IPv6 address stands in [ and ], as in http://[::1]/"
            ) from None
    if not is_possible:
        raise wrong(f"{host!r} has an impossible port: ports are numbers from 1 to 65535")
    if not parts.hostname or any(char.isspace() for char in host):
        raise wrong("its host is missing or no name; an address is like https://example.com/list")
