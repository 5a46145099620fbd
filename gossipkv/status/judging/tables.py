"""Reasons about one table, from all members' reports, and about the acceptors of the catalogue."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Final

from gossipkv.status.judging.merging import at, grouped
from gossipkv.status.reading import list_of, map_of, maps_of, number_of, whole_of
from gossipkv.status.verdict import ATTENTION, TROUBLE, WELL, Reason
from gossipkv.status.words import duration_text, plain, size_text, some_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gossipkv.status.judging.merging import Entry
    from gossipkv.wire.rpc import Value

MOVING: Final = ("PROPOSED", "INITIALIZING", "LEAVING")  # Moving copies have these states, in this order.
LOOK_ASIDE: Final = "See what was set aside (`gossipkv table quarantine list`)."
LATE_S: Final = 1.0  # A shorter lag is normal replication.
LONG_S: Final = 60.0  # A node with a longer lag does not keep up.


def of_table(name: str, entries: Mapping[str, Entry], here: Collection[str]) -> Iterator[Reason]:
    """Yield the faults of a table and its partitions, and lagging nodes; `here`: members that answer some node."""
    for why, nodes in grouped(entries, "pending").items():
        yield Reason(ATTENTION, f"{name}: {why}{at(nodes, entries)}", name)
    for error, nodes in grouped(entries, "error").items():
        yield Reason(TROUBLE, f"{name}: {error}{at(nodes, entries)}", name)
    unwell: dict[str, set[str]] = {}
    for entry in entries.values():
        for one in map(map_of, list_of(entry.get("unwell"))):
            unwell.setdefault(plain(one.get("why")), set()).add(plain(one.get("partition")))
    for why, partitions in unwell.items():
        which = f"partition {min(partitions)}" if len(partitions) == 1 else f"{len(partitions):,} partitions"
        yield Reason(TROUBLE, f"{name}: {which}: {why}", name)
    if more := max(whole_of(entry.get("unwell_not_named")) or 0 for entry in entries.values()):
        yield Reason(TROUBLE, f"{name}: and {more:,} more partitions", name)
    yield from _lacking(name, entries, here)
    yield from _undecided(name, entries, here)
    yield from _placed(name, entries)
    yield from _late(name, entries)
    yield from _smeared(name, entries)


def placed_away(entries: Iterable[Entry]) -> dict[str, dict[str, Value]]:
    """Return the absent nodes that hold partitions, by name; of several reports the one with most partitions."""
    found: dict[str, dict[str, Value]] = {}
    for node, told in (one for entry in entries for one in maps_of(entry.get("away")).items()):
        found[node] = max(found.get(node, told), told, key=_held)
    return found


def _held(told: Entry) -> int:
    return whole_of(told.get("partitions")) or 0


def _lacking(name: str, entries: Mapping[str, Entry], here: Collection[str]) -> Iterator[Reason]:
    """Yield the absent nodes that hold partitions, which therefore have fewer replicas."""
    total = max(whole_of(entry.get("partition_count")) or 0 for entry in entries.values())
    for node, told in sorted(placed_away(entries.values()).items()):
        if (held := _held(told)) and node not in here:
            lack = "partition lacks its" if total == 1 else "partitions lack their"
            yield Reason(ATTENTION, f"{name}: {held:,} of {total:,} {lack} replica on {node}", name)


def _undecided(name: str, entries: Mapping[str, Entry], here: Collection[str]) -> Iterator[Reason]:
    """Yield a reason if too few acceptors of the table's partitions answer."""
    for nodes in _most_say(entries, "no_majority"):
        decide = f"{name}: {{}} decide on its partitions"
        yield from _no_majority(decide, {node: node in here for node in nodes}, "none can move or divide", name)


def _placed(name: str, entries: Mapping[str, Entry]) -> Iterator[Reason]:
    """Yield moves and their wait reasons, quarantined copies, and placements that could be safer."""
    if missing := max(whole_of(entry.get("missing")) or 0 for entry in entries.values()):
        words = "copy of a partition is" if missing == 1 else "copies of partitions are"
        yield Reason(ATTENTION, f"{name}: {missing:,} {words} missing, and to be made anew", name)
    for node in sorted({plain(node) for entry in entries.values() for node in list_of(entry.get("waits_for"))}):
        advice = f"Start {node}; if it is gone for good: `gossipkv node remove {node} --force` says what may be lost."
        yield Reason(ATTENTION, f"{name}: partitions that are to move wait for {node}, which is down", name, advice)
    for node, entry in entries.items():
        told = map_of(entry.get("aside"))
        if copies := whole_of(told.get("copies")):
            yield Reason(
                ATTENTION, f"{name}: {_aside(node, copies, whole_of(told.get('bytes')) or 0)}", name, LOOK_ASIDE
            )
    for node, left_s in sorted(_passed_over(entries).items()):
        words = f"{name}: nothing moves to {node} for {duration_text(left_s)}: it took nothing, twice"
        advice = f"Look at the disk and the connections of {node}, and whether it is up."
        yield Reason(ATTENTION, words, name, advice)
    for warning, nodes in grouped(entries, "warning").items():
        yield Reason(ATTENTION, f"{name}: {warning}{at(nodes, entries)}", name)
    states = [map_of(entry.get("moving")) for entry in entries.values()]
    counted = [{state: whole_of(told.get(state)) or 0 for state in MOVING} for told in states]
    moving = max(counted, key=lambda one: sum(one.values()))  # Members may know maps of different moments.
    if sum(moving.values()):
        yield Reason(WELL, f"{name}: {_moves(moving)}{_left(entries)}", name)


