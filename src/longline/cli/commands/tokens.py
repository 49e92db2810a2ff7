"""longline tokens: who may use the web interface and the HTTP API."""

from __future__ import annotations

import click

from longline.cli.options import DURATION, common_options, settings_of
from longline.cli.output import TextTable, one_line, print_line, print_result, time_text
from longline.cli.queries import uses_store
from longline.core.clock import SystemClock
from longline.storage.access import Credential, CredentialKind, NewCredential, Role
from longline.storage.store import Store


@click.group("tokens")
def tokens_command() -> None:
    """Create, list and revoke the tokens of the dashboard and the API."""


@tokens_command.command("add")
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([one.value for one in Role]),
    default=Role.READ.value,
    show_default=True,
    help="What the token may do: read; operate (run, pause, retry); admin (also tokens and files).",
)
@click.option(
    "--expires", "seconds", type=DURATION, help="Validity, such as 90d; without it, no limit."
)
@common_options
@uses_store
async def add_token(store: Store, name: str, *, role: str, seconds: float | None) -> None:
    """Create a token and print it; it cannot be shown again."""
    new = NewCredential(CredentialKind.TOKEN, name, Role(role), seconds)
    created, secret = await store.credentials.create(new, SystemClock().now())
    found = {**created.as_dict(), "token": secret}

    def show() -> None:
        print_line(secret)
        click.echo(f"The token {one_line(name)} ({role}) cannot be shown again.", err=True)

    print_result(found, show)


@tokens_command.command("list")
@common_options
@uses_store
async def list_tokens(store: Store) -> None:
    """List tokens, revoked and expired ones too."""
    found = await store.credentials.tokens()
    now = SystemClock().now()
    print_result([one.as_dict() for one in found], lambda: _print_tokens(found, now))


@tokens_command.command("revoke")
@click.argument("token")
@common_options
@uses_store
async def revoke_token(store: Store, token: str) -> None:
    """Revoke TOKEN, by its id or name; sessions opened with it end."""
    found = await store.credentials.revoke(token, SystemClock().now())
    print_result(found.as_dict(), lambda: print_line(f"revoked {found.id} ({found.name})"))


@tokens_command.command("link")
@common_options
@uses_store
async def print_link(store: Store) -> None:
    """Print a link that opens the web interface once, within 10 minutes."""
    from longline.server.web.part import make_link  # noqa: PLC0415  # loads the web libraries

    link = await make_link(store, settings_of(), SystemClock().now())
    print_result({"link": link}, lambda: print_line(link))


def _print_tokens(found: list[Credential], now: float) -> None:
    if not found:
        print_line("There are no tokens. Create one: longline tokens add NAME")
        return
    table = TextTable("id", "name", "role", "created", "expires", "state")
    for one in found:
        state = "revoked" if one.revoked_at else "valid" if one.is_valid(now) else "expired"
        expires = "never" if one.expires_at is None else time_text(one.expires_at)
        table.add(one.id, one.name, one.role.value, time_text(one.created_at), expires, state)
    table.print()
