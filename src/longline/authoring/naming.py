"""Names for what is proposed: of fields by labels and classes, of sources by their address."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from longline.authoring.proposals import ProposedField

_NO_NAME = "field"
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORDS = re.compile(r"\W+|_+")
_LONGEST = 40


def field_name(text: str) -> str:
    """Return a label or a name of a program as the name of a field: `datePublished` and so on."""
    words = [word for word in _WORDS.split(_CAMEL.sub(" ", text).lower()) if word]
    name = "_".join(word for word in words if word != "0")[:_LONGEST].strip("_")
    return name if name and not name[0].isdigit() else f"{_NO_NAME}_{name}".strip("_")


def last_word(class_name: str) -> str | None:
    """Return what a class calls an element, without the block it stands in: card__price."""
    parts = [part for part in re.split(r"__|--|-|_", class_name) if part]
    if len(parts) < 2 or not parts[-1].isalpha():  # noqa: PLR2004  # a word alone has no block
        return parts[0].lower() if parts and parts[0].isalpha() else None
    return parts[-1].lower()


def without_clashes(fields: Iterable[ProposedField]) -> list[ProposedField]:
    """Return the fields with a number behind names that another one has."""
    taken: set[str] = set()
    named = []
    for one in fields:
        name, number = one.name, 2
        while name in taken:
            name, number = f"{one.name}_{number}", number + 1
        taken.add(name)
        named.append(one.named(name))
    return named


def source_name(url: str) -> str:
    """Return a name for the source of an address."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = host.removeprefix("www.")
    is_number = host.replace(".", "").isdigit() or ":" in host
    words = ["site"] if is_number else host.split(".")[:-1] or [host]
    words += [word for word in parts.path.split("/") if word][-2:]
    name = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")
    name = name if name[:1].isalpha() else f"site-{name}".strip("-")
    return name[:_LONGEST].strip("-")
