"""docs/api.md: its table has every operation, and its examples work."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from longline.server.web.api.openapi import operations
from tests.server.web.conftest import Dashboard
from tests.server.web.test_alerts import raise_alerts
from tests.server.web.test_schedules import save
from tests.server.web.test_sources import write_manifest

PAGE = Path(__file__).parents[4] / "docs" / "api.md"
ADDRESS = "http://127.0.0.1:8400"
_OF_A_PAGE = {"limit", "cursor"}
_ADMIN = "/api/v1/tokens"


def row_of(path: str, method: str, operation: dict[str, Any]) -> str:
    """Return the row of an operation in the table of the page."""
    about = operation["description"].partition("\n")[0]
    given = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
    filters = ", ".join(f"`{one}`" for one in given if one not in _OF_A_PAGE)
    role = "admin" if path.startswith(_ADMIN) else "read" if method == "get" else "operate"
    shown = f"{method.upper()} {path.removeprefix('/api/v1')}"
    return f"| `{shown}` | {role} | {filters} | {about} |"


def examples() -> list[list[str]]:
    """Return the arguments of the curl commands of the page."""
    lines = PAGE.read_text("utf-8").splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("curl ")]


async def test_the_page_has_every_operation(dashboard: Dashboard) -> None:
    answer = await dashboard.api("GET", "/api/v1/openapi.json")
    expected = [row_of(*one) for one in operations(json.loads(answer.text))]

    rows = re.findall(r"^\| `(?:GET|POST|DELETE) .*$", PAGE.read_text("utf-8"), re.MULTILINE)

    assert sorted(rows) == sorted(expected)


async def test_the_examples_of_the_page_work(dashboard: Dashboard) -> None:
    write_manifest(dashboard)
    await save(dashboard)
    await raise_alerts(dashboard)

    statuses = {" ".join(one): await send(dashboard, one) for one in examples()}

    assert len(statuses) > 5
    assert {text: status for text, status in statuses.items() if status >= 300} == {}


async def send(dashboard: Dashboard, words: list[str]) -> int:
    """Send the request of a curl command; return the status of its response."""
    options: dict[str, Any] = {"headers": {}}
    method, *rest = "GET", *words
    while rest:
        word = rest.pop(0)
        if word == "-H":
            name, _, value = rest.pop(0).partition(": ")
            options["headers"] |= {} if name == "Authorization" else {name: value}
        elif word == "-d":
            method, options["data"] = "POST", rest.pop(0)
        elif word == "-X":
            method = rest.pop(0)
        elif word != "-N":
            assert word.startswith(ADDRESS), word
            path = word.removeprefix(ADDRESS)
    if "-N" in words:
        return await open_stream(dashboard, path)
    return (await dashboard.api(method, path, **options)).status


async def open_stream(dashboard: Dashboard, path: str) -> int:
    async with dashboard.session.get(dashboard.url + path) as response:
        await response.content.readline()
        return response.status
