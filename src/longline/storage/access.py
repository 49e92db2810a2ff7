"""Who may use the server: tokens, sessions and one-time links, stored as hashes.

All three are long random texts with a role and an expiry. A token is for programs and for logging
in, a link logs in once, and a session is what a browser has after a login.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, and_, delete, insert, or_, select, update

from longline.core.errors import BadOption, NotFoundError
from longline.storage.backends import sanitize_text, upsert
from longline.storage.database import Repository, reads, writes
from longline.storage.events.events import EventRow, append_events, event_row
from longline.storage.schema import credentials, idempotency_keys

_DAY = 86_400.0
_KEYS_KEPT = _DAY  # seconds for which a repeated request gets the first response
_LONGEST_REQUEST = 300.0  # seconds, after which a server that was killed had handled a request
_PREFIX = "ll_"  # so that people and scanners recognise a token of longline
_MOST_NAME = 100  # characters


class Role(StrEnum):
    """What a caller may do; each role may do what the ones before it may."""

    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"

    def covers(self, other: Role) -> bool:
        """Return whether this role may do what the other one may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


class CredentialKind(StrEnum):
    """What a credential is for."""

    TOKEN = "token"  # noqa: S105  # the name of a kind
    SESSION = "session"
    LINK = "link"


class UnknownToken(NotFoundError):
    """There is no token of this id or name."""

    token: str
    message = "there is no token {token!r}"
    hint = "`longline tokens list` lists them."


@dataclass(frozen=True, slots=True)
class Credential:
    """A stored credential, without its secret."""

    id: str
    kind: CredentialKind
    name: str
    role: Role
    parent: str | None
    created_at: float
    expires_at: float | None
    revoked_at: float | None

    def is_valid(self, at: float) -> bool:
        """Return whether it can be used at a time."""
        return self.revoked_at is None and (self.expires_at is None or at < self.expires_at)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "id": self.id,
            "name": self.name,
            "role": self.role.value,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "revoked_at": self.revoked_at,
        }


@dataclass(frozen=True, slots=True)
class NewCredential:
    """What a credential is to be; `seconds` is how long it is valid, None: until revoked."""

    kind: CredentialKind
    name: str
    role: Role
    seconds: float | None
    parent: str | None = None


class Credentials(Repository):
    """Creates, finds and revokes credentials."""

    @writes
    def create(
        self, connection: Connection, new: NewCredential, at: float
    ) -> tuple[Credential, str]:
        """Create a credential; return it and its secret, which cannot be read again.

        Raises:
            BadOption: a token of this name exists, or the name is empty or too long.
        """
        if new.kind is CredentialKind.TOKEN:
            _check_name(connection, new.name, at)
        connection.execute(delete(credentials).where(credentials.c.expires_at < at - 30 * _DAY))
        secret = _PREFIX + secrets.token_urlsafe(32)
        row = {
            "hash": _hash(secret),
            "id": secrets.token_hex(4),
            "kind": new.kind.value,
            "name": sanitize_text(new.name),
            "role": new.role.value,
            "parent": new.parent,
            "created_at": at,
            "expires_at": None if new.seconds is None else at + new.seconds,
            "revoked_at": None,
        }
        connection.execute(insert(credentials), row)
        created = _credential_of(row)
        if new.kind is CredentialKind.TOKEN:
            append_events(connection, [_token_event("token.created", created, at)])
        return created, secret

    @reads
    def find(self, connection: Connection, secret: str, at: float) -> Credential | None:
        """Return the valid credential with this secret; None if there is none.

        A session is valid only as long as the token with which it was opened.
        """
        parent = credentials.alias("parent")
        query = (
            select(credentials)
            .outerjoin(parent, parent.c.id == credentials.c.parent)
            .where(credentials.c.hash == _hash(secret))
            .where(
                or_(
                    credentials.c.parent.is_(None),
                    and_(
                        parent.c.revoked_at.is_(None),
                        or_(parent.c.expires_at.is_(None), parent.c.expires_at > at),
                        parent.c.id.is_not(None),
                    ),
                )
            )
        )
        row = connection.execute(query).mappings().first()
        found = None if row is None else _credential_of(row)
        return found if found is not None and found.is_valid(at) else None

    @writes
    def redeem(self, connection: Connection, link: str, at: float) -> Credential | None:
        """Use a one-time link; return it, or None if it is not valid or was used before."""
        statement = (
            delete(credentials)
            .where(
                credentials.c.hash == _hash(link),
                credentials.c.kind == CredentialKind.LINK.value,
                credentials.c.expires_at > at,
            )
            .returning(credentials)
        )
        row = connection.execute(statement).mappings().first()
        return None if row is None else _credential_of(row)

    @writes
    def revoke(self, connection: Connection, token: str, at: float) -> Credential:
        """Revoke a token by its id or name; its sessions end with it.

        Raises:
            UnknownToken: there is none that is still valid.
        """
        is_named = or_(credentials.c.id == token, credentials.c.name == token)
        statement = (
            update(credentials)
            .where(
                is_named,
                credentials.c.kind == CredentialKind.TOKEN.value,
                credentials.c.revoked_at.is_(None),
                # An expired token leaves its name to others.
                or_(credentials.c.expires_at.is_(None), credentials.c.expires_at > at),
            )
            .values(revoked_at=at)
            .returning(credentials)
        )
        row = connection.execute(statement).mappings().first()
        if row is None:
            raise UnknownToken(token)
        found = _credential_of(row)
        append_events(connection, [_token_event("token.revoked", found, at)])
        return found

    @writes
    def end_session(self, connection: Connection, secret: str) -> None:
        """Delete a session; its browser has to log in again."""
        connection.execute(delete(credentials).where(credentials.c.hash == _hash(secret)))

    @reads
    def tokens(self, connection: Connection) -> list[Credential]:
        """Return all tokens, the newest first; revoked and expired ones too."""
        query = (
            select(credentials)
            .where(credentials.c.kind == CredentialKind.TOKEN.value)
            .order_by(credentials.c.created_at.desc(), credentials.c.id)
        )
        return [_credential_of(row) for row in connection.execute(query).mappings()]


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """The response to an earlier request with the same key; without a status, it is under way."""

    request_hash: str
    status: int | None
    body: Any


