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
        raise click.BadParameter(f"{text!r}: expected the id of a key, as `keys list` writes it")
    return id_


KEY_ID: Final = click.argument("chosen", metavar="KEY-ID", type=_key_id)


@click.group(cls=CommandGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def keys() -> None:
    """Make and change the key ring that seals gossip: the file that the setting `key_ring` names.

    Every node of a cluster has the same file.  Keys are changed in three steps, and each reaches every node (copy the
    file, then SIGHUP) before the next: `install` a new key, `use` it, `remove` the old one.
    """


@keys.command()
@FILE
def new(path: Path) -> None:
    """Make FILE, with one new key, and write the key's id."""
    if path.exists():
        raise click.BadParameter(f"{path} exists; `gossipkv keys install` adds a key to it", param_hint="FILE")
    key = _drawn()
    small_file.write_text(path, key_ring.line_of(key))
    click.echo(key.id.hex())


@keys.command("list")
@FILE
@JSON
def list_keys(path: Path, *, as_json: bool) -> None:
    """Write the ids of the keys in FILE, never the keys; the first one seals."""
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
    help="Add the keys of this key ring instead of a new one.",
)
def install(path: Path, other: Path | None) -> None:
    """Add a new key to FILE, behind the others, and write its id."""
    added = (_drawn(),) if other is None else key_file.read(other)
    _change(path, lambda text: key_ring.installed(text, added, str(path)))
    for key in added:
        click.echo(key.id.hex())


@keys.command()
@FILE
@KEY_ID
def use(path: Path, chosen: bytes) -> None:
    """Move a key of FILE to the front: it seals from then on."""
    _change(path, lambda text: key_ring.used(text, chosen, str(path)))


@keys.command()
@FILE
@KEY_ID
def remove(path: Path, chosen: bytes) -> None:
    """Take a key out of FILE; not the one that seals."""
    _change(path, lambda text: key_ring.removed(text, chosen, str(path)))


def _drawn() -> key_ring.Key:
    return key_ring.key(secrets.token_bytes(KEY_BYTES))


def _change(path: Path, edit: Callable[[str], str]) -> None:
    """Replace the file by the result of the edit; a refused edit leaves it unchanged."""
    if small_file.edit(path, KEY_RING, edit):
        note(f"{path}: changed; copy it to every node and send each SIGHUP before the next change")
    else:
        note(f"{path}: nothing to change")
