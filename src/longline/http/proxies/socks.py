"""Connections through SOCKS proxies, with aiohttp-socks."""

from __future__ import annotations

import asyncio
import ssl as tls
from collections.abc import Callable
from typing import Any

from aiohttp.client_proto import ResponseHandler
from aiohttp_socks import ProxyConnectionError, ProxyConnector, ProxyTimeoutError, ProxyType
from python_socks.async_.asyncio.v2 import Proxy as SocksProxy

from longline.http.proxies.proxy import Proxy

_TYPES = {"socks4": ProxyType.SOCKS4, "socks5": ProxyType.SOCKS5}
_OWN_FAULTS = ("auth", "version", "offered")
"""Words in errors about the proxy itself; the site has nothing to do with them."""


class SocksConnector(ProxyConnector):
    """A connector for one SOCKS proxy, whose connections are made by `make`.

    The proxy resolves the names of sites.
    """

    def __init__(
        self,
        proxy: Proxy,
        credentials: tuple[str, str] | None,
        make: Callable[[], ResponseHandler],
        **options: Any,
    ) -> None:
        user, password = credentials or (None, None)
        super().__init__(
            proxy.host.strip("[]"),
            proxy.port,
            _TYPES[proxy.scheme],
            user,
            password,
            True,  # the library's own parameter: names are resolved by the proxy
            **options,
        )
        self._make = make

    async def _connect_via_proxy(
        self,
        host: str,
        port: int,
        ssl: tls.SSLContext | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # as in the library
    ) -> tuple[asyncio.Transport, ResponseHandler]:
        # As in the library, with our own class of connections.
        proxy = SocksProxy(
            proxy_type=self._proxy_type,
            host=self._proxy_host,
            port=self._proxy_port,
            username=self._proxy_username,
            password=self._proxy_password,
            rdns=self._rdns,
        )
        stream = await proxy.connect(dest_host=host, dest_port=port, dest_ssl=ssl, timeout=timeout)
        transport = stream.writer.transport
        protocol = self._make()
        # The writer closes the connection when it is collected.
        protocol._socks_writer = stream.writer  # type: ignore[attr-defined]  # noqa: SLF001
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        return transport, protocol  # type: ignore[return-value]  # a transport of asyncio


def socks_problem(error: Exception) -> tuple[str, bool]:
    """Return what an error of the library says, and whether it is the proxy's own fault."""
    if isinstance(error, ProxyConnectionError):
        return "no connection to it", True
    if isinstance(error, ProxyTimeoutError):
        return "it did not connect in time", False
    text = " ".join(str(error).split())[:200] or "it closed the connection"
    is_own = any(word in text.lower() for word in _OWN_FAULTS)
    return text, is_own and getattr(error, "error_code", None) is None
