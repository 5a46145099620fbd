"""`restore`: a backup of tables, put back while their node is stopped."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gossipkv.cli.options import JSON
from gossipkv.cli.output import print_json
from gossipkv.environment.trio_world import real
from gossipkv.node.restoring import restore_tables
from gossipkv.storage.engine.backup import restore as put_back
from gossipkv.storage.engine.options import EngineOptions

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value


@click.command()
@click.argument("source", metavar="BACKUP", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--data",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Data directory of the node, which is stopped.",
)
@click.option("--forget-tables", is_flag=True, help="Set the tables that are there aside: another node, then.")
@JSON
def restore(source: Path, data: Path, *, forget_tables: bool, as_json: bool) -> None:
    """Put BACKUP back as the tables of the node in a data directory, under an id of their own."""
    world = real()
    done = restore_tables(
        world.files,
        source,
        data,
        random=world.random,
        restore=partial(put_back, segment_bytes=EngineOptions().segment_bytes),
        forget_tables=forget_tables,
        least_epoch=world.clock.wall_ms(),
    )
    aside = None if done.forgotten is None else str(done.forgotten)
    if as_json:
        answer: dict[str, Value] = {"node": done.node, "uuid": done.uuid, "store": f"{done.manifest.store:016x}"}
        print_json({**answer, "forgotten": aside})
        return
    click.echo(f"{data}: node {done.node} has the tables of {source}, as store {done.manifest.store:016x}")
    if aside is not None:
        click.echo(f"{aside}: the tables that were there")
