"""Wrong members: each function here changes the production code so that it breaks one promise.

Nothing here raises or asserts: only what the members then show can give them away.
"""

from __future__ import annotations

from gossipkv.gossip import core, packets
from gossipkv.gossip.exchange import Exchange
from gossipkv.gossip.member import State
from gossipkv.gossip.membership import beliefs
from gossipkv.gossip.membership.beliefs import Beliefs
from gossipkv.gossip.membership.naming import Naming
from gossipkv.gossip.membership.spreading import Spreading
from gossipkv.gossip.membership.states import NEXT, Said
from gossipkv.gossip.state_hash import StateHash
from gossipkv.gossip.tree import branch, chunks
from gossipkv.gossip.tree.branch import Branch
from gossipkv.gossip.tree.tree import Tree
from gossipkv.gossip.tree.watch import Watches


def table(change, **changed):
    """The automaton with other entries; None takes one out."""
    wrong = dict(NEXT)
    for entry, after in changed.items():
        before, said = entry.split("_", 1)
        key = None if before == "UNKNOWN" else State[before], Said[said]
        wrong[key] = after
        if after is None:
            del wrong[key]
    change.setattr(beliefs, "NEXT", wrong)


# Membership


def never_refutes(change):
    """Who is suspected says nothing."""
    change.setattr(Naming, "_heard", lambda self, state, incarnation, now_ms: None)


def refutes_in_the_same_incarnation(change):
    """It says that it is alive, and nobody has reason to believe it."""

    def heard(self, state, incarnation, now_ms):
        if (incarnation, state) > (self._members.own.incarnation, self._members.own.state):
            self._became(now_ms)

    change.setattr(Naming, "_heard", heard)


def never_gives_up(change):
    """A suspicion never runs out."""
    table(change, SUSPECT_EXPIRED=None)


def kills_without_suspicion(change):
    """One failed probe is a verdict."""
    table(change, ALIVE_UNANSWERED=State.DEAD)


def kills_on_hearsay(change):
    """Whom an exchange calls dead is dead."""
    table(change, ALIVE_DEAD_RECORD=State.DEAD, SUSPECT_DEAD_RECORD=State.DEAD)


def believes_older_epochs(change):
    """Any record is believed, the older one too."""
    change.setattr(beliefs, "_beats", lambda record, known: record != known)


def forgets_the_dead_at_once(change):
    """A dead epoch is not remembered."""
    remember = Beliefs._remember

    def forget(self, now_ms):
        remember(self, now_ms)
        for peer in list(self._members.unreachable()):
            self._forget(peer.member, now_ms)

    change.setattr(Beliefs, "_remember", forget)


def keeps_its_epoch(change):
    """A node that hears its own name in a higher epoch goes on in that one."""
    renew = Naming._renew
    change.setattr(Naming, "_renew", lambda self, epoch, *more: renew(self, epoch - 1, *more))


def goes_without_a_word(change):
    """LEFT is said by nobody: the member says that it has left and stays for others what it was."""
    tell = Spreading.tell

    def silent(self, members):
        if self._members.own.state is not State.LEFT:
            tell(self, members)

    change.setattr(Spreading, "tell", silent)
    change.setattr(Spreading, "laden", lambda self, message: message)


def overloads_packets(change):
    """Rumours are put on packets whatever their size."""

    def laden(self, message):
        return message + b"".join(self._first.take(1 << 20, 8) + self._second.take(1 << 20, 8))

    change.setattr(Spreading, "laden", laden)


def never_isolated(change):
    """A node that hears nobody does not say so."""
    change.setattr(core.Gossip, "isolated", lambda self, *, now_ms: False)


# Anti-entropy


def sees_no_difference(change):
    """Other hashes are of no interest: who missed a rumour misses it for good."""
    change.setattr(Exchange, "differs", lambda self, *arguments, **named: None)
    change.setattr(Exchange, "_regularly", lambda self, now_ms: None)


def hashes_members_alone(change):
    """What is published is not in the state hash."""
    change.setattr(Tree, "claims", lambda self, owner: packets.Head(owner, 0, 0))


def hashes_nothing(change):
    """All knowledge looks the same."""
    change.setattr(StateHash, "_hash_of", lambda self, id_: 0)


# The tree


def shows_halves(change):
    """What arrived of a transfer is shown at once."""
    apply = Branch.apply

    def hasty(self, delta, limits):
        return apply(self, delta._replace(target=delta.reach), limits)

    change.setattr(Branch, "apply", hasty)


def closes_gaps(change):
    """Changes are applied whatever is missing before them."""
    apply = Branch.apply

    def careless(self, delta, limits):
        return apply(self, delta._replace(since=min(delta.since, self.version)), limits)

    change.setattr(Branch, "apply", careless)


def tells_no_tombstones(change):
    """Only what is there is told, not what went."""
    changes = Branch.changes
    change.setattr(
        Branch, "changes", lambda self, since: [made for made in changes(self, since) if made.value is not None]
    )


def lays_resets_over(change):
    """The branch anew is laid over the old one, whose withdrawn keys stay."""
    change.setattr(Branch, "_swap", Branch._overlay)


def skips_what_was_collected(change):
    """Who is behind the floor gets only what is left, and no branch anew."""

    def wrong(owner, branch, since, most_bytes):
        floor = branch.floor
        branch.floor = min(floor, since)
        try:
            yield from list(chunks.chunks(owner, branch, since, most_bytes))
        finally:
            branch.floor = floor

    change.setattr("gossipkv.gossip.tree.tree.chunks", wrong)


def goes_on_with_any_transfer(change):
    """A reset goes on from any sender, whatever tombstones it has dropped meanwhile."""
    change.setattr(
        branch._Staged,
        "continues",
        lambda self, delta: delta.since <= self.reach and delta.target >= self.target,
    )


def keeps_branches_of_the_past(change):
    """What was published in an older epoch stays when the owner was started anew."""

    def replace(self, owner, epoch):
        kept = self._branches[owner]
        kept.epoch, kept.version = epoch, 0
        return kept

    change.setattr(Tree, "_replace", replace)


def shows_the_dead(change):
    """Branches are shown whatever became of their owners."""
    hide = Tree._hide

    def only_epochs(self, owner):
        member = self._members.get(owner)
        if member is None or member.epoch != self._branches[owner].epoch:
            hide(self, owner)

    change.setattr(Tree, "_hide", only_epochs)


def wakes_for_the_first_only(change):
    """Of a step that changes several keys watchers of the first one hear."""
    step = Watches.step
    change.setattr(Watches, "step", lambda self, paths: step(self, list(paths)[:1]))


def sleeps_through_deaths(change):
    """Watchers hear what owners change, not what becomes of owners."""
    on_member = Tree.on_member

    def quiet(self, member, **named):
        watches, self._watches = self._watches, Watches()
        try:
            on_member(self, member, **named)
        finally:
            self._watches = watches

    change.setattr(Tree, "on_member", quiet)
