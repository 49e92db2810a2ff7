"""Our answers and errors as Scrapy has them, and what a Scrapy request says about its answer."""

from __future__ import annotations

import base64
import importlib
import inspect
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import scrapy.exceptions
from itemadapter import ItemAdapter
from multidict import MultiMapping
from scrapy import Request, Spider
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes
from scrapy.settings import Settings
from scrapy.spidermiddlewares.httperror import HttpError
from scrapy.utils.request import request_from_dict

from longline.core.errors import BadStatus, ConnectFailed, RobotsUnreachable, UnexpectedShape
from longline.http.errors import BodyCut, RobotsDisallowed, TimedOut
from longline.http.messages import Page
from longline.limits.retry import RETRIED_STATUSES

_ALL = frozenset(range(400, 600))
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NAMES: dict[type[BaseException], str] = {
    TimedOut: "DownloadTimeoutError",
    BodyCut: "ResponseDataLossError",
    ConnectFailed: "DownloadConnectionRefusedError",
}
_CHAINS_OWN = frozenset({"accept-encoding", "connection", "content-length", "host"})


def accepted(request: Request, spider: Spider, settings: Settings) -> frozenset[int]:
    """Return the statuses that come back as answers; the chain tries the others again, or raises.

    Redirects are among them: Scrapy sends each hop through its filter of duplicates.
    """
    meta = request.meta
    if meta.get("handle_httpstatus_all") or meta.get("dont_retry"):
        return _ALL | _REDIRECTS
    wanted = settings.getlist("HTTPERROR_ALLOWED_CODES")
    wanted = meta.get("handle_httpstatus_list", getattr(spider, "handle_httpstatus_list", wanted))
    return (_ALL - RETRIED_STATUSES) | _REDIRECTS | frozenset(int(one) for one in wanted)


def outgoing(request: Request) -> dict[str, str]:
    """Return the headers of a request, without those that the chain decides on."""
    pairs = ((name.decode("latin-1"), values) for name, values in request.headers.items())
    return {
        name: b", ".join(values).decode("latin-1")
        for name, values in pairs
        if name.lower() not in _CHAINS_OWN
    }


def response_of(page: Page, request: Request) -> Response:
    """Return an answer as the kind of response that Scrapy would make of it."""
    headers = Headers(_listed(page.headers))
    headers.pop("Content-Encoding", None)  # the body is unpacked already
    kind = responsetypes.from_args(headers=headers, url=page.url, body=page.body)
    request.meta["download_latency"] = page.seconds
    return kind(url=page.url, status=page.status, headers=headers, body=page.body, request=request)


def told_as_scrapy(error: Exception) -> Exception:
    """Return the error that an errback expects in place of ours; ours is its cause."""
    told: Exception
    if isinstance(error, BadStatus):
        told = HttpError(Response(error.url, status=error.status), str(error))
    elif isinstance(error, RobotsDisallowed):
        told = IgnoreRequest(str(error))
    else:
        cause = error.__cause__ if isinstance(error, RobotsUnreachable) else error
        name = _NAMES.get(type(cause or error), "DownloadFailedError")
        # These came with Scrapy 2.14.
        kind: type[Exception] = getattr(scrapy.exceptions, name, IgnoreRequest)
        told = kind(str(error))
    told.__cause__ = error
    return told


def _listed(headers: Mapping[str, str]) -> dict[str, Any]:
    if isinstance(headers, MultiMapping):
        return {name: headers.getall(name) for name in headers}
    return {name: [value] for name, value in headers.items()}


# ---------------- Scrapy requests as JSON and back, whatever they carry; nothing is pickled

_MARK = "$"
"""The name under which a value stands that JSON has no form for: `{"$": "bytes", "as": …}`."""


def pack_request(request: Request, spider: Spider) -> dict[str, Any]:
    """Return a request as JSON.

    Raises:
        UnexpectedShape: its callback is no method of the spider, or it carries something that
            cannot be kept.
    """
    try:
        said = request.to_dict(spider=spider)
    except ValueError as error:
        problem = f"{error}; only methods of the spider can be kept as callbacks"
        raise UnexpectedShape(str(request), problem) from error
    return {name: pack(value, f"{request}: {name}") for name, value in said.items() if value}


