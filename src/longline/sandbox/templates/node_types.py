"""The node types of generated workflows."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import shake_256
from itertools import accumulate

import orjson

_BASE = "n8n-nodes-base."
_CHAIN = "@n8n/n8n-nodes-langchain."

_CORE = ("Core Nodes",)
_DEV = ("Development", "Core Nodes")
_AI = ("AI", "Langchain")
_TALK = ("Communication", "HITL")
_DATA = ("Data & Storage",)

_MODEL_ROLE = ("ai_languageModel",)
_AGENT_ROLES = ("ai_languageModel", "ai_memory", "ai_tool", "ai_outputParser")
_CHAIN_ROLES = ("ai_languageModel", "ai_outputParser")
_STORE_ROLES = ("ai_embedding", "ai_document")
_LOADER_ROLES = ("ai_textSplitter",)

_SHEETS_LOGIN = "googleSheetsOAuth2Api"


@dataclass(frozen=True, slots=True, eq=False)  # compared and hashed by identity, which is fast
class Kind:
    """A node type.

    `versions` begins with the usual one. `weight` is how often it is seen. `exits` counts its main
    outputs. `accepts` are the roles that other nodes play for it: the first always has a player.
    """

    type: str
    display: str
    id: int
    categories: tuple[str, ...] = _CORE
    versions: tuple[float, ...] = (1,)
    weight: int = 20
    credential: str | None = None
    exits: int = 1
    accepts: tuple[str, ...] = ()

    @property
    def slug(self) -> str:
        """The last part of the address of its integration page."""
        return self.display.lower().replace(",", "").replace(" ", "-").replace("/", "-")


STICKY_NOTE = Kind(_BASE + "stickyNote", "Sticky Note", 565)

TRIGGERS = (
    Kind(_BASE + "manualTrigger", "Manual Trigger", 838, _CORE, (1,), 218),
    Kind(_BASE + "scheduleTrigger", "Schedule Trigger", 839, _CORE, (1.2, 1.1), 120),
    Kind(_BASE + "webhook", "Webhook", 47, _DEV, (2, 1, 2.1), 92),
    Kind(_CHAIN + "chatTrigger", "Chat Trigger", 1247, ("Core Nodes", "Langchain"), (1.1,), 70),
    Kind(_BASE + "formTrigger", "n8n Form Trigger", 1225, _CORE, (2.2, 2.3), 58),
    Kind(_BASE + "telegramTrigger", "Telegram Trigger", 50, _TALK, (1.2, 1), 50, "telegramApi"),
    Kind(_BASE + "executeWorkflowTrigger", "Execute Workflow Trigger", 837, _CORE, (1.1, 1), 45),
    Kind(_BASE + "gmailTrigger", "Gmail Trigger", 824, _TALK, (1.2,), 21, "gmailOAuth2"),
)

STEPS = (
    Kind(_BASE + "httpRequest", "HTTP Request", 19, _DEV, (4.2, 1, 4.1), 656),
    Kind(_BASE + "set", "Edit Fields (Set)", 38, _CORE, (3.4, 1, 2), 633),
    Kind(_BASE + "code", "Code", 834, _DEV, (2, 1), 458),
    Kind(_BASE + "if", "If", 20, _CORE, (2.2, 1, 2), 403, exits=2),
    Kind(_BASE + "googleSheets", "Google Sheets", 18, _DATA, (4.5, 4.6, 4.7), 326, _SHEETS_LOGIN),
    Kind(_BASE + "telegram", "Telegram", 49, _TALK, (1.2, 1, 1.1), 215, "telegramApi"),
    Kind(_BASE + "merge", "Merge", 24, _CORE, (3, 3.1, 1), 148),
    Kind(_BASE + "wait", "Wait", 514, _CORE, (1.1, 1), 132),
    Kind(_BASE + "googleDrive", "Google Drive", 58, _DATA, (3, 2), 128, "googleDriveOAuth2Api"),
    Kind(_BASE + "gmail", "Gmail", 356, _TALK, (2.1, 1, 2), 117, "gmailOAuth2"),
    Kind(_BASE + "splitInBatches", "Loop Over Items", 39, _CORE, (3, 1), 114, exits=2),
    Kind(_BASE + "noOp", "No Operation, do nothing", 26, _CORE, (1,), 108),
    Kind(_BASE + "function", "Function", 14, _DEV, (1,), 89),
    Kind(_BASE + "splitOut", "Split Out", 1239, _CORE, (1,), 87),
    Kind(_BASE + "switch", "Switch", 112, _CORE, (3.2, 1, 3.3), 82, exits=3),
    Kind(_BASE + "respondToWebhook", "Respond to Webhook", 535, _CORE, (1.1, 1.4), 69),
    Kind(_BASE + "slack", "Slack", 40, _TALK, (2.3, 1, 2.2), 66, "slackApi"),
    Kind(_BASE + "filter", "Filter", 844, _CORE, (2.2, 2), 66),
    Kind(_BASE + "extractFromFile", "Extract from File", 1235, _CORE, (1,), 66),
    Kind(_BASE + "notion", "Notion", 487, ("Productivity",), (2, 2.2, 1), 58, "notionApi"),
    Kind(_BASE + "aggregate", "Aggregate", 1236, _CORE, (1,), 58),
    Kind(_BASE + "convertToFile", "Convert to File", 1234, _CORE, (1.1,), 45),
    Kind(_BASE + "emailSend", "Send Email", 11, _TALK, (2.1, 1), 41, "smtp"),
    Kind(_BASE + "airtable", "Airtable", 2, _DATA, (1, 2.1, 2), 34, "airtableApi"),
    Kind(_BASE + "github", "GitHub", 16, _DEV, (1, 1.1), 33, "githubApi"),
    Kind(_BASE + "rssFeedRead", "RSS Read", 37, _CORE, (1.1, 1), 29),
    Kind(_BASE + "postgres", "Postgres", 30, _DATA, (2.6, 1), 26, "postgres"),
    Kind(_BASE + "limit", "Limit", 1237, _CORE, (1,), 26),
    Kind(_BASE + "hubspot", "HubSpot", 76, ("Sales",), (1, 2.1), 22, "hubspotApi"),
    Kind(_BASE + "html", "HTML", 842, _CORE, (1.2,), 21),
    Kind(_BASE + "redis", "Redis", 33, _DATA, (1,), 20, "redis"),
    Kind(_BASE + "youTube", "YouTube", 357, ("Marketing",), (1,), 19, "youTubeOAuth2Api"),
    Kind(_CHAIN + "agent", "AI Agent", 1119, _AI, (2, 1.7, 1.8), 289, accepts=_AGENT_ROLES),
    Kind(_CHAIN + "openAi", "OpenAI", 1250, _AI, (1.8, 1.6), 98, "openAiApi"),
    Kind(_CHAIN + "chainLlm", "Basic LLM Chain", 1123, _AI, (1.7, 1.5), 73, accepts=_CHAIN_ROLES),
    Kind(_CHAIN + "vectorStoreInMemory", "Simple Vector Store", 1232, _AI, accepts=_STORE_ROLES),
    Kind(
        _CHAIN + "textClassifier", "Text Classifier", 1277, _AI, (1, 1.1), 23, accepts=_MODEL_ROLE
    ),
    Kind("n8n-nodes-practice.harbour", "Harbour (community)", 9001, ("Miscellaneous",), (1,), 12),
)

_MODELS = (
    Kind(_CHAIN + "lmChatOpenAi", "OpenAI Chat Model", 1153, _AI, (1.2, 1), 209, "openAiApi"),
    Kind(_CHAIN + "lmChatGoogleGemini", "Gemini Chat Model", 1262, _AI, (1,), 79, "googlePalmApi"),
    Kind(_CHAIN + "lmChatOpenRouter", "OpenRouter Model", 1281, _AI, (1,), 45, "openRouterApi"),
)
_PARSERS = (
    Kind(_CHAIN + "outputParserStructured", "Structured Output Parser", 1179, _AI, (1.2, 1.3)),
    Kind(_CHAIN + "outputParserItemList", "Item List Output Parser", 1178, _AI),
)
_MEMORIES = (
    Kind(_CHAIN + "memoryBufferWindow", "Simple Memory", 1163, _AI, (1.3, 1)),
    Kind(_CHAIN + "memoryPostgresChat", "Postgres Chat Memory", 1267, _AI, (1.3,), 5, "postgres"),
)
_TOOLS = (
    Kind(_CHAIN + "toolWorkflow", "Call n8n Workflow Tool", 1205, _AI, (2.1, 2.2, 2)),
    Kind(_CHAIN + "toolHttpRequest", "HTTP Request Tool", 1207, _AI, (1.1,)),
    Kind(_BASE + "gmailTool", "Gmail Tool", 1292, _TALK, (2.1,), 10, "gmailOAuth2"),
)
_EMBEDDINGS = (
    Kind(_CHAIN + "embeddingsOpenAi", "Embeddings OpenAI", 1141, _AI, (1.2, 1), 41, "openAiApi"),
)
_LOADERS = (
    Kind(
        _CHAIN + "documentDefaultDataLoader",
        "Default Data Loader",
        1243,
        _AI,
        (1, 1.1),
        accepts=_LOADER_ROLES,
    ),
)
_SPLITTERS = (
    Kind(
        _CHAIN + "textSplitterRecursiveCharacterTextSplitter",
        "Recursive Character Text Splitter",
        1191,
        _AI,
    ),
)

PLAYERS: Mapping[str, tuple[Kind, ...]] = {
    "ai_languageModel": _MODELS,
    "ai_memory": _MEMORIES,
    "ai_tool": _TOOLS,
    "ai_outputParser": _PARSERS,
    "ai_embedding": _EMBEDDINGS,
    "ai_document": _LOADERS,
    "ai_textSplitter": _SPLITTERS,
}
"""Who can play each role for an AI node."""


def weights(kinds: tuple[Kind, ...]) -> tuple[int, ...]:
    """Return the running sum of their weights, as `random.choices` wants it."""
    return tuple(accumulate(kind.weight for kind in kinds))


# ---------------- How the template API describes the node types of a template: names, links and

_CATEGORY_IDS = {
    "Marketing": 1,
    "Sales": 2,
    "Data & Storage": 3,
    "Productivity": 4,
    "Development": 5,
    "Communication": 6,
    "Miscellaneous": 8,
    "Core Nodes": 9,
    "AI": 25,
    "Langchain": 26,
    "HITL": 28,
}


@cache
def describe(kind: Kind) -> orjson.Fragment:
    """Return the NodeInfo of a kind, already encoded: with its icon it is most of an answer."""
    has_file = kind is not STICKY_NOTE and kind.id % 7 > 0
    info = {
        "id": kind.id,
        "icon": f"file:{kind.type.rpartition('.')[2]}.svg" if has_file else "fa:cogs",
        "name": kind.type,
        "codex": {"data": _codex(kind)},
        "group": '["trigger"]' if kind in TRIGGERS else '["transform"]',
        "defaults": {"name": kind.display, "color": "#1A82e2"},
        "iconData": _icon(kind.type) if has_file else {"type": "icon", "icon": "cogs"},
        "displayName": kind.display,
        "typeVersion": int(kind.versions[0]),
        "nodeCategories": [{"id": _CATEGORY_IDS[name], "name": name} for name in kind.categories],
    }
    return orjson.Fragment(orjson.dumps(info))


def _codex(kind: Kind) -> dict[str, object]:
    page = f"https://docs.example/integrations/{kind.slug}/"
    guides = [{"url": f"{page}{n}/", "icon": "📎", "label": f"Use case {n}"} for n in range(1, 4)]
    return {
        "details": f"{kind.display} takes part in automations that move data between services.",
        "resources": {"generic": guides, "primaryDocumentation": [{"url": page}]},
        "categories": list(kind.categories),
        "nodeVersion": "1.0",
        "codexVersion": "1.0",
    }


def _icon(name: str) -> dict[str, str]:
    """Return a drawing of a few kilobytes, the same for a name every time."""
    size = 300 + 100 * (sum(name.encode()) % 12)
    numbers = shake_256(name.encode()).digest(size)
    path = "L".join(f"{x},{y}" for x, y in zip(numbers[::2], numbers[1::2], strict=True))
    space = "http://www.w3.org/2000/svg"
    drawing = f'<svg xmlns="{space}" viewBox="0 0 256 256"><path d="M{path}Z"/></svg>'
    data = base64.b64encode(drawing.encode()).decode()
    return {"type": "file", "fileBuffer": f"data:image/svg+xml;base64,{data}"}
