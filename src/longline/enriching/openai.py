"""Models behind any server that speaks as OpenAI's does: vLLM, llama.cpp, LM Studio, Ollama."""

from __future__ import annotations

from typing import Any

from longline.enriching.base import Answer, Enricher
from longline.enriching.prompts import messages_of
from longline.enriching.speaking import Speaker
from longline.errors import BadAnswer
from longline.stores.asking import Question

_PATH = "/chat/completions"
_UNFINISHED = frozenset({"length", "content_filter"})


class OpenAiEnricher(Enricher):
    """Asks for a chat completion with a schema as its response format.

    `root` stands before the paths; it is empty when the server's address ends with it already.
    """

    def __init__(self, speaker: Speaker, *, root: str = "/v1") -> None:
        self._speaker = speaker
        self._root = root

    async def ask(self, question: Question) -> Answer:
        shape = {"name": question.task, "schema": question.schema}
        answer = await self._speaker.post(
            self._root + _PATH,
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
            raise BadAnswer(_PATH, "it holds no message")
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
