"""Aimed scenarios of membership: each does one thing to a few members and returns the promises that were broken.

They are functions, so that they also run on patched code (`tests/nightly/mutants`). Each scenario must see a defect
that
the drawn faults of `test_seeds.py` see too rarely.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gossipkv.gossip.effects import MemberChanged
from gossipkv.gossip.member import REACHABLE, MemberState, member_id
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.envelope import HEADER_BYTES
from gossipkv.gossip.profile import LAN, LOCAL
from tests.simulation.scenarios_of_branches import full_branches, large_branches, withdrawn
from tests.simulation.scene import LOOK_US, Scene
from tests.world.gossip.history import History
from tests.world.gossip.members import gossip, program, state_of
from tests.world.scheduler import MS, SECOND
from tests.world.world import World


def at_rest():
    """At rest, no member is suspected for long or called dead, and little is sent."""
    scene = Scene(8)
    scene.publish_all()
    scene.look_for(60 * SECOND)
    scene.must_not_kill()
    scene.must_heal(SECOND)
    sent = scene.world.network.sent_bytes
    scene.look_for(30 * SECOND)
    rate = (scene.world.network.sent_bytes - sent) / 30 / 8
    if rate > 2 * 200 + 300:  # LOCAL probes twice as often as the goal's profile.
        scene.broken("is_quiet_at_rest", f"each member sends {rate:.0f} B/s")
    return scene.result()


def crashes():
    """Each of several crashes is found within the longest suspicion, and no other member is called dead."""
    scene = Scene(8, LAN)
    scene.publish_all()
    scene.look_for(2 * SECOND)
    for victim in scene.machines[1:6]:
        victim.crash()
        # A round of probes finds the crash; then two members confirm or the suspicion times out.
        bound_us = (8 + 2) * SECOND + scene.profile.suspicion_least_ms(8) * MS
        began_us = scene.world.now_us
        up = [machine for machine in scene.machines if machine.is_up]
        while any(state_of(machine, victim) is not MemberState.DEAD for machine in up):
            scene.look_for(LOOK_US)
            if scene.world.now_us > began_us + bound_us:
                scene.broken("the_dead_are_found", f"{victim.name} is not dead everywhere")
                break
        victim.start()
        scene.must_heal(10 * SECOND)
    scene.must_not_kill()
    return scene.result()


def lossy():
    """With a third of all datagrams lost, changes spread in time and no member is called dead."""
    scene = Scene(12, LAN)
    scene.world.network.usual.loss = 0.3
    scene.world.network.changed()
    for _ in range(12):
        machine = scene.chance.choice(scene.machines)
        scene.history.publish(machine, "keys/lossy", b"%d" % scene.world.now_us)
        scene.must_heal(12 * SECOND, "changes_spread")
    scene.look_for(60 * SECOND)
    scene.must_not_kill()
    return scene.result()


def silent_change():
    """Anti-entropy finds a change whose rumours are all lost."""
    scene = Scene(6)

    def is_rumour(packet):
        """True if the packet carries a DELTA or a HEAD outside an exchange."""
        kind = packet[HEADER_BYTES]
        return kind != messages.SYNC and len(packet) > HEADER_BYTES + messages.PING_BYTES

    scene.world.network.refuse(is_rumour)
    scene.publish_all()
    scene.must_heal(20 * SECOND, "changes_spread")
    scene.history.withdraw(scene.machines[1], "keys/0")
    scene.must_heal(20 * SECOND, "changes_spread")
    return scene.result()


def paused():
    """Paused processes accuse no member when they resume, and are soon alive again."""
    scene = Scene(6)
    scene.publish_all()
    for _ in range(4):
        asleep = scene.chance.sample(scene.machines, 2)
        names = {machine.name for machine in asleep}
        for machine in asleep:
            machine.pause()
        scene.look_for(int(scene.chance.uniform(1, 15) * SECOND))
        for machine in asleep:
            machine.resume()
        scene.look_for(3 * SECOND)
        # Paused members were silent, so their DEAD verdicts are right.
        scene.wrong_dead = [said for said in scene.wrong_dead if said.split()[2] not in names]
        scene.must_not_kill()
        scene.must_heal(15 * SECOND)
        scene.wrong_dead.clear()
    return scene.result()


def suspicions(scene):
    suspected = []

    def changed(machine, effect):
        if effect.member.state is MemberState.SUSPECT:
            suspected.append(f"{machine.name} suspects {effect.member.name}")

    scene.world.on_told[MemberChanged].append(changed)
    return suspected


def cut_pairs():
    """Indirect probes prevent suspicion between pairs whose link is cut both ways or one way."""
    scene = Scene(8)
    suspected = suspicions(scene)
    for number, (first, second) in enumerate(zip(scene.machines[::2], scene.machines[1::2], strict=True)):
        scene.world.network.partition([first], [second], one_way=number % 2 == 1)
    scene.look_for(60 * SECOND)
    if suspected:
        scene.broken("the_healthy_are_not_suspected", "; ".join(suspected[:3]))
    scene.must_not_kill()
    return scene.result()


def only_connections():
    """The TCP fallback keeps two members alive between which no datagram passes."""
    scene = Scene(2)
    for source, target in ((0, 1), (1, 0)):
        scene.world.network.link(scene.machines[source], scene.machines[target]).datagrams_cut = True
    scene.world.network.changed()
    scene.look_for(60 * SECOND)
    scene.must_not_kill()
    return scene.result()


def starved():
    """A member whose I/O is starved most of the time accuses no healthy member."""
    scene = Scene(16)
    ill = scene.machines[3]
    for _ in range(6):
        ill.starve()
        scene.look_for(8 * SECOND)
        ill.feed()
        scene.look_for(500 * MS)
    scene.wrong_dead = [said for said in scene.wrong_dead if ill.name not in said.split()]
    scene.must_not_kill()
    return scene.result()


def starved_together():
    """Starved members hear each other's suspicions at once and call no healthy member dead."""
    scene = Scene(24)
    ill = scene.machines[:6]
    for _ in range(4):
        for machine in ill:
            machine.starve()
        scene.look_for(14 * SECOND)
        for machine in ill:
            machine.feed()
        scene.look_for(SECOND)
    names = {machine.name for machine in ill}
    scene.wrong_dead = [said for said in scene.wrong_dead if not names & set(said.split())]
    scene.must_not_kill()
    return scene.result()


