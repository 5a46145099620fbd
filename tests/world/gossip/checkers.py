"""Checkers of the users' views, at every moment of a run.

Checkers know nothing of the members' code.  They compare each machine's view (members, entries, the isolated flag,
watches) with the truth (`history.py`) and with the machine's earlier views.  Each promise has a checker with a name, so
that a report names the broken promise.  Checkers never raise; they record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.gossip.effects import Complain, MemberChanged
from gossipkv.gossip.member import GONE, REACHABLE, MemberState, Rank
from gossipkv.placement.shard_claim import NODES
from tests.world.gossip.history import NOTHING, PLACES, core_of, own, view
from tests.world.gossip.rig import rig_of
from tests.world.promises import Promises

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.gossip.member import Member
    from gossipkv.gossip.profile import TimingProfile
    from gossipkv.gossip.tree.watch import TreeWatch
    from tests.world.gossip.history import Entries, History
    from tests.world.machine import Machine
    from tests.world.promises import BrokenPromise
    from tests.world.world import World


Key = tuple[str, int, bytes]
View = dict[str, dict[str, bytes]]  # By owner: path and value.
Itself = tuple[int, int, bytes, int]  # The disk number, life, uuid and latest epoch.
Read = tuple[int, dict[tuple[str, str], bytes]]  # The revision of a watch, and its listing then.


@final
class Checkers:
    def __init__(
        self, world: World, history: History, profile: TimingProfile, promises: Promises | None = None
    ) -> None:
        self._world = world
        self._history = history
        self._profile = profile
        self.promises = Promises(world) if promises is None else promises
        self.found = self.promises.found
        # The views of each machine, while its process lives in one cluster; a machine that changes clusters begins
        # anew.
        self._ranks: dict[Key, dict[str, Rank]] = {}
        self._states: dict[Key, dict[str, int]] = {}
        self._watches: dict[Key, tuple[list[TreeWatch], list[Read]]] = {}
        self._ids: set[str] = set()  # Every cluster id that a machine ever had.
        self._selves: dict[int, Itself] = {}  # By machine number.
        world.on_moment.append(self._look_at_itself)
        world.on_told[MemberChanged].append(lambda machine, _: self.look(machine))
        world.on_told[Complain].append(self._hear_complaint)
        world.on_ended.append(self.forget)

    def look(self, machine: Machine) -> None:
        core = core_of(machine)
        if core is None:
            return
        for other in self._world.machines:
            self._history.note(other)
        members = core.members.list()
        self._look_at_list(machine, members)
        for member in members:
            self._look_at_member(machine, member)
        self._look_at_ranks(machine, members)
        visible = view(machine, everything=False)
        self._look_at_branches(machine, {member.name: member for member in members}, visible)
        self._look_at_children(machine, visible)
        self._look_at_watches(machine, visible)
        self._look_at_isolation(machine, members)

    def look_at_all(self) -> None:
        """Check every machine, and the size of the network's packets."""
        for machine in self._world.machines:
            self.look(machine)
        largest = self._world.network.largest_bytes
        if largest > self._profile.packet_bytes:
            self.found("packets_fit", None, f"a packet of {largest} bytes")

    def forget(self, machine: Machine) -> None:
        """Forget the views of a machine whose process ended: the next process may begin with less."""
        key = _key(machine)
        self._ranks.pop(key, None)
        self._states.pop(key, None)
        self._watches.pop(key, None)

    @property
    def violations(self) -> list[BrokenPromise]:
        return self.promises.violations

    def _hear_complaint(self, machine: Machine, complaint: object) -> None:
        """Check a process's complaint to its operator: no member answers its joins, or the cluster has another id."""
        assert isinstance(complaint, Complain)
        self._world.struck["complaint"] += 1
        said = str(complaint.error)
        if "no member answers" not in said and not any(f"of the id {each} " in said for each in self._ids):
            self.found("complains_of_what_is_so", machine, said)

    # Itself

    def _look_at_itself(self, machine: Machine) -> None:
        """A machine that kept its disk returns under its uuid, in an epoch above all in which it ever spoke."""
        self._ids.add(rig_of(machine).cluster_id.hex())
        me = own(machine)
        if me is None:
            if machine.error is not None:
                self.found("comes_back_as_itself", machine, f"did not start: {machine.error}")
            return
        now = machine.disk.number, machine.life, me.uuid, me.epoch
        before = self._selves.get(machine.number)
        self._selves[machine.number] = now
        if before is None or before[0] != now[0]:
            return
        if me.uuid != before[2]:
            self.found("comes_back_as_itself", machine, f"has the uuid {me.uuid.hex()} after {before[2].hex()}")
        if me.epoch < before[3] + (machine.life != before[1]):
            self.found("comes_back_as_itself", machine, f"is in epoch {me.epoch} after {before[3]}")

    # Members

    def _look_at_list(self, machine: Machine, members: Sequence[Member]) -> None:
        """The list shows each name once, in order, its own among them."""
        names = [member.name for member in members]
        if names != sorted(set(names)):
            self.found("each_member_once", machine, f"shows {names}")
        if machine.name not in names:
            self.found("knows_itself", machine, f"shows {names}")

    def _look_at_member(self, machine: Machine, member: Member) -> None:
        """No member is shown in an epoch, an incarnation, a LEFT state or a place that it never had."""
        if _is_unheard(machine, member.name):
            return
        said = self._history.said.get((member.name, member.epoch))
        if said is None:
            self.found("only_real_epochs", machine, f"shows {member.name} in epoch {member.epoch}")
            return
        if member.incarnation > said.incarnation:
            self.found("only_own_incarnations", machine, f"shows {member}, which said {said.incarnation}")
        if member.state is MemberState.LEFT and not said.has_left:
            self.found("only_the_leaver_leaves", machine, f"shows {member}")
        if (member.uuid, member.address) not in said.places:
            self.found("only_real_places", machine, f"shows {member}, which was {said}")

    def _look_at_ranks(self, machine: Machine, members: Sequence[Member]) -> None:
        """Beliefs about a member only get newer; only members that are dead or have left are forgotten.

        A forgotten member that is shown again must not be older: no dead epoch comes back.
        """
        shown = self._ranks.setdefault(_key(machine), {})
        ranks = {member.name: member.rank for member in members}
        for name, before in shown.items():
            now = ranks.get(name)
            if now is None:
                if before.state in REACHABLE:
                    self.found("nobody_vanishes", machine, f"no longer shows {name}, which was {before}")
                ranks[name] = before
            elif now < before:
                self.found("ranks_never_fall", machine, f"shows {name} as {now} after {before}")
        self._ranks[_key(machine)] = ranks

    # Branches

    def _look_at_branches(self, machine: Machine, members: dict[str, Member], visible: View) -> None:
        everything = view(machine, everything=True)
        for owner in sorted(everything.keys() | members.keys()):
            member = members.get(owner)
            if _is_unheard(machine, owner):
                continue
            if member is None:
                self.found("only_members_publish", machine, f"shows entries of {owner}")
                continue
            entries = frozenset(everything.get(owner, {}).items())
            self._look_at_branch(machine, member, entries)
            expected = entries if member.state is MemberState.ALIVE else NOTHING
            if frozenset(visible.get(owner, {}).items()) != expected:
                self.found("only_the_live_are_shown", machine, f"{owner} is {member.state.name}: {visible.get(owner)}")

    def _look_at_branch(self, machine: Machine, member: Member, entries: Entries) -> None:
        """A branch is shown only at states that its owner had in that epoch, and never goes back."""
        seen = self._states.setdefault(_key(machine), {})
        states = self._history.branches.get(member.name, [])
        least = seen.get(member.name, 0)
        if not states:
            return  # `only_real_epochs` reports this case.
        for index in range(least, len(states)):
            if states[index].epoch == member.epoch and states[index].entries == entries:
                seen[member.name] = index
                return
        gone = member.state in GONE or member.epoch < states[-1].epoch  # The member is gone, and its branch with it.
        if entries == NOTHING and (gone or member.name not in seen or states[least].epoch < member.epoch):
            return  # Or no state of this epoch has arrived yet.
        had = any(state.epoch == member.epoch and state.entries == entries for state in states)
        checker = "branches_never_go_back" if had else "only_real_states"
        wrong = [f"{path}={value[:8]!r}" for path, value in sorted(entries ^ states[least].entries)[:4]]
        self.found(checker, machine, f"shows of {member.name} in epoch {member.epoch} after state {least}: {wrong}")

    def _look_at_children(self, machine: Machine, visible: View) -> None:
        """The children are the sorted names of the visible entries, each once."""
        core = core_of(machine)
        assert core is not None
        for place in PLACES:
            begin, end = f"{place}/", len(place) + 1
            names = {path[end:] for entries in visible.values() for path in entries if path.startswith(begin)}
            if core.tree.children(place) != sorted(names):
                self.found("children_are_the_visible", machine, f"{place}: {core.tree.children(place)}, {names}")

    def _look_at_watches(self, machine: Machine, visible: View) -> None:
        """A reader that lists after each growth of its watch's revision never misses the last state."""
        core = core_of(machine)
        assert core is not None
        key = _key(machine)
        if key not in self._watches:
            self._watches[key] = [core.tree.watch(place) for place in PLACES], [(-1, {})] * len(PLACES)
        watches, read = self._watches[key]
        for at, place in enumerate(PLACES):
            revision, before = read[at]
            begin, watch = f"{place}/", watches[at]
            now = {
                (owner, path): value
                for owner, entries in visible.items()
                for path, value in entries.items()
                if path.startswith(begin)
            }
            if watch.revision == revision and now != before:
                self.found("watchers_miss_nothing", machine, f"{place} changed and the watch did not")
            if watch.revision < revision:
                self.found("watchers_miss_nothing", machine, f"the revision of {place} fell")
            read[at] = watch.revision, now

    # Isolation

    def _look_at_isolation(self, machine: Machine, members: Sequence[Member]) -> None:
        """A machine that has long heard nothing shows isolation; a machine that knows no other does not."""
        core = core_of(machine)
        assert core is not None
        others = [one for one in members if one.name != machine.name and one.state in REACHABLE]
        isolated = core.isolated(now_ms=machine.now_ms)
        if not any(one.name != machine.name for one in members) and isolated:
            self.found("isolated_says_so", machine, "isolated, and knows nobody")
        most_ms = self._profile.suspicion_least_ms(len(others) + 1) // 2
        silent_ms = machine.now_ms - machine.heard_ms
        if others and not isolated and not machine.is_paused and silent_ms > most_ms + 1:
            self.found("isolated_says_so", machine, f"has heard nothing for {silent_ms} ms")


