"""The language model stand-in: both APIs, every fault, correct counts."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientError, ClientSession
from jsonschema import Draft202012Validator

from longline.sandbox.language_model import LanguageModel, ModelFault, ModelOptions, fitting
from tests.virtual import VirtualClock

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "rooms": {"type": "integer", "minimum": 2, "maximum": 4},
        "share": {"type": "number", "minimum": 0, "maximum": 1},
        "is_new": {"type": "boolean"},
        "kind": {"enum": ["flat", "house"]},
        "note": {"type": ["string", "null"], "maxLength": 20},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "minItems": 1},
    },
    "required": ["rooms", "share", "is_new", "kind", "tags"],
    "additionalProperties": False,
    "$defs": {"tag": {"type": "object", "properties": {"name": {"const": "x"}}}},
}
ASKED = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "How many?"}]
OLLAMA = {"model": "practice", "messages": ASKED, "stream": False, "format": SCHEMA}
OPENAI = {
    "model": "practice",
    "messages": ASKED,
    "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
}


async def post(
    client: ClientSession, url: str, body: dict[str, Any], **more: Any
) -> tuple[int, Any]:
    async with client.post(url, json=body, **more) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize("number", range(50))
def test_a_response_fits_the_schema_and_depends_only_on_the_text(number: int) -> None:
    value = fitting(SCHEMA, f"text {number}")

    assert list(Draft202012Validator(SCHEMA).iter_errors(value)) == []
    assert fitting(SCHEMA, f"text {number}") == value


async def test_it_answers_as_ollama_does(client: ClientSession, clock: VirtualClock) -> None:
    async with LanguageModel(clock=clock) as model:
        status, answer = await post(client, f"{model.url}/api/chat", OLLAMA)

    assert (status, answer["done"], answer["done_reason"]) == (200, True, "stop")
    assert answer["message"]["role"] == "assistant"
    assert answer["prompt_eval_count"] > 0
    assert model.tally.asked == model.tally.answered == {"How many?": 1}


async def test_it_answers_as_openai_does(client: ClientSession, clock: VirtualClock) -> None:
    async with LanguageModel(clock=clock) as model:
        status, answer = await post(client, f"{model.url}/v1/chat/completions", OPENAI)

    assert (status, answer["choices"][0]["finish_reason"]) == (200, "stop")
    assert answer["usage"]["total_tokens"] > 0


async def test_it_lists_its_models(client: ClientSession, clock: VirtualClock) -> None:
    async with LanguageModel(ModelOptions(models=("a", "b")), clock=clock) as model:
        async with client.get(f"{model.url}/api/tags") as answer:
            tags = await answer.json()
        async with client.get(f"{model.url}/v1/models") as answer:
            models = await answer.json()

    assert [one["name"] for one in tags["models"]] == ["a", "b"]
    assert [one["id"] for one in models["data"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (ModelFault.TOO_MANY, 429),
        (ModelFault.ERROR, 500),
        (ModelFault.BROKEN, 200),
        (ModelFault.NO_MODEL, 404),
    ],
)
async def test_an_error_has_the_format_of_its_api(
    client: ClientSession, clock: VirtualClock, fault: ModelFault, status: int
) -> None:
    async with LanguageModel(clock=clock, script=[fault, fault]) as model:
        own = await post(client, f"{model.url}/api/chat", OLLAMA)
        other = await post(client, f"{model.url}/v1/chat/completions", OPENAI)

    text = own[1]["error"]
    assert text
    assert own == (status, {"error": text})
    assert other == (status, {"error": {"message": text, "type": "practice"}})
    assert model.tally.faults == {fault: 2}
    assert model.tally.answered.total() == 0


async def test_failed_requests_are_counted(client: ClientSession, clock: VirtualClock) -> None:
    async with LanguageModel(clock=clock, script=[ModelFault.ERROR]) as model:
        await post(client, f"{model.url}/api/chat", OLLAMA)
        async with client.get(f"{model.url}/__practice__/tally") as answer:
            told = await answer.json()

    assert told == {"asked": {"How many?": 1}, "answered": {}, "faults": {"500": 1}}


async def test_truncated_json_has_the_length_finish_reason(
    client: ClientSession, clock: VirtualClock
) -> None:
    async with LanguageModel(clock=clock, script=[ModelFault.CUT]) as model:
        _, cut = await post(client, f"{model.url}/api/chat", OLLAMA)
        _, whole = await post(client, f"{model.url}/api/chat", OLLAMA)

    assert cut["done_reason"] == "length"
    assert whole["message"]["content"].startswith(cut["message"]["content"])


async def test_a_throttled_response_has_retry_after(
    client: ClientSession, clock: VirtualClock
) -> None:
    script = [ModelFault.TOO_MANY]
    async with (
        LanguageModel(ModelOptions(retry_after=12), clock=clock, script=script) as model,
        client.post(f"{model.url}/api/chat", json=OLLAMA) as answer,
    ):
        assert answer.headers["retry-after"] == "12"


async def test_a_slow_response_is_delayed(client: ClientSession, clock: VirtualClock) -> None:
    async with LanguageModel(clock=clock, script=[ModelFault.SLOW]) as model:
        started = clock.now()
        status, _ = await post(client, f"{model.url}/api/chat", OLLAMA)

    assert status == 200
    assert clock.now() - started == pytest.approx(20, abs=1)


async def test_a_dead_server_drops_connections_until_restarted(
    client: ClientSession, clock: VirtualClock
) -> None:
    async with LanguageModel(clock=clock) as model:
        model.die(30)
        with pytest.raises(ClientError):
            await post(client, f"{model.url}/api/chat", OLLAMA)
        await clock.sleep(31)
        status, _ = await post(client, f"{model.url}/api/chat", OLLAMA)

    assert status == 200


async def test_a_server_with_an_api_key_refuses_other_keys(
    client: ClientSession, clock: VirtualClock
) -> None:
    async with LanguageModel(ModelOptions(key="k"), clock=clock) as model:
        url = f"{model.url}/api/chat"
        without, _ = await post(client, url, OLLAMA)
        having, _ = await post(client, url, OLLAMA, headers={"authorization": "Bearer k"})

    assert (without, having) == (401, 200)


async def test_a_text_with_a_seeded_fault_succeeds_after_retries(
    client: ClientSession, clock: VirtualClock
) -> None:
    async with LanguageModel(ModelOptions(faults=1.0), clock=clock) as model:
        for _ in range(4):
            try:
                status, answer = await post(client, f"{model.url}/api/chat", OLLAMA)
            except ClientError:
                continue

    assert (status, "message" in answer) == (200, True)
    assert 1 <= model.tally.faults.total() <= 2
