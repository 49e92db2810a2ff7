"""Models behind an Ollama server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson

from longline.core.clock import Clock
from longline.core.errors import FailureKind, FetchError, bad_status, kind_of
from longline.core.model import Usage
from longline.enrichment.enricher import Answer, Enricher
from longline.enrichment.local import open_local
from longline.enrichment.prompts import messages_of
from longline.enrichment.task_files import AnyTask, EnrichTask, LocalTask, ModelServer
from longline.http.auth.base import cleaned
from longline.http.errors import BadAnswer, Rejected
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware
from longline.http.middleware.rate_limit import RateLimitMiddleware
from longline.http.transports.aiohttp import HttpOptions, HttpTransport
from longline.limits.backends.base import RateLimitBackend
from longline.limits.backends.cells import Cells
from longline.limits.learning import Learned
from longline.limits.limiter import RateLimiter
from longline.storage.records.enrichment import Question

# ---------------- Speaking HTTP with a model's server: JSON there, JSON back, failures in our

_OK = 200
# A question that is wrong in itself, such as one that is too long; others may fare better.
_OF_THE_QUESTION = frozenset({400, 413, 422})


class ModelClient:
    """Asks one server. `link` keeps its pace and its rests."""

    def __init__(self, server: ModelServer, link: Middleware) -> None:
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
        return await self._link(request, Usage())

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


_PATH = "/api/chat"


class OllamaEnricher(Enricher):
    """Asks by Ollama's own API, which holds a model to the schema while it writes."""

    def __init__(self, speaker: ModelClient) -> None:
        self._speaker = speaker

    async def ask(self, question: Question) -> Answer:
        answer = await self._speaker.post(
            _PATH,
            {
                "model": question.model,
                "messages": messages_of(question),
                "stream": False,
                "format": question.schema,
                "options": {"temperature": 0},
            },
        )
        message = answer.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, str):
            raise BadAnswer(_PATH, "it holds no message")
        return Answer(
            content,
            tokens=_count(answer.get("prompt_eval_count")) + _count(answer.get("eval_count")),
            is_cut=answer.get("done_reason") == "length" or answer.get("done") is False,
        )

    async def is_up(self) -> bool:
        return await self._speaker.is_there("/api/version")


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


# ---------------- Models behind any server that speaks as OpenAI's does: vLLM, llama.cpp, LM

_OPENAI_PATH = "/chat/completions"
_UNFINISHED = frozenset({"length", "content_filter"})


class OpenAiEnricher(Enricher):
    """Asks for a chat completion with a schema as its response format.

    `root` stands before the paths; it is empty when the server's address ends with it already.
    """

    def __init__(self, speaker: ModelClient, *, root: str = "/v1") -> None:
        self._speaker = speaker
        self._root = root

    async def ask(self, question: Question) -> Answer:
        shape = {"name": question.task, "schema": question.schema}
        answer = await self._speaker.post(
            self._root + _OPENAI_PATH,
            {
                "model": question.model,
                "messages": messages_of(question),
                "stream": False,
                "response_format": {"type": "json_schema", "json_schema": shape},
                "temperature": 0,
            },
        )
        choice = _first(answer.get("choices"))
        message = choice.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, str):
            raise BadAnswer(_OPENAI_PATH, "it holds no message")
        usage = answer.get("usage")
        tokens = usage.get("total_tokens") if isinstance(usage, dict) else 0
        return Answer(
            content,
            tokens=tokens if isinstance(tokens, int) else 0,
            is_cut=choice.get("finish_reason") in _UNFINISHED,
        )

    async def is_up(self) -> bool:
        return await self._speaker.is_there(f"{self._root}/models")


def _first(choices: Any) -> dict[str, Any]:
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


# ---------------- A task in, somebody to ask out: the dialect that it names, at the pace that it

_ROOT = "/v1"


def task_limiter(
    task: AnyTask,
    clock: Clock,
    backend: RateLimitBackend | None = None,
    learned: Cells[Learned] | None = None,
) -> RateLimiter:
    """Return what keeps the pace of the task's server; with a keeper, in all processes."""
    rate = None if task.rate == "unlimited" else task.rate
    return RateLimiter(rate, task.concurrency, clock=clock, backend=backend, learned=learned)


@asynccontextmanager
async def open_enricher(
    task: AnyTask, limiter: RateLimiter, clock: Clock
) -> AsyncIterator[Enricher]:
    """Open connections to the model that a task asks, or make the enricher that it names.

    Raises:
        UnknownSecret: the key of the server cannot be read.
        ConfigError: the enricher lacks its table or its library.
    """
    if isinstance(task, LocalTask):
        yield open_local(task)
        return
    async with _connected(task, limiter, clock) as enricher:
        yield enricher


@asynccontextmanager
async def _connected(
    task: EnrichTask, limiter: RateLimiter, clock: Clock
) -> AsyncIterator[Enricher]:
    options = HttpOptions(timeout=task.server.timeout)
    transport = HttpTransport(options, clock)
    speaker = ModelClient(task.server, RateLimitMiddleware(transport, limiter, clock))
    try:
        if task.server.dialect == "ollama":
            yield OllamaEnricher(speaker)
        else:
            has_root = task.server.url.rstrip("/").endswith(_ROOT)
            yield OpenAiEnricher(speaker, root="" if has_root else _ROOT)
    finally:
        await transport.close()