def _is_unheard(machine: Machine, name: str) -> bool:
    """Return True for this machine itself while it is silent: no other machine can know its own view."""
    return name == machine.name and own(machine) is None


def _key(machine: Machine) -> Key:
    return machine.name, machine.life, rig_of(machine).cluster_id


def shows_the_truth(world: World, history: History) -> str | None:
    """Return the first error in a view once everything is healed and had its time; None: all views are right."""
    up = {machine.name: machine for machine in world.machines if machine.is_up}
    down = [machine.name for machine in world.machines if machine.name not in up]
    if down:
        return f"{down[0]} is down"
    for machine in up.values():
        history.note(machine)
    places = sorted(place for machine in up.values() for place in _places(machine))
    shard_ids = {place.partition("@")[0] for place in places}
    claimants = sum(rig_of(machine).claim is not None for machine in up.values())
    if not len(shard_ids) == len(places) == claimants:
        return f"{claimants} members claim the places {places}"
    wrong = (_wrong_with(machine, up, places, history) for machine in up.values())
    return next((what for what in wrong if what is not None), None)


def _places(machine: Machine) -> list[str]:
    core, begin = core_of(machine), f"{NODES}/"
    assert core is not None
    return [path.removeprefix(begin) for path in core.tree.published() if path.startswith(begin)]


