"""The examples of docs/users/tables.md run."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from gossipkv import cli
from tests.unit.client.fake_node import FakeNode
from tests.unit.client.table_node import TableNode

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "users" / "tables.md").read_text(encoding="utf-8")


def test_the_page_does_what_it_says(monkeypatch, capfd):
    """Each command prints the lines below it, and each expression has the value in its comment."""
    console = "".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL))
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with FakeNode(TableNode()) as node:
        monkeypatch.setenv("GOSSIPKV_NODE", node.address)
        for line, shown in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", console, re.MULTILINE):
            piped, _, command = line.rpartition(" | ")
            given = shlex.split(piped)[-1:]  # The argument of `echo -n`.
            monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("".join(given).encode())))
            monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
            cli.run(shlex.split(command)[1:])
            sys.stdout.flush()
            assert re.fullmatch(re.escape(shown).replace("…", ".*"), "".join(capfd.readouterr())), command
    for program, lines in zip(programs, (4, 1, 4, 1), strict=True):
        noted = re.sub(r"^( +)(\w.*?)  # (.*)$", r"\1assert \2 == \3", program, flags=re.MULTILINE)
        assert noted.count("assert") == lines
        with FakeNode(TableNode()) as node:
            asking = re.sub(r"10\.0\.0\.\d:7070", node.address, noted)
            done = subprocess.run(
                [sys.executable, "-W", "error", "-c", asking], capture_output=True, cwd=ROOT, check=False
            )
        assert (done.returncode, done.stderr) == (0, b"")
