"""The rows about gossip, by simulation: how fast deaths and changes are known, what it costs, whom it wrongs.

Everything but the cost of simulating is a figure of virtual time: it is the same on every machine and in every run.
Quantiles are of all events of one seed; `p99` of fewer than a hundred is the largest.
"""

from __future__ import annotations

from statistics import quantiles
from typing import TYPE_CHECKING

from gossipkv.gossip.profile import LAN, LOCAL
from tests.bench import goals, machine
from tests.bench.gossip import changes, crashes, healing, rest
from tests.bench.measurement import OURS
from tests.world.scheduler import HOUR, SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.bench.goals import Family
    from tests.bench.measurement import Bench

SEED = 5
ROUND_S = LAN.gossip_interval_ms / 1000
SIZES = (8, 64, 256, 1024)
CRASHES = {8: 800, 64: 150, 256: 60, 1024: 20}  # What is quick is done often.
LOCAL_CRASHES = {16: 800, 256: 150}
CHANGES = {8: (300, 300), 64: (200, 60), 256: (60, 10), 1024: (10, 2)}
LOST_CHANGES = {8: (1000, 100), 64: (300, 60), 256: (60, 10)}


def _add_quantiles(bench: Bench, rows: Family, members: int, found: list[float]) -> None:
    """The median, and what one in a hundred exceeds."""
    ordered = sorted(found)
    p99 = quantiles(ordered, n=100)[98] if len(ordered) >= 100 else ordered[-1]  # Hundredths.
    bench.add(rows.of(members, share="p50"), ordered[len(ordered) // 2])
    bench.add(rows.of(members, share="p99"), min(p99, ordered[-1]))


def deaths(
    bench: Bench,
    *,
    counts: Mapping[int, int] = CRASHES,
    local: Mapping[int, int] = LOCAL_CRASHES,
    departures: tuple[int, int] = (64, 150),
) -> None:
    """So many crashes and departures among so many members."""
    for members, count in counts.items():
        machine.say(f"  {count} crashes of {members}")
        times = crashes.ends(SEED, members, LAN, count)
        _add_quantiles(bench, goals.FIRST_DEAD, members, times.first)
        _add_quantiles(bench, goals.DEAD_SPREAD, members, times.spread)
        bench.add(goals.KEYS_GONE.of(members), max(times.gone))
        bench.notes.append(f"{count} crashes among {members} members, one after the other")
    for members, count in local.items():
        _add_quantiles(bench, goals.FIRST_DEAD_LOCAL, members, crashes.ends(SEED, members, LOCAL, count).first)
    times = crashes.ends(SEED, departures[0], LAN, departures[1], leave=True)
    bench.add(goals.LEFT, max(first + gone for first, gone in zip(times.first, times.gone, strict=True)))


def spreading(
    bench: Bench,
    *,
    counts: Mapping[int, tuple[int, int]] = CHANGES,
    lost: Mapping[int, tuple[int, int]] = LOST_CHANGES,
) -> None:
    """Changes of the tree: so many without loss and at 30 % (a thousand members then exchange all the time).

    At 10 % so many by rumours alone, and so many by all that there is.
    """
    for members, (count, lossy_count) in counts.items():
        machine.say(f"  {count} changes among {members}")
        spread = changes.changes(SEED, members, LAN, count)
        lossy = changes.changes(SEED, members, LAN, lossy_count, loss=0.3, wait_us=10 * SECOND)
        assert not spread.missing  # The quantiles are of all changes, and not of those that went well.
        assert not lossy.missing
        _add_quantiles(bench, goals.CHANGE, members, [took / ROUND_S for took in spread.everywhere_s])
        bench.add(goals.CHANGE_LOSSY.of(members), max(lossy.everywhere_s))
        bench.notes.append(f"{count} changes among {members} members, {lossy_count} at 30 % loss")
    for members, (count, late_count) in lost.items():
        machine.say(f"  {count} changes among {members}, 10 % loss")
        alone = changes.changes(SEED, members, LAN, count, loss=0.1, rumours_alone=True)
        bench.add(goals.CHANGE_LOST.of(members), 1000 * alone.missing / alone.pairs)
        whole = changes.changes(SEED, members, LAN, late_count, loss=0.1, wait_us=10 * SECOND)
        bench.add(goals.CHANGE_LATE.of(members), whole.missing)
        bench.notes.append(
            f"{count} changes among {members} at 10 % loss: {alone.missing} of {alone.pairs} never arrived"
        )


def resting(bench: Bench, *, sizes: tuple[int, ...] = SIZES, rest_s: int = 120) -> None:
    """What is sent when nothing happens."""
    for members in sizes:
        machine.say(f"  {members} at rest")
        sent = rest.sent(SEED, members, LAN, rest_s * SECOND)
        bench.add(goals.SENT_MEMBERSHIP.of(members), sent.membership)
        bench.add(goals.SENT_EXCHANGE.of(members), sent.exchange)
        bench.add(goals.SENT_ALL.of(members), sent.all)
    bench.notes.append("Bytes sent by each member, headers of IP, UDP and TCP included")


def wronged(
    bench: Bench,
    *,
    starved: tuple[tuple[int, int], ...] = ((1, 16), (2, 16), (4, 16), (16, 32)),
    members: int = 128,
    runs: int = 5,
    day_hours: float = 24,
    day_members: int = 128,
) -> None:
    """DEAD verdicts about the healthy, where I/O of so many is starved for so long out of it and a second.

    Each run has another seed: one unlucky verdict may be told a hundred times, or never.
    """
    for ill, starved_s in starved:
        row = goals.WRONG_STARVED.of(ill, members, starved_s)
        for name, lifeguard in ((OURS, True), (goals.WITHOUT, False)):
            machine.say(f"  {ill} of {members} starved, Lifeguard {'on' if lifeguard else 'off'}")
            wrong = sum(
                rest.wrong_when_starved(seed, members, LAN, ill, starved_s=starved_s, lifeguard=lifeguard)
                for seed in range(SEED, SEED + runs)
            )
            if lifeguard or wrong:  # Of no fault there is no share.
                bench.add(row, wrong, name)
    bench.notes.append(f"Healthy called dead when others are starved: {runs} runs, with Lifeguard and without")
    bench.add(goals.WRONG_DAY, rest.wrong_at_rest(SEED, day_members, LAN, int(day_hours * HOUR), loss=0.01))


def healed(
    bench: Bench,
    *,
    apart_s: tuple[int, ...] = (5, 20, 30, 600, 3600, 24 * 3600),
    members: int = 16,
    crashed_s: tuple[int, ...] = (5, 12, 20),
    crashed_runs: int = 100,
) -> None:
    """After partitions, those with a crash about a suspicion long: some hold who crashed for dead, some do not."""
    for each_s in apart_s:
        machine.say(f"  {each_s} s apart")
        bench.add(goals.HEALED.of(each_s), healing.healed_s(SEED, members, LAN, each_s * SECOND))
    for each_s in crashed_s:
        machine.say(f"  {each_s} s apart, one crashed")
        seeds = range(SEED, SEED + crashed_runs)
        took_s = (healing.healed_s(seed, members, LAN, each_s * SECOND, crash=True) for seed in seeds)
        bench.add(goals.HEALED_CRASHED.of(each_s), max(took_s))
    bench.notes.append(f"Two halves of {members} members, keys published and withdrawn on both sides meanwhile")
    bench.notes.append(f"With a crash: {crashed_runs} runs, until who crashed is dead to all")


def simulator(bench: Bench, *, sizes: tuple[int, ...] = SIZES[:2], speed_s: int = 60, rounds: int = 5) -> None:
    """What a node-hour costs."""
    for members in sizes:
        with machine.uncollected():
            hours = rest.node_hours(SEED, members, LAN, speed_s * SECOND, rounds=rounds)
        for rate in hours:
            bench.add(goals.SIMULATED.of(members), 1000 / rate)
        bench.notes.append(
            f"{members} members at rest, through the codec: {max(hours):.0f} node-hours a CPU-second at best"
        )
