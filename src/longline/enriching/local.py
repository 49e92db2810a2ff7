"""Enrichers of the pipeline as somebody to ask: free, at once, and without a server."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from longline.enriching.base import Answer, Enricher
from longline.errors import BadAnswer
from longline.pipeline.enrichers.base import Enricher as PipelineEnricher
from longline.stores.asking import Question


class LocalEnricher(Enricher):
    """Gives the text of a question to an enricher, as the one field that it looks at.

    So what is slow (a large table, a library for languages) can be done after collection, once a
    text, instead of in it.
    """

    def __init__(self, enricher: PipelineEnricher, *, field: str) -> None:
        self._enricher = enricher
        self._field = field

    async def ask(self, question: Question) -> Answer:
        data: dict[str, Any] = {self._field: question.text}
        try:
            addition = await asyncio.to_thread(self._enricher.enrich, data)
        except Exception as error:  # it may be anybody's code, and others' questions must go on
            problem = f"{type(error).__name__}: {error}"
            raise BadAnswer(self._enricher.name, problem) from error
        return Answer(orjson.dumps(dict(addition.fields), default=str).decode())

    async def is_up(self) -> bool:
        return True