class IdempotencyKeys(Repository):
    """Responses to requests with an Idempotency-Key, for a day."""

    @writes
    def begin(
        self, connection: Connection, caller: str, key: str, request_hash: str, at: float
    ) -> StoredResponse | None:
        """Reserve a key; return the earlier response if the key was used before, else None.

        A request that was never answered, since its server was killed, keeps its key for 5 minutes.
        """
        created, status = idempotency_keys.c.created_at, idempotency_keys.c.status
        is_dead = and_(status.is_(None), created < at - _LONGEST_REQUEST)
        connection.execute(delete(idempotency_keys).where(or_(created < at - _KEYS_KEPT, is_dead)))
        row = {"caller": caller, "key": key, "request_hash": request_hash, "created_at": at}
        statement = upsert(connection, idempotency_keys).values(**row).on_conflict_do_nothing()
        if connection.execute(statement.returning(idempotency_keys.c.key)).first() is not None:
            return None
        known = connection.execute(select(idempotency_keys).where(_has_key(caller, key))).one()
        return StoredResponse(known.request_hash, known.status, known.body)

    @writes
    def finish(self, connection: Connection, caller: str, key: str, status: int, body: Any) -> None:
        """Store the response to a request."""
        change = update(idempotency_keys).where(_has_key(caller, key))
        connection.execute(change.values(status=status, body=body))

    @writes
    def abandon(self, connection: Connection, caller: str, key: str) -> None:
        """Release a key whose request has failed, so that it can be repeated."""
        connection.execute(delete(idempotency_keys).where(_has_key(caller, key)))


def _has_key(caller: str, key: str) -> Any:
    return and_(idempotency_keys.c.caller == caller, idempotency_keys.c.key == key)


def _check_name(connection: Connection, name: str, at: float) -> None:
    if not name.strip() or len(name) > _MOST_NAME:
        raise BadOption("name", f"a token needs a name of 1 to {_MOST_NAME} characters")
    query = select(credentials).where(
        credentials.c.kind == CredentialKind.TOKEN.value, credentials.c.name == name
    )
    known = [_credential_of(row) for row in connection.execute(query).mappings()]
    if any(one.is_valid(at) for one in known):
        raise BadOption("name", f"there is a token {name!r}; revoke it first, or use another name")


def _credential_of(row: Mapping[str, Any] | Any) -> Credential:
    return Credential(
        id=row["id"],
        kind=CredentialKind(row["kind"]),
        name=row["name"],
        role=Role(row["role"]),
        parent=row["parent"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
    )


def _token_event(type_name: str, token: Credential, at: float) -> EventRow:
    return event_row(None, at, type_name, token=token.id, label=token.name, role=token.role.value)


def _hash(secret: str) -> str:
    # The secrets are random and long, so that a slow hash would add nothing.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
