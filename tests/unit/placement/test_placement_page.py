"""The formats and examples of `docs/development/placement.md` are those of the code."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import msgpack

from gossipkv.placement import statement
from gossipkv.placement.identity import VersionIdentity
from gossipkv.placement.orders import RollbackOrder
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.ring import share
from gossipkv.placement.statement import DatabaseStatement, Statement, encode, encode_database

PAGE = (Path(__file__).parents[3] / "docs" / "development" / "placement.md").read_text()
MAPS = re.findall(r"^```\n(format .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
IDENTITY = VersionIdentity("geo", "2026-11-20", "d" * 64, 12, "sequins", regrouped=False)


def fields(drawn: str) -> list[str]:
    """Return the names at the beginnings of the unindented lines of a drawing."""
    heads = [line.split("  ")[0] for line in drawn.splitlines() if not line.startswith(" ")]
    return [name.strip() for head in heads for name in head.split(",")]


def test_the_maps_are_the_module_s_and_the_codec_s() -> None:
    """Page and module have the same drawing, and the drawing names every encoded field."""
    drawn = textwrap.dedent(statement.__doc__ or "")
    for one in MAPS:
        assert textwrap.indent(one, "    ") in drawn
    none = PartitionSet.empty(12)
    (piece,) = encode(Statement(IDENTITY, 0, 0, none, none, bytes(16), PartitionSet.of(12, [3])))
    assert [fields(one) for one in MAPS] == [
        list(msgpack.unpackb(piece)),
        list(msgpack.unpackb(encode_database(DatabaseStatement(order=RollbackOrder(1, None))))),
    ]


def test_the_wire_id_of_the_example() -> None:
    assert f"wire id   {IDENTITY.wire_id.hex()}\n" in PAGE


def test_the_shares_of_the_example() -> None:
    rows = re.findall(r"^\| ([\d ]+) \| (`.*) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 2
    for ids, shares in rows:
        found = [" ".join(map(str, share(ids.split(), mine, 5, 3))) for mine in ids.split()]
        assert found == re.findall(r"\[([\d ]+)\]", shares)
