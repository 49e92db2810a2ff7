"""Sources of candidates: files, commands, URLs and JSON; one that fails stops no other."""

from __future__ import annotations

import asyncio
import stat
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.config.documents import parse_document
from longline.config.settings import Settings
from longline.core.errors import BadFile, UnknownSecret
from longline.http.proxies.candidates import Candidates, CandidateSource, collect, parse_list
from longline.http.proxies.configuration import check_proxy_settings, proxy_settings_in
from longline.http.proxies.proxy import CredentialFiles
from longline.http.transport import HttpTransport
from longline.wiring import open_proxy_http
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

PASSWORD = "Secr3t-9"  # noqa: S105  # of no one
API = b'{"data": [{"ip": "10.0.0.1", "port": 80, "kind": "socks5", "geo": {"cc": "bg"}}, {"x": 1}]}'
FIELDS = {"host": "ip", "scheme": "kind", "country": "geo.cc"}


@pytest.fixture
async def http(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[HttpTransport]:
    async with open_proxy_http(Settings(home=tmp_path), clock) as http:
        yield http


async def read(http: HttpTransport, folder: Path, **sources: dict[str, Any]) -> Candidates:
    """Read sources, given as in a settings file."""
    made = {name: CandidateSource.model_validate(one) for name, one in sources.items()}
    return await collect(made, http, CredentialFiles(folder / "credentials"))


def listed(text: str, **options: Any) -> tuple[list[str], int]:
    """Return the addresses of a list, and how many lines are none."""
    source = CandidateSource.model_validate({"file": "any", **options})
    found, skipped = parse_list("list", source, text.encode())
    return [one.proxy.address for one in found], skipped


def test_lines_are_read_in_every_form() -> None:
    text = "\ufeff# free\n\n10.0.0.1:80\nsocks5://10.0.0.2:1080\nada:x@10.0.0.3:80\nnot a proxy\n"

    found, skipped = listed(f"{text}10.0.0.4:80:ada:x\r\n", scheme="socks4")

    assert found == [
        "socks4://10.0.0.1:80",
        "socks5://10.0.0.2:1080",
        "socks4://10.0.0.3:80",
        "socks4://10.0.0.4:80",
    ]
    assert skipped == 1


def test_what_a_source_says_applies_to_its_proxies() -> None:
    options = {"tier": "paid", "country": "bg", "rotating": True, "credentials": "env:LOGIN"}
    source = CandidateSource.model_validate({"file": "any", **options})

    ((parsed,), _) = parse_list("gate", source, b"10.0.0.1:80\n")

    proxy = parsed.proxy
    assert (proxy.tier, proxy.country, proxy.origin) == ("paid", "BG", "gate")
    assert (proxy.credentials, proxy.is_rotating) == ("env:LOGIN", True)


def test_json_is_read_by_paths() -> None:
    source = CandidateSource.model_validate(
        {"url": "http://a.test", "list": "data", "fields": FIELDS}
    )

    ((parsed,), skipped) = parse_list("api", source, API)

    assert parsed.proxy.address == "socks5://10.0.0.1:80"
    assert (parsed.proxy.country, skipped) == ("BG", 1)


def test_json_may_have_whole_addresses_and_logins() -> None:
    fields = {"address": "at", "user": "login", "password": "pass"}
    source = CandidateSource.model_validate({"file": "any", "fields": fields})
    content = b'[{"at": "https://a.test:8443", "login": "ada", "pass": "x"}, {"at": "[::1]:80"}]'

    (first, second), _ = parse_list("api", source, content)

    assert first.secret is not None
    assert (first.proxy.address, first.secret.get_secret_value()) == (
        "https://a.test:8443",
        "ada:x",
    )
    assert second.proxy.address == "http://[::1]:80"


async def test_sources_are_merged_by_address(http: HttpTransport, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("10.0.0.1:80\n10.0.0.2:80\n")
    (tmp_path / "b.txt").write_text("10.0.0.2:80\n10.0.0.3:80\n")

    found = await read(
        http,
        tmp_path,
        first={"file": tmp_path / "a.txt"},
        second={"file": tmp_path / "b.txt"},
        off={"file": tmp_path / "a.txt", "enabled": False},
    )

    assert {one.origin for one in found.proxies.values()} == {"first", "second"}
    assert len(found.proxies) == 3
    assert found.problems == {}


@pytest.mark.real_time
async def test_a_command_prints_its_list(http: HttpTransport, tmp_path: Path) -> None:
    script = tmp_path / "scraper.py"
    script.write_text("import sys; print(len(sys.stdin.read()), 'x'); print('10.0.0.1:80')")
    other = tmp_path / "writer.py"
    other.write_text(f"open({str(tmp_path / 'out.txt')!r}, 'w').write('10.0.0.2:80')")

    found = await read(
        http,
        tmp_path,
        printed={"command": f"{sys.executable} {script}"},
        written={"command": f"{sys.executable} {other}", "output": tmp_path / "out.txt"},
    )

    assert sorted(found.proxies) == ["http://10.0.0.1:80", "http://10.0.0.2:80"]
    assert found.invalid["printed"] == 1


@pytest.mark.real_time
async def test_the_output_of_an_earlier_command_is_not_used(
    http: HttpTransport, tmp_path: Path
) -> None:
    output = tmp_path / "out.txt"
    output.write_text("10.0.0.2:80")

    found = await read(http, tmp_path, idle={"command": "true", "output": output})

    assert found.problems == {
        "idle": f"the command has not written {output}, which is old",
    }
    assert found.proxies == {}


@pytest.mark.real_time
async def test_a_command_that_hangs_is_killed(http: HttpTransport, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    shell = f"sh -c 'sleep 600 & echo $! > {mark}; wait'"
    began = time.monotonic()

    found = await read(http, tmp_path, slow={"command": shell, "timeout": "1s"})

    assert found.problems == {"slow": "it took longer than 1 s"}
    assert time.monotonic() - began < 30
    for _ in range(200):
        if not Path(f"/proc/{mark.read_text().strip()}/cmdline").exists():
            break
        await asyncio.sleep(0.02)
    assert not _is_running(int(mark.read_text()))


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"file": "/none/list.txt"}, "does not exist"),
        ({"file": "/"}, "is not a file"),
        ({"command": "false"}, "exit status 1"),
        ({"command": "/none/program x"}, "the command /none/program cannot be run: No such file"),
        ({"command": "true"}, "its list is empty"),
        ({"command": "echo nothing here"}, "none of its 1 entries is a proxy"),
        ({"command": "echo {", "fields": {"host": "ip"}}, "it is not JSON"),
        ({"command": "echo {}", "fields": {"host": "ip"}, "list": "data"}, "selects no list"),
        ({"url": "http://127.0.0.1:9/list"}, "127.0.0.1:9"),
    ],
)
@pytest.mark.real_time
async def test_a_source_that_fails_says_why(
    http: HttpTransport, tmp_path: Path, source: dict[str, Any], problem: str
) -> None:
    good = {"command": "echo 10.0.0.1:80"}

    found = await read(http, tmp_path, bad=source, good=good)

    assert problem in found.problems["bad"]
    assert list(found.proxies) == ["http://10.0.0.1:80"]


