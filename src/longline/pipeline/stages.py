"""A stage of the pipeline: a draft of a record in, a draft out, and nothing changed in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from longline.core.errors import BadOption
from longline.core.model import Note

# ---------------- Data that nobody can change: what one stage hands to the next


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


def to_plain(value: Any) -> Any:
    """Return a copy made of plain dicts and lists."""
    if isinstance(value, dict):
        return {name: to_plain(one) for name, one in value.items()}
    return [to_plain(one) for one in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Draft:
    """What an item has become so far; its data cannot be changed, at any depth."""

    key: str
    url: str
    source: str
    data: Mapping[str, Any]
    notes: tuple[Note, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", frozen(self.data))
        object.__setattr__(self, "provenance", frozen(self.provenance))

    def with_data(self, data: Mapping[str, Any], *notes: Note, **changes: Any) -> Draft:
        """Return the same draft with other data, and with these notes beside its own."""
        return replace(self, data=data, notes=(*self.notes, *notes), **changes)


class Stage(Protocol):
    """Makes a draft of a draft; the same one of the same, and without asking anybody.

    Raises NothingToStore for what is no record (it is skipped with the reason), and
    UnexpectedShape for what does not fit (it is quarantined).
    """

    name: str

    def __call__(self, draft: Draft) -> Draft:
        """Return the draft as it leaves this stage."""


# ---------------- Stages written in Python are checked like those of a manifest, and told in the

M = TypeVar("M", bound=BaseModel)


def checked_step(model: type[M], **values: Any) -> M:
    """Return the model of what was written.

    Raises:
        BadOption: it does not fit.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"]) or next(iter(values))
        raise BadOption(name, first["msg"]) from None
