"""Reasons about one table, from all members' reports, and about the acceptors of the catalogue."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Final

from gossipkv.status.judging.merging import at, grouped
from gossipkv.status.verdict import ATTENTION, TROUBLE, WELL, Reason
from gossipkv.status.words import duration_text, size_text, some_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gossipkv.status.reports import NodeLag, NodeReport, QuarantinedCopies, TableHolder, TableReport

    Entries = Mapping[str, TableReport]  # By member.

MOVING: Final = ("PROPOSED", "INITIALIZING", "LEAVING")  # Moving copies have these states, in this order.
LOOK_ASIDE: Final = "List the quarantined replicas (`gossipkv table quarantine list`)."
SAFELY: Final = "; without `--yes` it only says what may be lost."
LATE_S: Final = 1.0  # A shorter lag is normal replication, and a shorter copy not worth a word.
LEFT: Final = frozenset(("left", "removed", "gone"))  # Acceptors in these states are not to start again.
ABSENT: Final = LEFT | {"dead"}


def of_table(name: str, entries: Entries, here: Collection[str]) -> Iterator[Reason]:
    """Yield the faults of a table and its partitions, and lagging nodes; `here`: members that answer some node."""
    for why, nodes in grouped(entries, lambda entry: entry.pending).items():
        yield Reason(ATTENTION, f"{name}: {why}{at(nodes, entries)}", name)
    for error, nodes in grouped(entries, lambda entry: entry.error).items():
        told = error.replace("this node takes", f"{some_text(nodes)} {'takes' if len(nodes) == 1 else 'take'}")
        yield Reason(TROUBLE, f"{name}: {told if told != error else error + at(nodes, entries)}", name)
    yield from _unwell(name, entries)
    yield from _lacking(name, entries, here)
    yield from _no_majority(
        f"{name}: {{}} decide on its partitions", acceptors(entries, here), "none can move or split", name
    )
    yield from _placed(name, entries)
    yield from _moving(name, entries)
    yield from _late(name, entries)
    for node, entry in entries.items():
        if entry.smeared.puts:
            yield _smeared(name, node, entry)


def placed_away(entries: Iterable[TableReport]) -> dict[str, TableHolder]:
    """Return the absent nodes that hold partitions, by name; of several reports the one with most partitions."""
    found: dict[str, TableHolder] = {}
    for entry in entries:
        for node, holder in entry.away.items():
            found[node] = max(found.get(node, holder), holder, key=lambda away: away.partitions)
    return found


def _unwell(name: str, entries: Entries) -> Iterator[Reason]:
    unwell: dict[str, set[str]] = {}
    for entry in entries.values():
        for fault in entry.unwell:
            unwell.setdefault(fault.why, set()).add(fault.partition)
    for why, partitions in unwell.items():
        which = f"partition {min(partitions)}" if len(partitions) == 1 else f"{len(partitions):,} partitions"
        yield Reason(TROUBLE, f"{name}: {which}: {why}", name)
    if more := max(entry.unwell_not_named for entry in entries.values()):
        yield Reason(TROUBLE, f"{name}: and {more:,} more partitions", name)


def _lacking(name: str, entries: Entries, here: Collection[str]) -> Iterator[Reason]:
    """Yield the absent nodes that hold partitions, which therefore have fewer replicas."""
    total = max(entry.partition_count for entry in entries.values())
    for node, holder in sorted(placed_away(entries.values()).items(), key=lambda pair: pair[0]):
        if holder.partitions and node not in here:
            lack = "partition lacks its" if total == 1 else "partitions lack their"
            yield Reason(ATTENTION, f"{name}: {holder.partitions:,} of {total:,} {lack} replica on {node}", name)


def _placed(name: str, entries: Entries) -> Iterator[Reason]:
    """Yield missing copies, wait reasons of moves, quarantined copies, and placements that could be safer."""
    few = max(entries.values(), key=lambda entry: entry.missing)
    if few.missing:
        yield _few(name, few)
    for node in sorted({node for entry in entries.values() for node in entry.waits_for}):
        advice = f"Start {node}. If {node} is lost for good, run `gossipkv node remove {node} --force --yes`{SAFELY}"
        yield Reason(ATTENTION, f"{name}: moves of partitions wait for {node}, which is down", name, advice)
    for node, entry in entries.items():
        if entry.aside.copies:
            yield Reason(ATTENTION, f"{name}: {_aside(node, entry.aside)}", name, LOOK_ASIDE)
    for node, left_s in sorted(_highest(entry.passed_over for entry in entries.values()).items()):
        words = f"{name}: nothing moves to {node} for {duration_text(left_s)}, because two moves there made no progress"
        advice = f"Check that {node} is up, its disk and its connections."
        yield Reason(ATTENTION, words, name, advice)
    for warning, nodes in grouped(entries, lambda entry: entry.warning).items():
        yield Reason(ATTENTION, f"{name}: {warning}{at(nodes, entries)}", name)


def _few(name: str, entry: TableReport) -> Reason:
    """Return the reason for missing replicas, with the members that could have them."""
    count = f"{name}: {entry.fewest:,} of {entry.replication:,} wanted replicas"
    if entry.absent:
        absent = some_text(entry.absent)
        advice = f"Start {absent}. If a node runs and is not in `gossipkv node list`, add it with `gossipkv node add`."
        return Reason(ATTENTION, f"{count}: {absent} {'is' if len(entry.absent) == 1 else 'are'} missing", name, advice)
    words = "replica of a partition is" if entry.missing == 1 else "replicas of partitions are"
    return Reason(ATTENTION, f"{count}: {entry.missing:,} {words} missing, and will be made again", name)


def _highest(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the highest count of each name, and at least 0."""
    found: dict[str, int] = {}
    for count_by_name in counts:
        for name, count in count_by_name.items():
            found[name] = max(found.get(name, 0), count)
    return found


