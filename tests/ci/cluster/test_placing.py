"""The states in docs/operators/placement.md, and the steps in docs/development/metadata.md, are the code's."""

from __future__ import annotations

import re
from types import SimpleNamespace

from gossipkv.placement.partition import Assignment, AssignmentState, Partition
from gossipkv.register.metadata.operations import OperationRefusal
from gossipkv.register.metadata.partitions import HASH, OPERATIONS, TableMeta, decode_partition, encode_partition
from tests.ci.cluster.pages import ROOT

PAGE = (ROOT / "docs" / "operators" / "placement.md").read_text(encoding="utf-8")
STEPS = (ROOT / "docs" / "development" / "metadata.md").read_text(encoding="utf-8")


def steps(before: AssignmentState) -> set[tuple[str, str, str]]:
    """Return each operation's effect on an assignment in state `before`, and on the other assignment of its slot."""
    table = TableMeta(bytes(16), "t", HASH, 2, 1)
    other = Assignment(1, b"a" * 16, 0, AssignmentState.AVAILABLE)
    one = Assignment(2, b"b" * 16, 1, before)
    others = {
        AssignmentState.AVAILABLE: [Assignment(3, b"c" * 16, 1, AssignmentState.INITIALIZING)],
        AssignmentState.LEAVING: [Assignment(3, b"c" * 16, 1, AssignmentState.AVAILABLE)],
    }.get(before, [])
    partition = Partition.of(7, [other, one, *others])
    record = encode_partition(partition)
    view = SimpleNamespace(meta=table.encode(), get=lambda _: SimpleNamespace(record=record))
    asked = {
        ("unassign", 1): [(2,)],
        ("unassign", 2): [(2,), (3,)],
        ("advance", 1): [(assignment, state) for assignment in (2, 3) for state in (2, 3)],
    }
    found = set()
    for (name, version), all_ in asked.items():
        for arguments in all_:
            try:
                edits = OPERATIONS[name, version](view, (b"key", 7, *arguments))
            except OperationRefusal:
                continue
            for changed in edits.puts.values():
                after = decode_partition(changed).assignment(2)
                words = name + (" of another" if arguments[0] == 3 else " by force" if version > 1 else "")
                if after is None or after.state != before:
                    found.add((before.name, words, "nobody" if after is None else after.state.name))
    return found


def test_the_page_draws_the_states_of_the_code():
    """The pages have every transition that an operation causes, and no other."""
    rows = re.findall(r"^\| ([A-Za-z, ]+) \| `(\w+)`( by force| of another)?[^|]*\| (\w+) \|$", STEPS, re.MULTILINE)
    drawn = {(before, name + more, after) for all_, name, more, after in rows for before in all_.split(", ")}
    assert drawn == {("nobody", "assign", "PROPOSED"), *(step for state in AssignmentState for step in steps(state))}
    assert re.findall(r"^\| ([A-Z]+) \|", PAGE, re.MULTILINE) == [state.name for state in AssignmentState]
