"""The examples of docs/users/client.md run, and what it names exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from gossipkv import errors
from gossipkv.client import backoff, parts, reads
from gossipkv.client._session import MAX_IN_FLIGHT, MAX_UNSENT_BYTES
from gossipkv.client.blocking import IN_FLIGHT
from tests.unit.client.certificates import Authority
from tests.unit.client.fake_node import FakeNode, store

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "users" / "client.md").read_text(encoding="utf-8")
RECORDS = {b"paris": b"France", b"parma": b"Italy", b"x": b""}


def test_every_example_runs(tmp_path):
    """Each block of Python is a program; it runs as it stands, but for the addresses and the certificates."""
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


def test_errors_exist():
    """Each name of the table of errors is one."""
    table = PAGE.split("| error | when |")[1].split("\n\n")[0]
    names = [name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert len(names) == 17
    assert all(issubclass(getattr(errors, name), errors.GossipKVError) for name in names)


def test_numbers_are_those_of_the_code():
    """The limits that the page states, and the methods that it calls repeatable."""
    repeatable = PAGE.split("Whatever may be repeated (")[1].split(")")[0]
    assert set(re.findall(r"`(\w+)`", repeatable)) == reads.REPEATABLE
    said = " ".join(PAGE.split())
    assert f"timeout_ms={reads.TIMEOUT_MS}" in said
    assert f"in_flight={IN_FLIGHT}" in said
    assert f"Up to {parts.PART_KEYS:,} keys and {parts.PART_BYTES >> 20} MiB" in said
    assert f"At most {MAX_IN_FLIGHT:,} requests are in flight and about {MAX_UNSENT_BYTES >> 20} MiB" in said
    assert f"left alone for {backoff.FIRST_PAUSE_S * 1000:.0f} ms" in said
    assert f"at most {backoff.LONGEST_PAUSE_S:.0f} s" in said
    assert {4: "at most four times"}[parts.ATTEMPTS] in said
