"""The rows about gossip, by simulation: how fast deaths and changes are known, what it costs, whom it wrongs.

Everything but the cost of simulating is a figure of virtual time: it is the same on every machine and in every run.
Quantiles are of all events of one seed; `p99` of fewer than a hundred is the largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import quantiles
from typing import TYPE_CHECKING

from gossipkv.gossip.profile import LAN, LOCAL
from tests.bench import goals, machine
from tests.bench.gossip import changes, crashes, healing, rest
from tests.bench.measurement import Measurement
from tests.world.scheduler import HOUR, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 5
OURS = "GossipKV"
ROUND_S = LAN.gossip_interval_ms / 1000


@dataclass(frozen=True)
class Load:
    """How many members, and how often."""

    sizes: tuple[int, ...] = (8, 64, 256, 1024)
    crashes: tuple[int, ...] = (800, 150, 60, 20)  # By size, as all that follow; what is quick is done often.
    local_sizes: tuple[int, ...] = (16, 256)
    changes: tuple[int, ...] = (300, 200, 60, 10)
    lossy_changes: tuple[int, ...] = (300, 60, 10, 2)  # At 30 % loss; a thousand members then exchange all the time.
    lost_changes: tuple[int, ...] = (1000, 300, 60)  # Of all sizes but the largest.
    late_changes: tuple[int, ...] = (100, 60, 10)
    rest_s: int = 120
    # How many members, and for how long out of it plus 1 s.
    starved: tuple[tuple[int, int], ...] = ((1, 16), (2, 16), (4, 16), (16, 32))
    starved_members: int = 128
    starved_runs: int = 5  # Each with another seed: one unlucky verdict may be told a hundred times, or never.
    day_hours: float = 24
    day_members: int = 128
    apart_s: tuple[int, ...] = (5, 20, 30, 600, 3600, 24 * 3600)
    apart_members: int = 16
    crashed_s: tuple[int, ...] = (5, 12, 20)  # About a suspicion: some hold who crashed for dead, some do not.
    crashed_runs: int = 100  # Each with another seed, and others that know it.
    speed_s: int = 60
    rounds: int = 5


QUICK = Load(
    sizes=(8, 16),
    crashes=(3, 2),
    local_sizes=(8,),
    changes=(10, 5),
    lossy_changes=(5, 2),
    lost_changes=(10,),
    late_changes=(5,),
    rest_s=10,
    starved=((1, 4), (2, 4)),
    starved_members=16,
    starved_runs=1,
    day_hours=0.01,
    day_members=8,
    apart_s=(5,),
    apart_members=4,
    crashed_s=(5,),
    crashed_runs=2,
    speed_s=2,
    rounds=1,
)


def _figure(row: str, unit: str, *values: float) -> Measurement:
    return Measurement(row, unit, OURS, {OURS: list(values)})


def _two(row: str, unit: str, found: list[float]) -> Iterator[Measurement]:
    """The median, and what one in a hundred exceeds."""
    ordered = sorted(found)
    p99 = quantiles(ordered, n=100)[98] if len(ordered) >= 100 else ordered[-1]  # Hundredths.
    yield _figure(f"{row}, p50", unit, ordered[len(ordered) // 2])
    yield _figure(f"{row}, p99", unit, min(p99, ordered[-1]))


def deaths(load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Crashes and departures."""
    for members, count in zip(load.sizes, load.crashes, strict=True):
        machine.say(f"  {count} crashes of {members}")
        times = crashes.ends(SEED, members, LAN, count)
        yield from _two(goals.gossip(goals.FIRST_DEAD, members), "s", times.first)
        yield from _two(goals.gossip(goals.DEAD_SPREAD, members), "s", times.spread)
        yield _figure(goals.gossip(goals.KEYS_GONE, members), "s", max(times.gone))
        notes.append(f"{count} crashes among {members} members, one after the other")
    for members, count in zip(load.local_sizes, load.crashes, strict=False):
        machine.say(f"  {count} crashes of {members}, probes of 0.5 s")
        times = crashes.ends(SEED, members, LOCAL, count)
        yield from _two(goals.gossip(goals.FIRST_DEAD_LOCAL, members), "s", times.first)
    machine.say("  departures")
    times = crashes.ends(SEED, load.sizes[1], LAN, load.crashes[1], leave=True)
    yield _figure(goals.LEFT, "s", max(first + gone for first, gone in zip(times.first, times.gone, strict=True)))


