"""Tokens: who may use the server. Only the role admin may see and change them."""

from __future__ import annotations

from longline.server.models import CreatedToken, Page, Token, TokenCreate
from longline.server.web.access import AdminOnly
from longline.server.web.api.requests import CursorText, Limit, api_router, page_in_memory
from longline.server.web.context import Home
from longline.storage.access import CredentialKind, NewCredential, Role

router = api_router("tokens")


@router.get("/tokens")
async def list_tokens(
    web: Home, _admin: AdminOnly, limit: Limit = 100, cursor: CursorText = None
) -> Page[Token]:
    """List tokens, the newest first; revoked and expired ones, too."""
    found = await web.store.credentials.tokens()
    page = page_in_memory(found, limit, cursor, lambda one: (-one.created_at, one.id))
    return Page(items=[Token.model_validate(one) for one in page.items], next=page.next)


@router.post("/tokens", status_code=201)
async def create_token(web: Home, _admin: AdminOnly, body: TokenCreate) -> CreatedToken:
    """Create a token; its secret cannot be read again."""
    new = NewCredential(CredentialKind.TOKEN, body.name, Role(body.role), body.seconds)
    created, secret = await web.store.credentials.create(new, web.clock.now())
    return CreatedToken(**created.as_dict(), secret=secret)


@router.delete("/tokens/{token}")
async def revoke_token(web: Home, _admin: AdminOnly, token: str) -> Token:
    """Revoke a token by its id or name; sessions that were opened with it end."""
    return Token.model_validate(await web.store.credentials.revoke(token, web.clock.now()))
