"""longline robots, against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner, Result

from longline.cli.commands.sites import robots_command
from longline.core.errors import BadOption

TEXT = """User-agent: *
Disallow: /closed
Crawl-delay: 4

User-agent: friend
Allow: /
Sitemap: https://x.test/map.xml
"""


class Site(ThreadingHTTPServer):
    """Answers robots.txt as it is result, and counts how often."""

    text = TEXT
    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.agents: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Site)
        self.server.agents.append(self.headers["User-Agent"])
        body = self.server.text.encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        if self.server.status >= 500:
            self.send_header("Retry-After", "900")  # too long to sit out
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # their word
        """Keep quiet."""


@pytest.fixture
def web() -> Iterator[Site]:
    with Site() as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def robots(home: Path, *words: str) -> Result:
    return CliRunner().invoke(robots_command, [*words, "--home", str(home)])


def test_a_refusal_names_rule_line_and_group(tmp_path: Path, web: Site) -> None:
    answer = robots(tmp_path, f"{web.url}/closed/a")
    result = json.loads(robots(tmp_path, f"{web.url}/closed/a", "--json").output)

    assert answer.exit_code == 4
    assert (result["is_allowed"], result["agent"], result["crawl_delay"]) == (False, "longline", 4)
    assert (result["group"], result["line"], result["rule"]) == ("*", 2, "Disallow: /closed")
    assert result["status"] == 200
    shown = (f"{web.url}/closed/a", "longline", "Disallow: /closed", "200", "4 s")
    assert all(one in answer.output for one in shown)


def test_an_allowed_url_exits_with_zero(tmp_path: Path, web: Site) -> None:
    answer = robots(tmp_path, f"{web.url}/open")
    result = json.loads(robots(tmp_path, f"{web.url}/open", "--json").output)

    assert answer.exit_code == 0
    assert f"{web.url}/open" in answer.output
    assert (result["is_allowed"], result["rule"]) == (True, None)


def test_limits_are_available_as_json(tmp_path: Path, web: Site) -> None:
    answer = robots(tmp_path, f"{web.url}/closed", "--agent", "Friend/1.0", "--json")

    result = json.loads(answer.output)
    assert result.pop("fetched_at")
    assert result == {
        "is_allowed": True,
        "url": f"{web.url}/closed",
        "agent": "Friend/1.0",
        "group": "friend",
        "rule": "Allow: /",
        "line": 6,
        "crawl_delay": None,
        "rate": None,
        "sitemaps": ["https://x.test/map.xml"],
        "status": 200,
        "is_kept": False,
        "problem": None,
    }


def test_robots_uses_the_name_in_the_user_agent(
    tmp_path: Path, web: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGLINE_USER_AGENT", "Friend/2.0 (+mailto:me@friend.test)")

    answer = robots(tmp_path, f"{web.url}/closed", "--json")

    result = json.loads(answer.output)
    assert (answer.exit_code, result["agent"], result["group"]) == (0, "friend", "friend")


def test_robots_txt_is_stored_until_fresh_is_requested(tmp_path: Path, web: Site) -> None:
    robots(tmp_path, f"{web.url}/closed")
    web.text = ""

    kept = robots(tmp_path, f"{web.url}/closed", "--json")
    fresh = robots(tmp_path, f"{web.url}/closed", "--fresh", "--json")

    assert (kept.exit_code, fresh.exit_code) == (4, 0)
    assert [json.loads(one.output)["is_kept"] for one in (kept, fresh)] == [True, False]
    assert len(web.agents) == 2


def test_requests_have_the_user_agent(tmp_path: Path, web: Site) -> None:
    robots(tmp_path, f"{web.url}/open", "--agent", "somebody")

    assert web.agents[0].startswith("longline/")


def test_no_robots_txt_allows_all(tmp_path: Path, web: Site) -> None:
    web.status = 404

    answer = robots(tmp_path, f"{web.url}/closed")

    assert answer.exit_code == 0
    assert "404" in answer.output


def test_unknown_robots_rules_disallow_the_url(tmp_path: Path, web: Site) -> None:
    web.status = 501

    answer = robots(tmp_path, f"{web.url}/open")
    result = json.loads(robots(tmp_path, f"{web.url}/open", "--json").output)

    assert answer.exit_code == 4
    assert result["problem"] in answer.output
    assert (result["is_allowed"], result["status"]) == (False, None)
    assert f"{web.url}/robots.txt" in result["problem"]
    assert "501" in result["problem"]


@pytest.mark.parametrize("url", ["example.org/a", "/a", "ftp://example.org/a", "https://"])
def test_half_an_address_is_refused(tmp_path: Path, url: str) -> None:
    answer = robots(tmp_path, url)

    assert isinstance(answer.exception, BadOption)
    assert answer.exception.option == "URL"