def leave():
    """A leaving member and its keys are gone everywhere in 1.5 s; it is never suspected or called dead."""
    scene = Scene(12, LAN)
    suspected = suspicions(scene)
    scene.publish_all()
    scene.look_for(3 * SECOND)
    for leaver in scene.machines[2:6]:
        leaver.leave()
        scene.look_for(1500 * MS)
        for machine in scene.machines:
            if machine.is_up and state_of(machine, leaver) is not MemberState.LEFT:
                scene.broken("leavers_are_gone", f"{machine.name} shows {leaver.name} as {state_of(machine, leaver)}")
        scene.look_for(3 * SECOND)
        leaver.start()
        scene.must_heal(10 * SECOND)
    if suspected:
        scene.broken("the_healthy_are_not_suspected", "; ".join(suspected[:3]))
    scene.must_not_kill()
    return scene.result()


def partitioned(time_us=60 * SECOND, profile=LOCAL, members=6):
    """Two halves call each other dead. After healing all show the truth in time, and old verdicts kill no member."""
    scene = Scene(members, profile)
    scene.publish_all()
    scene.look_for(2 * SECOND)
    sides = scene.chance.sample(scene.machines, members)
    scene.world.network.partition(sides[: members // 2], sides[members // 2 :])
    scene.look_for(30 * SECOND)
    for machine in scene.machines:
        scene.history.withdraw(machine, "keys/0")
        scene.history.publish(machine, "keys/9", b"while apart")
    victim = sides[0]
    victim.crash()
    scene.look_for(20 * SECOND)
    rest_us = max(0, time_us - 50 * SECOND)
    scene.look_for(rest_us, every_us=max(LOOK_US, rest_us // 100))
    for machine in scene.machines:
        for other in scene.machines:
            apart = (machine in sides[: members // 2]) != (other in sides[: members // 2])
            if machine.is_up and apart and state_of(machine, other) is not MemberState.DEAD:
                scene.broken("the_dead_are_found", f"{machine.name} does not hold {other.name} for dead")
    scene.wrong_dead.clear()
    scene.world.network.heal()
    scene.look_for(20 * SECOND)
    victim.start()
    scene.must_heal(35 * SECOND)
    scene.must_not_kill()
    return scene.result()


def remembered():
    """Members that died during a partition do not reappear; after the retention all members forget them."""
    profile = replace(LOCAL, dead_retention_ms=120_000)
    scene = Scene(6, profile)
    scene.publish_all()
    scene.look_for(2 * SECOND)
    gone, left = scene.machines[4], scene.machines[5]
    scene.world.network.partition([scene.machines[0]], scene.machines[1:])  # This member holds all others for dead.
    gone.crash()
    left.leave()
    scene.look_for(50 * SECOND)
    scene.world.network.heal()
    scene.look_for(40 * SECOND)
    for machine in scene.machines[:4]:
        for other in (gone, left):
            if state_of(machine, other) in {*REACHABLE, None}:
                scene.broken("the_dead_are_remembered", f"{machine.name}: {other.name} {state_of(machine, other)}")
    scene.look_for(120 * SECOND)
    for machine in scene.machines[:4]:
        for other in (gone, left):
            if state_of(machine, other) is not None:
                scene.broken("the_dead_are_forgotten", f"{machine.name} still lists {other.name}")
    return scene.result()


def restarts():
    """A restart at once, elsewhere, without disk or with an earlier clock yields one member in its newest epoch."""
    scene = Scene(5)
    scene.publish_all()
    scene.look_for(2 * SECOND)
    for turn in range(12):
        machine = scene.machines[1 + turn % 4]
        machine.crash()
        if turn % 3 == 1:
            machine.move(scene.world.free_address())
        if turn % 3 == 2:
            machine.disk.wipe()
        if turn > 5:  # The clock is set back, so only the kept epoch keeps the lives apart.
            machine.clocks.wall_offset_ms = -3_600_000
        scene.look_for(scene.chance.choice((0, 300 * MS, 5 * SECOND)))
        machine.start()
        scene.look_for(200 * MS)
        if machine.is_up:
            scene.history.publish(machine, "keys/new", b"%d" % turn)
        scene.must_heal(15 * SECOND)
    return scene.result()


def power_losses():
    """Power is lost at any time, mostly around a step of a write; each member returns under its old identity."""
    scene = Scene(4)
    scene.publish_all()
    scene.look_for(2 * SECOND)
    for turn in range(48):
        machine = scene.machines[turn % 4]
        if turn % 3:
            machine.disk.crash_soon(power=True)
        machine.crash(power=True)
        machine.start()
        scene.look_for(scene.chance.choice((300 * MS, 3 * SECOND)))
    scene.must_heal(15 * SECOND)
    struck = scene.world.struck
    for effect in ("disk_forgot", "write_torn"):
        if not struck[effect]:
            scene.broken("the_fault_struck", f"{effect}: never in {struck['power_at_sync']} losses of power")
    return scene.result()


def all_at_once():
    """All members restart in the same moment and find each other again."""
    scene = Scene(8)
    scene.publish_all()
    scene.look_for(2 * SECOND)
    for machine in scene.machines:
        machine.crash(power=True)
    for machine in scene.machines:
        machine.joins.clear()  # Their remembered addresses must suffice.
        machine.start()
    scene.must_heal(15 * SECOND)
    scene.must_not_kill()
    return scene.result()


def back_after_leaving():
    """A member returns from a partition and hears the next life of a member that had left.

    The next life is suspected, has left, or is dead by then.
    """
    scene = Scene(5)
    gone, away, others = scene.machines[3], scene.machines[4], scene.machines[:3]
    for end in ("suspected", "left", "dead"):
        gone.leave()
        scene.look_for(5 * SECOND)
        scene.world.network.partition([away], [*others, gone])
        scene.look_for(5 * SECOND)
        gone.start()
        scene.look_for(5 * SECOND)
        if end == "left":
            gone.leave()
            scene.look_for(5 * SECOND)
        elif end == "dead":
            gone.stop()
            while state_of(others[0], gone) is not MemberState.DEAD:
                scene.look_for(SECOND)
        else:
            gone.pause()
            while state_of(others[0], gone) is not MemberState.SUSPECT:
                scene.look_for(LOOK_US)
        scene.world.network.heal()
        scene.look_for(8 * SECOND)
        if end == "suspected":
            gone.resume()
        elif end == "dead" or not gone.is_up:
            gone.start()
        scene.look_for(10 * SECOND)
    scene.must_heal(35 * SECOND)
    return scene.result()


def told_of_a_death():
    """After a partition, a member hears of a death by exchange and grants the minimum time to refute."""
    scene = Scene(8, LAN)
    scene.publish_all()
    away, gone = scene.machines[:2]
    scene.look_for(3 * SECOND)
    scene.world.network.partition([away], scene.machines[1:])
    gone.crash()
    while any(state_of(machine, gone) is not MemberState.DEAD for machine in scene.machines[2:]):
        scene.look_for(SECOND)
    scene.look_for(3 * SECOND)  # The rumour of the death is over by then.
    scene.world.network.heal()
    healed_us = scene.world.now_us
    most_ms = LAN.suspicion_least_ms(8) + 4 * LAN.probe_interval_ms  # Its own probes would need 24 s and more.
    while state_of(away, gone) is not MemberState.DEAD:
        scene.look_for(LOOK_US)
        if scene.world.now_us > healed_us + most_ms * MS:
            scene.broken("healed_in_time", f"{away.name} shows {gone.name} as {state_of(away, gone).name}")
            break
    gone.start()
    scene.must_heal(35 * SECOND)
    return scene.result()


def tell_of(teller, subject, hearer):
    """Deliver to `hearer` the verdict of `teller` on `subject`, even across a partition."""
    said = gossip(teller).members.get(member_id(subject.name))
    own = gossip(teller).members.own.id
    verdict = messages.MemberVerdict(said.id, said.state, said.incarnation, said.epoch, own)
    packet = gossip(teller)._outbox.envelope.wrap(messages.gossip(own) + messages.verdict(verdict))
    hearer.arrive(packet, teller.source)


def suspected_again():
    """A member hears after a partition that its suspect had refuted and is suspected again."""
    scene = Scene(5, LAN)
    gone, away, other = scene.machines[3], scene.machines[4], scene.machines[0]
    scene.world.network.partition([away], scene.machines[:4])
    gone.pause()
    while state_of(away, gone) is not MemberState.SUSPECT or state_of(other, gone) is MemberState.ALIVE:
        scene.look_for(LOOK_US)
    gone.resume()
    scene.look_for(3 * SECOND)
    gone.pause()
    while state_of(other, gone) is not MemberState.SUSPECT:
        scene.look_for(LOOK_US)
    tell_of(other, gone, away)
    scene.look_for(LOOK_US)
    scene.world.network.heal()
    gone.resume()
    scene.must_heal(35 * SECOND)
    return scene.result()


def late_verdict():
    """A member hears after a partition that a member it calls dead had refuted and died later."""
    scene = Scene(5)
    gone, away, other = scene.machines[3], scene.machines[4], scene.machines[0]
    scene.world.network.partition([away], scene.machines[:4])
    while state_of(away, gone) is not MemberState.DEAD:
        scene.look_for(SECOND)
    gone.pause()
    while state_of(other, gone) is not MemberState.SUSPECT:
        scene.look_for(LOOK_US)
    gone.resume()
    scene.look_for(3 * SECOND)
    gone.stop()
    while state_of(other, gone) is not MemberState.DEAD:
        scene.look_for(SECOND)
    tell_of(other, gone, away)
    scene.look_for(SECOND)
    scene.world.network.heal()
    gone.start()
    scene.must_heal(35 * SECOND)
    return scene.result()


def corrupted():
    """With one wrong bit in every other packet, no member shows a value that was never published."""
    scene = Scene(5)
    scene.world.network.usual.corrupt = 0.5
    scene.world.network.changed()
    for _ in range(10):
        scene.publish_all(size=200)
        scene.machines[2].crash()
        scene.look_for(3 * SECOND)
        scene.machines[2].start()
        scene.look_for(3 * SECOND)
    scene.world.network.heal()
    scene.must_heal(15 * SECOND)
    return scene.result()


def alone():
    """A member that is cut off reports its isolation in time, and stops when it is back."""
    scene = Scene(4)
    scene.publish_all()
    for machine in scene.machines:
        scene.world.network.partition([machine], [other for other in scene.machines if other is not machine])
        scene.look_for(10 * SECOND)
        if not gossip(machine).isolated(now_ms=machine.now_ms):
            scene.broken("isolated_says_so", f"{machine.name} does not")
        scene.world.network.heal()
        scene.must_heal(15 * SECOND)
    return scene.result()


def two_clusters():
    """Two clusters of different names never mix, even if their members were told to join each other."""
    world = World(3)
    history, found = History(world), {}
    for number in range(6):
        name = "red" if number % 2 else "blue"
        machine = world.add(f"m{number}", program(LOCAL, name))
        machine.joins += [other.address for other in world.machines[:-1]]
        machine.start()
    world.run(60 * SECOND)
    for machine in world.machines:
        history.note(machine)
        shown = {member.name for member in gossip(machine).members.list()}
        expected = {f"m{number}" for number in range(6) if number % 2 == machine.number % 2}
        if shown != expected:
            found["clusters_never_mix"] = f"{machine.name} shows {sorted(shown)}"
    return found


def odd_timers():
    """Timers that fire late, twice or early kill no member, and all show the truth."""
    scene = Scene(6)
    chance = scene.world.streams["lags"]
    for machine in scene.machines:
        machine.timer_lag_us = lambda: int(chance.random() ** 4 * 400 * MS)
    scene.publish_all()

    def poke():
        for machine in scene.machines:
            for _ in range(chance.randrange(3)):
                machine.poke()

    scene.world.scheduler.every(70 * MS, poke)
    scene.look_for(60 * SECOND)
    scene.must_not_kill()
    scene.must_heal(SECOND)
    return scene.result()


def copied():
    """When a disk is copied, one of the two members stops and the other continues alone under that name."""
    scene = Scene(4)
    scene.publish_all()
    scene.look_for(2 * SECOND)
    original = scene.machines[2]
    scene.world.on_told[MemberChanged].clear()  # The checkers cannot tell two members of one name apart.
    copy = scene.world.add("copy", program(scene.profile))
    copy.name = original.name  # The disk holds the name.
    copy.disk.copy_from(original.disk)
    copy.joins += [scene.machines[0].address]
    copy.start()
    scene.world.run(20 * SECOND)
    up = [machine for machine in (original, copy) if machine.is_up]
    if up != [original]:
        scene.broken("one_of_a_name", f"{len(up)} are up, the original {'is' if original.is_up else 'is not'}")
    elif str(copy.address) not in str(copy.error) or str(original.address) not in str(copy.error):
        scene.broken("one_of_a_name", f"the error names not both addresses: {copy.error}")
    names = Counter(member.name for member in gossip(scene.machines[0]).members.list())
    if names != Counter(machine.name for machine in scene.machines[:4]):
        scene.broken("one_of_a_name", f"m0 shows {dict(names)}")
    return scene.result()


def read_only():
    """Two members on read-only disks hear others and stay unheard until they can write.

    One of them restarts at another address.
    """
    scene = Scene(6)
    scene.publish_all()
    scene.look_for(5 * SECOND)
    silent, others = scene.machines[:2], scene.machines[2:]
    for machine in silent:
        machine.crash()
        machine.disk.is_read_only = True
        machine.clocks.wall_offset_ms -= 1 << 41  # The new epoch is then the last one plus one.
    silent[1].move(scene.world.free_address())
    for machine in silent:
        machine.start()
    scene.look_for(60 * SECOND)
    for machine in silent:
        scene.history.publish(machine, "keys/late", machine.name.encode())
        if any(state_of(other, machine) is not MemberState.DEAD for other in others):
            scene.broken("the_silent_are_unheard", f"{machine.name} is not dead everywhere")
        if any(state_of(machine, other) is not MemberState.ALIVE for other in others):
            scene.broken("the_silent_hear", f"{machine.name} does not see who lives")
    silent[0].crash(power=True)  # Restart silently in the same epoch, which no member has heard of.
    silent[0].start()
    scene.look_for(10 * SECOND)
    for machine in silent:
        machine.disk.calm()
    scene.must_heal(15 * SECOND)
    for machine in silent:
        machine.crash(power=True)
        machine.start()
    scene.must_heal(15 * SECOND)
    return scene.result()


def rumours_alone():
    """Without anti-entropy and with a tenth of all datagrams lost, hardly a change is missed."""
    scene = Scene(16, LAN)
    scene.world.network.usual.loss = 0.1
    scene.world.network.refuse(lambda packet: packet[HEADER_BYTES] == messages.SYNC)
    missing = 0
    for turn in range(40):
        publisher = scene.chance.choice(scene.machines)
        scene.history.publish(publisher, f"keys/{turn}", b"")
        scene.look_for(4 * SECOND, every_us=2 * SECOND)
        missing += sum(str(turn) not in gossip(machine).tree.children("keys") for machine in scene.machines)
    if missing > 12:  # There are 640 observations.
        scene.broken("changes_spread", f"{missing} changes did not arrive")
    return scene.result()


def drifted_apart():
    """A partition heals without addresses to join, because members keep contacting the dead."""
    scene = Scene(6)
    for machine in scene.machines:
        machine.crash()
        machine.joins.clear()
        machine.start()
        scene.must_heal(10 * SECOND)
    scene.world.network.partition(scene.machines[:3], scene.machines[3:])
    scene.look_for(60 * SECOND)
    scene.world.network.heal()
    scene.wrong_dead.clear()
    scene.must_heal(35 * SECOND)
    scene.must_not_kill()
    return scene.result()


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        at_rest, crashes, lossy, silent_change, paused, cut_pairs, only_connections, starved, starved_together,
        leave, partitioned,
        remembered, restarts, power_losses, all_at_once, large_branches, full_branches, withdrawn, corrupted, alone,
        two_clusters, odd_timers, copied, read_only, rumours_alone, drifted_apart, back_after_leaving, late_verdict,
        suspected_again, told_of_a_death,
    )
}  # fmt: skip
