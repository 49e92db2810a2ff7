"""Data that nobody can change: what one stage hands to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn


def _refuse(*_values: Any, **_names: Any) -> NoReturn:
    message = "data is not changed between stages; return a new draft instead"
    raise TypeError(message)


class FrozenDict(dict[str, Any]):
    """A dict, for all who read it (jmespath, JSON Schema, orjson), that cannot be changed."""

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


class FrozenList(list[Any]):
    """A list that cannot be changed."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse


def frozen(value: Any) -> Any:
    """Return a value as one that cannot be changed, at any depth; what is so already, as it is."""
    if isinstance(value, FrozenDict | FrozenList):
        return value
    if isinstance(value, Mapping):
        return FrozenDict({name: frozen(one) for name, one in value.items()})
    if isinstance(value, list | tuple):
        return FrozenList([frozen(one) for one in value])
    return value


def thawed(value: Any) -> Any:
    """Return a copy made of plain dicts and lists."""
    if isinstance(value, dict):
        return {name: thawed(one) for name, one in value.items()}
    return [thawed(one) for one in value] if isinstance(value, list) else value