async def test_a_url_gets_the_headers(
    http: HttpTransport, site: ScriptedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_TOKEN", "t0ken")

    async def answer(request: web.Request) -> web.Response:
        is_known = request.headers.get("authorization") == "t0ken"
        return web.Response(text="10.0.0.1:80" if is_known else "", status=200 if is_known else 403)

    site.answers["/list"] = answer
    url = f"{site.url}/list"

    found = await read(
        http,
        tmp_path,
        known={"url": url, "headers": {"authorization": "env:PROVIDER_TOKEN"}},
        unknown={"url": url},
    )

    assert list(found.proxies) == ["http://10.0.0.1:80"]
    assert found.problems == {"unknown": "its URL responded with status 403"}


async def test_the_key_in_a_url_is_not_reported(
    http: HttpTransport, site: ScriptedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_URL", f"{site.url}/list?key=Secr3t-9")

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="10.0.0.1:80" if request.query["key"] == "Secr3t-9" else "")

    site.answers["/list"] = answer
    closed = "http://127.0.0.1:9"

    found = await read(
        http,
        tmp_path,
        known={"url": "env:PROVIDER_URL"},
        closed={"url": f"{closed}/Secr3t-9/list?key=Secr3t-9"},
    )

    assert list(found.proxies) == ["http://10.0.0.1:80"]
    assert f"{closed}/…" in found.problems["closed"]
    assert "Secr3t-9" not in repr(found.problems)


async def test_a_url_that_hangs_is_left(
    http: HttpTransport, site: ScriptedSite, tmp_path: Path
) -> None:
    async def hang(_request: web.Request) -> web.Response:
        await asyncio.sleep(1e6)
        return web.Response()

    site.answers["/hang"] = hang

    found = await read(http, tmp_path, hangs={"url": f"{site.url}/hang"})

    assert "60 s" in found.problems["hangs"]


@pytest.mark.real_time
async def test_a_list_without_end_is_refused(
    http: HttpTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longline.http.proxies.candidates.LARGEST_LIST", 1000)
    (tmp_path / "large.txt").write_text("10.0.0.1:80\n" * 100)

    found = await read(
        http,
        tmp_path,
        floods={"command": "yes 10.0.0.1:80"},
        large={"file": tmp_path / "large.txt"},
    )

    assert "more than 1000 bytes" in found.problems["floods"]
    assert "larger than 1000 bytes" in found.problems["large"]


async def test_credentials_of_a_list_are_kept_in_private_files(
    http: HttpTransport, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text(f"ada:{PASSWORD}@10.0.0.1:80\n")

    found = await read(http, tmp_path, list={"file": tmp_path / "a.txt"})

    (proxy,) = found.proxies.values()
    assert PASSWORD not in repr(found)
    assert proxy.read_credentials() == ("ada", PASSWORD)
    (file,) = (tmp_path / "credentials").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


# ---------------- The settings file


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("candidates: {a: {}}", "2:16: proxies.candidates.a: write one of file, command, url"),
        ("candidates: {a: {file: x, url: 'http://x'}}", "only one of them"),
        ("candidates: {a: {flie: x}}", "did you mean `file`?"),
        ("candidates: {a: {url: ftp://x}}", "begins with http:// or https://"),
        ('candidates: {a: {command: "\'"}}', "quotation mark"),
        ("candidates: {a: {file: x, output: y}}", "add command"),
        ("candidates: {a: {file: x, headers: {b: c}}}", "add url"),
        ("candidates: {a: {file: x, list: data}}", "add fields"),
        ("candidates: {a: {file: x, fields: {host: '['}}}", "JMESPath"),
        ("candidates: {a: {file: x, scheme: ftp}}", "'http', 'https', 'socks4' or 'socks5'"),
        ("candidates: {a: {file: x, country: Bulgaria}}", "a.country: it must match the pattern"),
        ("candidates: {a: {file: x, credentials: secret}}", "reference"),
        ("candidates: {'a b': {file: x}}", "proxies.candidates"),
        ("tiers: [{name: a}, {name: a}]", "several tiers have the same name"),
        ("minimum: -1", "2:3: proxies.minimum"),
        ("refresh: 1", "proxies.refresh"),
        ("check: {word: Shop}", "add page"),
        ("check: {page: http://a.test, anonymity: elite}", "add judge, or remove page"),
        ("check: {page: http://a.test, own_network: drop}", "add judge, or remove page"),
        ("check: {judge: judge.test}", "begins with http:// or https://"),
        ("check: {timeout: soon}", "duration"),
        ("check: {anonymity: high}", "'transparent', 'anonymous' or 'elite'"),
        ("check: {concurrency: 0}", "proxies.check.concurrency"),
        ("[]", "names and values"),
    ],
)
def test_an_invalid_setting_is_refused_with_its_place(
    tmp_path: Path, text: str, problem: str
) -> None:
    document = parse_document(f"proxies:\n  {text}\n".encode(), tmp_path / "longline.yaml")

    with pytest.raises(BadFile) as raised:
        proxy_settings_in(document)

    assert problem in str(raised.value)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    text = "proxies: {minimum: 3, candidates: {a: {file: lists/a.txt}}}\n"

    found = proxy_settings_in(parse_document(text.encode(), tmp_path / "longline.yaml"))

    assert (found.minimum, found.candidates["a"].file) == (3, tmp_path / "lists" / "a.txt")
    assert proxy_settings_in(parse_document(b"home: x\n", tmp_path / "x.yaml")).minimum == 10


def test_missing_secrets_are_found(tmp_path: Path) -> None:
    text = "proxies: {candidates: {a: {file: x, credentials: 'env:LONGLINE_NO_SUCH'}}}\n"
    document = parse_document(text.encode(), tmp_path / "longline.yaml")

    check_proxy_settings(document, with_secrets=False)
    with pytest.raises(UnknownSecret):
        check_proxy_settings(document)