def _aside(node: str, aside: QuarantinedCopies) -> str:
    words, whose = "a copy is", "its place was"
    if aside.copies > 1:
        words, whose = f"{aside.copies:,} copies are", "their places were"
    return f"{words} set aside at {node}, {size_text(aside.bytes_)}: {whose} given away"


def _moving(name: str, entries: Entries) -> Iterator[Reason]:
    """Yield the number of moving partitions, and their states."""
    counted = [{state: entry.moving.get(state, 0) for state in MOVING} for entry in entries.values()]
    moving = max(counted, key=lambda states: sum(states.values()))  # Members may know maps of different moments.
    if count := sum(moving.values()):
        states = ", ".join(f"{number:,} {state}" for state, number in moving.items() if number)
        moves = f"{count:,} partition{' moves' if count == 1 else 's move'} ({states})"
        yield Reason(WELL, f"{name}: {moves}{_left(entries)}", name)


def _left(entries: Entries) -> str:
    """Return the bytes still to copy for moves, and the least time; empty if not reported."""
    to_copy = Counter[str]()
    for entry in entries.values():
        to_copy.update(entry.to_copy)
    left, seconds = 0, 0.0
    for node, count in to_copy.items():
        target = entries.get(node)
        left += (rest := max(0, count - (target.copied if target else 0)))
        seconds = max(seconds, rest / ((target and target.transfer) or inf))
    at_least = f", {duration_text(round(seconds))} at least" if seconds >= LATE_S else ""
    return f": {size_text(left)} to copy{at_least}" if left else ""


def _late(name: str, entries: Entries) -> Iterator[Reason]:
    """Yield lagging nodes, by the report with the longest lag."""
    late: dict[str, NodeLag] = {}
    for entry in entries.values():
        for node, lag in entry.lags.items():
            late[node] = max(late.get(node, lag), lag, key=lambda found: (found.seconds, found.records))
    for node, lag in sorted(late.items(), key=lambda pair: pair[0]):
        if lag.seconds >= LATE_S:
            yield Reason(ATTENTION, f"{name}: {node} lacks {lag.records:,} records, for {lag.seconds:.1f} s", name)


