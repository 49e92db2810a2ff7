"""S3-compatible storage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from longline.core.errors import BadOption, DestinationUnwritable, MissingExtra

SCHEME = "s3"
_PART = 16_000_000  # bytes; S3 allows 10,000 parts, so the client enlarges them if needed
_TIMEOUT = 60


class S3Object:
    """One object in a bucket.

    Without `login` (`ID:SECRET`), the usual variables and files of AWS are used; AWS_ENDPOINT_URL
    sets the address of the storage.
    """

    def __init__(
        self, address: str, *, login: str | None = None, endpoint: str | None = None
    ) -> None:
        self.bucket, _, self.key = address.removeprefix("s3://").partition("/")
        if not self.bucket or not self.key or "@" in self.bucket:
            raise BadOption("--output", "an S3 address has the form s3://bucket/name.csv")
        self.shown = f"s3://{self.bucket}/{self.key}"
        self._login = login
        self._endpoint = endpoint

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    def renamed(self, name: str) -> S3Object:
        """Return the object of this name in the same folder."""
        folder = self.key.rpartition("/")[0]
        key = f"{folder}/{name}" if folder else name
        address = f"s3://{self.bucket}/{key}"
        return S3Object(address, login=self._login, endpoint=self._endpoint)

    def neighbours(self, prefix: str) -> list[str]:
        """List names in the same folder; raise DestinationUnwritable if that is not possible."""
        prefix = self.renamed(prefix).key
        with self._client() as client:
            pages = client.get_paginator("list_objects_v2")
            found = pages.paginate(Bucket=self.bucket, Prefix=prefix)
            return [
                one["Key"].rpartition("/")[2] for page in found for one in page.get("Contents", [])
            ]

    def upload(self, path: Path) -> None:
        """Upload a file; the object appears once all of its parts have arrived.

        It raises DestinationUnwritable if the storage refuses; nothing is kept.
        """
        with self._client() as client:
            from boto3.s3.transfer import TransferConfig  # type: ignore[import-untyped]  # noqa: PLC0415  # an extra

            # Low concurrency: each part in flight is held in memory.
            config = TransferConfig(
                multipart_threshold=_PART, multipart_chunksize=_PART, max_concurrency=2
            )
            client.upload_file(str(path), self.bucket, self.key, Config=config)

    def describe(self) -> tuple[str, float] | None:
        """Return its entity tag and when it was written; None if there is no such object."""
        with self._client() as client:
            # Listed and not requested: without the right to list, a missing object is forbidden.
            found = client.list_objects_v2(Bucket=self.bucket, Prefix=self.key)
            for one in found.get("Contents", []):
                if one["Key"] == self.key:
                    return str(one["ETag"]), one["LastModified"].timestamp()
            return None

    def exists(self) -> bool:
        """Return whether there is such an object."""
        return self.describe() is not None

    def copy_to(self, other: S3Object) -> None:
        """Copy it within the storage; the copy appears as a whole."""
        with self._client() as client:
            client.copy({"Bucket": self.bucket, "Key": self.key}, other.bucket, other.key)

    def delete(self) -> None:
        """Delete it; nothing happens if there is none."""
        with self._client() as client:
            client.delete_object(Bucket=self.bucket, Key=self.key)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        try:
            import boto3  # type: ignore[import-untyped]  # noqa: PLC0415  # ships no types; an extra
            from boto3.exceptions import Boto3Error  # type: ignore[import-untyped]  # noqa: PLC0415  # the same
            from botocore.config import Config  # type: ignore[import-untyped]  # noqa: PLC0415  # the same
            from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]  # noqa: PLC0415  # the same
        except ImportError as error:
            raise MissingExtra("s3", "S3") from error
        key, _, secret = (self._login or "").partition(":")
        if self._login is not None and not (key and secret):
            raise BadOption("--secret", "for S3 it has the form ID:SECRET")
        config = Config(
            connect_timeout=_TIMEOUT,
            read_timeout=_TIMEOUT,
            retries={"mode": "standard", "total_max_attempts": 4},
        )
        try:
            session = boto3.Session(
                aws_access_key_id=key or None, aws_secret_access_key=secret or None
            )
            client = session.client("s3", endpoint_url=self._endpoint, config=config)
            try:
                yield client
            finally:
                client.close()
        except (Boto3Error, BotoCoreError, ClientError, ValueError) as error:
            message = " ".join(str(error).split())
            # The id of a key is not a secret, but private.
            redacted = re.sub(r"\b(AKIA|ASIA)[0-9A-Z]{16}\b", "***", message)
            raise DestinationUnwritable(self.shown, redacted) from error
