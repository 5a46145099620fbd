"""Whoever sleeps until a page is read is woken when it is there, and not before."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("told.c")
INCLUDE = Path(__file__).parents[3] / "src_ext"
ROUNDS = 20_000  # Where the thread told first and gave the page then, some 2,500 of them found nothing.


def test_who_is_told_finds_a_page(tmp_path: Path) -> None:
    """What would be overlooked then is looked at when something else happens: the reader of a quiet node waits long."""
    made, page = tmp_path / "told", tmp_path / "page"
    page.write_bytes(bytes(4096))
    subprocess.run(["gcc", "-O1", "-pthread", f"-I{INCLUDE}", str(SOURCE), "-o", str(made)], check=True)
    told = subprocess.run([made, page, str(ROUNDS)], capture_output=True, text=True, check=True)
    assert told.stdout == f"0 of {ROUNDS}\n"