def spreading(load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Changes of the tree."""
    for members, count, lossy_count in zip(load.sizes, load.changes, load.lossy_changes, strict=True):
        machine.say(f"  {count} changes among {members}")
        spread = changes.changes(SEED, members, LAN, count)
        assert not spread.missing  # The quantiles are of all changes, and not of those that went well.
        rounds = [took / ROUND_S for took in spread.everywhere_s]
        yield from _two(goals.gossip(goals.CHANGE, members), "rounds", rounds)
        machine.say(f"  {lossy_count} changes among {members}, 30 % loss")
        lossy = changes.changes(SEED, members, LAN, lossy_count, loss=0.3, wait_us=10 * SECOND)
        assert not lossy.missing
        yield _figure(goals.gossip(goals.CHANGE_LOSSY, members), "s", max(lossy.everywhere_s))
        notes.append(f"{count} changes among {members} members, {lossy_count} at 30 % loss")
    for members, count, late_count in zip(load.sizes, load.lost_changes, load.late_changes, strict=False):
        machine.say(f"  {count} changes among {members}, 10 % loss, rumours alone")
        alone = changes.changes(SEED, members, LAN, count, loss=0.1, rumours_alone=True)
        yield _figure(goals.gossip(goals.CHANGE_LOST, members), "per mille", 1000 * alone.missing / alone.pairs)
        whole = changes.changes(SEED, members, LAN, late_count, loss=0.1, wait_us=10 * SECOND)
        yield _figure(goals.gossip(goals.CHANGE_LATE, members), "", float(whole.missing))
        notes.append(f"{count} changes among {members} at 10 % loss: {alone.missing} of {alone.pairs} never arrived")


def resting(load: Load, notes: list[str]) -> Iterator[Measurement]:
    """What is sent when nothing happens."""
    for members in load.sizes:
        machine.say(f"  {members} at rest")
        sent = rest.sent(SEED, members, LAN, load.rest_s * SECOND)
        yield _figure(goals.gossip(goals.SENT_MEMBERSHIP, members), "B/s", sent.membership)
        yield _figure(goals.gossip(goals.SENT_EXCHANGE, members), "B/s", sent.exchange)
        yield _figure(goals.gossip(goals.SENT_ALL, members), "B/s", sent.all)
    notes.append("Bytes sent by each member, headers of IP, UDP and TCP included")


def wronged(load: Load, notes: list[str]) -> Iterator[Measurement]:
    """DEAD verdicts about the healthy."""
    members, runs = load.starved_members, load.starved_runs
    for starved, starved_s in load.starved:
        row = goals.WRONG_STARVED.format(starved=starved, starved_s=starved_s, members=members)
        counts = {}
        for name, lifeguard in ((OURS, True), (goals.WITHOUT, False)):
            machine.say(f"  {starved} of {members} starved, Lifeguard {'on' if lifeguard else 'off'}")
            wrong = sum(
                rest.wrong_when_starved(seed, members, LAN, starved, starved_s=starved_s, lifeguard=lifeguard)
                for seed in range(SEED, SEED + runs)
            )
            counts[name] = [float(wrong)]
        if counts[goals.WITHOUT] == [0]:
            del counts[goals.WITHOUT]  # Of no fault there is no share.
        yield Measurement(row, "", OURS, counts)
    notes.append(f"Healthy called dead when others are starved: {runs} runs, with Lifeguard and without")
    machine.say(f"  {load.day_hours} h, 1 % loss")
    wrong = rest.wrong_at_rest(SEED, load.day_members, LAN, int(load.day_hours * HOUR), loss=0.01)
    yield _figure(goals.WRONG_DAY, "", float(wrong))


def healed(load: Load, notes: list[str]) -> Iterator[Measurement]:
    """After partitions."""
    for apart_s in load.apart_s:
        machine.say(f"  {apart_s} s apart")
        took = healing.healed_s(SEED, load.apart_members, LAN, apart_s * SECOND)
        yield _figure(goals.HEALED.format(apart_s=apart_s), "s", took)
    for apart_s in load.crashed_s:
        machine.say(f"  {apart_s} s apart, one crashed")
        took = max(
            healing.healed_s(seed, load.apart_members, LAN, apart_s * SECOND, crash=True)
            for seed in range(SEED, SEED + load.crashed_runs)
        )
        yield _figure(goals.HEALED_CRASHED.format(apart_s=apart_s), "s", took)
    notes.append(f"Two halves of {load.apart_members} members, keys published and withdrawn on both sides meanwhile")
    notes.append(f"With a crash: {load.crashed_runs} runs, until who crashed is dead to all")


def simulator(load: Load, notes: list[str]) -> Iterator[Measurement]:
    """What a node-hour costs."""
    for members in load.sizes[:2]:
        machine.say(f"  {members} simulated")
        with machine.uncollected():
            hours = rest.node_hours(SEED, members, LAN, load.speed_s * SECOND, rounds=load.rounds)
        yield _figure(goals.SIMULATED.format(members=members), "ms", *(1000 / rate for rate in hours))
        notes.append(f"{members} members at rest, through the codec: {max(hours):.0f} node-hours a CPU-second at best")


PARTS = {
    "gossip-deaths": deaths,
    "gossip-changes": spreading,
    "gossip-rest": resting,
    "gossip-wronged": wronged,
    "gossip-healing": healed,
    "gossip-simulator": simulator,
}


def measure(part: str, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """The rows of one part."""
    yield from PARTS[part](load, notes)
