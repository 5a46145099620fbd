"""`keys`: make, show and change the file that the setting `key_ring` names."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gossipkv.cli import CommandGroup
from gossipkv.cli.options import JSON
from gossipkv.cli.output import note, print_json
from gossipkv.environment import small_file
from gossipkv.gossip.packets import key_ring
from gossipkv.gossip.packets.key_ring import KEY_BYTES, KEY_ID_BYTES
from gossipkv.gossip.shell import key_file
from gossipkv.gossip.shell.key_file import KEY_RING

if TYPE_CHECKING:
    from collections.abc import Callable

FILE: Final = click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))


def _key_id(text: str) -> bytes:
    try:
        id_ = bytes.fromhex(text)
    except ValueError:
        id_ = b""
    if len(id_) != KEY_ID_BYTES:
        raise click.BadParameter(f"{text!r}: expected the id of a key from `keys list`")
    return id_


KEY_ID: Final = click.argument("chosen", metavar="KEY-ID", type=_key_id)


@click.group(cls=CommandGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def keys() -> None:
    """Manage the key ring that seals gossip: the file named by the setting `key_ring`.

    All nodes of a cluster have the same file. Change keys in three steps: `install` a new key, `use` it, `remove` the
    old key. Complete each step on all nodes (copy the file, send SIGHUP) before the next.
    """


@keys.command()
@FILE
def new(path: Path) -> None:
    """Make FILE with one new key, and write the key's id."""
    if path.exists():
        raise click.BadParameter(f"{path} exists; use `gossipkv keys install` to add a key", param_hint="FILE")
    key = _drawn()
    small_file.write_text(path, key_ring.line_of(key))
    click.echo(key.id.hex())


@keys.command("list")
@FILE
@JSON
def list_keys(path: Path, *, as_json: bool) -> None:
    """List the ids of the keys in FILE, not the keys. The first key seals."""
    ids = [key.id.hex() for key in key_file.read(path)]
    if as_json:
        print_json([{"key_id": key_id, "seals": key_id == ids[0]} for key_id in ids])
    else:
        for key_id in ids:
            click.echo(f"{key_id}\tseals and opens" if key_id == ids[0] else f"{key_id}\topens")


@keys.command()
@FILE
@click.option(
    "--from",
    "other",
    metavar="OTHER",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Add the keys of this key ring instead of a new key.",
)
def install(path: Path, other: Path | None) -> None:
    """Add a new key to the end of FILE, and write its id."""
    added = (_drawn(),) if other is None else key_file.read(other)
    _change(path, lambda text: key_ring.installed(text, added, str(path)))
    for key in added:
        click.echo(key.id.hex())


@keys.command()
@FILE
@KEY_ID
def use(path: Path, chosen: bytes) -> None:
    """Move a key to the front of FILE, so that it seals."""
    _change(path, lambda text: key_ring.used(text, chosen, str(path)))


@keys.command()
@FILE
@KEY_ID
def remove(path: Path, chosen: bytes) -> None:
    """Remove a key from FILE; the key that seals cannot be removed."""
    _change(path, lambda text: key_ring.removed(text, chosen, str(path)))


def _drawn() -> key_ring.Key:
    return key_ring.key(secrets.token_bytes(KEY_BYTES))


def _change(path: Path, edit: Callable[[str], str]) -> None:
    """Replace the file by the result of the edit; a refused edit leaves it unchanged."""
    if small_file.edit(path, KEY_RING, edit):
        note(f"{path}: changed; copy the file to every node and send each node SIGHUP before the next change")
    else:
        note(f"{path}: nothing to change")
