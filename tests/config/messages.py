"""What a message has to name, whatever its words are."""

from __future__ import annotations


def absent(message: str, data: str) -> list[str]:
    """Return which names, values and numbers of `data` a message does not hold."""
    return [word for word in data.split() if word not in message]
