"""What can be known of the endpoints of an API together, before anything is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import ValidationError

from longline.config.manifests.api_endpoints import Endpoint
from longline.config.manifests.base import Parameter
from longline.config.manifests.templates import names_in
from longline.config.written import wrong

Endpoints = Mapping[str, Endpoint]
Place = tuple[str | int, ...]


def wrong_at(place: Place, problem: str) -> ValidationError:
    """Return the error that tells a user this sentence about a place below the whole."""
    return ValidationError.from_exception_data(
        "manifest", [{"type": wrong(problem), "loc": place, "input": None}]
    )


def check_endpoints(endpoints: Endpoints, parameters: Mapping[str, Parameter]) -> None:
    """See that endpoints fit together and every name in braces is known.

    Raises:
        ValidationError: they do not; it says where.
    """
    for name in endpoints:
        _check_references(name, endpoints)
    _check_cycles(endpoints)
    parts = parts_of(endpoints)
    for name, endpoint in endpoints.items():
        _check_role(name, endpoint, is_part=name in parts)
        _check_names(name, endpoint, parameters, has_parent=name in parts or bool(endpoint.parent))
        _check_embedded(name, endpoints)
    if not any(endpoint.collect for name, endpoint in endpoints.items() if name not in parts):
        problem = "no endpoint collects anything: leave collect: false out of one of them"
        raise wrong_at(("endpoints",), problem)


def parts_of(endpoints: Endpoints) -> frozenset[str]:
    """Return the endpoints that complete the records of others and have none of their own."""
    return frozenset(name for endpoint in endpoints.values() for name in endpoint.below)


def _check_references(name: str, endpoints: Endpoints) -> None:
    endpoint = endpoints[name]
    said: list[tuple[Place, str | None]] = [
        (("parent",), endpoint.parent),
        (("detail",), endpoint.detail),
        *((("embed", field), child) for field, child in endpoint.embed.items()),
    ]
    for place, other in said:
        if other is not None and other not in endpoints:
            problem = f"there is no endpoint {other!r}; there are {', '.join(endpoints)}"
            raise wrong_at(("endpoints", name, *place), problem)


def _check_cycles(endpoints: Endpoints) -> None:
    done: set[str] = set()
    for name in endpoints:
        _follow(name, endpoints, [], done)


def _follow(name: str, endpoints: Endpoints, way: list[str], done: set[str]) -> None:
    if name in way:
        circle = " → ".join([*way[way.index(name) :], name])
        raise wrong_at(
            ("endpoints", name),
            f"endpoints need each other in a circle: {circle}; one must do without the others",
        )
    if name in done:
        return
    for above in _needed(name, endpoints):
        _follow(above, endpoints, [*way, name], done)
    done.add(name)


def _needed(name: str, endpoints: Endpoints) -> Iterable[str]:
    """Yield the endpoints whose records this one is asked for with."""
    parent = endpoints[name].parent
    if parent:
        yield parent
    yield from (above for above, endpoint in endpoints.items() if name in endpoint.below)


def _check_role(name: str, endpoint: Endpoint, *, is_part: bool) -> None:
    place = ("endpoints", name)
    if is_part:
        _check_part(name, endpoint)
    elif endpoint.optional:
        raise wrong_at((*place, "optional"), "this is for a detail, or for what is embedded")
    elif endpoint.collect and endpoint.key is None:
        problem = "key is missing: say what makes a record the same one next time, as in key: id"
        raise wrong_at(place, problem)
    if endpoint.incremental and endpoint.parent:
        # A shared beginning would leave out what a new parent already had below it.
        raise wrong_at(
            (*place, "incremental"),
            "this is for an endpoint without a parent; what hangs below changed records is asked "
            "for again anyway",
        )


def _check_part(name: str, endpoint: Endpoint) -> None:
    for word in ("parent", "detail", "embed", "incremental"):
        if getattr(endpoint, word):
            problem = "this endpoint completes the records of another and can have none of this"
            raise wrong_at(("endpoints", name, word), problem)
    if not endpoint.collect:
        problem = "this endpoint has no records of its own to collect; leave collect out"
        raise wrong_at(("endpoints", name, "collect"), problem)


def _check_names(
    name: str, endpoint: Endpoint, parameters: Mapping[str, Parameter], *, has_parent: bool
) -> None:
    known = [*parameters, *(["since"] if endpoint.incremental else [])]
    if endpoint.parent_names() and not has_parent:
        problem = f"{{{endpoint.parent_names()[0]}}} needs parent: with the endpoint above this one"
        raise wrong_at(("endpoints", name), problem)
    for place, text in endpoint.texts():
        for one in names_in(text):
            if not one.startswith("parent.") and one not in known:
                listed = ", ".join(known) or "none: declare it under parameters"
                problem = f"{{{one}}} is no parameter; known are {listed}"
                raise wrong_at(("endpoints", name, *place), problem)


def _check_embedded(name: str, endpoints: Endpoints) -> None:
    endpoint = endpoints[name]
    if endpoint.detail and endpoints[endpoint.detail].pagination:
        problem = "a detail is one answer, without pagination"
        raise wrong_at(("endpoints", endpoint.detail, "pagination"), problem)
    for field in endpoint.embed:
        if field in (endpoint.fields or {}):
            raise wrong_at(("endpoints", name, "embed", field), "fields has this name, too")
        if not field.isidentifier():
            problem = "a name here has letters, digits and _"
            raise wrong_at(("endpoints", name, "embed", field), problem)
