"""What people look at: tables and progress.  Only commands that draw load this, and rich with it."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import Progress, ProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from gossipkv.status.words import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rich.console import RenderableType


def columns(*names: str, kept: Collection[str] = (), right: Collection[str] = ()) -> Table:
    """A table.  Where the terminal is narrow its cells fold, the widest first, but those of the columns that are kept.

    Rich crops what must not wrap, from the last column on, when nothing else gives way.
    """
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in names:
        made.add_column(name, no_wrap=name in kept, overflow="fold", justify="right" if name in right else "left")
    return made


def add_row(table: Table, *cells: str | Text) -> None:
    """A row of data, to the letter: in plain strings rich looks for markup, which `[::1]` and others' bytes are."""
    table.add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in cells))


def draw(renderable: RenderableType) -> None:
    """Put a table or text on standard output; without the padding where nobody sees it."""
    screen = console()
    with screen.capture() as captured:
        screen.print(renderable)
    lines = captured.get().splitlines()
    click.echo("\n".join(lines if screen.is_terminal else (line.rstrip() for line in lines)), color=True)


def description() -> TextColumn:
    """What a bar stands for, to the letter as in `add_row`: databases and versions are named by others."""
    return TextColumn("{task.description}", markup=False)


def times() -> TextColumn:
    """How long it has taken and will take, as its `times` say: what is watched began before whoever watches."""
    return TextColumn("{task.fields[times]}", markup=False)


@contextlib.contextmanager
def progress(*columns: ProgressColumn) -> Iterator[Progress]:
    """A bar on standard error while the block runs; nothing at all where no person looks."""
    bar = Progress(*columns, console=console(stderr=True), transient=True)
    if sys.stderr.isatty():
        with bar:
            yield bar
    else:
        yield bar


def console(*, stderr: bool = False) -> Console:
    """Where tables and progress are drawn; a pipe or a file gets them plain, and wide enough not to be folded."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else 160)
