"""Log lines: levels, context, fields, redaction, and the file of `--log-file`."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.config.secrets import SecretRef
from longline.config.settings import Settings
from longline.core.logging import LogContext, LogOptions, configure_logging, redact, reset_logging

LOG = logging.getLogger("longline.test")


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    yield
    reset_logging()


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(("verbosity", "count"), [(0, 1), (1, 2), (2, 3), (5, 3)])
def test_each_v_shows_more(capsys: pytest.CaptureFixture[str], verbosity: int, count: int) -> None:
    configure_logging(LogOptions(verbosity))

    LOG.warning("one")
    LOG.info("two")
    LOG.debug("three")

    assert len(lines(capsys)) == count


def test_a_json_line_has_context_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogOptions(as_json=True))

    with LogContext(job="shop-1", source="shop"), LogContext(item="7"):
        LOG.warning("lease lost", extra={"status": 503, "error": None})

    found = json.loads(lines(capsys)[0])
    assert (found["level"], found["logger"], found["message"]) == (
        "warning",
        "longline.test",
        "lease lost",
    )
    assert (found["job"], found["source"], found["item"], found["status"]) == (
        "shop-1",
        "shop",
        "7",
        503,
    )
    assert "error" not in found


async def test_tasks_have_the_context_that_they_were_started_in(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging(LogOptions())

    async def warn(item: str) -> None:
        with LogContext(item=item):
            await asyncio.sleep(0)
            LOG.warning("late")

    with LogContext(job="shop-1"):
        await asyncio.gather(warn("a"), warn("b"))
    LOG.warning("after")

    first, second, after = lines(capsys)
    assert first.endswith("job=shop-1 item=a")
    assert second.endswith("job=shop-1 item=b")
    assert after.endswith("after")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("redis://:hunter2@127.0.0.1/0 is down", "hunter2"),
        ("GET https://a.test/?api_key=hunter2&page=2", "hunter2"),
        ("GET https://a.test/?page=2&access_token=hunter2", "hunter2"),
        ("Authorization: Bearer hunter2hunter2", "hunter2"),
    ],
)
def test_secrets_are_redacted(text: str, secret: str) -> None:
    assert secret not in redact(text)
    assert "***" in redact(text)


@pytest.mark.parametrize("as_json", [False, True])
def test_known_secrets_are_redacted_by_value(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, as_json: bool
) -> None:
    monkeypatch.setenv("SHOP_KEY", 'sesame"7f3a')
    SecretRef.parse("env:SHOP_KEY").read()
    Settings(redis_url="redis://:s3same%2Fopen@127.0.0.1/0", home=Path("nowhere"))
    configure_logging(LogOptions(as_json=as_json))

    LOG.warning("sent %s", 'sesame"7f3a', extra={"headers": ["s3same/open", 'sesame"7f3a']})

    (line,) = lines(capsys)
    assert "7f3a" not in line
    assert "s3same" not in line
    assert line.count("***") == 3


def test_the_worker_is_on_every_line_of_every_thread(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogOptions(worker="host-7"))

    thread = threading.Thread(target=LOG.warning, args=("begun",))
    thread.start()
    thread.join()

    assert lines(capsys)[0].endswith("begun worker=host-7")


def test_an_address_without_secrets_is_unchanged() -> None:
    text = "GET https://a.test:8080/list?page=2 mailto:me@a.test"

    assert redact(text) == text


def test_a_log_file_is_private_and_has_requests(tmp_path: Path) -> None:
    file = tmp_path / "run.log"
    configure_logging(LogOptions(file=str(file), as_json=True))

    LOG.info("GET https://a.test/?token=hunter2", extra={"url": "https://me:hunter2@a.test/"})
    reset_logging()

    text = file.read_text()
    assert "hunter2" not in text
    assert json.loads(text)["level"] == "info"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_line_cannot_be_forged(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogOptions())

    LOG.warning("failed", extra={"item": "a\n12:00:00 WARNING forged\x1b[2J"})

    assert len(lines(capsys)) == 1
