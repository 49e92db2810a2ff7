"""The operations of the HTTP API, as its OpenAPI document describes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ADMIN = "/api/v1/tokens"
_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation; `about` is its part of the document."""

    method: str
    template: str
    about: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.method} {self.template}"

    @property
    def path(self) -> str:
        """A path of it; numbers and names in it need not exist."""
        return _PARAMETER.sub("1", self.template)

    @property
    def changes(self) -> bool:
        """Whether it changes something."""
        return self.method != "GET"

    @property
    def is_for_admins(self) -> bool:
        """Whether only the role admin may use it."""
        return self.template.startswith(_ADMIN)


def operations_of(document: Mapping[str, Any]) -> list[Operation]:
    """Return all operations of a document."""
    return [
        Operation(method.upper(), path, about)
        for path, methods in document["paths"].items()
        for method, about in methods.items()
    ]
