"""Tables and progress for people.  Only commands that draw load this module, and rich with it."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.progress import Progress, ProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from gossipkv.cli.output import note, print_json
from gossipkv.status.words import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rich.console import RenderableType

    from gossipkv.wire.rpc import Value

PIPE_COLUMNS: Final = 1_000  # Programs read lines: a long path is not broken.


def columns(*names: str, kept: Collection[str] = (), right: Collection[str] = ()) -> Table:
    """Return an empty table.  On a narrow terminal its cells fold, the widest first, except in the `kept` columns.

    Rich crops columns that must not wrap, beginning with the last, when nothing else gives way.
    """
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in names:
        made.add_column(name, no_wrap=name in kept, overflow="fold", justify="right" if name in right else "left")
    return made


def add_row(table: Table, *cells: str | Text) -> None:
    """Add a row of plain text: rich would read markup into strings such as `[::1]` and others' bytes."""
    table.add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in cells))


def draw(renderable: RenderableType) -> None:
    """Write a table or text to standard output; without padding unless a terminal shows it."""
    screen = console()
    with screen.capture() as captured:
        screen.print(renderable)
    lines = captured.get().splitlines()
    click.echo("\n".join(lines if screen.is_terminal else (line.rstrip() for line in lines)), color=True)


def write_table(answer: Value, table: Table, nothing: str, *, as_json: bool) -> None:
    """Write an answer as JSON or as a table; without rows note `nothing`."""
    if as_json:
        print_json(answer)
    elif table.row_count:
        draw(table)
    else:
        note(nothing)


def description() -> TextColumn:
    """Return a column for the bar's description, as plain text like `add_row`: names of databases are foreign."""
    return TextColumn("{task.description}", markup=False)


def times() -> TextColumn:
    """Return a column for the `times` field: the watched work began before this command, so rich cannot time it."""
    return TextColumn("{task.fields[times]}", markup=False)


@contextlib.contextmanager
def progress(*columns: ProgressColumn) -> Iterator[Progress]:
    """Yield a bar that is drawn on standard error during the block; without a terminal it is not drawn."""
    bar = Progress(*columns, console=console(stderr=True), transient=True)
    if sys.stderr.isatty():
        with bar:
            yield bar
    else:
        yield bar


def console(*, stderr: bool = False) -> Console:
    """Return the console for tables and progress; a pipe or file gets plain text, wide enough not to fold."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else PIPE_COLUMNS)
