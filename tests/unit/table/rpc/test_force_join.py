"""A repeated `force_join` changes nothing and returns the same partition."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from gossipkv.errors import Conflict
from gossipkv.placement.partition import Assignment, AssignmentState, ForcedEnd, Partition
from gossipkv.register.metadata.deadline import Deadline
from gossipkv.register.metadata.known import KnownMap
from gossipkv.register.metadata.partitions import RANGE, TableMeta
from gossipkv.table.rpc.force_join import ForceJoin, begins
from gossipkv.table.rpc.requests import RangeArguments
from tests.unit.replication.memory import TABLE
from tests.unit.table.edited_maps import edited, first_base
from tests.unit.table.made_up_participant import participant

if TYPE_CHECKING:
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.table.rpc.transact import TransactMethods

ONE, TWO, THREE = (bytes([number]) * 16 for number in (1, 2, 3))
AVAILABLE, PROPOSED, LEAVING = AssignmentState.AVAILABLE, AssignmentState.PROPOSED, AssignmentState.LEAVING
CONFIG = 1 << 48 | 7
GONE = Partition.of(6, [Assignment(60, THREE, 0, AVAILABLE)])
HELD = Assignment(70, ONE, 0, AVAILABLE)


async def told(partition: Partition) -> tuple[object, dict[str, object]]:
    """Return the outcome of a force-join of a range at the first node, while all nodes live."""
    table = TableMeta(TABLE, "t", RANGE, 2, 0)
    base = edited(first_base(table, {b"": GONE}, CONFIG - 1, [ONE]), {b"": partition})
    deciding = participant(
        taking_part=lambda: (None, SimpleNamespace(nodes=SimpleNamespace(named=dict))),
        alive=lambda: {ONE, TWO, THREE},
        peers=SimpleNamespace(is_up=lambda _: True),
        name_of=lambda _: "n2",
    )
    changing = SimpleNamespace(named=lambda *_: ONE)
    method = ForceJoin(
        cast("MetadataParticipant", deciding), cast("TransactMethods", changing), random.Random(1)
    ).force_join
    nodes = [SimpleNamespace(id=one) for one in (ONE, TWO, THREE)]
    return await method(RangeArguments("t", b"k", "n1"), Deadline(5.0), KnownMap(base).view, nodes)


def anew(*more: Assignment, former: tuple[int, ...] = (), held: Assignment = HELD) -> Partition:
    """Return the range after a force-join, with later hosts."""
    counters, kept = begins(GONE, None, CONFIG)
    ends = tuple(ForcedEnd(*counter) for counter in counters)
    return Partition.of(7, [held, *more])._replace(ends=ends, former=former, kept=kept)


@pytest.mark.parametrize(
    "partition",
    [
        anew(),
        anew(Assignment(71, TWO, 1, PROPOSED)),
        anew(Assignment(71, TWO, 1, AVAILABLE), former=(69,)),
        anew(Assignment(71, TWO, 0, AVAILABLE), held=HELD._replace(state=LEAVING)),
    ],
    ids=["alone", "a host comes", "a host came", "it leaves"],
)
async def test_it_is_done_once(partition: Partition) -> None:
    change, answer = await told(partition)
    assert (change, answer["partition"], answer["changed"]) == (None, 7, False)


@pytest.mark.parametrize(
    "partition",
    [
        Partition.of(7, [HELD._replace(node=TWO)]),
        Partition.of(7, [HELD])._replace(ends=(ForcedEnd(60, 5),)),
        anew(held=HELD._replace(node=TWO)),
        anew(Assignment(71, ONE, 1, PROPOSED), held=HELD._replace(node=TWO)),
    ],
    ids=["another's", "a host was removed by force", "another's that began anew", "not yet a host"],
)
async def test_what_is_still_held(partition: Partition) -> None:
    """The request is no repetition, and the range still has live hosts."""
    with pytest.raises(Conflict, match="may be alive, and has the range"):
        await told(partition)
