"""TLS certificates that are not trusted: refused and reported immediately."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from longline.core.errors import BadOption, FailureKind
from longline.core.model import ItemState, JobState, Usage
from longline.http.errors import BadCertificate
from longline.http.messages import Request
from longline.http.transport import HttpOptions, HttpTransport, ssl_context
from longline.orchestrator import Orchestrator
from tests.certificates import Authority, self_signed
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

SOURCE = """
manifest: html
name: shop
rate: unlimited
start: {url}/list
items: h3 a
fields: {{title: h1}}
{more}
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


def untrusted(kind: str, authority: Authority, folder: Path) -> ssl.SSLContext:
    """Return the context of a server whose certificate has this fault."""
    if kind == "self-signed":
        return self_signed(folder)
    if kind == "expired":
        return authority.server(folder, days=-1)
    if kind == "another host":
        return authority.server(folder, "elsewhere.test")
    return Authority.make(folder).server(folder)


@pytest.mark.parametrize("kind", ["self-signed", "expired", "another host", "unknown authority"])
async def test_an_untrusted_certificate_is_its_own_error(
    kind: str, authority: Authority, tmp_path: Path, clock: VirtualClock
) -> None:
    transport = HttpTransport(HttpOptions(ca_file=authority.file), clock)
    async with ScriptedSite(tls=untrusted(kind, authority, tmp_path)) as site:
        with pytest.raises(BadCertificate) as caught:
            await transport(Request(f"{site.url}/"), Usage())
    await transport.close()

    assert caught.value.kind is FailureKind.REFUSED
    assert caught.value.problem
    assert not site.hits


async def test_a_certificate_of_an_own_authority_is_trusted(
    authority: Authority, tmp_path: Path, clock: VirtualClock
) -> None:
    transport = HttpTransport(HttpOptions(ca_file=authority.file), clock)
    async with ScriptedSite(tls=authority.server(tmp_path)) as site:
        site.says("/", "hello")
        page = await transport(Request(f"{site.url}/"), Usage())
    await transport.close()

    assert page.text == "hello"


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_file_without_certificates_is_refused(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)

    with pytest.raises(BadOption):
        ssl_context(file)


async def test_a_run_ends_immediately_with_the_reason(tmp_path: Path, clock: VirtualClock) -> None:
    started = clock.now()
    async with ScriptedSite(tls=self_signed(tmp_path)) as site:
        path = tmp_path / "shop.yaml"
        path.write_text(SOURCE.format(url=site.url, more=""))
        async with Orchestrator(str(path), home=tmp_path / "home", clock=clock) as orchestrator:
            report = await orchestrator.execute()

    assert (report.exit_code, report.state) == (1, JobState.FAILED)
    assert clock.now() - started < 1
    assert "ca_file" in (report.reason or "")


async def test_an_item_with_a_bad_certificate_fails_alone_immediately(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    started = clock.now()
    async with ScriptedSite(tls=self_signed(tmp_path)) as other:
        links = "".join(f'<h3><a href="{url}">x</a></h3>' for url in ("/a", f"{other.url}/b"))
        site.says("/list", links)
        site.says("/a", "<h1>A</h1>")
        path = tmp_path / "shop.yaml"
        path.write_text(SOURCE.format(url=site.url, more=""))
        async with Orchestrator(str(path), home=tmp_path / "home", clock=clock) as orchestrator:
            report = await orchestrator.execute()
            finished = await orchestrator.store.queue.finished(report.job)

    assert sorted(row["state"] for row in finished) == [ItemState.FAILED, ItemState.STORED]
    assert clock.now() - started < 5


async def test_a_manifest_may_name_its_authority(
    authority: Authority, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ScriptedSite(tls=authority.server(tmp_path)) as site:
        site.says("/list", '<h3><a href="/a">x</a></h3>')
        site.says("/a", "<h1>A</h1>")
        path = tmp_path / "shop.yaml"
        path.write_text(SOURCE.format(url=site.url, more=f"ca_file: {authority.file}"))
        async with Orchestrator(str(path), home=tmp_path / "home", clock=clock) as orchestrator:
            report = await orchestrator.execute()
            finished = await orchestrator.store.queue.finished(report.job)

    assert [row["state"] for row in finished] == [ItemState.STORED]