def _smeared(name: str, node: str, entry: TableReport) -> Reason:
    """Return the reason for smeared puts, which are only on the disk of a node until forwarded."""
    smeared = entry.smeared
    waits = f"{name}: {smeared.puts:,} {'put waits' if smeared.puts == 1 else 'puts wait'} at {node}"
    if smeared.why is None:
        return Reason(WELL, f"{waits}, for {duration_text(round(smeared.until_s))} at most", name)
    advice = f"Keep {node}: these puts are only on its disk until they are forwarded."
    return Reason(ATTENTION, f"{waits}, and no replica takes them: {smeared.why}", name, advice)


def acceptors(reports: Mapping[str, NodeReport | TableReport], here: Collection[str]) -> dict[str, bool]:
    """Return the acceptors that most members name, with True for each that answers some member."""
    counts = Counter(report.acceptors for report in reports.values() if report.acceptors)
    named = max(counts, key=lambda names: (counts[names], names), default=())
    return {name: name in here for name in named}


def of_acceptors(
    catalogue: Mapping[str, bool], tables: Mapping[str, Entries], here: Collection[str], states: Mapping[str, str]
) -> Iterator[Reason]:
    """Yield a reason if no majority of the catalogue's acceptors answers, and the absent acceptors of all registers."""
    yield from _no_majority("{} decide on tables", catalogue, "no table can be created or dropped")
    absent: dict[tuple[str, ...], list[str]] = {}
    registers = {"the catalogue": catalogue} | {name: acceptors(entries, here) for name, entries in tables.items()}
    for name, answering in registers.items():
        away = [node for node, answers in answering.items() if not answers and states.get(node, "left") in ABSENT]
        if away and len(away) * 2 < len(answering):
            absent.setdefault(tuple(away), []).append(name)
    voting = {node for answering in registers.values() for node in answering}
    spare = next((node for node, state in states.items() if state == "alive" and node not in voting), "NEW")
    for nodes, voted in absent.items():
        names, first = some_text(nodes), nodes[0]
        are = "is an acceptor" if len(nodes) == 1 else "are acceptors"
        found = {states.get(node, "left") for node in nodes}
        how = ", ".join(sorted(found))
        register = "" if voted[0] == "the catalogue" else f" --table {voted[0]}"
        replace = f"replace it (`gossipkv metadata replace {first} {spare}`)"
        leave = f"without another node, take it out (`gossipkv metadata leave {first}{register}`)"
        start = f"Start {names}. If {first} is lost for good"
        when = f"If {first} does not come back" if found <= LEFT else start
        yield Reason(
            ATTENTION,
            f"{names} ({how}) {are} of {some_text(voted)}: the others are a majority, and still decide",
            None,
            f"{when}, {replace}, or {leave}.",
            is_of_tables=True,
        )


def _no_majority(decide: str, answering: Mapping[str, bool], so: str, name: str | None = None) -> Iterator[Reason]:
    here, away = ([node for node, answers in answering.items() if answers is wanted] for wanted in (True, False))
    if answering and len(here) * 2 <= len(answering):
        verb = "answers" if len(here) == 1 else "answer"
        table = "" if name is None else f" --table {name}"
        survivors = " ".join(f"--survivor {node}" for node in here or ["NODE"])
        advice = (
            f"Start {some_text(away)}. If a majority of the acceptors is lost for good, run "
            f"`gossipkv metadata force {survivors}{table} --yes`{SAFELY}"
        )
        words = decide.format(f"{len(here):,} of the {len(answering):,} nodes that")
        yield Reason(TROUBLE, f"{words} {verb}: {so}", name, advice, is_of_tables=True)
