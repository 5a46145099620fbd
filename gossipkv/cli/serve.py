"""`serve` and `config`: a node, and the settings it would run with."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gossipkv.address import Address
from gossipkv.cli import logs
from gossipkv.cli.options import JSON
from gossipkv.cli.output import console, draw, print_json
from gossipkv.config import SETTINGS, Config, Setting, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.wire.rpc import Value


def _option(setting: Setting) -> click.Option:
    names = [setting.flag, setting.name]
    if setting.kind == "bool":
        names[0] += f"/--no-{setting.flag.removeprefix('--')}"
    return click.Option(
        names,
        type=bool if setting.kind == "bool" else str,
        default=None,
        metavar=None if setting.kind == "bool" else _metavar(setting),
        help=f"{setting.meaning[:1].upper()}{setting.meaning[1:]}.  [default: {setting.default}]",
    )


def _metavar(setting: Setting) -> str:
    return {"address": "HOST:PORT", "choice": "|".join(setting.allowed.split(" or "))}.get(
        setting.kind, setting.kind.upper()
    )


def _options() -> list[click.Parameter]:
    """`--config FILE` and a flag for every setting; the values stay text, for `load` to read."""
    file = click.Option(
        ["--config", "file"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="TOML file of settings.  [default: $GOSSIPKV_CONFIG]",
    )
    return [file, *(_option(setting) for setting in SETTINGS)]


def _load(file: Path | None, flags: Mapping[str, str | bool | None]) -> Config:
    given = {name: str(value).lower() if isinstance(value, bool) else value for name, value in flags.items()}
    return load(file, os.environ, {name: text for name, text in given.items() if text is not None})


@click.command(params=_options())
def serve(file: Path | None, **flags: str | bool | None) -> None:
    """Run a node.

    It writes one line to standard output, `ready HOST:PORT`, when it listens, has looked at its source once, and serves
    every database it has built files for.  SIGTERM ends it after answering what is in flight; SIGHUP has it look at its
    source.
    """
    config = _load(file, flags)
    logs.configure(config.log_level, config.log_format)
    # A node loads Trio and the serving loop, which clients on any system do without.
    import trio  # noqa: PLC0415  # See above.

    from gossipkv import environment  # noqa: PLC0415  # See above.
    from gossipkv.node import node  # noqa: PLC0415  # See above.

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            address = await nursery.start(node.run, config, environment.real())
            sys.stdout.write(f"ready {Address(*address)}\n")
            sys.stdout.flush()

    trio.run(run)


@click.command(params=_options())
@JSON
def config(file: Path | None, *, as_json: bool, **flags: str | bool | None) -> None:
    """Write every setting with its value, where that came from, what is allowed and what it means.

    Takes the same file, environment and flags as `serve`, so it answers what a node would run with.
    """
    effective = _load(file, flags)
    rows = [_row(setting, effective) for setting in SETTINGS]
    if as_json:
        print_json(list(rows))
        return
    from rich.table import Table  # noqa: PLC0415  # 40 ms that --json should not pay.

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    screen = console()
    columns = [name for name in _COLUMNS if name != "allowed" or screen.width >= WIDE]
    for name in columns:
        table.add_column(name, style=_STYLES.get(name), no_wrap=name in {"setting", "value"}, overflow="fold")
    for row in rows:
        table.add_row(*("-" if row[name] is None else str(row[name]) for name in columns))
    draw(table)


WIDE: Final = 120  # Columns of a terminal in which what is allowed fits beside the meaning; --json always has it.
_COLUMNS: Final = ("setting", "value", "from", "allowed", "meaning")
_STYLES: Final = {"setting": "cyan", "from": "dim", "allowed": "dim"}


def _row(setting: Setting, effective: Config) -> dict[str, Value]:
    value = getattr(effective, setting.name)
    return {
        "setting": setting.name,
        "value": None if value is None else setting.show(value),
        "from": effective.origin(setting.name),
        "default": setting.default,
        "unit": setting.kind,
        "allowed": setting.allowed,
        "meaning": setting.meaning,
        "why": setting.why,
        "environment": setting.variable,
        "flag": setting.flag,
    }