def unpack_request(packed: Mapping[str, Any], spider: Spider) -> Request:
    """Return the request that was packed."""
    values = {name: unpack(value, type(spider)) for name, value in packed.items()}
    return request_from_dict(values, spider=spider)


def pack(value: Any, where: str) -> Any:
    """Return a value as JSON; `where` it stands is told when that cannot be done.

    Raises:
        UnexpectedShape: it is of a kind that cannot be kept.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [pack(one, where) for one in value]
    if type(value) is dict:
        return _packed_mapping(value, where)
    for name, (kind, pack_one, _) in _FORMS.items():
        if isinstance(value, kind):
            return {_MARK: name, "as": pack(pack_one(value), where)}
    if ItemAdapter.is_item(value):
        kind = type(value)
        if "<locals>" in kind.__qualname__:
            problem = (
                f"its class {kind.__qualname__} must be defined in a module, not in a function"
            )
            raise UnexpectedShape(where, problem)
        fields = {name: pack(one, where) for name, one in ItemAdapter(value).items()}
        return {_MARK: "item", "class": f"{kind.__module__}:{kind.__qualname__}", "as": fields}
    problem = (
        f"it carries a {type(value).__name__}, which cannot be kept in the database; "
        "text, numbers, lists, mappings, dates and items can"
    )
    raise UnexpectedShape(where, problem)


def unpack(value: Any, kind: type[Spider] = Spider) -> Any:
    """Return the value that was packed; `kind` is the class of the spider that it is for."""
    if isinstance(value, list):
        return [unpack(one, kind) for one in value]
    if not isinstance(value, dict):
        return value
    if _MARK not in value:
        return {name: unpack(one, kind) for name, one in value.items()}
    if value[_MARK] == "item":
        return _item_class(value["class"], kind)(**unpack(value["as"], kind))
    _, _, unpack_one = _FORMS[value[_MARK]]
    return unpack_one(unpack(value["as"], kind))


def _packed_mapping(value: dict[Any, Any], where: str) -> dict[str, Any]:
    if _MARK not in value and all(isinstance(name, str) for name in value):
        return {name: pack(one, f"{where}[{name!r}]") for name, one in value.items()}
    pairs = [[pack(name, where), pack(one, where)] for name, one in value.items()]
    return {_MARK: "pairs", "as": pairs}


def _item_class(name: str, kind: type[Spider]) -> type:
    module, _, path = name.partition(":")
    first, *others = path.split(".")
    if module == kind.__module__ and first in (names := _names_around(kind)):
        # A file that was loaded twice has two classes of one name: the spider's own is meant.
        found: Any = names[first]
    else:
        found = getattr(importlib.import_module(module), first)
    for part in others:
        found = getattr(found, part)
    # The database names a class: nothing but an item may be made of it.
    if not (isinstance(found, type) and ItemAdapter.is_item_class(found)):
        raise UnexpectedShape(name, "it is no class of items")
    return found


def _names_around(kind: type[Spider]) -> Mapping[str, Any]:
    """Return the names of the module that a spider was defined in."""
    functions = (one for one in vars(kind).values() if inspect.isfunction(one))
    return next((one.__globals__ for one in functions), {})


_Form = tuple[type | tuple[type, ...], Callable[[Any], Any], Callable[[Any], Any]]
_FORMS: dict[str, _Form] = {
    "bytes": (bytes, lambda v: base64.b64encode(v).decode(), base64.b64decode),
    "tuple": (tuple, list, tuple),
    "set": ((set, frozenset), list, set),
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, time.isoformat, time.fromisoformat),
    "timedelta": (timedelta, timedelta.total_seconds, lambda v: timedelta(seconds=v)),
    "decimal": (Decimal, str, Decimal),
    # A plain mapping is packed before these are asked; this is for those with other names.
    "pairs": ((), list, dict),
}
