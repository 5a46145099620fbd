"""A reader that sleeps until a page is read is woken when the page is there, and not before."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("told.c")
INCLUDE = Path(__file__).parents[3] / "src_ext"
ROUNDS = 20_000  # A thread that signalled before it delivered the page would fail in some 2,500 of them.


def test_who_is_told_finds_a_page(tmp_path: Path) -> None:
    """A reader that is woken too early would wait for the next event, which takes long on a quiet node."""
    made, page = tmp_path / "told", tmp_path / "page"
    page.write_bytes(bytes(4096))
    subprocess.run(["gcc", "-O1", "-pthread", f"-I{INCLUDE}", str(SOURCE), "-o", str(made)], check=True)
    told = subprocess.run([made, page, str(ROUNDS)], capture_output=True, text=True, check=True)
    assert told.stdout == f"0 of {ROUNDS}\n"
