"""Every error survives pickling, is drawn in the tree, and has an exit code of the contract."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest

from longline import errors
from longline.errors import (
    BadFile,
    BadStatus,
    CircuitOpen,
    ConnectFailed,
    FailureKind,
    FetchError,
    Gone,
    LayerFailed,
    LonglineError,
    Postponed,
    Refused,
    ServerFailed,
    SkipItem,
    Throttled,
    bad_status,
    kind_of,
)

VALUES: dict[str, Any] = {
    "str": "https://naïve.test/a",
    "int": 7,
    "float": 2.5,
    "float | None": 2.5,
    "tuple[str, ...]": ("n8n", "shop"),
    "FailureKind": FailureKind.SERVER,
    "bool": True,
    "object": "rest",
}


def family(root: type[LonglineError]) -> Iterator[type[LonglineError]]:
    yield root
    for child in root.__subclasses__():
        yield from family(child)


ALL = [kind for kind in family(LonglineError) if kind.__module__ == errors.__name__]

LEAVES = [kind for kind in ALL if not kind.__name__.endswith("Error")]  # families do


def made(kind: type[LonglineError]) -> LonglineError:
    """Return an error of this kind with a value for each of its parameters."""
    if kind.__init__ is Exception.__init__:
        return kind("a sentence")
    parameters = [*inspect.signature(kind.__init__).parameters.values()][1:]
    return kind(*(VALUES[str(parameter.annotation)] for parameter in parameters))


def drawn() -> dict[str, str | None]:
    """Return the names in the tree of the module's docstring, each with that above it."""
    above: list[str] = []
    parents: dict[str, str | None] = {}
    for match in re.finditer(r"(?m)^((?:│   |├── |└── |    )*)(\w+) {2,}\S", errors.__doc__ or ""):
        depth = len(match[1]) // 4
        above[depth:] = [match[2]]
        parents[match[2]] = above[depth - 1] if depth else None
    return parents


@pytest.mark.parametrize("kind", ALL)
def test_an_error_survives_the_way_home_from_a_worker(kind: type[LonglineError]) -> None:
    error = made(kind)

    back = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own, from the line itself

    assert type(back) is kind
    assert str(back) == str(error)
    assert vars(back) == vars(error)
    assert back.args == error.args


@pytest.mark.parametrize("kind", LEAVES)
def test_an_error_writes_one_sentence_of_its_own(kind: type[LonglineError]) -> None:
    sentence = str(made(kind))

    assert sentence
    assert "\n" not in sentence
    assert not sentence.startswith("(")  # that would be the tuple of its arguments


@pytest.mark.parametrize("kind", ALL)
def test_an_error_has_an_exit_code_of_the_contract(kind: type[LonglineError]) -> None:
    assert kind.exit_code in {1, 2, 4, 130}


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    assert drawn() == {
        kind.__name__: None if kind is LonglineError else kind.__mro__[1].__name__ for kind in ALL
    }


@pytest.mark.parametrize("kind", ALL)
def test_an_error_says_what_it_means(kind: type[LonglineError]) -> None:
    assert kind.__doc__


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, Throttled),
        (503, Throttled),
        (404, Gone),
        (410, Gone),
        (500, ServerFailed),
        (599, ServerFailed),
        (400, Refused),
        (401, Refused),
        (403, Refused),
        (451, Refused),
    ],
)
def test_a_status_has_its_error(status: int, kind: type[BadStatus]) -> None:
    error = bad_status("https://shop.test/a", status, 3.0)

    assert type(error) is kind
    assert str(status) in str(error)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectFailed("https://a.test", "refused"), FailureKind.NETWORK),
        (CircuitOpen("https://a.test", 1.0), FailureKind.NETWORK),
        (Postponed("https://a.test", 1.0, "503", FailureKind.OVERLOAD), FailureKind.OVERLOAD),
        (SkipItem("not a product"), FailureKind.GONE),
        (LayerFailed("page", "KeyError: 'a'"), FailureKind.BUG),
        (TimeoutError(), FailureKind.TIMEOUT),
        (ConnectionResetError(), FailureKind.NETWORK),
        (OSError(), FailureKind.NETWORK),
        (KeyError("a"), FailureKind.BUG),
    ],
)
def test_every_error_has_a_kind(error: Exception, kind: FailureKind) -> None:
    assert kind_of(error) is kind


def test_a_fetch_error_knows_the_host() -> None:
    assert FetchError("https://shop.test:8443/a?b").host == "shop.test:8443"


def test_a_bad_file_without_a_place_names_the_file_alone() -> None:
    assert str(BadFile("job.yaml", "is empty")) == "job.yaml: is empty"
    assert str(BadFile("job.yaml", "is odd", 3, 5)) == "job.yaml:3:5: is odd"