def _wrong_with(machine: Machine, up: dict[str, Machine], places: list[str], history: History) -> str | None:
    core = core_of(machine)
    assert core is not None
    shown = {member.name: member for member in core.members.list()}
    for name in up.keys() | shown.keys():
        wrong = _wrong_about(shown.get(name), name, own(up[name]) if name in up else None)
        if wrong is not None:
            return f"{machine.name} {wrong}"
    entries = view(machine, everything=False)
    for name, other in up.items():
        if entries.get(name, {}) != history.published(other):
            return f"{machine.name} does not show what {name} publishes"
    if core.tree.children(NODES) != places:
        return f"{machine.name} shows the places {core.tree.children(NODES)}, and claimed are {places}"
    return f"{machine.name} is isolated" if core.isolated(now_ms=machine.now_ms) else None


def _wrong_about(member: Member | None, name: str, itself: Member | None) -> str | None:
    if itself is None:
        if member is not None and member.state in REACHABLE:
            return f"shows {name} as {member.state.name}, which is gone"
        return None
    if member is None:
        return f"does not know {name}"
    if member.state is not MemberState.ALIVE:
        return f"shows {name} as {member.state.name}, which is up"
    if member != itself:
        return f"shows {name} at {member.epoch}.{member.incarnation}, which is at {itself.epoch}.{itself.incarnation}"
    return None
