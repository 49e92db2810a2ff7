"""The address policy: what a site may not lead us to, however it writes it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from pydantic import ValidationError

from longline.config.job_spec import JobSpec
from longline.core.errors import FailureKind, FetchError
from longline.core.model import Usage
from longline.http.address_policy import (
    Address,
    AddressMiddleware,
    AddressPolicy,
    JobStart,
    Scope,
    scope_of,
)
from longline.http.errors import BadAnswer, PrivateAddress
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.status import RedirectMiddleware
from longline.http.transport import HttpOptions, HttpTransport
from longline.limits.backends.state import MemoryStateBackend
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

PUBLIC = "127.0.0.2"  # represents a public address, which no test may reach


def scope(address: Address) -> Scope:
    """Return the scope of an address, with one of this machine for the internet."""
    return Scope.PUBLIC if str(address) == PUBLIC else scope_of(address)


class Names(AbstractResolver):
    """Resolves names from a table, which a test may change."""

    def __init__(self, table: dict[str, list[str]]) -> None:
        self.table = table

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        del family
        if host not in self.table:
            raise OSError(socket.EAI_NONAME, "unknown")
        return [
            ResolveResult(
                hostname=host, host=one, port=port, family=socket.AF_INET, proto=0, flags=0
            )
            for one in self.table[host]
        ]

    async def close(self) -> None:
        pass


@dataclass
class Web:
    """A public and a private site, and the chain of a job that starts at the public one."""

    public: ScriptedSite
    private: ScriptedSite
    names: Names
    clock: VirtualClock

    async def ask(
        self, *urls: str, private_hosts: Sequence[str] = (), policy: AddressPolicy | None = None
    ) -> Page:
        """Ask for addresses one after the other in one job; return the last answer."""
        policy = policy or self.policy(private_hosts)
        transport = HttpTransport(HttpOptions(), self.clock, policy, self.names)
        middleware: Middleware = RedirectMiddleware(AddressMiddleware(transport, policy))
        try:
            for url in urls:
                page = await middleware(Request(url), Usage())
        finally:
            await transport.close()
        return page

    def policy(
        self,
        private_hosts: Sequence[str] = (),
        starts: MemoryStateBackend[JobStart] | None = None,
        job: str = "",
    ) -> AddressPolicy:
        return AddressPolicy(
            private_hosts, starts=starts, job=job, resolver=self.names, scope=scope
        )

    def at(self, host: str) -> str:
        """Return an address of the private site, under another name."""
        return f"http://{host}:{self.private.port}/secret"


@pytest.fixture
async def web(clock: VirtualClock) -> AsyncIterator[Web]:
    names = Names({"public.test": [PUBLIC], "inside.test": ["127.0.0.1"], "localhost": []})
    async with ScriptedSite(PUBLIC) as public, ScriptedSite() as private:
        public.says("/", "hello")
        private.says("/", "hello from inside")
        private.says("/secret", "secret")
        yield Web(public, private, names, clock)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("93.184.215.14", Scope.PUBLIC),
        ("2606:2800:21f:cb07::1", Scope.PUBLIC),
        ("::ffff:93.184.215.14", Scope.PUBLIC),
        ("64:ff9b::5db8:d70e", Scope.PUBLIC),
        ("127.0.0.1", Scope.PRIVATE),
        ("127.255.255.254", Scope.PRIVATE),
        ("0.0.0.0", Scope.PRIVATE),  # noqa: S104  # nothing is bound
        ("10.1.2.3", Scope.PRIVATE),
        ("172.31.0.1", Scope.PRIVATE),
        ("192.168.1.1", Scope.PRIVATE),
        ("100.64.0.1", Scope.PRIVATE),
        ("198.18.0.1", Scope.PRIVATE),
        ("::", Scope.PRIVATE),
        ("::1", Scope.PRIVATE),
        ("fc00::1", Scope.PRIVATE),
        ("::ffff:127.0.0.1", Scope.PRIVATE),
        ("::ffff:10.0.0.1", Scope.PRIVATE),
        ("64:ff9b::7f00:1", Scope.PRIVATE),
        ("::7f00:1", Scope.PRIVATE),
        ("169.254.169.254", Scope.RESTRICTED),
        ("::ffff:169.254.169.254", Scope.RESTRICTED),
        ("64:ff9b::a9fe:a9fe", Scope.RESTRICTED),
        ("fd00:ec2::254", Scope.RESTRICTED),
        ("100.100.100.200", Scope.RESTRICTED),
        ("192.0.0.192", Scope.RESTRICTED),
        ("fe80::1", Scope.RESTRICTED),
        ("fe80::1%1", Scope.RESTRICTED),
        ("fec0::1", Scope.RESTRICTED),
        ("224.0.0.1", Scope.RESTRICTED),
        ("ff02::1", Scope.RESTRICTED),
        ("255.255.255.255", Scope.RESTRICTED),
        ("240.0.0.1", Scope.RESTRICTED),
        ("64:ff9b:1::1", Scope.RESTRICTED),
        ("2002:7f00:1::", Scope.RESTRICTED),
        ("2001:0:4136:e378::1", Scope.RESTRICTED),
        ("4000::1", Scope.RESTRICTED),
    ],
)
def test_an_address_has_a_scope(address: str, expected: Scope) -> None:
    assert scope_of(ipaddress.ip_address(address)) is expected


async def test_a_public_site_may_lead_to_public_addresses(web: Web) -> None:
    web.public.says(
        "/go", status=302, headers={"Location": f"http://public.test:{web.public.port}/"}
    )

    page = await web.ask(f"{web.public.url}/go")

    assert page.text == "hello"


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "inside.test",
        "inside.test.",
        "INSIDE.test",
        "user@127.0.0.1",
        "public.test@inside.test",
        "[::ffff:127.0.0.1]",
        "１２７.０.０.１",
        "0.0.0.0",  # noqa: S104  # nothing is bound
    ],
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_a_private_address_is_refused(web: Web, host: str, status: int) -> None:
    web.names.table["inside.test."] = ["127.0.0.1"]
    web.public.says("/go", status=status, headers={"Location": web.at(host)})

    with pytest.raises(PrivateAddress) as caught:
        await web.ask(f"{web.public.url}/go")

    assert caught.value.kind is FailureKind.REFUSED
    assert not web.private.hits


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0x7f000001"])
async def test_other_spellings_of_an_address_do_not_pass(web: Web, host: str) -> None:
    web.names.table |= {"0x7f.1": ["127.0.0.1"], "0x7f000001": ["127.0.0.1"]}  # as glibc does
    web.public.says("/go", status=302, headers={"Location": web.at(host)})

    with pytest.raises(FetchError) as caught:
        await web.ask(f"{web.public.url}/go")

    assert isinstance(caught.value, (PrivateAddress, BadAnswer))
    assert not web.private.hits


async def test_a_chain_of_redirects_is_refused_at_its_private_hop(web: Web) -> None:
    web.public.says("/1", status=302, headers={"Location": "/2"})
    web.public.says("/2", status=302, headers={"Location": f"//inside.test:{web.private.port}/"})

    with pytest.raises(PrivateAddress):
        await web.ask(f"{web.public.url}/1")

    assert web.public.hits == {"/1": 1, "/2": 1}
    assert not web.private.hits


async def test_a_link_to_a_private_address_is_refused(web: Web) -> None:
    with pytest.raises(PrivateAddress) as caught:
        await web.ask(web.public.url, web.at("inside.test"))

    assert (caught.value.url, caught.value.address) == (web.at("inside.test"), "127.0.0.1")
    assert not web.private.hits


async def test_a_name_that_changes_its_address_is_refused(web: Web) -> None:
    policy = web.policy()
    url = f"http://public.test:{web.private.port}/secret"
    await web.ask(web.public.url, policy=policy)
    await policy.check_host(url)

    web.names.table["public.test"] = ["127.0.0.1"]

    with pytest.raises(PrivateAddress):
        await web.ask(url, policy=policy)
    assert not web.private.hits


async def test_of_mixed_addresses_only_public_ones_are_connected_to(web: Web) -> None:
    web.names.table["mixed.test"] = ["127.0.0.1", PUBLIC]

    page = await web.ask(web.public.url, f"http://mixed.test:{web.public.port}/")

    assert page.text == "hello"
    with pytest.raises(PrivateAddress):  # nothing listens there on the public address
        await web.ask(web.public.url, f"http://mixed.test:{web.private.port}/")
    assert not web.private.hits


async def test_a_job_that_starts_inside_may_stay_inside(web: Web) -> None:
    web.private.says("/go", status=302, headers={"Location": web.at("inside.test")})

    page = await web.ask(f"{web.private.url}/go", web.public.url, web.at("127.0.0.1"))

    assert page.text == "secret"


async def test_metadata_services_are_refused_from_inside_as_well(web: Web) -> None:
    url = "http://169.254.169.254/latest/meta-data/"
    web.private.says("/go", status=302, headers={"Location": url})

    with pytest.raises(PrivateAddress):
        await web.ask(f"{web.private.url}/go")


@pytest.mark.parametrize("allowed", ["inside.test", "Inside.Test.", "127.0.0.1", "127.0.0.0/8"])
async def test_listed_hosts_may_be_reached(web: Web, allowed: str) -> None:
    spec = JobSpec(source="x", private_hosts=(allowed,))

    page = await web.ask(web.public.url, web.at("inside.test"), private_hosts=spec.private_hosts)

    assert page.text == "secret"


@pytest.mark.parametrize("allowed", ["other.test", "127.0.0.3", "10.0.0.0/8"])
async def test_other_listed_hosts_open_nothing(web: Web, allowed: str) -> None:
    with pytest.raises(PrivateAddress):
        await web.ask(web.public.url, web.at("inside.test"), private_hosts=(allowed,))


@pytest.mark.parametrize("wrong", ["http://a/", "a:80", "10.0.0.0/99", "127.1", "a b", "", "*", 5])
def test_what_is_not_a_host_is_not_listed(wrong: object) -> None:
    with pytest.raises(ValidationError):
        JobSpec.model_validate({"source": "x", "private_hosts": [wrong]})


async def test_the_start_of_a_job_is_kept_for_its_other_processes(web: Web) -> None:
    starts = MemoryStateBackend[JobStart](web.clock)
    await web.ask(web.public.url, policy=web.policy(starts=starts, job="job"))

    with pytest.raises(PrivateAddress):
        await web.ask(web.at("127.0.0.1"), policy=web.policy(starts=starts, job="job"))
    page = await web.ask(web.at("127.0.0.1"), policy=web.policy(starts=starts, job="another"))

    assert page.text == "secret"


async def test_a_start_that_hides_its_address_is_public(web: Web) -> None:
    class Cache(Middleware):
        async def __call__(self, request: Request, usage: Usage) -> Page:
            del usage
            return Page(request.url, 200, {}, b"kept from an earlier run")

    policy = web.policy()
    await AddressMiddleware(Cache(), policy)(Request("http://hidden.test/"), Usage())

    with pytest.raises(PrivateAddress):
        await web.ask(web.at("inside.test"), policy=policy)
    assert not web.private.hits


async def test_a_start_that_does_not_resolve_decides_nothing(web: Web) -> None:
    policy = web.policy()

    with pytest.raises(FetchError):
        await web.ask("http://nowhere.test/", policy=policy)

    assert not policy.has_started
