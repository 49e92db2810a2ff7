"""How the template API describes the node types of a template: names, links and icons."""

from __future__ import annotations

import base64
from functools import cache
from hashlib import shake_256

import orjson

from longline.sandbox.kinds import STICKY_NOTE, TRIGGERS, Kind

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
