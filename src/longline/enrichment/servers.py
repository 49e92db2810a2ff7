"""Language models behind a server: Ollama's own API, or one that is compatible with OpenAI's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import orjson

from longline.core.clock import Clock
from longline.core.errors import FailureKind, FetchError, bad_status, kind_of
from longline.core.model import Usage
from longline.enrichment.enricher import Answer, Enricher, LocalEnricher, messages_of
from longline.enrichment.task_files import AnyTask, LocalTask, ModelServer
from longline.http.auth import one_line
from longline.http.errors import BadAnswer, Rejected
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.rate_limit import RateLimitMiddleware
from longline.http.transport import HttpOptions, HttpTransport
from longline.limits.backends.state import StateBackend
from longline.limits.learning import Learned
from longline.limits.limiter import RateLimiter
from longline.limits.rate_limit import RateLimitBackend
from longline.pipeline.enrich import make_enricher
from longline.storage.enrichment import Question

_OK = 200
_BAD_QUESTION = frozenset({400, 413, 422})  # the server refuses this question, and not others
_OLLAMA_PATH = "/api/chat"
_OPENAI_PATH = "/v1/chat/completions"
_UNFINISHED = frozenset({"length", "content_filter"})


class ServerEnricher(Enricher):
    """Sends questions as JSON to one server. `chain` applies its rate limit."""

    health_path: ClassVar[str]

    def __init__(self, server: ModelServer, chain: Middleware) -> None:
        self._url = server.url.rstrip("/").removesuffix("/v1")  # it may be part of the address
        self._timeout = server.timeout
        self._chain = chain
        self._key = server.key.read().get_secret_value() if server.key else ""

    async def is_up(self) -> bool:
        try:
            return (await self._send_to_server("GET", self.health_path)).status == _OK
        except FetchError:
            return False

    async def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post an object and return the object in the response.

        Raises:
            FetchError: there is no response, or it cannot be used.
        """
        page = await self._send_to_server("POST", path, orjson.dumps(body))
        try:
            response = orjson.loads(page.body)
        except orjson.JSONDecodeError:
            response = None
        error = response.get("error") if isinstance(response, dict) else page.text[:200]
        text = error.get("message", error) if isinstance(error, dict) else error or ""
        problem = one_line(text, [self._key] if self._key else [])
        if page.status != _OK:
            status = kind_of(bad_status(page.url, page.status))
            kind = FailureKind.INVALID if page.status in _BAD_QUESTION else status
            raise Rejected(page.url, f"{page.status} {problem}".strip(), kind)
        if not isinstance(response, dict):
            raise BadAnswer(page.url, "it is not a JSON object")
        if error:  # Ollama reports a crashed model with status 200
            raise Rejected(page.url, problem, FailureKind.SERVER)
        return response

    async def _send_to_server(self, method: str, path: str, body: bytes | None = None) -> Page:
        headers = {"content-type": "application/json", "accept": "application/json"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        request = Request(self._url + path, method, headers, body, timeout=self._timeout)
        return await self._chain(request, Usage())


class OllamaEnricher(ServerEnricher):
    """Asks by Ollama's own API, which constrains a model to the schema while it writes."""

    health_path = "/api/version"

    async def ask(self, question: Question) -> Answer:
        response = await self._post(
            _OLLAMA_PATH,
            {
                "model": question.model,
                "messages": messages_of(question),
                "stream": False,
                "format": question.schema,
                "options": {"temperature": 0},
            },
        )
        return Answer(
            _message_content(response, _OLLAMA_PATH),
            tokens=_token_count(response.get("prompt_eval_count"))
            + _token_count(response.get("eval_count")),
            is_cut=response.get("done_reason") == "length" or response.get("done") is False,
        )


class OpenAiEnricher(ServerEnricher):
    """Asks vLLM, llama.cpp, LM Studio and the like for a chat completion in the schema."""

    health_path = "/v1/models"

    async def ask(self, question: Question) -> Answer:
        shape = {"name": question.task, "schema": question.schema}
        response = await self._post(
            _OPENAI_PATH,
            {
                "model": question.model,
                "messages": messages_of(question),
                "stream": False,
                "response_format": {"type": "json_schema", "json_schema": shape},
                "temperature": 0,
            },
        )
        choices = response.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else {}
        choice = choice if isinstance(choice, dict) else {}
        usage = response.get("usage")
        return Answer(
            _message_content(choice, _OPENAI_PATH),
            tokens=_token_count(usage.get("total_tokens")) if isinstance(usage, dict) else 0,
            is_cut=choice.get("finish_reason") in _UNFINISHED,
        )


def _message_content(holder: Mapping[str, Any], path: str) -> str:
    message = holder.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, str):
        raise BadAnswer(path, "it has no message")
    return content


def _token_count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def task_limiter(
    task: AnyTask,
    clock: Clock,
    backend: RateLimitBackend | None = None,
    learned: StateBackend[Learned] | None = None,
) -> RateLimiter:
    """Return the rate limiter of the task's server; a backend shares it between processes."""
    rate = None if task.rate == "unlimited" else task.rate
    return RateLimiter(rate, task.concurrency, clock=clock, backend=backend, learned=learned)


@asynccontextmanager
async def open_enricher(
    task: AnyTask, limiter: RateLimiter, clock: Clock
) -> AsyncIterator[Enricher]:
    """Open the model or the local enricher that a task names.

    Raises:
        UnknownSecret: the key of the server cannot be read.
        ConfigError: the enricher lacks its table or its library.
    """
    if isinstance(task, LocalTask):
        yield LocalEnricher(make_enricher(task.name, task.options))
        return
    transport = HttpTransport(HttpOptions(timeout=task.server.timeout), clock)
    kind = OllamaEnricher if task.server.dialect == "ollama" else OpenAiEnricher
    try:
        yield kind(task.server, RateLimitMiddleware(transport, limiter, clock))
    finally:
        await transport.close()
