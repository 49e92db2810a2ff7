"""Convert requests, responses and errors between longline and Scrapy."""

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
    """Return the statuses that the chain returns instead of retrying or raising.

    They include redirects: Scrapy sends each hop through its duplicate filter.
    """
    meta = request.meta
    if meta.get("handle_httpstatus_all") or meta.get("dont_retry"):
        return _ALL | _REDIRECTS
    wanted = settings.getlist("HTTPERROR_ALLOWED_CODES")
    wanted = meta.get("handle_httpstatus_list", getattr(spider, "handle_httpstatus_list", wanted))
    return (_ALL - RETRIED_STATUSES) | _REDIRECTS | frozenset(int(one) for one in wanted)


def outgoing(request: Request) -> dict[str, str]:
    """Return the headers of a request, without those that the chain sets."""
    pairs = ((name.decode("latin-1"), values) for name, values in request.headers.items())
    return {
        name: b", ".join(values).decode("latin-1")
        for name, values in pairs
        if name.lower() not in _CHAINS_OWN
    }


def response_of(page: Page, request: Request) -> Response:
    """Return a page as the type of response that Scrapy would make."""
    headers = Headers(_header_lists(page.headers))
    headers.pop("Content-Encoding", None)  # the body is decompressed already
    kind = responsetypes.from_args(headers=headers, url=page.url, body=page.body)
    request.meta["download_latency"] = page.seconds
    return kind(url=page.url, status=page.status, headers=headers, body=page.body, request=request)


def scrapy_error(error: Exception) -> Exception:
    """Return the error that an errback expects; the original is its cause."""
    converted: Exception
    if isinstance(error, BadStatus):
        converted = HttpError(Response(error.url, status=error.status), str(error))
    elif isinstance(error, RobotsDisallowed):
        converted = IgnoreRequest(str(error))
    else:
        cause = error.__cause__ if isinstance(error, RobotsUnreachable) else error
        name = _NAMES.get(type(cause or error), "DownloadFailedError")
        # These came with Scrapy 2.14.
        kind: type[Exception] = getattr(scrapy.exceptions, name, IgnoreRequest)
        converted = kind(str(error))
    converted.__cause__ = error
    return converted


def _header_lists(headers: Mapping[str, str]) -> dict[str, Any]:
    if isinstance(headers, MultiMapping):
        return {name: headers.getall(name) for name in headers}
    return {name: [value] for name, value in headers.items()}


_MARK = "$"
"""Marks a value without a JSON form: `{"$": "bytes", "as": …}`. Nothing is pickled."""


def pack_request(request: Request, spider: Spider) -> dict[str, Any]:
    """Return a request as JSON.

    Raises:
        UnexpectedShape: its callback is not a method of the spider, or a value cannot be stored.
    """
    try:
        values = request.to_dict(spider=spider)
    except ValueError as error:
        problem = f"{error}; only methods of the spider can be stored as callbacks"
        raise UnexpectedShape(str(request), problem) from error
    return {name: pack(value, f"{request}: {name}") for name, value in values.items() if value}


def unpack_request(packed: Mapping[str, Any], spider: Spider) -> Request:
    """Return the request that was packed."""
    values = {name: unpack(value, type(spider)) for name, value in packed.items()}
    return request_from_dict(values, spider=spider)


def pack(value: Any, where: str) -> Any:
    """Return a value as JSON; `where` is its place in error messages.

    Raises:
        UnexpectedShape: its type cannot be stored.
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
        f"it has a {type(value).__name__}, which cannot be stored; "
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
        # A file that was loaded twice has two classes of one name: use the spider's own.
        found: Any = names[first]
    else:
        found = getattr(importlib.import_module(module), first)
    for part in others:
        found = getattr(found, part)
    # The class name comes from the database: only item classes may be instantiated.
    if not (isinstance(found, type) and ItemAdapter.is_item_class(found)):
        raise UnexpectedShape(name, "it is not an item class")
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
    # Mappings with string keys are packed before; this is for all others.
    "pairs": ((), list, dict),
}
