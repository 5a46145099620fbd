"""The bytes, names and limits in docs/development/metadata.md match the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gossipkv.keyspace.time_key import TimeKey
from gossipkv.placement.partition import Assignment, AssignmentState, ForcedEnd, Partition
from gossipkv.register.configuration import AcceptorId
from gossipkv.register.metadata import operations, pages, partitions, tables, tree
from gossipkv.register.metadata.operations import Operation
from gossipkv.register.metadata.pages import OperationOutcome
from gossipkv.register.metadata.partitions import TableMeta, encode_partition
from tests.unit.register.metadata.maps import new_store

PAGE = (Path(__file__).parents[4] / "docs" / "development" / "metadata.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([^`]+)` \| (.*?) ?\|$", re.MULTILINE)
TABLE = TableMeta(b"T" * 16, "t", "range", 1, 0)
PARTITION = Partition.of(7, [Assignment(8, b"N" * 16, 0, AssignmentState.AVAILABLE)])
NAMED = tables.NamedTable(b"T" * 16, "range", (AcceptorId(b"N" * 16, 9),), 1)
OPERATION = Operation(b"O" * 20, 1, "unassign", 1, (b"", 7, 8))


def drawn():
    """Return the bytes of each table of bytes, in the order of the page."""
    found = []
    for block in PAGE.split("| bytes | field |\n|---|---|\n")[1:]:
        hexadecimal = " ".join(cell for cell, _ in ROW.findall(block.split("\n\n")[0]))
        repeated = re.sub(
            r"(\w\w)\N{MULTIPLICATION SIGN}(\d+)", lambda found: " ".join([found[1]] * int(found[2])), hexadecimal
        )
        found.append(bytes.fromhex(repeated))
    return found


def example():
    """Return the pages of a table after its first transaction: leaf, ids, root."""
    edit = tree.MapTree.empty(partitions.MAP.name).edit(pages.config_id(0, 1))
    edit.set_meta(TABLE.encode())
    edit.put(b"", encode_partition(PARTITION))
    edit.record(OPERATION.id, OperationOutcome.DONE, OPERATION.digest)
    changed = edit.finish()
    store = new_store()
    root = store.open(store.take(changed), partitions.MAP.name).root
    return [changed.pages[root.below[0].name], changed.pages[root.ids[0].name], changed.pages[changed.root]]


def test_every_byte_that_is_drawn():
    """Pages, records and an operation have exactly these bytes."""
    record = encode_partition(PARTITION._replace(former=(5,), ends=(ForcedEnd(5, 12),)))
    timed = TABLE._replace(time_key=TimeKey(0, 8, "ms"), smears=True)
    others = [timed, NAMED, tables.NamedNode("n", "rack", 2), OPERATION]
    assert drawn() == [*example(), record, *(one.encode() for one in others)]


def test_every_number_has_its_word():
    """The page names states and outcomes with their numbers."""
    for names in (AssignmentState, [one for one in OperationOutcome if one]):
        assert ", ".join(f"{one.value} {one.name.lower()}" for one in names) in PAGE


def test_every_operation_is_listed():
    """The list has each operation's version and kind of map."""
    listed = re.findall(r"^\| `(\w+)` \| (\d+) \| (\w+) \|", PAGE, re.MULTILINE)
    known = [(*one, partitions.MAP.name) for one in partitions.OPERATIONS]
    known += [(*one, tables.CATALOGUE.name) for one in tables.OPERATIONS]
    assert [(name, int(version), kind) for name, version, kind in listed] == known


@pytest.mark.parametrize(
    "words",
    [
        f"at most {pages.MAX_PAGE_BYTES:,} bytes. Its name", f"key, up to {pages.MAX_KEY_BYTES} bytes",
        f"record, up to {pages.MAX_RECORD_BYTES:,} bytes", f"At most {pages.MAX_IDS_BYTES:,} bytes.",
        f"kept for {tree.KEPT:,} sequences", f"at most {pages.MAX_JUDGED} of them",
        f"up to {pages.MAX_JUDGED} of", f"the first {pages.DIGEST_BYTES} bytes of", operations.ID_USED,
        f"meta, up to {pages.MAX_META_BYTES:,} bytes", f"at most {pages.MAX_MAP_BYTES:,} bytes. Beyond",
        f"up to {pages.MAX_HEIGHT} |", f"the kind {pages.BRANCH}", f"branch above {tree._CUT_BYTES:,} bytes",
        f"stays under {tree._LAST_IDS_BYTES:,} bytes", f"about {tree._PIECE_BYTES:,} bytes each",
        f"One under {tree._MIN_BYTES:,} bytes",
        f"replication, 1 to {partitions.MAX_REPLICATION}", f"shards, up to {partitions.MAX_SHARDS:,}",
        f"at most {operations.MAX_OPERATION_BYTES:,} bytes:", f"more than {tree.LIFE} sequences behind",
        f"with `{operations.TOO_LARGE}`", f"16 bits above {pages.SEQUENCE_BITS}",
    ],
)  # fmt: skip
def test_limits(words):
    assert words in PAGE.replace("\n", " ")
