"""Sitemaps, robots.txt and cookies, judged by the published tests of Scrapy and protego.

The test files are run as they are, with longline's parts in the place of the tested ones
(`others_shims.py`). A test is a case. Tests of features that longline does not have, of log
messages and of deprecation warnings are not run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from children import BENCH
from others_frame import Suite, Unreachable, Verdict

_OUTCOMES = "LONGLINE_OTHERS_OUTCOMES"
_TIMEOUT = 300.0  # seconds for one run
_TOKEN = "the product token is compared as a whole, by RFC 9309 2.2.1"  # noqa: S105  # not a secret
_ASCII = "a product token has ASCII letters only, by RFC 9309 2.2.1"
_LENIENT = "a line that is neither a rule nor an agent does not end a group, by RFC 9309 2.2"


@dataclass(frozen=True, slots=True)
class _Tests:
    """Test files of a distribution: which tests are left out, and which differ by policy."""

    files: tuple[str, ...]
    left_out: str = ""
    policies: Mapping[str, str] = field(default_factory=dict)

    def judge(self, folder: Path) -> list[Verdict]:
        """Run the tests; each is one result."""
        outcomes = _outcomes(folder, self.files, self.left_out)
        return [self._verdict(name, *outcome) for name, outcome in sorted(outcomes.items())]

    def _verdict(self, name: str, outcome: str, problem: str) -> Verdict:
        if outcome == "passed":
            return Verdict(name, "passes", "passes", "right")
        if reason := self.policies.get(name):
            return Verdict(name, "passes", problem, "policy", reason)
        is_refused = "UnexpectedShape" in problem
        return Verdict(name, "passes", problem, "refused" if is_refused else "wrong")


def _outcomes(folder: Path, files: tuple[str, ...], left_out: str) -> dict[str, list[str]]:
    with tempfile.TemporaryDirectory() as place:
        kept = Path(place, "outcomes.json")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "others_shims", "-c", os.devnull]
        command += ["-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(folder)]
        command += ["-k", f"not ({left_out})"] if left_out else []
        paths = os.pathsep.join([str(BENCH), str(folder)])
        done = subprocess.run(
            [*command, *files],
            check=False,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths, _OUTCOMES: str(kept)},
        )
        if not kept.is_file():
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise Unreachable(f"the tests in {folder.name} cannot be run: {''.join(last)}")
        found: dict[str, list[str]] = json.loads(kept.read_text("utf-8"))
        return found


_WHOLE = "the rate is stored as requests per second and applies at all times of day"
SITEMAPS = _Tests(
    ("tests/test_utils_sitemap.py",),
    "str",
    {"test_xml_entity_expansion": "a sitemap that declares entities is refused as a whole"},
)
ROBOTS = _Tests(
    ("tests/test_robotstxt_interface.py",),
    "Python or Rerp or Decode or unsupported",
)
COOKIES = _Tests(("tests/test_downloadermiddleware_cookies.py",), "debug or invalid_cookies")
PROTEGO = _Tests(
    ("tests/test_protego.py", "tests/test_on_google_spec.py"),
    "visit_time or preferred_host or bytestrings or line_endings",
    {
        "TestProtego::test_crawl_delay[0]": "a delay of 0 counts as no delay",
        "TestProtego::test_empty_user_agent_line": (
            "`user agent` without colon and value is not an agent line, as in Google's parser"
        ),
        "TestProtego::test_generosity": (
            "`harry potter` is the product token `harry`, by RFC 9309 2.2.1"
        ),
        "TestProtego::test_generosity_not_for_unknown_colon_directives": (
            "the rules are as expected; the Host line, which is not in RFC 9309, is not read"
        ),
        "TestProtego::test_global_directives_do_not_split_groups": (
            "the groups are as expected; the Host line, which is not in RFC 9309, is not read"
        ),
        "TestProtego::test_grouping_unknown_keys": _LENIENT,
        "TestProtego::test_index_html_is_directory": (
            "`Allow: /a/index.html` allows only that path; also allowing `/a/` is Google's rule"
        ),
        "TestProtego::test_request_rate": _WHOLE,
        "TestProtego::test_request_rate_bare_number": _WHOLE,
        "TestProtego::test_special_symbols_dual_behaviour": (
            "`$` at the end of a rule means the end of the address only, by RFC 9309 2.2.3"
        ),
        "TestProtego::test_unicode_url_and_useragent": _ASCII,
        "TestProtego::test_with_absolute_urls": (
            "a rule that does not begin with `/` matches no path, by RFC 9309 2.2.2"
        ),
        "test_user_agent_boundary_matching[foobot-Mozilla/5.0 (compatible; Foobot/1.0)-True]": (
            "rules are looked up by the crawler's product token, not by its User-Agent header"
        ),
        "test_user_agent_boundary_matching[google-googlebot-mobile-True]": _TOKEN,
        "test_user_agent_boundary_matching[googlebot-googlebot-news-True]": _TOKEN,
        "test_user_agent_precedence[/group1-hedwig-news2]": _TOKEN,
        "test_user_agent_precedence[/group3-hedwig-images]": _TOKEN,
        "test_user_agent_precedence[/group3-hedwig-new]": _TOKEN,
    },
)
SUITES = (
    Suite("Scrapy: sitemaps", "scrapy", "2.19.0", SITEMAPS.judge, 0.9),
    Suite("Scrapy: robots.txt", "scrapy", "2.19.0", ROBOTS.judge, 0.95),
    Suite("Scrapy: cookies", "scrapy", "2.19.0", COOKIES.judge, 0.95),
    Suite("protego: robots.txt", "protego", "0.7.0", PROTEGO.judge, 0.95),
)
