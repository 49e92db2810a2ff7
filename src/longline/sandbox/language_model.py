"""A practice language model: seeded answers in JSON that match the schema."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any

import orjson
from aiohttp import web

from longline.core.clock import Clock, SystemClock
from longline.sandbox.seeded import Picks, chance, draw, stream
from longline.sandbox.server import PracticeServer
from longline.sandbox.templates import words
from longline.sandbox.templates.routes import reply

_LARGEST = 100
_MOST = 3
_DEEPEST = 12


def fitting(schema: Mapping[str, Any], text: str) -> Any:
    """Return a value that fits a schema; the same text always gets the same one."""
    return _Maker(schema, stream(0, "language model", text)).value(schema)


class _Maker:
    """Makes values of one schema; knows what practice tasks use of JSON Schema, and no more."""

    def __init__(self, root: Mapping[str, Any], rng: Random) -> None:
        self._root = root
        self._rng = rng
        self._depth = 0

    def value(self, schema: Mapping[str, Any]) -> Any:
        if "$ref" in schema:
            return self.value(self._referred(schema["$ref"]))
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._rng.choice(schema["enum"])
        kind = schema.get("type", "object" if "properties" in schema else "string")
        kinds = [kind] if isinstance(kind, str) else list(kind)
        return getattr(self, f"_{self._rng.choice(kinds)}")(schema)

    def _object(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        self._depth += 1
        needed = schema.get("required", [])
        wanted = {
            name: below
            for name, below in schema.get("properties", {}).items()
            if name in needed or self._depth < _DEEPEST
        }
        made = {name: self.value(below) for name, below in wanted.items()}
        self._depth -= 1
        return made

    def _array(self, schema: Mapping[str, Any]) -> list[Any]:
        least = schema.get("minItems", 0)
        most = min(schema.get("maxItems", least + _MOST), least + _MOST)
        if self._depth >= _DEEPEST:
            most = least
        return [self.value(schema.get("items", {})) for _ in range(self._rng.randint(least, most))]

    def _string(self, schema: Mapping[str, Any]) -> str:
        text = self._rng.choice(words.SENTENCES).ljust(schema.get("minLength", 0), ".")
        return text[: schema.get("maxLength")]

    def _integer(self, schema: Mapping[str, Any]) -> int:
        least = int(schema.get("minimum", 0))
        return self._rng.randint(least, int(schema.get("maximum", least + _LARGEST)))

    def _number(self, schema: Mapping[str, Any]) -> float:
        least = float(schema.get("minimum", 0))
        return round(self._rng.uniform(least, float(schema.get("maximum", least + _LARGEST))), 2)

    def _boolean(self, _schema: Mapping[str, Any]) -> bool:
        return self._rng.random() < 0.5  # noqa: PLR2004  # heads or tails

    def _null(self, _schema: Mapping[str, Any]) -> None:
        return None

    def _referred(self, reference: str) -> Mapping[str, Any]:
        place: Any = self._root
        for part in reference.split("/")[1:]:
            place = place[part]
        found: Mapping[str, Any] = place
        return found


# ---------------- A stand-in for a language model's server: Ollama's shapes and OpenAI's, with

_NONSENSE = "Certainly! Here is what I think about it: it depends."


class ModelFault(StrEnum):
    """One way in which a model, or the server before it, fails."""

    SLOW = "slow"
    NONSENSE = "nonsense"
    CUT = "cut"
    WRONG = "wrong"
    TOO_MANY = "429"
    ERROR = "500"
    BROKEN = "error under 200"
    NO_MODEL = "404"
    DROPPED = "dropped"


_TOO_MANY = 429
_ERRORS = {
    ModelFault.TOO_MANY: (_TOO_MANY, "too many requests"),
    ModelFault.ERROR: (500, "the model runner has stopped"),
    ModelFault.BROKEN: (200, "the model broke down while it was writing"),
}
# What may befall any question now and then; a missing model is missing for all.
_LOT = tuple(fault for fault in ModelFault if fault is not ModelFault.NO_MODEL)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Options of the practice model.

    `faults` is the share of texts whose first question or two go wrong. `slow` and `latency` are
    seconds, `retry_after` what a 429 asks for. With a `key`, others are refused.
    """

    models: tuple[str, ...] = ("practice",)
    seed: int = 7
    faults: float = 0.0
    latency: float = 0.0
    slow: float = 20.0
    retry_after: float = 5.0
    key: str | None = None


