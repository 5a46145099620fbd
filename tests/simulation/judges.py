"""What must hold of many runs together: their faults struck, their checkers came to verdicts, their tables were used.

Each takes the records that the runs of one series noted (`tests/tally.py`).  What is rare is asked for only where there
were enough of them, as at night.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from gossipkv.placement.partition import AssignmentState
from tests.simulation.scenarios import back_after_leaving, late_verdict, remembered, suspected_again
from tests.tally import sums
from tests.world.faults import FAULTS
from tests.world.register.swarm import FAULTS as FAULTS_OF_REGISTERS
from tests.world.replication.faults import COMMANDS, DIVIDE, STRIKES
from tests.world.transitions import ALL, counted

if TYPE_CHECKING:
    from tests.world.swarm import Outcome

ENOUGH = 100  # Runs of which each fault strikes some, and that take each transition of membership.
MANY = 200  # Runs of which each fault strikes some in each state of a move.
A_FEW = 10  # Fewer say nothing together.

# What the witness of copies counts of divisions.
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

# What struck is counted under these names where one fault strikes in several ways, or where its effect is what counts.
STRUCK_AS = {
    "partition": {"partition", "partition_one_way"},
    "refused_write": {"disk_error", "disk_full"},
    "crash_at_sync": {"crash_at_sync", "power_at_sync", "disk_forgot", "write_torn"},
}
STRUCK_AS_IN_REGISTERS = {
    "partition": {"partition", "partition_one_way"},
    "crash_at_sync": {"crash_at_sync", "power_at_sync", "disk_forgot"},
    "strike_sync": {"crash_at_sync", "power_at_sync"},
    "refused_write": {"disk_error"},
    "go_back": {"went_back", "refused_life"},
}
# What changes nothing on an ordered connection, and is not counted where it strikes.
SILENT = {"duplicate", "reorder", "corrupt", "cut", "clog"}


def record_of(outcome: Outcome) -> dict[str, object]:
    """What the judges want to know of a run of members or registers."""
    return {
        "members": outcome.members,
        "profile": outcome.profile,
        "faults": sorted(outcome.faults),
        "struck": outcome.struck,
        "transitions": outcome.transitions,
    }


def members(records):
    """No fault was without effect, every entry of the table of membership was taken, and seeds draw different runs."""
    sizes = {len(record["faults"]) for record in records}
    assert len(records) < A_FEW or (len(sizes) > 2 and len({record["members"] for record in records}) > 2)
    if len(records) < ENOUGH:
        return
    struck = sums(records, "struck")
    expected = {name for fault in FAULTS for name in STRUCK_AS.get(fault, {fault})}
    assert {name for name in expected | {"ask_timeout", "publish_refused"} if not struck[name]} == set()
    # To hear of somebody's next life only when that is over takes an aim, and to be forgotten takes days.
    with counted() as aimed:
        assert [aim() for aim in (back_after_leaving, late_verdict, suspected_again, remembered)] == [{}] * 4
    taken = sums(records, "transitions")
    assert {name for name in ALL if not taken[name] + aimed[name]} == set()
    assert {record["members"] for record in records} >= {2, 3, 4, 5, 6, 8}
    assert {record["profile"] for record in records} == {"lan", "local"}
    assert 0 in sizes
    assert max(sizes) > len(FAULTS) // 2


def sealed_members(records):
    """Keys change in each run; of ten runs, processes crash and stand still in some."""
    assert all(record["struck"].get("keys_changed") for record in records)
    struck = sums(records, "struck")
    assert len(records) < A_FEW or (struck["crash"] and struck["pause"])


def registers(records):
    """Clients were told much, most of it that it is done, the checkers came to a verdict, and every fault struck."""
    if len(records) < A_FEW:
        return
    counts = sums(records, "transitions")
    assert counts["operations"] > 9 * len(records)
    assert counts["done"] > 0.4 * counts["operations"]
    assert counts["unknown"] > 0 < counts["refused"]
    assert counts["inconclusive"] < 0.05 * (counts["linearizable"] + counts["inconclusive"])
    assert counts["recoverable"] > 2 * counts["unrecoverable"]
    assert counts["joint"] > len(records)
    if len(records) < ENOUGH or records[0]["profile"] == "stored":
        return
    struck = sums(records, "struck")
    expected = {
        name for fault in set(FAULTS_OF_REGISTERS) - SILENT for name in STRUCK_AS_IN_REGISTERS.get(fault, {fault})
    }
    assert {name for name in expected if not struck[name]} == set()


def registers_on_the_store(records):
    """The same of those on production's store, where not each fault strikes."""
    registers(records)


def replication(records):
    """Writes are done, records travel twice as a rule, and of many runs each fault strikes in some, in each state.

    Ranges are divided in half of them, in all ways.
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
    """Ranges begin anew in most runs; of many runs some with copies, again, and under sessions."""
    counts = sums(records, "counts")
    assert counts["refound DONE"] > len(records)
    if len(records) >= ENOUGH:
        assert {name for name in OF_REFOUNDING if not counts[name]} == set()


def metadata(records):
    """Operations were judged in all ways, and most transactions by the model, too."""
    if len(records) < A_FEW:
        return
    counts = sums(records, "counts")
    assert min(counts[name] for name in ("DONE", "CONFLICT", "REFUSED")) > 5 * len(records)
    assert counts["replayed"] > counts["heads"] / 2
    assert counts["create DONE"] > len(records)
    assert counts["collections"] > len(records)
    assert min(counts["ids used again"], counts["create of many REFUSED"]) > 0
    assert counts["replaced"] > len(records)
    assert sum(name.startswith("strikes") for name in counts) > A_FEW


def datasets(records):
    """There were faults, switches, and reads that others answered."""
    if len(records) < A_FEW:
        return
    assert sum(not record["faults"] for record in records) < len(records) / 2
    assert sum(record["switches"] > record["machines"] for record in records) > len(records) / 2
    assert sum(record["forwarded"] for record in records) > 100 * len(records)
