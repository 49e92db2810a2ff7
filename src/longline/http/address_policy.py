"""Address policy: which addresses the requests of a job may connect to.

A site chooses where its redirects, links and sitemaps lead. Without a policy it could make us
fetch from this machine, the local network or a cloud's metadata service (SSRF).

- The first host of a job is the operator's choice. If its address is public, all requests of the
  job must go to public addresses; if it is private, they may go to private addresses as well.
- Link-local and multicast addresses, and those of metadata services, are refused even then.
- `private_hosts` lists exceptions: host names, addresses and networks.

The address of each connection is checked when it is made (`check`, called by the transport), so
neither another spelling of an address nor a change of DNS bypasses the policy.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from aiohttp import DefaultResolver
from aiohttp.abc import AbstractResolver
from yarl import URL

from longline.config.identity import Network, network_of, normalize_host
from longline.core.model import Usage
from longline.http.errors import PrivateAddress
from longline.http.messages import Middleware, Page, Request, origin_of
from longline.limits.backends.state import StateBackend

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# IPv4-mapped, NAT64 and IPv4-compatible: the last four bytes are an IPv4 address.
_EMBEDDING = tuple(map(ipaddress.IPv6Network, ("::ffff:0:0/96", "64:ff9b::/96", "::/96")))
_UNICAST = ipaddress.IPv6Network("2000::/3")
_TUNNELS = tuple(map(ipaddress.IPv6Network, ("2001::/32", "2002::/16")))  # Teredo, 6to4
_PROTOCOL = ipaddress.IPv4Network("192.0.0.0/24")  # Oracle's metadata service is in it
_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200")))


class Scope(StrEnum):
    """The kind of an address."""

    PUBLIC = "public"
    PRIVATE = "private"
    """This machine or a network of its own, carrier-grade NAT included."""
    RESTRICTED = "restricted"
    """Link-local, multicast, reserved, or a cloud's metadata service."""


def scope_of(address: Address) -> Scope:
    """Return the scope of an address; an IPv4 address in an IPv6 one counts as itself."""
    if address.is_loopback or address.is_unspecified:
        return Scope.PRIVATE
    if isinstance(address, ipaddress.IPv6Address):
        if any(address in network for network in _EMBEDDING):
            return scope_of(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        is_odd = any(address in network for network in _TUNNELS) or (
            address not in _UNICAST and not address.is_private
        )
    else:
        is_odd = address.is_reserved or address in _PROTOCOL
    if is_odd or address in _METADATA or address.is_link_local or address.is_multicast:
        return Scope.RESTRICTED
    return Scope.PUBLIC if address.is_global else Scope.PRIVATE


@dataclass(frozen=True, slots=True)
class JobStart:
    """The first host of a job, and whether its address was private. Stored as JSON."""

    host: str
    is_private: bool


class AddressPolicy:
    """Decides for one job which addresses may be connected to.

    `private_hosts` are host names, addresses and networks that are always allowed. `starts` stores
    the first host of jobs by their id, for other processes and later runs.
    """

    def __init__(
        self,
        private_hosts: Sequence[str] = (),
        *,
        starts: StateBackend[JobStart] | None = None,
        job: str = "",
        resolver: AbstractResolver | None = None,
        scope: Callable[[Address], Scope] = scope_of,
    ) -> None:
        networks = {one: network_of(one) for one in private_hosts}
        self._networks: list[Network] = [one for one in networks.values() if one is not None]
        self._names = {
            normalize_host(name) for name, network in networks.items() if network is None
        }
        self._starts = starts
        self._job = job
        self._resolver = resolver or DefaultResolver()
        self._scope = scope
        self._start: JobStart | None = None
        self._starting = asyncio.Lock()
        self._passed: set[str] = set()  # numeric hosts; every request asks

    @property
    def has_started(self) -> bool:
        """Whether the first host of the job is known."""
        return self._start is not None

    async def begin(self, url: str) -> None:
        """Make the host of this URL the first host of the job, unless it has one."""
        async with self._starting:
            if self._start is None and self._starts is not None and self._job:
                self._start, _now = await self._starts.read(self._job)
            if self._start is not None:
                return
            host = hostname_of(url)
            found = [_parse_ip(one) for one in await self.addresses_of(host)]
            addresses = [one for one in found if one is not None]
            if addresses:  # else the request itself fails, and the next host is the first
                is_private = all(self._scope(one) is not Scope.PUBLIC for one in addresses)
                self._start = await self._store_start(JobStart(host, is_private))

    async def begin_unresolved(self, url: str) -> None:
        """Make a host without an address, whose response was cached, the public first host.

        Otherwise a site could choose the first host by hiding its own address.
        """
        async with self._starting:
            if self._start is None:
                self._start = await self._store_start(JobStart(hostname_of(url), is_private=False))

    def check(self, url: str, address: str) -> None:
        """Return when a request for `url` may connect to `address`.

        Raises:
            PrivateAddress: it may not.
        """
        parsed = _parse_ip(address)
        scope = Scope.RESTRICTED if parsed is None else self._scope(parsed)
        if scope is Scope.PUBLIC:
            return
        if scope is Scope.PRIVATE and self._start is not None and self._start.is_private:
            return
        if parsed is not None and any(parsed in network for network in self._networks):
            return
        if hostname_of(url) in self._names:
            return
        raise PrivateAddress(url, address)

    def check_literal(self, url: str) -> None:
        """Check a URL whose host is an IP address, before anything is sent.

        Raises:
            PrivateAddress: it may not be connected to.
        """
        domain = origin_of(url)[1]
        # A host name passes: each of its connections is checked.
        is_name = not (domain[:1].isdigit() or domain[:1] == "[")
        if is_name or domain in self._passed:
            return
        host = hostname_of(url)
        if _parse_ip(host) is not None:
            self.check(url, host)
        self._passed.add(domain)

    async def check_host(self, url: str) -> None:
        """Check every address of the host, for a client that connects by itself.

        Raises:
            PrivateAddress: one of them may not be connected to.
        """
        for address in await self.addresses_of(hostname_of(url)):
            self.check(url, address)

    async def _store_start(self, start: JobStart) -> JobStart:
        """Store the first host for other processes of the job; return what the first stored."""
        if self._starts is None or not self._job:
            return start
        return await self._starts.change(self._job, lambda first, _now: (first or start,) * 2)

    async def addresses_of(self, host: str) -> Sequence[str]:
        """Return the addresses of a host; none when it cannot be resolved."""
        if _parse_ip(host) is not None:
            return (host,)
        try:
            return [one["host"] for one in await self._resolver.resolve(host)]
        except (OSError, UnicodeError):
            return ()


class AddressMiddleware(Middleware):
    """Applies the policy to each hop before anything is sent; connections are checked later."""

    def __init__(self, inner: Middleware, policy: AddressPolicy) -> None:
        self._inner = inner
        self._policy = policy

    async def __call__(self, request: Request, usage: Usage) -> Page:
        if not self._policy.has_started:
            await self._policy.begin(request.url)
        self._policy.check_literal(request.url)
        try:
            page = await self._inner(request, usage)
        except PrivateAddress as error:
            if error.url == request.url:
                raise
            # Refused on the way, such as for robots.txt; the error names the requested URL.
            raise PrivateAddress(request.url, error.address) from error
        if not self._policy.has_started:
            await self._policy.begin_unresolved(request.url)
        return page


def hostname_of(url: str) -> str:
    """Return the host that the transport connects to, in lower case, without a trailing dot."""
    try:
        return normalize_host(URL(url).raw_host or "")  # read as aiohttp reads it
    except ValueError:
        return ""


def _parse_ip(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
