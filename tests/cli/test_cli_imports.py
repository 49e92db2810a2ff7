"""A plain local run imports only what it needs: each further library costs memory and time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.sandbox.web import PracticeWeb
from tests.cli.served import served

RUN = """
import sys
from longline.cli.main import main
try:
    main()
finally:
    print(*sys.modules)
"""
# Parts that a run with a new SQLite database, over plain HTTP, does not use.
UNUSED = {
    *("alembic", "mako", "pygments"),  # the database is new, or up to date
    *("redis", "celery", "kombu", "psycopg"),  # no cache, no cluster
    *("requests", "urllib3", "charset_normalizer", "youtube_transcript_api"),  # no transcripts
    *("boto3", "duckdb", "pyarrow", "xlsxwriter"),  # no export
    *("babel", "jsonschema", "keyring", "playwright", "publicsuffixlist", "py3langid"),
    *("scrapy", "twisted"),
    *("prometheus_client", "opentelemetry"),  # no metrics
}


@pytest.fixture
def web() -> Iterator[PracticeWeb]:
    with served(items=5) as web:
        yield web


def test_a_plain_run_imports_no_part_that_it_does_not_use(web: PracticeWeb, home: Path) -> None:
    chosen = {"site_url": web.site_url, "api_url": web.api_url, "transcripts": "false"}
    words = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-c", RUN, "run", "n8n", *words, "--rate", "unlimited", "--json"]

    answer = subprocess.run([*command, "--home", home], capture_output=True, text=True, check=True)

    report, modules = answer.stdout.splitlines()
    assert '"stored":5' in report
    assert UNUSED & set(modules.split()) == set()