@dataclass(slots=True)
class ModelTally:
    """Questions and delivered answers, counted by text."""

    asked: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    conversations: list[list[dict[str, str]]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the counters for JSON."""
        return {
            "asked": dict(self.asked),
            "answered": dict(self.answered),
            "faults": {str(fault): count for fault, count in self.faults.items()},
        }


class LanguageModel(PracticeServer):
    """Answers every question with JSON that matches its schema, unless a fault is requested.

    `script` holds faults for the next questions, None for a sound answer; when it is empty, the
    seed decides. `spoils` names texts that always go wrong.
    """

    def __init__(
        self,
        options: ModelOptions = ModelOptions(),  # noqa: B008  # frozen, so sharing it is safe
        *,
        clock: Clock | None = None,
        script: Sequence[ModelFault | None] = (),
        port: int = 0,
    ) -> None:
        super().__init__(port=port)
        self.options = options
        self.tally = ModelTally()
        self.script = deque(script)
        self.spoils: dict[str, ModelFault] = {}
        self._clock = clock or SystemClock()
        self._dead_until = 0.0

    def _application(self) -> web.Application:
        application = web.Application(client_max_size=2**24)
        application.add_routes(
            [
                web.get("/", self._root),
                web.get("/api/version", self._version),
                web.get("/api/tags", self._tags),
                web.get("/v1/models", self._models),
                web.post("/api/chat", self._ollama),
                web.post("/v1/chat/completions", self._openai),
                web.get("/__practice__/tally", self._tallied),
            ]
        )
        return application

    def die(self, seconds: float) -> None:
        """Drop all connections for this many seconds."""
        self._dead_until = self._clock.now() + seconds

    # ------------------------------------------------------------ routes

    async def _root(self, request: web.Request) -> web.StreamResponse:
        return self._hang_up(request) or web.Response(text="Ollama is running")

    async def _version(self, request: web.Request) -> web.StreamResponse:
        return self._hang_up(request) or reply({"version": "0.0.0-practice"})

    async def _tags(self, request: web.Request) -> web.StreamResponse:
        models = [{"name": name, "model": name} for name in self.options.models]
        return self._hang_up(request) or reply({"models": models})

    async def _models(self, request: web.Request) -> web.StreamResponse:
        models = [{"id": name, "object": "model"} for name in self.options.models]
        return self._hang_up(request) or reply({"object": "list", "data": models})

    async def _tallied(self, _request: web.Request) -> web.StreamResponse:
        return reply(self.tally.as_dict())

    async def _ollama(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        return await self._answer(request, _Asked.of(body, body.get("format") or {}, is_own=True))

    async def _openai(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        shape = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
        return await self._answer(request, _Asked.of(body, shape, is_own=False))

    # ------------------------------------------------------------ one question

    async def _answer(self, request: web.Request, asked: _Asked) -> web.StreamResponse:
        self.tally.asked[asked.text] += 1
        self.tally.conversations.append(asked.messages)
        if gone := self._hang_up(request):
            return gone
        fault = self._fault(asked)
        if fault is not None:
            self.tally.faults[fault] += 1
        await self._clock.sleep(self.options.latency)
        if fault is ModelFault.SLOW:
            await self._clock.sleep(self.options.slow)
        refusal = self._refusal(request, asked, fault)
        if refusal is not None:
            return refusal
        self.tally.answered[asked.text] += fault in (None, ModelFault.SLOW)
        return reply(asked.said(*_content(asked, fault)))

    def _fault(self, asked: _Asked) -> ModelFault | None:
        if asked.text in self.spoils:
            return self.spoils[asked.text]
        if self.script:
            return self.script.popleft()
        seed, text = self.options.seed, asked.text
        times = 1 + Picks(draw(seed, "times", text)).below(2)
        is_due = self.tally.asked[text] <= times
        if not is_due or chance(seed, "faulty", text) >= self.options.faults:
            return None
        return Picks(draw(seed, "fault", text)).of(_LOT)

    def _refusal(
        self, request: web.Request, asked: _Asked, fault: ModelFault | None
    ) -> web.StreamResponse | None:
        """Return the answer when it is none of the model's."""
        key = self.options.key
        if key is not None and request.headers.get("authorization") != f"Bearer {key}":
            return asked.error(401, "this key is not known")
        if fault is ModelFault.DROPPED:
            return _dropped(request)
        if fault is ModelFault.NO_MODEL or asked.model not in self.options.models:
            return asked.error(404, f"model '{asked.model}' not found")
        if fault in _ERRORS:
            status, message = _ERRORS[fault]
            pause = {"retry-after": f"{self.options.retry_after:g}"}
            return asked.error(status, message, pause if status == _TOO_MANY else None)
        return None

    def _hang_up(self, request: web.Request) -> web.StreamResponse | None:
        return _dropped(request) if self._clock.now() < self._dead_until else None


def _content(asked: _Asked, fault: ModelFault | None) -> tuple[str, bool]:
    """Return what the model says, and whether it was stopped in the middle."""
    whole = orjson.dumps(fitting(asked.schema, asked.text)).decode()
    if fault is ModelFault.NONSENSE:
        return _NONSENSE, False
    if fault is ModelFault.WRONG:
        return '{"unheard_of": [1, {"nested": "}"}]}', False
    if fault is ModelFault.CUT:
        return whole[: len(whole) // 2], True
    return whole, False


def _dropped(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question in either shape, and its answer in the same."""

    model: str
    messages: list[dict[str, str]]
    schema: Mapping[str, Any]
    is_own: bool

    @classmethod
    def of(cls, body: Mapping[str, Any], schema: Any, *, is_own: bool) -> _Asked:
        shape = schema if isinstance(schema, Mapping) else {}
        return cls(str(body.get("model")), list(body.get("messages", [])), shape, is_own)

    @property
    def text(self) -> str:
        """What was asked first; what comes after it is about bad answers."""
        return next((one["content"] for one in self.messages if one["role"] == "user"), "")

    def said(self, content: str, is_cut: bool) -> dict[str, Any]:  # noqa: FBT001  # of a pair
        message = {"role": "assistant", "content": content}
        reason = "length" if is_cut else "stop"
        asked, answered = len(self.text.split()), len(content.split())
        if self.is_own:
            return {
                "model": self.model,
                "message": message,
                "done": True,
                "done_reason": reason,
                "prompt_eval_count": asked,
                "eval_count": answered,
            }
        return {
            "object": "chat.completion",
            "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {
                "prompt_tokens": asked,
                "completion_tokens": answered,
                "total_tokens": asked + answered,
            },
        }

    def error(
        self, status: int, message: str, headers: dict[str, str] | None = None
    ) -> web.Response:
        error: Any = message if self.is_own else {"message": message, "type": "practice"}
        return reply({"error": error}, status=status, headers=headers)