def _passed_over(entries: Mapping[str, Entry]) -> dict[str, int]:
    """Return for how many seconds each node is passed over, by the node that begins moves."""
    found: dict[str, int] = {}
    for entry in entries.values():
        for node, left_s in map_of(entry.get("passed_over")).items():
            found[node] = max(found.get(node, 0), whole_of(left_s) or 0)
    return found


def _aside(node: str, copies: int, size_bytes: int) -> str:
    words, whose = ("a copy is", "its place was") if copies == 1 else (f"{copies:,} copies are", "their places were")
    return f"{words} set aside at {node}, {size_text(size_bytes)}: {whose} given away"


def _moves(moving: Mapping[str, int]) -> str:
    """Return the number of moving partitions, and their states."""
    count = sum(moving.values())
    states = ", ".join(f"{number:,} {state}" for state, number in moving.items() if number)
    return f"{count:,} partition{' moves' if count == 1 else 's move'} ({states})"


def _left(entries: Mapping[str, Entry]) -> str:
    """Return the bytes still to copy for moves, and the least time; empty if not reported."""
    to_copy = Counter[str]()
    for entry in entries.values():
        to_copy.update({node: whole_of(count) or 0 for node, count in map_of(entry.get("to_copy")).items()})
    left, seconds = 0, 0.0
    for node, count in to_copy.items():
        target = entries.get(node, {})
        left += (rest := max(0, count - (whole_of(target.get("copied")) or 0)))
        seconds = max(seconds, rest / (whole_of(target.get("transfer")) or inf))
    at_least = f", {duration_text(round(seconds))} at least" if seconds >= LATE_S else ""
    return f": {size_text(left)} to copy{at_least}" if left else ""


def _late(name: str, entries: Mapping[str, Entry]) -> Iterator[Reason]:
    """Yield lagging nodes, by the report with the longest lag."""
    late: dict[str, tuple[float, int]] = {}
    for entry in entries.values():
        for node, lag in maps_of(entry.get("lags")).items():
            told = number_of(lag.get("seconds")) or 0.0, whole_of(lag.get("records")) or 0
            late[node] = max(late.get(node, told), told)
    for node, (seconds, records) in sorted(late.items()):
        if seconds >= LATE_S:
            level = WELL if seconds < LONG_S else ATTENTION
            yield Reason(level, f"{name}: {node} lacks {records:,} records, for {seconds:.1f} s", name)


def _smeared(name: str, entries: Mapping[str, Entry]) -> Iterator[Reason]:
    """Yield nodes with smeared puts, which are only on their disk until forwarded."""
    for node, entry in entries.items():
        told = map_of(entry.get("smeared"))
        if puts := whole_of(told.get("puts")):
            waits = f"{name}: {puts:,} {'put waits' if puts == 1 else 'puts wait'} at {node}"
            if told.get("why") is None:
                until_s = number_of(told.get("until_s")) or 0.0
                yield Reason(WELL, f"{waits}, for {duration_text(round(until_s))} at most", name)
            else:
                advice = f"They are on the disk of {node} alone: do not take it away before they are forwarded."
                yield Reason(ATTENTION, f"{waits}, and nobody takes them: {plain(told['why'])}", name, advice)


def acceptors(reports: Mapping[str, Entry], here: Collection[str]) -> dict[str, bool]:
    """Return the acceptors that most members name, with True for each that answers some member."""
    return {name: name in here for nodes in _most_say(reports, "acceptors") for name in nodes}


def _most_say(entries: Mapping[str, Entry], key: str) -> list[tuple[str, ...]]:
    """Return the names that most members list under a key; empty if there are none."""
    said = Counter(tuple(map(plain, list_of(entry.get(key)))) for entry in entries.values())
    said.pop((), None)
    return [max(said, key=lambda each: (said[each], each))] if said else []


def of_acceptors(answering: Mapping[str, bool]) -> Iterator[Reason]:
    """Yield a reason if no majority of the acceptors answers."""
    yield from _no_majority("{} decide on tables", answering, "no table can be created or dropped")


def _no_majority(decide: str, answering: Mapping[str, bool], so: str, name: str | None = None) -> Iterator[Reason]:
    here, away = ([node for node, answers in answering.items() if answers is wanted] for wanted in (True, False))
    if answering and len(here) * 2 <= len(answering):
        verb = "answers" if len(here) == 1 else "answer"
        advice = f"Replace those of {some_text(away)} that are lost for good (`gossipkv metadata replace`)."
        words = decide.format(f"{len(here):,} of the {len(answering):,} nodes that")
        yield Reason(TROUBLE, f"{words} {verb}: {so}", name, advice, is_of_tables=True)
