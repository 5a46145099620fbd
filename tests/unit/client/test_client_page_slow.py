"""Slow tests of the client's page; the fast ones are in `test_client_page.py`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.unit.client.certificates import Authority
from tests.unit.client.fake_node import FakeNode, store

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "users" / "client.md").read_text(encoding="utf-8")
RECORDS = {b"paris": b"France", b"parma": b"Italy", b"x": b""}


def test_every_example_runs(tmp_path):
    """Each block of Python is a complete program; only addresses and certificates are replaced."""
    authority = Authority(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 4
    secured = FakeNode(store(RECORDS), tls=authority.node("127.0.0.1", asks=True))
    with FakeNode(store(RECORDS)) as plain, secured:
        for block in blocks:
            node = secured if "tls=" in block else plain
            program = re.sub(r"10\.0\.0\.\d:7070", node.address, block)
            program = program.replace("/etc/gossipkv/authority.pem", str(authority.file))
            program = program.replace("/etc/gossipkv/ana.pem", str(authority.pair("ana")))
            assert program.count(node.address) > 0
            if "def enrich" in program:
                program += "assert list(enrich([b'paris', b'lima'])) == [(b'paris', b'France'), (b'lima', None)]\n"
            command = [sys.executable, "-W", "error", "-c", program]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
            assert (done.returncode, done.stderr) == (0, ""), block
        assert (plain.accepted, secured.accepted) == (3, 1)
