"""Every error survives pickling, has a message, and an exit code of the contract."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import longline
from longline.core.errors import (
    BadFile,
    BadOption,
    BadStatus,
    CircuitOpen,
    ConnectFailed,
    Deferred,
    FailureKind,
    FetchError,
    Gone,
    LayerFailed,
    LonglineError,
    Refused,
    ServerFailed,
    SkipItem,
    Throttled,
    bad_status,
    kind_of,
)
from longline.pipeline.stages import ValidationFailed

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


for module in pkgutil.walk_packages(longline.__path__, "longline."):
    if module.name.endswith((".errors", ".orchestrator", ".base", ".reextract")):
        importlib.import_module(module.name)

ALL = [kind for kind in family(LonglineError) if kind.__module__.startswith("longline.")]

LEAVES = [kind for kind in ALL if not kind.__name__.endswith("Error")]  # families do


def made(kind: type[LonglineError]) -> LonglineError:
    """Return an error of this kind with a value for each of its parameters."""
    if kind is ValidationFailed:
        return ValidationFailed("page", ("price: is missing", "title: is empty"))
    types = {
        name: str(annotation)
        for base in reversed(kind.__mro__)
        for name, annotation in inspect.get_annotations(base).items()
        if not str(annotation).startswith("ClassVar")
    }
    return kind(*(VALUES[annotation] for annotation in types.values()))


@pytest.mark.parametrize("kind", ALL)
def test_an_error_survives_pickling(kind: type[LonglineError]) -> None:
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


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ((), {}),
        (("a",), {}),
        (("a", "b", "c"), {}),
        (("a", "b"), {"more": 1}),
        (("a", "b"), {"option": 1}),
    ],
)
def test_an_error_refuses_other_fields_than_its_own(
    args: tuple[str, ...], named: dict[str, int]
) -> None:
    with pytest.raises(TypeError):
        BadOption(*args, **named)  # type: ignore[arg-type]  # wrong on purpose


def test_fields_are_given_by_place_or_by_name() -> None:
    error = BadFile("job.yaml", problem="is odd", line=3)

    assert (error.path, error.problem, error.line, error.column) == ("job.yaml", "is odd", 3, 0)
    assert error.args == ("job.yaml", "is odd", 3, 0)


def test_braces_in_a_value_are_not_a_template() -> None:
    assert "{option}" in str(BadOption("--set", "{option} is unknown"))


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
        (Deferred("https://a.test", 1.0, "503", FailureKind.OVERLOAD), FailureKind.OVERLOAD),
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
