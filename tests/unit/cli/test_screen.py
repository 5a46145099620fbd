"""Output for terminals shows data to the letter, whatever its content."""

from collections import Counter
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gossipkv.cli import screen


@pytest.mark.parametrize("cell", ["[fd00::2]:7070", "[/x]", "[red]a", "\\[b]", ":smile:"])
def test_cells_are_no_markup(capsys, cell):
    """Plain strings are shown as they are; styled text keeps its style."""
    table = Table(box=None, show_header=False)
    screen.add_row(table, cell, Text("[/y]", "red"))
    screen.draw(table)
    assert capsys.readouterr().out.split() == [cell, "[/y]"]


def test_a_cell_commands_no_terminal(capsys):
    table = Table(box=None, show_header=False)
    screen.add_row(table, "a\x1b[2Jb")
    screen.draw(table)
    assert capsys.readouterr().out.split() == ["a\\x1b[2Jb"]


@pytest.mark.parametrize("width", [24, 30, 40, 60, 120])
def test_a_narrow_terminal_folds_what_may_give_way(capsys, monkeypatch, width):
    """A kept column is whole at any width, and no character of other columns is lost."""
    monkeypatch.setattr(screen, "console", lambda: Console(width=width, highlight=False))
    table = screen.columns("node", "address", "state", "incarnation", kept=("state",), right=("incarnation",))
    screen.add_row(table, "a-node-with-a-long-name", "[2001:db8::1]:17711", "suspect", "1234567890")
    screen.draw(table)
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= width for line in lines)
    assert sum("suspect" in line.split() for line in lines) == 1
    shown = "".join(lines).replace(" ", "")
    for cell in ("a-node-with-a-long-name", "[2001:db8::1]:17711", "suspect", "1234567890"):
        assert not Counter(cell) - Counter(shown), cell


def test_a_bar_is_described_to_the_letter():
    """A database may have any name."""
    assert str(screen.description().render(SimpleNamespace(description="[/x]/v1"))) == "[/x]/v1"
