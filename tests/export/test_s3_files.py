"""Files of records on S3-compatible storage, over HTTP, read back by boto3."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from longline.export.s3_files import S3Files
from longline.http.files.store import FilesUnwritable
from tests.http.served_files import LONG, PNG, Downloads, downloads, serve, sha256
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock


@pytest.fixture
async def files(tmp_path: Path, clock: VirtualClock, bucket: Any) -> AsyncIterator[Downloads]:
    del bucket
    async with downloads(tmp_path, clock) as opened:
        opened.store = S3Files("s3://shop/files", tmp_path)
        yield opened


async def test_files_are_stored_once_by_their_content(
    site: ScriptedSite, files: Downloads, bucket: Any
) -> None:
    serve(site, "/a.png", PNG)
    served = serve(site, "/b.jpg", PNG, type="image/x-other")

    first = await files.get(f"{site.url}/a.png")
    second = await files.get(f"{site.url}/b.jpg")
    await files.get(f"{site.url}/b.jpg", job="job-2")

    digest = sha256(PNG)
    key = f"files/{digest[:2]}/{digest[2:4]}/{digest}.png"
    assert first.json["url"] == second.json["url"] == f"s3://shop/{key}"
    assert [one.key for one in bucket.objects.all()] == [key]
    assert bucket.Object(key).get()["Body"].read() == PNG
    assert served.sent == len(PNG)
    assert files.drafts == []


async def test_a_bucket_that_does_not_exist_is_reported_before_a_request(
    site: ScriptedSite, files: Downloads, tmp_path: Path
) -> None:
    served = serve(site, "/a.png", LONG)
    files.store = S3Files("s3://nothing-here", tmp_path)

    with pytest.raises(FilesUnwritable, match=r"s3://nothing-here .*NoSuchBucket"):
        await files.get(f"{site.url}/a.png")

    assert served.requests == []
