"""Scenarios of a database that machines share: each returns the promises that were broken."""

from __future__ import annotations

from gossipkv.placement.identity import VersionIdentity
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.statement import DatabaseStatement
from tests.simulation.scenarios_of_rings import all_who_are_expected, automatic_ids_at_once
from tests.world.datasets.contents import ALIKE, DATABASE, FUNCTION, KEY_NAMES
from tests.world.datasets.dataset_node import SYNC_US
from tests.world.datasets.disk import Stored
from tests.world.datasets.sharing_cluster import RETIRE_MAX_MS, TERMS, SharingCluster, content_of
from tests.world.scheduler import MS

ONCE = TERMS._replace(replication=1)  # Each partition is on one node.
LATE_MS = 4_000  # Per file: the other nodes have switched before.
RETIRED_S = (TERMS.retire_after_ms + TERMS.grace_ms) / 1000 + 30


def formed(machines=3, *, terms=TERMS, seed=1, partitions=6):
    """Return machines with version 1 active, and readers that ask them."""
    cluster = SharingCluster(seed, machines, terms=terms)
    cluster.offer("1", partitions=partitions)
    cluster.start()
    cluster.until_active("1")
    cluster.run(5)
    cluster.readers.begin(20)
    return cluster


def one_empty_node():
    """A single node waits for no other node and serves the versions of its source."""
    cluster = SharingCluster(1, 1)
    cluster.start()
    cluster.run(5)
    cluster.readers.begin(20)
    cluster.offer("1")
    cluster.until_active("1", within_s=12)
    cluster.offer("2")
    cluster.until_active("2", within_s=12)
    cluster.until_gone("1", within_s=RETIRED_S)
    cluster.must_not_fail()
    return cluster.checkers.result()


def empty_cluster(machines=3):
    """Nodes that form a cluster each build their share, and no more."""
    cluster = SharingCluster(1, machines)
    cluster.start()
    cluster.run(12)
    cluster.readers.begin(20)
    cluster.offer("1", partitions=2 * machines, file_ms=1_000)
    cluster.until_active("1", within_s=30)
    cluster.run(10)
    for machine in cluster.machines:
        held = len(cluster.shared.disks[machine.name].versions["1"].ready)
        if held != min(machines, TERMS.replication) * 2:
            cluster.checkers.found("shares", machine.name, f"holds {held} partitions")
    cluster.must_not_fail()
    return cluster.checkers.result()


def upgrade():
    """During an upgrade under load no read fails or goes back; the old version is removed once it is not needed."""
    cluster = formed()
    for version in "23":
        cluster.offer(version)
        cluster.until_active(version, within_s=30)
        cluster.until_gone(str(int(version) - 1), within_s=RETIRED_S)
    cluster.must_not_fail()
    return cluster.checkers.result()


def delayed_on_one():
    """A node whose source shows the new version much later still answers from it, by forwarding."""
    cluster = formed(terms=ONCE)
    late = cluster.machines[2]
    cluster.sources.give(late, {"1": content_of("1")})
    cluster.offer("2")
    cluster.until_active("2", within_s=90)
    cluster.until_gone("1", within_s=RETIRED_S)
    cluster.sources.share(late)
    cluster.run(20)
    cluster.must_not_fail()
    return cluster.checkers.result()


def without_a_source():
    """A node without a source answers all reads and is never the only owner of a partition."""
    cluster = SharingCluster(1, 3, terms=ONCE)
    cluster.sources.give(cluster.machines[1], None)
    cluster.offer("1")
    cluster.start()
    cluster.until_active("1", within_s=120)
    cluster.readers.begin(20)
    cluster.run(20)
    cluster.must_not_fail()
    return cluster.checkers.result()


def restarts():
    """A process crashes at each step of an upgrade and comes back."""
    cluster = formed()
    for step in range(7):
        version = str(101 + step)
        cluster.offer(version, file_ms=300)
        cluster.run(step)
        victim = cluster.machines[step % 3]
        victim.crash()
        cluster.run(1)
        victim.start()
        if not cluster.until_active(version, within_s=40):
            break
    return cluster.checkers.result()


