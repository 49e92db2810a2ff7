"""The packages of docs/architecture.md: which imports from which."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "longline"
PACKAGES = [  # a package imports only from those above it
    "core",
    "config",
    "limits",
    "http",
    "pipeline",
    "sources",
    "storage",
    "export",
    "enrichment",
    "drift",
    "engine",
    "analysis",
    "scheduling",
    "monitoring",
    "wiring",
    "distributed",
    "services",
    "running",
    "orchestrator",
    "sync",
    "scraper",
    "devtools",
    "server",
    "client",
    "sandbox",
    "cli",
]
PRACTICE_WEB_MAY = {"core", "sandbox"}
BACKENDS: dict[str, str | tuple[str, ...]] = {  # where alone each may be imported
    "aiohttp_socks": "src/longline/http/proxies/socks",
    "apprise": "src/longline/monitoring/alerts/apprise_sender",
    "boto3": "src/longline/export/s3",
    "celery": "src/longline/distributed/",
    "kombu": "src/longline/distributed/",
    "redis": (
        "src/longline/limits/backends/redis",
        "src/longline/engine/redis_stream",
        "src/longline/distributed/",
        "src/longline/services/",
    ),
    "botocore": "src/longline/export/s3",
    "curl_cffi": "src/longline/http/impersonate",
    "duckdb": "src/longline/export/arrow",
    "fastapi": "src/longline/server/web/",
    "keyring": "src/longline/config/secrets",
    "mcp": "src/longline/server/agents/",
    "mcp_types": "src/longline/server/agents/",
    "opentelemetry": "src/longline/monitoring/otlp",
    "playwright": "src/longline/http/browser/",
    "psycopg": ("src/longline/export/postgres", "src/longline/services/"),
    "pyarrow": "src/longline/export/arrow",
    "python_socks": "src/longline/http/proxies/socks",
    "requests": (
        "src/longline/sources/requests_session",
        "src/longline/sources/n8n/transcripts",
    ),
    "scrapy": ("src/longline/sources/scrapy", "src/longline/sources/spider"),
    "uvicorn": "src/longline/server/web/",
    "xlsxwriter": "src/longline/export/excel",
    "youtube_transcript_api": "src/longline/sources/n8n/transcripts",
}
OPTIONAL = {
    "aiohttp_socks",
    "apprise",
    "boto3",
    "botocore",
    "celery",
    "curl_cffi",
    "duckdb",
    "fastapi",
    "keyring",
    "kombu",
    "mcp",
    "mcp_types",
    "opentelemetry",
    "playwright",
    "psycopg",
    "pyarrow",
    "python_socks",
    "redis",
    "requests",
    "scrapy",
    "uvicorn",
    "warcio",
    "xlsxwriter",
    "youtube_transcript_api",
}

SOURCES = sorted(PACKAGE.rglob("*.py"))
MODULES = [path for path in SOURCES if path.parent != PACKAGE or not path.name.startswith("__")]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imported(path: Path) -> tuple[tuple[str, str | None], ...]:
    """Return (module, name) of every import, wherever it stands; the name is None for a module."""
    return tuple(_imported(ast.parse(path.read_text("utf-8"))))


def _imported(tree: ast.Module) -> Iterator[tuple[str, str | None]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            yield from (("." * node.level + (node.module or ""), one.name) for one in node.names)


def ours(path: Path) -> list[tuple[str, str | None]]:
    return [(m, name) for m, name in imported(path) if m.partition(".")[0] in ("longline", "")]


def packages_used(path: Path) -> set[str]:
    return {module.split(".")[1] for module, _ in ours(path) if "." in module}


def is_package(module: str) -> bool:
    return (PACKAGE.parent / Path(*module.split("."))).is_dir()


def is_module(module: str, name: str | None) -> bool:
    place = PACKAGE.parent / Path(*module.split(".")) / (name or "")
    return place.is_dir() or place.with_name(f"{place.name}.py").is_file()


def test_every_package_is_listed() -> None:
    assert {package_of(path) for path in MODULES} <= set(PACKAGES)


def test_a_package_imports_only_from_packages_above_it() -> None:
    wrong = {
        name_of(path): below
        for path in MODULES
        if (below := packages_used(path) - set(PACKAGES[: PACKAGES.index(package_of(path)) + 1]))
    }

    assert wrong == {}


def test_the_practice_web_knows_nothing_of_what_it_tests() -> None:
    wrong = {
        name_of(path): more
        for path in (PACKAGE / "sandbox").rglob("*.py")
        if (more := packages_used(path) - PRACTICE_WEB_MAY)
    }

    assert wrong == {}


def test_a_name_is_imported_from_the_module_that_defines_it() -> None:
    through_packages = [
        f"{name_of(path)}: {module}.{name}"
        for path in MODULES
        if path.name != "__init__.py"
        for module, name in ours(path)
        if is_package(module) and not is_module(module, name)
    ]

    assert through_packages == []


def test_imports_name_the_whole_way() -> None:
    relative = [
        name_of(path) for path in SOURCES for module, _ in ours(path) if module.startswith(".")
    ]

    assert relative == []


def test_an_optional_library_is_imported_by_its_backend_alone() -> None:
    used = [
        f"{name_of(path)}: {module}"
        for path in SOURCES
        for module, _ in imported(path)
        if (library := module.partition(".")[0]) in OPTIONAL
        and not name_of(path).startswith(BACKENDS.get(library, "nowhere"))
    ]

    assert used == []


def test_the_core_does_without_optional_libraries() -> None:
    block = "; ".join(f"sys.modules[{name!r}] = None" for name in sorted(OPTIONAL))
    commands = "longline.cli.commands.run, longline.cli.commands.sources"
    core = f"longline.wiring, longline.scraper, {commands}"

    subprocess.run([sys.executable, "-c", f"import sys; {block}; import {core}"], check=True)


def test_a_module_opens_with_what_it_is_for() -> None:
    silent = [
        name_of(path)
        for path in SOURCES
        if not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]

    assert silent == []
