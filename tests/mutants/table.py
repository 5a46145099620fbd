"""The kill table: patches that break membership, tree, and what a node keeps, and what must notice each.

A mutant is a piece of a module's text and what stands there instead.  It is killed when a scenario of
`tests/simulation/scenarios.py`, or a run of drawn faults, says that a promise is broken: what members *show* is wrong,
too late, or too much.  An exception or a failed assertion in the patched code kills nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

GOSSIP = "gossipkv.gossip"
DOCUMENT = "gossipkv.storage.document"


@dataclass(frozen=True)
class Mutant:
    """A patch, and the aims at which it must be seen."""

    name: str
    module: str
    old: str  # Stands in the module exactly once.
    new: str
    aims: tuple[str, ...]  # Scenarios by name, seeds by number, tests of properties by path.  One is enough.
    by: str  # The checker that is expected to speak.
    also: tuple[tuple[str, str], ...] = ()  # Further places of the same patch: what stands there, what then does.


MUTANTS = (
    Mutant(
        "a verdict of a full exchange kills",
        f"{GOSSIP}.membership.states",
        "(ALIVE, Said.DEAD_RECORD): SUSPECT,",
        "(ALIVE, Said.DEAD_RECORD): DEAD,",
        ("partitioned",),
        "the_healthy_live",
    ),
    Mutant(
        "a suspicion is not refuted",
        f"{GOSSIP}.membership.naming",
        "if (incarnation, state) <= (own.incarnation, own.state):",
        "if incarnation <= own.incarnation:",
        ("partitioned", "lossy"),
        "the_healthy_live",
    ),
    Mutant(
        "a refutation has the accused incarnation",
        f"{GOSSIP}.membership.naming",
        "self._members.own = own._replace(incarnation=incarnation + 1)",
        "self._members.own = own._replace(incarnation=incarnation)",
        ("partitioned", "lossy"),
        "healed_in_time",
    ),
    Mutant(
        "who was deaf judges at once",
        f"{GOSSIP}.core",
        "        if now_ms - self._heard_ms > self._silence_ms:\n",
        "        if False:\n",
        ("starved_together",),
        "the_healthy_live",
    ),
    Mutant(
        "confirmations do not shorten a suspicion",
        f"{GOSSIP}.membership.suspicion",
        "self.deadline_ms = min(self.deadline_ms, self._started_ms + time_ms)",
        "self.deadline_ms = self._started_ms + self._most_ms",
        ("crashes",),
        "the_dead_are_found",
    ),
    Mutant(
        "an older statement is believed",
        f"{GOSSIP}.membership.beliefs",
        "        return record.rank > known.rank\n",
        "        return record.epoch >= known.epoch\n",
        ("restarts", "corrupted", "remembered"),
        "ranks_never_fall",
    ),
    Mutant(
        "a late verdict is believed",
        f"{GOSSIP}.membership.beliefs",
        "        if rank > known.rank:\n            statement",
        "        if said.epoch >= known.epoch and said.state is not known.state:\n            statement",
        ("partitioned", "lossy", "3", "5", "8"),
        "ranks_never_fall",
    ),
    Mutant(
        "the dead are forgotten at once",
        f"{GOSSIP}.membership.beliefs",
        "        retention = self._profile.dead_retention_ms\n",
        "        retention = 1000\n",
        ("remembered",),
        "the_dead_are_remembered",
        (
            (
                "            self._forgets_ms = now_ms + self._profile.dead_retention_ms\n",
                "            self._forgets_ms = now_ms + 1000\n",
            ),
        ),
    ),
    Mutant(
        "no indirect probes",
        f"{GOSSIP}.membership.detector",
        "helpers = self._members.draw(self._random, self._profile.indirect_probes, member.id)",
        "helpers = self._members.draw(self._random, 0, member.id)",
        ("cut_pairs",),
        "the_healthy_are_not_suspected",
    ),
    Mutant(
        "no TCP fallback",
        f"{GOSSIP}.membership.detector",
        "            self._prober.read_reply(reply, now_ms)\n",
        "            pass\n",
        ("only_connections",),
        "the_healthy_live",
    ),
    Mutant(
        "a departure is not told",
        f"{GOSSIP}.core",
        "        self.members.own = self.members.own._replace(state=State.LEFT)\n",
        "",
        ("leave",),
        "leavers_are_gone",
    ),
    Mutant(
        "a wrong checksum is no matter",
        f"{GOSSIP}.envelope",
        'raise Dropped("short" if len(packet) < HEADER_BYTES else "checksum")',
        "pass",
        ("corrupted",),
        "only_real_states",
    ),
    Mutant(
        "any cluster will do",
        f"{GOSSIP}.envelope",
        "if packet[3:_ID_AT] != self._mark:",
        "if False:",
        ("two_clusters",),
        "clusters_never_mix",
    ),
    Mutant(
        "rumours are told once",
        f"{GOSSIP}.profile",
        "return max(self.retransmit_floor, self.retransmit_multiplier * math.ceil(math.log10(members + 1)))",
        "return 1",
        ("rumours_alone",),
        "changes_spread",
    ),
    Mutant(
        "equal hashes for unequal branches",
        f"{GOSSIP}.state_hash",
        "version = head.version if head.epoch == member.epoch else 0",
        "version = 0",
        ("silent_change",),
        "changes_spread",
    ),
    Mutant(
        "nobody exchanges on a difference",
        f"{GOSSIP}.exchange",
        "        if still_ms >= self._spread_ms() or now_ms - self._last_ms >= LONGEST_WAIT_MS:\n",
        "        if False:\n",
        ("silent_change", "withdrawn"),
        "changes_spread",
    ),
    Mutant(
        "never isolated",
        f"{GOSSIP}.core",
        "return now_ms - self._heard_ms > self._profile.suspicion_least_ms(self.members.reachable) // 2",
        "return False",
        ("alone",),
        "isolated_says_so",
    ),
    Mutant(
        "half a transfer is shown",
        f"{GOSSIP}.tree.branch",
        "        if staged.reach < staged.target:\n            self._staged = staged\n",
        "        if False:\n            self._staged = staged\n",
        ("large_branches",),
        "only_real_states",
    ),
    Mutant(
        "deltas are laid over missing tombstones",
        f"{GOSSIP}.tree.branch",
        "delta.since <= self.reach and delta.target >= self.target and delta.floor <= max(delta.since, self.oldest)",
        "delta.since <= self.reach and delta.target >= self.target",
        ("tests/unit/gossip/tree/test_branch_properties.py",),
        "property",
    ),
    Mutant(
        "a whole branch is laid over the old one",
        f"{GOSSIP}.tree.branch",
        "step = self._swap(staged.changes.values()) if staged.reset else self._overlay(staged.changes.values())",
        "step = self._overlay(staged.changes.values())",
        ("withdrawn",),
        "healed_in_time",
    ),
    Mutant(
        "collected tombstones do not matter",
        f"{GOSSIP}.tree.chunks",
        "    reset = since < floor\n",
        "    reset, floor = False, min(since, floor)\n",
        ("withdrawn",),
        "healed_in_time",
    ),
    Mutant(
        "a gap is jumped",
        f"{GOSSIP}.tree.branch",
        "        if delta.since > (0 if delta.reset else self.version):\n",
        "        if False:\n",
        ("large_branches", "withdrawn"),
        "only_real_states",
    ),
    Mutant(
        "the dead are shown",
        f"{GOSSIP}.tree.tree",
        "alive = member.state is State.ALIVE and",
        "alive = member.state is not State.LEFT and",
        ("crashes",),
        "only_the_live_are_shown",
    ),
    Mutant(
        "a watcher is not told of deaths",
        f"{GOSSIP}.tree.tree",
        "if moved or before is None or before.state is not member.state:",
        "if moved and member.state is State.ALIVE:",
        ("crashes",),
        "watchers_miss_nothing",
    ),
    Mutant(
        "a document is not synced",
        DOCUMENT,
        "            files.sync(descriptor)\n",
        "",
        ("power_losses",),
        "comes_back_as_itself",
    ),
    Mutant(
        "the name of a document is not synced",
        DOCUMENT,
        "    files.sync_directory(Path(target).parent)\n",
        "",
        ("1", "4", "13"),
        "comes_back_as_itself",
    ),
    Mutant(
        "a document is written in its place",
        DOCUMENT,
        'beside = f"{target}.tmp"',
        "beside = target",
        ("power_losses",),
        "comes_back_as_itself",
    ),
    Mutant(
        "a start does not keep its epoch",
        "gossipkv.dataset.node_document",
        "epoch=known.epoch + 1)\n    write_node(files, path, record)\n",
        "epoch=known.epoch + 1)\n    write_node(files, path, known)\n",
        ("restarts",),
        "comes_back_as_itself",
    ),
)