def late_joiner():
    """A joining node answers before it has built anything, and existing shares do not change."""
    cluster = formed(terms=ONCE)
    before = {name: disk.versions["1"].share for name, disk in cluster.shared.disks.items()}
    joiner = cluster.add()
    cluster.sources.give(joiner, None)
    joiner.start()
    cluster.until_active("1", within_s=8)
    cluster.run(10)
    cluster.sources.share(joiner)
    cluster.run(30)
    for name, share in before.items():
        if cluster.shared.disks[name].versions["1"].share != share:
            cluster.checkers.found("shares", name, "another share than before")
    if not cluster.shared.disks[joiner.name].versions["1"].ready:
        cluster.checkers.found("shares", joiner.name, "has built nothing")
    cluster.must_not_fail()
    return cluster.checkers.result()


def late_joiner_after_an_upgrade():
    """A node that joins after a switch begins with the new version, though the old one is still kept."""
    cluster = formed(terms=ONCE)
    cluster.offer("2")
    cluster.until_active("2", within_s=40)
    switching, first = cluster.checkers.switching, {}

    def note(node, identity):
        switching(node, identity)
        first.setdefault(node.machine.name, identity.version)

    cluster.shared.observer = Observing(cluster.checkers, note)
    for _ in range(4):
        joiner = cluster.add()
        cluster.sources.give(joiner, None)
        joiner.start()
        cluster.run(3)
    cluster.until_active("2", within_s=8)
    if set(first.values()) != {"2"}:
        cluster.checkers.found("first_gate", "-", f"begin with what is old: {first}")
    cluster.must_not_fail()
    return cluster.checkers.result()


def rolling_restart():
    """In a rolling restart each partition keeps an owner, and no read fails."""
    cluster = formed()
    for machine in cluster.machines:
        machine.crash()
        cluster.run(3)
        machine.start()
        cluster.until_active("1", within_s=5)
        cluster.run(6)
    cluster.must_not_fail()
    if any(node.switches > 1 for node in cluster.shared.nodes.values()):
        cluster.checkers.found("restored", "-", "a gate was passed again for what was active")
    return cluster.checkers.result()


def stop(cluster, machine, *, away_s=3):
    """Stop a process as by SIGTERM, and start it again after `away_s`."""
    cluster.node(machine).leave()
    cluster.until(lambda: not machine.is_up, f"{machine.name} does not end", within_s=12)
    cluster.run(away_s)
    machine.start()
    cluster.until(lambda: machine.is_up, f"{machine.name} does not start", within_s=5)


def the_only_owner_is_stopped():
    """Each node, a sole owner, is stopped once; other nodes build its partitions before it ends."""
    cluster = formed(terms=ONCE)
    for machine in cluster.machines:
        stop(cluster, machine, away_s=10)
        cluster.run(5)
    cluster.must_not_fail()
    return cluster.checkers.result()


def stopped_amid_upgrades():
    """Nodes are stopped at each step of an upgrade, without waiting for copies, and no read fails."""
    cluster = formed()
    for step in range(12):
        version = str(101 + step)
        cluster.offer(version, file_ms=200)
        cluster.run(step / 2)
        stop(cluster, cluster.machines[step % 3])
        if not cluster.until_active(version, within_s=40):
            break
    cluster.must_not_fail()
    return cluster.checkers.result()


def nobody_waits_for_who_leaves():
    """Nodes stop at once if all stop together, or if no node has a source to build from."""
    cluster = formed(terms=ONCE)
    for machine in cluster.machines:
        cluster.node(machine).leave()
    cluster.run(2.5)
    if any(machine.is_up for machine in cluster.machines):
        cluster.checkers.found("leaving", "-", "they wait for each other")
        return cluster.checkers.result()
    cluster.start()
    cluster.until_active("1")
    for machine in cluster.machines:
        cluster.sources.give(machine, None)
    cluster.run(10)
    cluster.node(cluster.machines[0]).leave()
    cluster.run(5)
    if cluster.machines[0].is_up:
        cluster.checkers.found("leaving", "m0", "waits for what nobody builds")
    return cluster.checkers.result()


def death(when):
    """A node dies for good before, at, or after the gate of a new version."""
    cluster = formed(4)
    victim = cluster.machines[3]
    switching = cluster.checkers.switching

    def at_the_gate(node, identity):
        switching(node, identity)
        if victim.is_up and identity.version == "2" and node.machine is not victim:
            victim.crash()

    cluster.offer("2")
    if when == "before":
        cluster.run(6)
        victim.crash()
    elif when == "at":
        cluster.shared.observer = Observing(cluster.checkers, at_the_gate)
    cluster.until_active("2", within_s=90)
    if when == "after":
        victim.crash()
    cluster.run(10)
    cluster.readers.failures.clear()  # Discard the failures of the victim itself.
    cluster.run(10)
    cluster.must_not_fail()
    return cluster.checkers.result()


