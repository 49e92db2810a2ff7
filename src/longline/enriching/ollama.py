"""Models behind an Ollama server."""

from __future__ import annotations

from typing import Any

from longline.enriching.base import Answer, Enricher
from longline.enriching.prompts import messages_of
from longline.enriching.speaking import Speaker
from longline.errors import BadAnswer
from longline.stores.asking import Question

_PATH = "/api/chat"


class OllamaEnricher(Enricher):
    """Asks by Ollama's own API, which holds a model to the schema while it writes."""

    def __init__(self, speaker: Speaker) -> None:
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
