"""The part of the kill table that breaks what members publish."""

from __future__ import annotations

from tests.nightly.mutants.mutant import GOSSIP, Edit, Mutant

MUTANTS_OF_BRANCHES = (
    Mutant(
        "half a delta is shown",
        (
            Edit(
                f"{GOSSIP}.tree.branch:Branch.apply",
                "if delta.reach < delta.target or delta.since > (0 if delta.reset else self.version):",
                "if delta.since > (0 if delta.reset else self.version):",
            ),
        ),
        ("tests/unit/gossip/tree/test_branch_properties.py",),
        "property",
    ),
    Mutant(
        "what a key costs is not counted",
        (
            Edit(
                f"{GOSSIP}.tree.branch:Branch._put",
                "self.live_bytes += item_bytes(path, item.value)",
                "pass",
            ),
        ),
        ("withdrawn",),
        "assertion of Branch._assert_sound",
    ),
    Mutant(
        "what a branch may take is read from settings",
        (
            Edit(
                f"{GOSSIP}.tree.tree:Tree._apply",
                "outcome, step = branch.apply(delta, self.limits.protocol_branch_bytes)",
                "outcome, step = branch.apply(delta, self.limits.max_branch_bytes)",
            ),
        ),
        ("full_branches",),
        "healed_in_time",
    ),
    Mutant(
        "a branch may take anything",
        (
            Edit(
                f"{GOSSIP}.tree.branch:Branch.apply",
                "if size_bytes > most_bytes:",
                "if False:",
            ),
        ),
        ("tests/unit/gossip/tree/test_branch_properties.py",),
        "property",
    ),
    Mutant(
        "an owner does not count its tombstones",
        (
            Edit(
                f"{GOSSIP}.tree.tree:Tree._put",
                "branch.fit(self.limits.protocol_branch_bytes)",
                "pass",
            ),
        ),
        ("full_branches",),
        "healed_in_time",
    ),
    Mutant(
        "the newest tombstones go first",
        (
            Edit(
                f"{GOSSIP}.tree.branch:Branch.fit",
                "for path, version in self.gone.items():",
                "for path, version in reversed(self.gone.items()):",
            ),
        ),
        ("full_branches",),
        "assertion of Branch.fit",
    ),
    Mutant(
        "who publishes too much is not refused",
        (
            Edit(
                f"{GOSSIP}.tree.tree:Tree._put",
                'self._within("max_branch", branch.live_bytes + more_bytes, most_bytes)',
                "pass",
            ),
        ),
        ("full_branches",),
        "assertion of Branch.fit",
    ),
    Mutant(
        "pieces of two states are joined",
        (
            Edit(
                f"{GOSSIP}.tree.branch:_goes_on",
                "next_ = piece._replace(since=piece.reach, reach=delta.reach, changes=delta.changes)",
                "next_ = delta._replace(since=piece.reach)",
            ),
        ),
        ("tests/unit/gossip/tree/test_branch.py",),
        "property",
    ),
    Mutant(
        "a whole branch is laid over the old one",
        (
            Edit(
                f"{GOSSIP}.tree.branch:Branch.apply",
                "step = self._swap(changes) if delta.reset else self._overlay(changes)",
                "step = self._overlay(changes)",
            ),
        ),
        ("withdrawn",),
        "assertion of Branch.apply",
    ),
    Mutant(
        "collected tombstones do not matter",
        (
            Edit(
                f"{GOSSIP}.tree.branch:chunks",
                "reset = since < floor",
                "reset, floor = False, min(since, floor)",
            ),
        ),
        ("withdrawn",),
        "only_real_states",
    ),
    Mutant(
        "a gap is jumped",
        (
            Edit(
                f"{GOSSIP}.tree.branch:Branch.apply",
                "if delta.reach < delta.target or delta.since > (0 if delta.reset else self.version):",
                "if delta.reach < delta.target:",
            ),
        ),
        ("large_branches", "withdrawn"),
        "only_real_states",
    ),
    Mutant(
        "the dead are shown",
        (
            Edit(
                f"{GOSSIP}.tree.tree:Tree._show",
                "alive = member.state is State.ALIVE",
                "alive = member.state is not State.LEFT",
            ),
        ),
        ("crashes",),
        "only_the_live_are_shown",
    ),
    Mutant(
        "a watcher is not told of deaths",
        (
            Edit(
                f"{GOSSIP}.tree.tree:Tree.on_member",
                "if moved or before is None or before.state is not member.state:",
                "if moved and member.state is State.ALIVE:",
            ),
        ),
        ("crashes",),
        "watchers_miss_nothing",
    ),
)