def death_after_its_switch():
    """A node dies before its switch is known; other nodes keep the version that it may have active."""
    cluster = formed()
    cluster.readers.pins = False
    *others, victim = cluster.machines
    switching = cluster.checkers.switching

    def then_dies(node, identity):
        switching(node, identity)
        if node.machine is victim and identity.version == "2":
            cluster.world.scheduler.after(SYNC_US + MS, victim.crash)

    cluster.shared.observer = Observing(cluster.checkers, then_dies)
    cluster.offer("2", file_ms=100)
    # The tree is full, so the node publishes its holdings but not its statement of the database.
    cluster.node(victim).core.refused_database(DatabaseStatement(), now_ms=victim.now_ms)
    cluster.until(lambda: not victim.is_up, "the victim has not switched", within_s=30)
    needs = cluster.node(others[0]).core.needs_of(victim.name)
    if "2" in {needs.active, needs.next}:
        cluster.checkers.found("scenario", "-", f"the others know of the switch: {needs}")
    cluster.until_active("2")
    cluster.offer("3")
    cluster.until_active("3")
    cluster.run(RETIRED_S)
    for other in others:
        if "2" not in cluster.shared.disks[other.name].versions:
            cluster.checkers.found("laggards", other.name, "let version 2 go, which a dead member has active")
    victim.start()
    cluster.run(2)
    cluster.until_active("3", within_s=20)
    cluster.must_not_fail()
    cluster.until_gone("2", within_s=RETIRED_S)
    return cluster.checkers.result()


def death_after_a_patient_switch():
    """Nodes wait for the copies of a far slower node, so the death of any node fails no read."""
    cluster = formed(terms=TERMS._replace(switch_patience_ms=60_000))
    victim, slow = cluster.machines[1:]
    cluster.sources.give(slow, {"2": content_of("2", file_ms=4_000)})
    cluster.offer("2", file_ms=100)
    cluster.until_active("2", within_s=50)
    victim.crash()
    cluster.run(1)
    cluster.readers.failures.clear()  # Discard the failures of the victim itself.
    cluster.run(10)
    cluster.must_not_fail()
    return cluster.checkers.result()


class Observing:
    """Forward to the checkers, and call `switching` when a switch begins."""

    def __init__(self, checkers, switching):
        self.switching = switching
        self.dropping = checkers.dropping


def all_cut_off():
    """When all nodes are cut off, they answer from local copies and switch nothing; after healing all is well."""
    cluster = formed()
    cluster.world.network.partition(*([machine] for machine in cluster.machines))
    cluster.run(10)
    cluster.offer("2")
    cluster.run(40)
    if set(cluster.active()) != {"1"}:
        cluster.checkers.found("cut_off", "-", f"switched while nobody was heard: {cluster.active()}")
    cluster.world.network.heal()
    cluster.until_active("2", within_s=60)
    cluster.readers.failures.clear()
    cluster.until_gone("1", within_s=RETIRED_S)
    cluster.must_not_fail()
    cluster.readers.pins = False
    cluster.offer("3")
    cluster.until_active("3", within_s=40)
    cluster.world.network.partition(*([machine] for machine in cluster.machines))
    cluster.run(RETIRED_S)
    for machine in cluster.machines:
        if "2" not in cluster.shared.disks[machine.name].versions:
            cluster.checkers.found("cut_off", machine.name, "let a version go while nobody was heard")
    return cluster.checkers.result()


def wrong_dead():
    """Gossip wrongly holds all members for dead; the last owners are still asked, and no read fails."""
    cluster = formed(terms=ONCE)
    cluster.world.network.refuse(lambda packet: True)
    cluster.run(60)
    node = cluster.node(cluster.machines[0])
    if not any(node.states[other.name] == 2 for other in cluster.machines[1:]):
        cluster.checkers.found("scenario", "-", "nobody was held for dead")
    cluster.must_not_fail()
    return cluster.checkers.result()


