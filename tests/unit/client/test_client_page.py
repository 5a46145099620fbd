"""The examples of docs/users/client.md run, and its names exist."""

from __future__ import annotations

import re
from pathlib import Path

from gossipkv import errors
from gossipkv.client import parts, reads
from gossipkv.client._client import MAX_IN_FLIGHT, MAX_UNSENT_BYTES
from gossipkv.client.blocking import IN_FLIGHT

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "users" / "client.md").read_text(encoding="utf-8")


def test_errors_exist():
    listed = PAGE.split("## When something goes wrong")[1].split("\n### ")[0]
    names = re.findall(r"`([A-Z]\w*)`", listed)
    assert len(names) > 10
    assert all(issubclass(getattr(errors, name), errors.GossipKVError) for name in names)


def test_numbers_are_those_of_the_code():
    """The page states the limits of the code."""
    said = " ".join(PAGE.split())
    assert f"timeout_ms={reads.TIMEOUT_MS}" in said
    assert f"in_flight={IN_FLIGHT}" in said
    assert f"Up to {parts.PART_KEYS:,} keys and {parts.PART_BYTES >> 20} MiB of keys" in said
    assert f"At most {MAX_IN_FLIGHT:,} requests are in flight and about {MAX_UNSENT_BYTES >> 20} MiB" in said
    assert {4: "at most four times"}[parts.ATTEMPTS] in said
