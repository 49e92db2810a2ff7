"""What the settings of a node look like, by its type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from longline.sandbox.templates import words
from longline.sandbox.templates.node_types import Kind

_CODE_LINES = (
    "const rows = $input.all().map((item) => item.json);",
    "const seen = new Set();",
    "const fresh = rows.filter((row) => !seen.has(row.url) && seen.add(row.url));",
    "for (const row of fresh) {\n  row.title = (row.title ?? '').trim();\n}",
    "const total = fresh.reduce((sum, row) => sum + Number(row.amount ?? 0), 0);",
    "const day = new Date().toISOString().slice(0, 10);",
    "if (!fresh.length) {\n  return [{ json: { empty: true, day } }];\n}",
    "fresh.sort((a, b) => (a.date < b.date ? 1 : -1));",
    "const text = fresh.map((row) => `- ${row.title} (${row.amount})`).join('\\n');",
    "return fresh.map((json) => ({ json, pairedItem: 0 }));",
)
_FIELDS = ("title", "url", "amount", "email", "summary", "label", "date", "chatId", "language")

Maker = Callable[[Random], dict[str, Any]]


def make_parameters(kind: Kind, rng: Random) -> dict[str, Any]:
    """Return plausible parameters for a node of this kind."""
    return _MAKERS.get(kind.type.rpartition(".")[2], _plain)(rng)


def sentences(rng: Random, count: int) -> str:
    """Return this many sentences of prose."""
    return " ".join(rng.choices(words.SENTENCES, k=count))


def _plain(rng: Random) -> dict[str, Any]:
    return {"options": {}, "operation": rng.choice(("get", "getAll", "create", "update", "append"))}


def _nothing(_rng: Random) -> dict[str, Any]:
    return {}


def _http(rng: Random) -> dict[str, Any]:
    path = rng.choice(("items", "search", "v2/records", "export", "messages"))
    fields = rng.sample(_FIELDS, 3)
    return {
        "url": f"https://api.service{rng.randrange(90)}.example/{path}",
        "method": rng.choice(("GET", "POST", "PATCH")),
        "options": {"timeout": 10000, "response": {"response": {"fullResponse": True}}},
        "sendBody": True,
        "sendQuery": True,
        "bodyParameters": {"parameters": [_pair(name) for name in fields]},
        "queryParameters": {
            "parameters": [{"name": "limit", "value": str(rng.randrange(10, 200))}]
        },
        "nodeCredentialType": "httpHeaderAuth",
    }


def _set(rng: Random) -> dict[str, Any]:
    names = rng.sample(_FIELDS, rng.randrange(2, 6))
    rows = [
        {"id": f"{rng.getrandbits(64):016x}", "type": "string", **_pair(name)} for name in names
    ]
    return {"options": {}, "assignments": {"assignments": rows}}


def _pair(name: str) -> dict[str, str]:
    return {"name": name, "value": f"={{{{ $json.{name} }}}}"}


def _code(rng: Random) -> dict[str, Any]:
    return {"jsCode": "\n".join(rng.choices(_CODE_LINES, k=rng.randrange(10, 44)))}


def _if(rng: Random) -> dict[str, Any]:
    condition = {
        "id": f"{rng.getrandbits(64):016x}",
        "operator": {"type": "string", "operation": rng.choice(("equals", "contains", "notEmpty"))},
        "leftValue": f"={{{{ $json.{rng.choice(_FIELDS)} }}}}",
        "rightValue": rng.choice(words.THINGS),
    }
    return {
        "options": {},
        "conditions": {
            "options": {"version": 2, "leftValue": "", "caseSensitive": True},
            "combinator": "and",
            "conditions": [condition],
        },
    }


def _switch(rng: Random) -> dict[str, Any]:
    rules = [{"outputKey": label, **_if(rng)} for label in rng.sample(words.THINGS, 2)]
    return {"rules": {"values": rules}, "options": {"fallbackOutput": "extra"}}


def _sheet(rng: Random) -> dict[str, Any]:
    return {
        "columns": {
            "value": {name: f"={{{{ $json.{name} }}}}" for name in rng.sample(_FIELDS, 4)},
            "mappingMode": "defineBelow",
            "matchingColumns": ["url"],
        },
        "options": {},
        "operation": rng.choice(("append", "appendOrUpdate", "read")),
        "sheetName": {"__rl": True, "mode": "list", "value": "gid=0", "cachedResultName": "Sheet1"},
        "documentId": {"__rl": True, "mode": "list", "value": f"{rng.getrandbits(160):040x}"},
    }


def _message(rng: Random) -> dict[str, Any]:
    return {
        "text": f"={sentences(rng, 2)}\n{{{{ $json.summary }}}}",
        "chatId": "={{ $json.chatId }}",
        "additionalFields": {"parse_mode": "HTML", "appendAttribution": False},
    }


def _prompt(rng: Random) -> dict[str, Any]:
    rules = "\n".join(f"- {text}" for text in rng.choices(words.SENTENCES, k=rng.randrange(14, 52)))
    return {
        "text": "={{ $json.chatInput }}",
        "options": {
            "systemMessage": f"=## Role\nYou help with {rng.choice(words.THINGS)}.\n\n{rules}"
        },
        "promptType": "define",
    }


def _model(rng: Random) -> dict[str, Any]:
    name = rng.choice(words.MODELS).lower()
    return {"model": {"__rl": True, "mode": "list", "value": name}, "options": {"temperature": 0.2}}


def _parser(rng: Random) -> dict[str, Any]:
    example = ", ".join(f'"{name}": "text"' for name in rng.sample(_FIELDS, 5))
    return {"jsonSchemaExample": f"{{ {example} }}"}


def _schedule(rng: Random) -> dict[str, Any]:
    return {"rule": {"interval": [{"field": "hours", "hoursInterval": rng.randrange(1, 24)}]}}


def _webhook(rng: Random) -> dict[str, Any]:
    return {"path": f"{rng.getrandbits(64):016x}", "options": {}, "httpMethod": "POST"}


_MAKERS: Mapping[str, Maker] = {
    "manualTrigger": _nothing,
    "noOp": _nothing,
    "httpRequest": _http,
    "toolHttpRequest": _http,
    "set": _set,
    "code": _code,
    "function": _code,
    "if": _if,
    "filter": _if,
    "switch": _switch,
    "googleSheets": _sheet,
    "airtable": _sheet,
    "telegram": _message,
    "slack": _message,
    "gmail": _message,
    "emailSend": _message,
    "agent": _prompt,
    "chainLlm": _prompt,
    "openAi": _prompt,
    "textClassifier": _prompt,
    "lmChatOpenAi": _model,
    "lmChatGoogleGemini": _model,
    "lmChatOpenRouter": _model,
    "outputParserStructured": _parser,
    "scheduleTrigger": _schedule,
    "webhook": _webhook,
}