def laggard():
    """A node that is cut off keeps its version on all others for an hour; after that it must upgrade on return."""
    cluster = formed(terms=ONCE)
    cluster.readers.pins = False
    lagging, others = cluster.machines[2], cluster.machines[:2]
    cluster.world.network.partition([lagging], others)
    cluster.offer("2")
    cluster.until(lambda: [cluster.node(each).active for each in others] == ["2", "2"], "2", within_s=90)
    cluster.run(60 - TERMS.retire_after_ms / 1000)
    for machine in others:
        if "1" not in cluster.shared.disks[machine.name].versions:
            cluster.checkers.found("laggards", machine.name, "let version 1 go while a member needs it")
    cluster.run(RETIRE_MAX_MS / 1000)
    for machine in others:
        if "1" in cluster.shared.disks[machine.name].versions:
            cluster.checkers.found("laggards", machine.name, "waits for the dead for ever")
    cluster.world.network.heal()
    cluster.until_active("2", within_s=40)
    cluster.readers.failures.clear()
    cluster.run(10)
    cluster.must_not_fail()
    return cluster.checkers.result()


def views_that_differ():
    """With different rings on each node, the next node of the ring builds each orphaned partition once.

    The rings are {A, B}, {A, B, C} and {A, C}.
    """
    cluster = SharingCluster(1, 3, terms=ONCE)
    content = cluster.offer("1")
    identity = VersionIdentity(DATABASE, "1", content.source.digest, 6, FUNCTION, regrouped=False)
    for machine, share in zip(cluster.machines, ((0, 2), (1,), (3, 5)), strict=True):
        some = PartitionSet.of(6, share)
        cluster.shared.disks[machine.name].versions["1"] = Stored(identity, some)
    cluster.start()
    cluster.until_active("1", within_s=60)
    cluster.readers.begin(20)
    cluster.run(10)
    owners = sum(len(disk.versions["1"].ready) for disk in cluster.shared.disks.values())
    if owners != 6:
        cluster.checkers.found("reassigned", "-", f"{owners} copies of 6 partitions")
    cluster.must_not_fail()
    return cluster.checkers.result()


def stray():
    """A key lies in the wrong file; nodes that skipped this file never answer that the key is absent."""
    cluster = formed(terms=ONCE)
    key = KEY_NAMES[7]
    cluster.offer("2", stray=key, file_ms=1_500)

    def ask():
        for machine in cluster.machines:
            for pinned in (None, "2"):
                cluster.readers.ask(machine, key, pinned)

    cluster.world.scheduler.every(100 * MS, ask)
    cluster.until_active("2", within_s=120)
    cluster.run(10)
    if not all(node.core.identity("2").regrouped for node in cluster.shared.nodes.values()):
        cluster.checkers.found("scenario", "-", "nobody has regrouped it")
    cluster.must_not_fail()
    return cluster.checkers.result()


def one_byte_differs(late_ms):
    """One source differs by a byte under the same digest: switched nodes keep their copy, and all name both sides."""
    cluster = formed()
    other = cluster.machines[2]
    content = content_of("2", batch=ALIKE, file_ms=late_ms)
    cluster.offer("2")
    cluster.sources.give(other, {"2": content})
    cluster.run(40)
    if len(set(cluster.active())) > 1 or (late_ms == LATE_MS and cluster.active()[0] == "1"):
        cluster.checkers.found("switched", "-", f"{cluster.active()}")
    other.crash()
    cluster.run(10)
    other.start()
    cluster.run(20)
    for machine in cluster.machines:
        if not any(other.name in dispute[:2] for dispute in cluster.node(machine).core.disputes.get("2", [])):
            cluster.checkers.found("named", machine.name, "says nothing of what differs")
    cluster.sources.share(other)
    if late_ms < LATE_MS:  # The copy of this node may have counted while the node was away.
        cluster.readers.failures.clear()
    cluster.offer("3")
    cluster.until_active("3", within_s=60)
    cluster.must_not_fail()
    return cluster.checkers.result()


def left_alone():
    """After the other node is lost, no new version is built while it may return; then the node continues alone."""
    cluster = formed(2)
    cluster.machines[1].stop()
    cluster.run(20)
    cluster.offer("2")
    cluster.run(30)
    if cluster.active() != ["1"]:
        cluster.checkers.found("alone", "-", "goes on before it may")
    cluster.until_active("2", within_s=RETIRE_MAX_MS / 1000)
    cluster.until_gone("1", within_s=RETIRED_S)
    cluster.must_not_fail()
    return cluster.checkers.result()


