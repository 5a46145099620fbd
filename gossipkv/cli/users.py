"""`users`: the file of users and rights that nodes read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

import click

from gossipkv.access import users as entries
from gossipkv.access.rights import Grant, parse_grant
from gossipkv.access.users import ANONYMOUS, TOKEN_BYTES, USERS_FILE, User
from gossipkv.cli import CommandGroup
from gossipkv.cli.options import JSON, name_of
from gossipkv.cli.output import note, print_json
from gossipkv.environment import small_file
from gossipkv.settings.config import load


def _grant(text: str) -> Grant:
    try:
        return parse_grant(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


NAME: Final = click.argument("name", metavar="NAME", type=name_of)


def _file(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path:
    """Return the given file, or else the one in the settings."""
    found = load(None, os.environ).users if path is None else path
    if found is None:
        raise click.UsageError("no users file: give --file FILE, or set `users`")
    return found


FILE: Final = click.option(
    "--file",
    "path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_file,
    help="Users file.  [default: that of $GOSSIPKV_CONFIG, $GOSSIPKV_USERS]",
)


@click.group(cls=CommandGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def users() -> None:
    """Manage the file of users and their rights, which the setting `users` names.

    All nodes of a cluster have the same file. Users prove their names by a token or a certificate. The rights are
    `read:PATTERN` and `write:PATTERN` for databases (`geo`, `geo*`, `*`), `operate` (tables, nodes, acceptors, the
    source, backups) and `see` (status and metrics). No right includes another.
    """


@users.command()
@NAME
@click.option("--may", "grants", metavar="RIGHT", multiple=True, type=_grant, help="Right of the user; repeatable.")
@click.option("--no-token", is_flag=True, help="Make no token: the user proves the name by a certificate.")
@FILE
def new(name: str, path: Path, grants: tuple[Grant, ...], *, no_token: bool) -> None:
    """Add the user NAME to the file, and write a new token, which is kept nowhere else.

    The file is made if needed. The name `anonymous` sets the rights of clients without token and certificate.
    """
    token = None if no_token or name == ANONYMOUS else entries.token_of(secrets.token_bytes(TOKEN_BYTES))
    user = User(name, grants, None if token is None else entries.digest_of(token.encode()))
    small_file.edit(path, USERS_FILE, lambda text: entries.added(text, user, str(path)), makes=True)
    if token is not None:
        click.echo(token)
    note(f"{path}: {name} added; copy the file to every node")


@users.command("list")
@FILE
@JSON
def list_users(path: Path, *, as_json: bool) -> None:
    """List the users with their rights and kind of proof; hashes of tokens are not shown."""
    named = entries.parse(small_file.read_text(path, USERS_FILE), str(path)).named.values()
    if as_json:
        print_json([
            {"name": user.name, "may": [str(grant) for grant in user.grants], "token": user.digest is not None}
            for user in named
        ])  # fmt: skip
        return
    for user in named:
        shows = "anybody" if user.name == ANONYMOUS else "certificate" if user.digest is None else "token"
        click.echo("\t".join([user.name, shows, " ".join(map(str, user.grants))]))


@users.command()
@NAME
@FILE
def remove(name: str, path: Path) -> None:
    """Remove the user NAME and the user's token from the file."""
    small_file.edit(path, USERS_FILE, lambda text: entries.removed(text, name, str(path)))
    note(f"{path}: {name} removed; copy the file to every node")
