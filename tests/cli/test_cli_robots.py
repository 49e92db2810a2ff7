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
    """Answers robots.txt as it is told, and counts how often."""

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
    told = json.loads(robots(tmp_path, f"{web.url}/closed/a", "--json").output)

    assert answer.exit_code == 4
    assert (told["is_allowed"], told["agent"], told["crawl_delay"]) == (False, "longline", 4)
    assert (told["group"], told["line"], told["rule"]) == ("*", 2, "Disallow: /closed")
    assert told["status"] == 200
    shown = (f"{web.url}/closed/a", "longline", "Disallow: /closed", "200", "4 s")
    assert all(one in answer.output for one in shown)


def test_a_permission_exits_with_zero(tmp_path: Path, web: Site) -> None:
    answer = robots(tmp_path, f"{web.url}/open")
    told = json.loads(robots(tmp_path, f"{web.url}/open", "--json").output)

    assert answer.exit_code == 0
    assert f"{web.url}/open" in answer.output
    assert (told["is_allowed"], told["rule"]) == (True, None)


def test_a_program_is_told_the_same(tmp_path: Path, web: Site) -> None:
    answer = robots(tmp_path, f"{web.url}/closed", "--agent", "Friend/1.0", "--json")

    told = json.loads(answer.output)
    assert told.pop("fetched_at")
    assert told == {
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


def test_the_name_in_our_user_agent_is_the_one_that_counts(
    tmp_path: Path, web: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGLINE_USER_AGENT", "Friend/2.0 (+mailto:me@friend.test)")

    answer = robots(tmp_path, f"{web.url}/closed", "--json")

    told = json.loads(answer.output)
    assert (answer.exit_code, told["agent"], told["group"]) == (0, "friend", "friend")


def test_a_copy_is_kept_until_a_fresh_one_is_wanted(tmp_path: Path, web: Site) -> None:
    robots(tmp_path, f"{web.url}/closed")
    web.text = ""

    kept = robots(tmp_path, f"{web.url}/closed", "--json")
    fresh = robots(tmp_path, f"{web.url}/closed", "--fresh", "--json")

    assert (kept.exit_code, fresh.exit_code) == (4, 0)
    assert [json.loads(one.output)["is_kept"] for one in (kept, fresh)] == [True, False]
    assert len(web.agents) == 2


def test_we_say_who_we_are(tmp_path: Path, web: Site) -> None:
    robots(tmp_path, f"{web.url}/open", "--agent", "somebody")

    assert web.agents[0].startswith("longline/")


def test_no_robots_txt_allows_all(tmp_path: Path, web: Site) -> None:
    web.status = 404

    answer = robots(tmp_path, f"{web.url}/closed")

    assert answer.exit_code == 0
    assert "404" in answer.output


def test_unknown_rules_are_not_a_permission(tmp_path: Path, web: Site) -> None:
    web.status = 501

    answer = robots(tmp_path, f"{web.url}/open")
    told = json.loads(robots(tmp_path, f"{web.url}/open", "--json").output)

    assert answer.exit_code == 4
    assert told["problem"] in answer.output
    assert (told["is_allowed"], told["status"]) == (False, None)
    assert f"{web.url}/robots.txt" in told["problem"]
    assert "501" in told["problem"]


@pytest.mark.parametrize("url", ["example.org/a", "/a", "ftp://example.org/a", "https://"])
def test_half_an_address_is_refused(tmp_path: Path, url: str) -> None:
    answer = robots(tmp_path, url)

    assert isinstance(answer.exception, BadOption)
    assert answer.exception.option == "URL"
