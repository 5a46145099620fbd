"""Conditions on a whole series of runs: faults struck, checkers reached verdicts, tables were used.

Each function takes the records that the runs of a series noted (`tests/tally.py`). Rare events are demanded only of
long series, such as the nightly ones.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from gossipkv.placement.partition import AssignmentState
from tests.simulation.scenarios import back_after_leaving, late_verdict, remembered, suspected_again
from tests.tally import sums
from tests.world.faults import FAULTS
from tests.world.replication.faults import COMMANDS, DIVIDE, STRIKES
from tests.world.transitions import ALL, counted

if TYPE_CHECKING:
    from tests.world.swarm import Outcome

ENOUGH = 100  # In this many runs each fault strikes somewhere and each transition of membership is taken.
MANY = 200  # In this many runs each fault strikes in each state of a move.
A_FEW = 10  # Fewer runs prove nothing together.

# The names of split events in the replica witness.
OF_REFOUNDING = (
    "begun anew with a copy",
    "begun anew with nothing",
    "begun anew, again",
    "called lost",
    "kept",
    "set aside, of what was replaced",
)
OF_DIVISIONS = (
    *("divided", "divided, a child", "adopted a division", "adopted a division of a child", "skipped a division"),
    *("written, not heard of a division", "told, not heard of a division", "told of several copies"),
    *("reached across a division", "loads beside a sibling", "what was left is cleared", "joined, of a child"),
    *("divide CONFLICT", "set aside"),
)

# Names of effects, for faults that strike in several ways or count by their effect.
STRUCK_AS = {
    "partition": {"partition", "partition_one_way"},
    "refused_write": {"disk_error", "disk_full"},
    "crash_at_sync": {"crash_at_sync", "power_at_sync", "disk_forgot", "write_torn"},
}


def record_of(outcome: Outcome) -> dict[str, object]:
    """Return the part of a run of members that the judges read."""
    return {
        "members": outcome.members,
        "profile": outcome.profile,
        "faults": sorted(outcome.faults),
        "struck": outcome.struck,
        "transitions": outcome.transitions,
    }


def members(records):
    """Check that every fault had an effect, every membership transition was taken, and seeds draw different runs."""
    sizes = {len(record["faults"]) for record in records}
    assert len(records) < A_FEW or (len(sizes) > 2 and len({record["members"] for record in records}) > 2)
    if len(records) < ENOUGH:
        return
    struck = sums(records, "struck")
    expected = {name for fault in FAULTS for name in STRUCK_AS.get(fault, {fault})}
    assert {name for name in expected | {"ask_timeout", "publish_refused"} if not struck[name]} == set()
    # Only aimed runs hear of a life after its end, and forgetting a member takes days.
    with counted() as aimed:
        assert [aim() for aim in (back_after_leaving, late_verdict, suspected_again, remembered)] == [{}] * 4
    taken = sums(records, "transitions")
    assert {name for name in ALL if not taken[name] + aimed[name]} == set()
    assert {record["members"] for record in records} >= {2, 3, 4, 5, 6, 8}
    assert {record["profile"] for record in records} == {"lan", "local"}
    assert 0 in sizes
    assert max(sizes) > len(FAULTS) // 2


def sealed_members(records):
    """Check that keys change in each run, and that processes crash and pause in some of ten runs."""
    assert all(record["struck"].get("keys_changed") for record in records)
    struck = sums(records, "struck")
    assert len(records) < A_FEW or (struck["crash"] and struck["pause"])


def replication(records):
    """Check that writes are done and most records travel twice; in long series each fault strikes in each state.

    Half of the runs split ranges, in all ways.
    """
    counts = sums(records, "counts")
    assert counts["done"] > 10 * len(records)
    assert len(records) < A_FEW or median(record["travelled"] for record in records if record["travelled"]) < 2.2
    if len(records) >= ENOUGH:
        struck = {name for name in counts if name.startswith("strikes: ")}
        assert struck == {f"strikes: {name}" for name in (*STRIKES, *COMMANDS, DIVIDE)}
        assert {name for name in OF_DIVISIONS if not counts[name]} == set()
        assert min(counts[name] for name in ("crashes around a sync or a send", "loads", "joined", "collected")) > 0
        assert counts["sessions: done"] > ENOUGH * counts["sessions: lost"] / 10
    if len(records) >= MANY:
        cells = {f"{state.name} x {name}" for state in AssignmentState for name in (*STRIKES, *COMMANDS)}
        assert {name for name in cells if not counts[name]} == set()


def refounding(records):
    """Check that most runs re-create ranges; long series do so from kept replicas, repeatedly and under sessions."""
    counts = sums(records, "counts")
    assert counts["refound DONE"] > len(records)
    if len(records) >= ENOUGH:
        assert {name for name in OF_REFOUNDING if not counts[name]} == set()


def metadata(records):
    """Check that operations had all outcomes, and that the model replayed most transactions."""
    if len(records) < A_FEW:
        return
    counts = sums(records, "counts")
    assert min(counts[name] for name in ("DONE", "CONFLICT", "REFUSED")) > 5 * len(records)
    assert counts["replayed"] > counts["steps"] / 2
    assert counts["create DONE"] > len(records)
    assert counts["forgotten"] > len(records)
    assert counts["snapshots"] > len(records)
    assert min(counts["ids used again"], counts["create of many REFUSED"]) > 0
    assert counts["replaced"] > len(records)
    assert sum(name.startswith("strikes") for name in counts) > A_FEW


def datasets(records):
    """Check that runs had faults, switches and forwarded reads."""
    if len(records) < A_FEW:
        return
    assert sum(not record["faults"] for record in records) < len(records) / 2
    assert sum(record["switches"] > record["machines"] for record in records) > len(records) / 2
    assert sum(record["forwarded"] for record in records) > 100 * len(records)
