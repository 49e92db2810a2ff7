"""Headers, parameters and bodies that hold secrets, and do not show them when printed."""

from __future__ import annotations

from collections.abc import Mapping

from longline.fetching.messages import Request


class Veiled(dict[str, str]):
    """A dict that shows its names and hides its values."""

    def __repr__(self) -> str:
        return f"Veiled({', '.join(self)})"


class VeiledBody(bytes):
    """Bytes that show how many they are."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"VeiledBody({len(self)} bytes)"


def with_header(request: Request, name: str, value: str) -> Request:
    """Return the request with this header, unless it has one of that name already."""
    if has_header(request.headers, name):
        return request
    return request.having(Veiled({**request.headers, name: value}))


def has_header(headers: Mapping[str, str], name: str) -> bool:
    """Return whether there is a header of this name, in whatever case."""
    wanted = name.lower()
    return any(one.lower() == wanted for one in headers)
