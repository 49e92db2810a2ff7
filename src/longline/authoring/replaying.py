"""Recorded answers in place of a site, and a clock that stands still at their moment."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from multidict import CIMultiDict

from longline.clock import Clock
from longline.errors import BadFile, FailureKind, FetchError, NotArchived
from longline.fetching.link import Link
from longline.fetching.messages import Page, Request
from longline.fetching.redirects import Redirects
from longline.fetching.statuses import Statuses
from longline.model import Account

_Key = tuple[str, str, str | None]


class StillClock(Clock):
    """Always the same moment: what a source dates is the same in every replay."""

    def __init__(self, moment: float) -> None:
        self._moment = moment

    def now(self) -> float:
        return self._moment

    async def sleep(self, seconds: float) -> None:
        del seconds  # nobody is there to be waited for


class Answers(Link):
    """Gives recorded answers, each request its own in the order they came; the last one stays.

    Raises:
        KeyError: a row is not what `recording` writes.
    """

    def __init__(self, folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
        self._folder = folder
        self._rows: defaultdict[_Key, list[Mapping[str, Any]]] = defaultdict(list)
        for row in rows:
            self._rows[row["method"], row["url"], row.get("body_sha256")].append(row)

    async def __call__(self, request: Request, account: Account) -> Page:
        rows = self._rows.get((request.method, request.url, body_digest(request)))
        if not rows:
            raise NotArchived(request.url, request.method)
        row = rows.pop(0) if len(rows) > 1 else rows[0]
        if "error" in row:
            raise decoded_error(row, request)
        account.status = row["status"]
        return self._page(row)

    def _page(self, row: Mapping[str, Any]) -> Page:
        path = self._folder / row["file"]
        try:
            body = path.read_bytes()
        except OSError as error:
            raise BadFile(str(path), error.strerror or str(error)) from error
        return Page(row["at_url"], row["status"], CIMultiDict(row["headers"]), body)


def replaying(answers: Answers, clock: Clock) -> Link:
    """Join the links that give meaning to answers around recorded ones; others would only ask."""
    return Redirects(Statuses(answers, clock))


def body_digest(request: Request) -> str | None:
    """Return what tells bodies of requests apart; the body itself may hold a secret."""
    return None if request.body is None else hashlib.sha256(request.body).hexdigest()


def encoded_error(error: FetchError) -> dict[str, Any]:
    """Return an error as JSON; errors are made of their arguments."""
    arguments = [{"kind": one.value} if isinstance(one, FailureKind) else one for one in error.args]
    return {"error": type(error).__name__, "arguments": arguments}


def decoded_error(row: Mapping[str, Any], request: Request) -> FetchError:
    """Return the error that stood in place of an answer."""
    kind = _errors().get(row["error"])
    if kind is None:  # a later version of ours has written it
        return NotArchived(request.url, request.method)
    arguments = (
        FailureKind(one["kind"]) if isinstance(one, dict) else one for one in row["arguments"]
    )
    return kind(*arguments)


def _errors(base: type[FetchError] = FetchError) -> dict[str, type[FetchError]]:
    below = {name: kind for sub in base.__subclasses__() for name, kind in _errors(sub).items()}
    return {base.__name__: base, **below}
