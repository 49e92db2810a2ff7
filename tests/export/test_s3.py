"""S3-compatible storage, over HTTP, read back by boto3."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]  # ships no types
import pytest

from longline.config.secrets import SecretRef
from longline.core.errors import BadOption, DestinationUnwritable
from longline.export.export import ExportRequest, export
from tests.export.sample_rows import Tap, rows


def names(bucket: Any) -> list[str]:
    return [one.key for one in bucket.objects.all()]


def content(bucket: Any, key: str) -> bytes:
    body: bytes = bucket.Object(key).get()["Body"].read()
    return body


def test_an_object_and_its_schema_are_there(bucket: Any) -> None:
    done = export(ExportRequest("s3://shop/day/things.jsonl"), Tap(3))

    lines = content(bucket, "day/things.jsonl").splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["0", "1", "2"]
    assert names(bucket) == ["day/things.jsonl", "day/things.jsonl.schema.json"]
    assert (done.path, done.records) == ("s3://shop/day/things.jsonl", 3)


def test_any_format_of_a_file_can_be_there(bucket: Any) -> None:
    export(ExportRequest("s3://shop/a.parquet", has_schema=False), Tap(3))

    assert pq.read_table(io.BytesIO(content(bucket, "a.parquet"))).num_rows == 3
    assert names(bucket) == ["a.parquet"]


def test_a_large_object_arrives_in_parts_and_whole(bucket: Any) -> None:
    text = "x" * 5_000_000

    export(ExportRequest("s3://shop/a.jsonl", has_schema=False), rows(*[{"text": text}] * 4))

    assert bucket.Object("a.jsonl").e_tag.endswith('-2"')  # of two parts
    assert content(bucket, "a.jsonl").count(text.encode()) == 4


def test_an_export_that_fails_leaves_the_old_object(bucket: Any) -> None:
    bucket.put_object(Key="a.jsonl", Body=b"the old one")

    with pytest.raises(ZeroDivisionError):
        export(ExportRequest("s3://shop/a.jsonl"), Tap(10, fails_at=5))

    assert content(bucket, "a.jsonl") == b"the old one"
    assert names(bucket) == ["a.jsonl"]


def test_numbers_follow_each_other(bucket: Any) -> None:
    request = ExportRequest("s3://shop/d/a.csv", has_schema=False, is_numbered=True)
    bucket.put_object(Key="d/a-0004.csv", Body=b"")

    export(request, Tap(1))

    assert names(bucket) == ["d/a-0004.csv", "d/a-0005.csv"]


def test_the_login_and_the_place_can_be_said(
    bucket: Any, storage: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    (tmp_path / "login").write_text("my-id:my-secret\n")
    secret = SecretRef("file", str(tmp_path / "login"))

    export(
        ExportRequest("s3://shop/a.csv", secret=secret, endpoint=storage, has_schema=False), Tap(1)
    )

    assert names(bucket) == ["a.csv"]


@pytest.mark.usefixtures("bucket")
def test_an_error_of_a_missing_bucket_hides_the_secret() -> None:
    with pytest.raises(DestinationUnwritable, match="bucket does not exist") as failed:  # S3's own
        export(ExportRequest("s3://nowhere/a.csv"), Tap(1))

    assert failed.value.path.startswith("s3://nowhere/a.csv")
    assert "test-secret" not in str(failed.value)
    assert "test-id" not in str(failed.value)


@pytest.mark.usefixtures("bucket")
def test_a_login_without_a_colon_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", "hunter22")

    with pytest.raises(BadOption) as refused:
        export(ExportRequest("s3://shop/a.csv", secret=SecretRef("env", "LOGIN")), Tap(1))

    assert refused.value.option == "--secret"
    assert "hunter22" not in str(refused.value)
