"""Schedules aimed at rules of moves that random runs strike too seldom, or whose breach only costs time.

With three slots nodes 0, 1, 2 have assignments 1, 2, 3, and node 3 is to have 4, in slot 0.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, final

from tests.world.models.copies import Broken, State
from tests.world.models.moves import Message, Run, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.world.models.host import Node


@final
class Stage:
    """A run in which nothing happens unless it is told to: nobody hears of a config by himself."""

    def __init__(self, planted: frozenset[str], replication: int = 3) -> None:
        self.run = run = Run(1, planted, replication)
        run.ears = [0.0] * len(run.nodes)
        run.keys, run.log_entries = 6, 99
        self.nodes = run.nodes
        for node in run.nodes:
            node.skew = 0

    def assign(self, node: int, slot: int = 0) -> int:
        self.run.last_id += 1
        self.run.apply("assign", self.run.last_id, node, slot)
        return self.run.last_id

    def adopt(self, *indexes: int) -> None:
        for index in indexes:
            self.nodes[index].adopt(self.run.configs[-1].version)
            self.nodes[index].sync()

    def write(self, node: int, key: int = 0, level: str = "majority", session: Session | None = None) -> None:
        self.nodes[node].write(key, session or Session(self.run), level, is_tombstone=False)
        self.nodes[node].sync()

    def state(self, id_: int) -> State | None:
        return self.run.configs[-1].state(id_)

    def among(
        self,
        *indexes: int,
        adopting: Iterable[int] = (),
        rounds: int = 8,
        feeds: bool = True,
        loads: bool = True,
        unsynced: int = -1,
    ) -> None:
        """Let some nodes tell, feed, load and decide among themselves; some adopt what they come to."""
        run = self.run
        for _ in range(rounds):
            run.now += 5
            for node in (self.nodes[index] for index in indexes):
                self._turn(node, indexes, feeds=feeds, loads=loads, is_synced=node.index != unsynced)
            for kind, source, target, content in self._messages(indexes):
                if kind == "submit":
                    run.apply(str(content[0]), *content[1:])
                elif self.nodes[target].is_up:
                    getattr(self.nodes[target], "on_" + kind)(source, *content)
            self.adopt(*adopting)
            run.check()

    def _turn(self, node: Node, indexes: tuple[int, ...], *, feeds: bool, loads: bool, is_synced: bool) -> None:
        if is_synced:
            node.sync()
        if loads:
            node.look_for_loads()
        node.look()
        for one in node.says().assignments:
            if one.node in indexes and one.node != node.index:
                node.tell(one)
                if feeds:
                    node.push(one, 9)

    def _messages(self, indexes: tuple[int, ...]) -> Iterable[Message]:
        """What is under way among them, and what that leads to; all else is lost."""
        while self.run.net:
            message = self.run.net.pop(0)
            if message[1] in indexes and message[2] in (-1, *indexes):
                yield message

    def move(self, *indexes: int) -> int:
        """Have node 3 become AVAILABLE in slot 0, with the help of those."""
        target = self.assign(3)
        self.adopt(3, *indexes)
        for _ in range(60):
            if self.state(target) != State.AVAILABLE:
                self.among(3, *indexes, adopting=(3, *indexes), rounds=1)
        return target

    def end(self) -> None:
        self.run.heal()
        self.run.check_final()


def origin_at_an_old_config(stage: Stage) -> None:
    """Node 1 has not heard of the move, and writes: whoever is LEAVING by now has it."""
    assert stage.state(stage.move(0, 2)) == State.AVAILABLE
    stage.write(1)
    stage.among(0, 1)
    stage.end()


def reporter_that_has_not_adopted(stage: Stage) -> None:
    """Five slots; node 2 reports, and then confirms what 4 wrote and 3 had confirmed, all by the old config."""
    stage.write(4)
    stage.among(3, 4, rounds=4)
    target = stage.assign(5, 4)
    stage.adopt(0, 1, 3, 5)
    stage.among(3, 5, rounds=1, feeds=False)
    stage.among(0, 1, 2, 5, adopting=(5,), rounds=40)
    stage.among(2, 4, rounds=4)
    assert stage.run.acked
    if stage.state(target) == State.AVAILABLE:
        stage.among(0, 1, 5)
    stage.end()


def adoption_lost_in_a_crash(stage: Stage) -> None:
    """Node 1 says that it has adopted, crashes before its sync, and confirms by the old config."""
    stage.assign(3)
    stage.adopt(2, 3)
    for _ in range(40):
        stage.nodes[1].adopt(stage.run.configs[-1].version)
        stage.among(1, 2, 3, adopting=(2, 3), rounds=1, unsynced=1)
    stage.nodes[1].crash()
    stage.write(1)
    stage.among(0, 1, rounds=4)
    stage.end()


def one_reporter_that_lacks_it(stage: Stage) -> None:
    """0 and 1 have a write, 2 has not, and reports alone."""
    stage.write(1)
    stage.among(0, 1, rounds=3)
    stage.assign(3)
    stage.adopt(0, 2, 3)
    stage.among(0, 2, 3, adopting=(3,), rounds=2, feeds=False)
    stage.among(2, 3, adopting=(2, 3), rounds=40)
    stage.end()


def source_that_is_ahead(stage: Stage) -> None:
    """The source of the slot has what nobody else has, and would answer."""
    target = stage.assign(3)
    stage.adopt(0, 1, 2, 3)
    stage.write(0, level="one")
    stage.among(1, 2, 3, adopting=(1, 2, 3), rounds=9)
    copy, source = (stage.nodes[i].mine(stage.nodes[i].synced) for i in (3, 0))
    assert copy is not None
    assert source is not None
    if stage.state(target) == State.AVAILABLE and copy.clock[1] < source.clock[1]:
        raise Broken("behind its source")
    stage.end()


def one_that_has_adopted(stage: Stage) -> None:
    """Only node 0 has adopted while 1 and 2 write more than logs hold: loaded before they feed is loaded in vain."""
    stage.run.log_entries = 2
    stage.assign(3)
    stage.adopt(0, 3)
    stage.among(0, 3, adopting=(0, 3), rounds=20)
    for _ in range(9):
        stage.write(1)
        stage.among(1, 2, rounds=1)
    for node in stage.nodes[:3]:
        stage.run.trim(node)
    stage.adopt(1, 2)
    loads = stage.run.counts["loaded again"]
    stage.among(1, 2, 3, adopting=(1, 2, 3), rounds=30)
    if stage.run.counts["loaded again"] > loads:
        raise Broken("loaded in vain")
    stage.end()


def leaving_that_is_down(stage: Stage) -> None:
    """Whoever is LEAVING is down, and node 2 too: the target and 1 are a majority."""
    assert stage.state(stage.move(0, 1, 2)) == State.AVAILABLE
    stage.nodes[0].is_up = stage.nodes[2].is_up = False
    stage.write(1)
    stage.among(1, 3, rounds=3)
    if not stage.run.acked:
        raise Broken("waits")
    stage.end()


def targets_that_are_down(stage: Stage) -> None:
    """Two slots move, to nodes that do not answer any more; all three hosts are well."""
    for slot, node in enumerate((3, 4)):
        stage.run.apply("advance", stage.assign(node, slot), State.INITIALIZING)
        stage.nodes[node].is_up = False
    stage.adopt(0, 1, 2)
    stage.write(2)
    stage.among(0, 1, 2, rounds=3)
    if not stage.run.acked:
        raise Broken("waits")
    stage.end()


def leaving_with_a_write_of_its_own(stage: Stage) -> None:
    """Node 0 has written after it had reported, at level one, and all but what it wrote comes through."""
    target = stage.assign(3)
    stage.adopt(0, 1, 2, 3)
    while stage.state(target) != State.AVAILABLE:
        stage.among(0, 1, 2, 3, adopting=(1, 2, 3), rounds=1)
        if stage.state(target) == State.INITIALIZING:
            stage.adopt(0)
    stage.write(0, level="one")
    stage.among(0, 1, 2, 3, adopting=(0, 1, 2, 3), feeds=False)
    drop(stage)
    stage.end()


def leaving_that_is_written_to(stage: Stage) -> None:
    """All cover what node 0 said last; then somebody writes there."""
    stage.move(0, 1, 2)
    stage.nodes[0].look()
    stage.among(0, 1, 2, 3, rounds=1, feeds=False)
    stage.nodes[0].look()
    stage.write(0, level="one")
    while stage.run.net:
        stage.run.deliver(0)
    stage.adopt(0, 1, 2, 3)
    drop(stage)
    stage.end()


def drop(stage: Stage) -> None:
    """Have node 0 look at the register, and ask, twice."""
    for _ in range(2):
        stage.nodes[0].look_at_register()
        stage.among(0, 1, 2, 3, rounds=1, feeds=False)
    stage.nodes[0].sync()


def ends_while_it_lives(stage: Stage) -> None:
    """Node 0 is taken by force, and lives; what it writes then reaches a majority by the old config."""
    stage.run.lost.add(0)
    stage.run.apply("force", 1)
    end_is_asked(stage)


def ends_of_the_dead(stage: Stage) -> None:
    """Node 0 is taken by force; 1 has what it wrote, 2 has not."""
    stage.run.lost.add(0)
    stage.write(0)
    stage.among(0, 1, rounds=3)
    stage.run.apply("force", 1)
    end_is_asked(stage)


def end_is_asked(stage: Stage) -> None:
    """A session that has seen what node 0 wrote asks node 2."""
    session = Session(stage.run)
    if not stage.run.acked:
        stage.write(0, session=session)
        stage.among(0, 1, rounds=3)
    for dot in stage.run.acked:
        session.knows(stage.run.must[dot][0])
    stage.nodes[0].is_up = False
    stage.adopt(1, 2)
    stage.among(1, 2, rounds=3, feeds=False)
    stage.adopt(1, 2)
    assert stage.nodes[2].read(0, session) == "NOT_READY"
    stage.end()


def target_alone_in_its_slot(stage: Stage) -> None:
    """Node 0 was lost, and its slot has only a target, which is fed by 2; then 2 is lost, and no more."""
    stage.write(2, level="one")
    stage.run.lost.add(0)
    stage.nodes[0].is_up = stage.nodes[1].is_up = False
    stage.run.apply("force", 1)
    stage.run.apply("advance", stage.assign(3), State.INITIALIZING)
    stage.adopt(2, 3)
    stage.among(2, 3, rounds=2, loads=False)
    stage.write(2, key=1)
    stage.among(2, 3, rounds=2, loads=False)
    stage.nodes[2].is_up = False
    stage.run.lost.add(2)
    stage.end()


def origin_that_is_not_known_yet(stage: Stage) -> None:
    """A write by the target, and one that has seen it, come to node 2, which does not know of the target."""
    stage.write(1, key=1)
    stage.among(0, 1, 2, rounds=3)
    assert stage.state(stage.move(0, 1)) == State.AVAILABLE
    session, other = Session(stage.run), Session(stage.run)
    stage.write(3, key=1, level="one", session=session)
    stage.among(1, 3, rounds=3)
    stage.write(1, key=2, level="one", session=session)
    stage.among(1, 2, rounds=3)
    for key in (2, 1):
        stage.nodes[2].read(key, other)
    stage.end()


def span_with_a_gap(stage: Stage) -> None:
    """Of three writes of node 1 the target misses the second, and loads from 2, which has none."""
    stage.write(1)
    stage.among(0, 1, 2, rounds=4)
    stage.assign(3)
    stage.adopt(1, 2, 3)
    stage.write(1, key=1)
    stage.among(1, 3, rounds=2)
    stage.write(1, key=2)
    stage.run.log_entries = 0
    stage.run.trim(stage.nodes[1])
    stage.write(1, key=3)
    stage.among(1, 3, rounds=2)
    stage.among(2, 3, adopting=(2, 3), rounds=30)
    stage.end()


PLANTED: dict[str, tuple[Callable[[Stage], None], str]] = {  # A rule that is broken: what shows it, and by what.
    "adoption_not_durable": (adoption_lost_in_a_crash, "thin"),
    "forced_end_not_fenced": (ends_while_it_lives, "called lost"),
    "forced_end_too_low": (ends_of_the_dead, "called lost"),
    "gap_in_a_span_joined": (span_with_a_gap, "unequal"),
    "initializing_by_gossip": (one_that_has_adopted, "loaded in vain"),
    "leaving_awaited": (leaving_that_is_down, "waits"),
    "lone_target_counts": (target_alone_in_its_slot, "lost"),
    "not_adopted_reporters": (reporter_that_has_not_adopted, "thin"),
    "one_reporter_enough": (one_reporter_that_lacks_it, "thin"),
    "originates_while_leaving": (leaving_that_is_written_to, "lost one"),
    "source_left_out": (source_that_is_ahead, "behind its source"),
    "stale_confirmation_counted": (origin_at_an_old_config, "thin"),
    "taken_of_a_newer_config": (origin_that_is_not_known_yet, "stale"),
    "two_slots_move": (targets_that_are_down, "waits"),
    "unassigned_before_all_cover": (leaving_with_a_write_of_its_own, "lost one"),
}


def verdict(schedule: Callable[[Stage], None], planted: frozenset[str] = frozenset()) -> str:
    """Run a schedule, and say what was broken, or `right`."""
    try:
        schedule(Stage(planted, 5 if schedule is reporter_that_has_not_adopted else 3))
    except Broken as broken:
        return str(broken)
    return "right"


def main(planted: list[str]) -> None:
    """Say what each schedule comes to."""
    for schedule, _ in PLANTED.values():
        sys.stdout.write(f"{schedule.__name__}: {verdict(schedule, frozenset(planted))}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
