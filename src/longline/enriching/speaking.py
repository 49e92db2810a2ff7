"""Speaking HTTP with a model's server: JSON there, JSON back, failures in our words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from longline.config.enriching import ModelServer
from longline.errors import BadAnswer, FailureKind, FetchError, Rejected, bad_status, kind_of
from longline.fetching.authentications.base import cleaned
from longline.fetching.link import Link
from longline.fetching.messages import Page, Request
from longline.model import Account

_OK = 200
# A question that is wrong in itself, such as one that is too long; others may fare better.
_OF_THE_QUESTION = frozenset({400, 413, 422})


class Speaker:
    """Asks one server. `link` keeps its pace and its rests."""

    def __init__(self, server: ModelServer, link: Link) -> None:
        self._server = server
        self._link = link
        self._key = server.key.read().get_secret_value() if server.key else ""

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to what is posted.

        Raises:
            FetchError: none came, or none that can be read.
        """
        return self._read(await self._send("POST", path, orjson.dumps(body)))

    async def is_there(self, path: str) -> bool:
        """Say whether the server answers at a path."""
        try:
            return (await self._send("GET", path)).status == _OK
        except FetchError:
            return False

    async def _send(self, method: str, path: str, body: bytes | None = None) -> Page:
        headers = {"content-type": "application/json", "accept": "application/json"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        url = self._server.url.rstrip("/") + path
        request = Request(url, method, headers, body, timeout=self._server.timeout)
        return await self._link(request, Account())

    def _read(self, page: Page) -> dict[str, Any]:
        try:
            answer = orjson.loads(page.body)
        except orjson.JSONDecodeError:
            answer = None
        said = answer.get("error") if isinstance(answer, dict) else page.text[:200]
        if page.status != _OK:
            raise self._failure(page, said)
        if not isinstance(answer, dict):
            raise BadAnswer(page.url, "it is not a JSON object")
        if said:  # Ollama tells of a model that broke down under status 200
            raise Rejected(page.url, self._sentence(said), FailureKind.SERVER)
        return answer

    def _failure(self, page: Page, said: Any) -> FetchError:
        plain = bad_status(page.url, page.status)
        kind = FailureKind.INVALID if page.status in _OF_THE_QUESTION else kind_of(plain)
        return Rejected(page.url, f"{page.status} {self._sentence(said)}".strip(), kind)

    def _sentence(self, said: Any) -> str:
        told = said.get("message", said) if isinstance(said, dict) else said or ""
        return cleaned(told, [self._key] if self._key else [])