def two_contents():
    """Different files under one version name are reported as a conflict and never mixed."""
    cluster = SharingCluster(1, 3, terms=ONCE)
    cluster.offer("1")
    cluster.sources.give(cluster.machines[2], {"1": content_of("1", batch=1)})
    cluster.start()
    cluster.readers.begin(20)
    cluster.until_active("1", within_s=150)
    cluster.run(10)
    if not all(cluster.node(machine).core.conflicts for machine in cluster.machines):
        cluster.checkers.found("conflicts", "-", "two contents by one name are not named")
    cluster.must_not_fail()
    return cluster.checkers.result()


def held():
    """A node pinned to the old version makes all nodes keep it; the others advance, and it follows when released."""
    cluster = formed(terms=ONCE)
    cluster.readers.pins = False
    node = cluster.node(cluster.machines[0])
    cluster.offer("2")
    cluster.until_active("2", within_s=40)
    cluster.checkers.held.add(node.machine.name)
    cluster.run(2)
    node.pin("1")
    cluster.until(lambda: cluster.active() == ["1", "2", "2"], "the hold is not obeyed", within_s=5)
    cluster.run(RETIRED_S)
    if not all("1" in disk.versions for disk in cluster.shared.disks.values()):
        cluster.checkers.found("held", "-", "version 1 is gone while it is held")
    node.pin(None)
    cluster.until_active("2", within_s=10)
    cluster.until_gone("1", within_s=RETIRED_S)
    cluster.must_not_fail()
    return cluster.checkers.result()


def back_alone():
    """Two of three nodes return and hear no gossip; they remember the owners and forward to each other."""
    cluster = formed(terms=ONCE)
    cluster.run(8)
    held = {name: set(disk.versions["1"].ready) for name, disk in cluster.shared.disks.items()}
    for machine in cluster.machines:
        machine.crash()
    cluster.world.network.refuse(lambda packet: True)
    cluster.readers.pins = False
    asked, answering = cluster.machines[:2]
    asked.start()
    answering.start()
    cluster.run(5)
    cluster.readers.failures.clear()
    keys = [key for key in KEY_NAMES if content_of("1").partition(key) in held["m0"] | held["m1"]]
    before = len(cluster.readers.answers)
    cluster.readers.is_over = True
    for key in keys:
        cluster.readers.ask(asked, key)
    cluster.run(2)
    if len(cluster.readers.answers) != before + len(keys):
        cluster.checkers.found("remembers", "m0", f"{len(cluster.readers.answers) - before} of {len(keys)} answered")
    return cluster.checkers.result()


def gone_before_the_gate():
    """An owner crashes unnoticed when the last partition is almost built; no node switches because of it."""
    cluster = formed(terms=ONCE)
    victim, slow = cluster.machines[1:]
    for turn in range(4):
        version = str(101 + turn)
        cluster.offer(version, file_ms=100)
        cluster.sources.give(slow, {version: content_of(version, file_ms=3_000)})
        disk = cluster.shared.disks[slow.name]

        def is_almost_there(disk=disk, version=version):
            stored = disk.versions.get(version)
            return stored is not None and len(stored.share - stored.ready) == 1

        if not cluster.until(is_almost_there, "nothing is built", within_s=40):
            break
        cluster.run(2.0 + turn / 10)
        victim.crash()
        cluster.run(6)
        victim.start()
        if not cluster.until_active(version, within_s=60):
            break
        cluster.sources.share(slow)
    return cluster.checkers.result()


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        one_empty_node,
        empty_cluster,
        upgrade,
        delayed_on_one,
        without_a_source,
        restarts,
        late_joiner,
        late_joiner_after_an_upgrade,
        rolling_restart,
        all_cut_off,
        wrong_dead,
        laggard,
        automatic_ids_at_once,
        all_who_are_expected,
        views_that_differ,
        stray,
        left_alone,
        two_contents,
        gone_before_the_gate,
        held,
        back_alone,
        death_after_its_switch,
        the_only_owner_is_stopped,
        stopped_amid_upgrades,
        nobody_waits_for_who_leaves,
        death_after_a_patient_switch,
    )
}
SCENARIOS |= {f"death_{when}_the_gate": lambda when=when: death(when) for when in ("before", "at", "after")}
SCENARIOS |= {
    f"one_byte_differs_of_what_comes_{when}": lambda ms=ms: one_byte_differs(ms)
    for when, ms in (("first", 50), ("meanwhile", 500), ("after_the_switch", LATE_MS))
}
