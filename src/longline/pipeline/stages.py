"""Stages of the pipeline, and the immutable drafts that they pass on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from longline.core.errors import BadOption, LayerFailed, LonglineError, UnexpectedShape
from longline.core.model import Note


def _refuse(*_values: Any, **_names: Any) -> NoReturn:
    message = "data of a draft cannot be changed; return a new draft instead"
    raise TypeError(message)


class FrozenDict(dict[str, Any]):
    """An immutable dict that jmespath, JSON Schema and orjson accept."""

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


class FrozenList(list[Any]):
    """An immutable list."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse


def frozen(value: Any) -> Any:
    """Return an immutable copy of a value; an immutable value itself."""
    if isinstance(value, FrozenDict | FrozenList):
        return value
    if isinstance(value, Mapping):
        return FrozenDict({name: frozen(one) for name, one in value.items()})
    if isinstance(value, list | tuple):
        return FrozenList([frozen(one) for one in value])
    return value


def to_plain(value: Any) -> Any:
    """Return a copy with plain dicts and lists."""
    if isinstance(value, dict):
        return {name: to_plain(one) for name, one in value.items()}
    return [to_plain(one) for one in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Draft:
    """An item between two stages; its data is immutable."""

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
        """Return a draft with other data and additional notes."""
        return replace(self, data=data, notes=(*self.notes, *notes), **changes)


class Stage(Protocol):
    """Changes a draft, deterministically and without I/O.

    Raises NothingToStore for an item that is not a record (it is skipped with the reason), and
    UnexpectedShape for invalid data (it is quarantined).
    """

    name: str

    def __call__(self, draft: Draft) -> Draft:
        """Return the changed draft."""


M = TypeVar("M", bound=BaseModel)


def checked_step(model: type[M], **values: Any) -> M:
    """Validate the arguments of a stage as those in a manifest.

    Raises:
        BadOption: one is invalid.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"]) or next(iter(values))
        raise BadOption(name, first["msg"]) from None


# ---------------- Errors of the pipeline

_MAX_SHOWN = 3  # problems of one record in a message; all of them are stored with it


class ValidationFailed(UnexpectedShape):
    """The data of a record breaks rules of its source; `problems` lists each with its place."""

    problems: tuple[str, ...]

    def __init__(self, where: str, problems: tuple[str, ...]) -> None:
        rest = len(problems) - _MAX_SHOWN
        more = f" and {rest} more" if rest > 0 else ""
        shown = "; ".join(problems[:_MAX_SHOWN]) + more
        LonglineError.__init__(self, where, shown, problems)
        self.args = (where, problems)  # pickle calls this __init__ with them


class StageFailed(LayerFailed):
    """A stage raised an exception; `layer` is its name."""

    message = "stage {layer} raised {problem}"
