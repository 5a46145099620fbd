"""What is drawn for people: data to the letter, whatever is in it."""

from types import SimpleNamespace

import pytest
from rich.table import Table
from rich.text import Text

from gossipkv.cli import screen


@pytest.mark.parametrize("cell", ["[fd00::2]:7070", "[/x]", "[red]a", "\\[b]", ":smile:"])
def test_cells_are_no_markup(capsys, cell):
    """Plain strings are shown as they are; what is styled already stays so."""
    table = Table(box=None, show_header=False)
    screen.add_row(table, cell, Text("[/y]", "red"))
    screen.draw(table)
    assert capsys.readouterr().out.split() == [cell, "[/y]"]


def test_a_cell_commands_no_terminal(capsys):
    """Control characters are escaped."""
    table = Table(box=None, show_header=False)
    screen.add_row(table, "a\x1b[2Jb")
    screen.draw(table)
    assert capsys.readouterr().out.split() == ["a\\x1b[2Jb"]


def test_a_bar_is_described_to_the_letter():
    """A database may be called anything."""
    assert str(screen.description().render(SimpleNamespace(description="[/x]/v1"))) == "[/x]/v1"
