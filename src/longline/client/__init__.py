"""The client of the HTTP API of `longline serve`: `async with Client(url, token=...)`."""

from __future__ import annotations

from longline.client.client import Client
from longline.client.connection import (
    NotAuthenticated,
    NotPermitted,
    ServerBusy,
    ServerConflict,
    ServerError,
    ServerRefused,
    ServerUnreachable,
    UnknownToServer,
)
from longline.client.sync import SyncClient

__all__ = [
    "Client",
    "NotAuthenticated",
    "NotPermitted",
    "ServerBusy",
    "ServerConflict",
    "ServerError",
    "ServerRefused",
    "ServerUnreachable",
    "SyncClient",
    "UnknownToServer",
]
