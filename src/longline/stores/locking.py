"""Locks that last until the transaction ends; SQLite's one writer has them all anyway."""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection, bindparam, select, text

from longline.stores.schema import jobs

# "Key share" lets others add rows that refer to the job meanwhile, which a full lock would not.
_JOB = select(jobs.c.id).where(jobs.c.id == bindparam("b_job")).with_for_update(key_share=True)
_NAME = text("SELECT pg_advisory_xact_lock(:key)")


def lock_job(connection: Connection, job: str) -> None:
    """Wait until no other transaction adds to this job or ends it, and keep it so."""
    if connection.dialect.name != "sqlite":
        connection.execute(_JOB, {"b_job": job})


def lock_name(connection: Connection, name: str) -> None:
    """Wait until no other transaction has locked this name, of something that is no row yet."""
    if connection.dialect.name != "sqlite":
        digest = hashlib.sha256(name.encode()).digest()
        connection.execute(_NAME, {"key": int.from_bytes(digest[:8], signed=True)})
