"""Schedules aimed at rules of division that random runs strike too seldom.

Nodes 0, 1, 2 have a partition of keys 0 to 7 at first, which is divided at key 4; node 5 takes over what 2 has.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, final

from tests.world.models.copies import Broken, State
from tests.world.models.division import Run, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LEFT, RIGHT = 0, 7  # A key of each child.


@final
class Stage:
    """A run in which nothing happens unless it is told to: nobody hears of a map by himself."""

    def __init__(self, planted: frozenset[str]) -> None:
        self.run = run = Run(1, planted)
        self.hosts = run.hosts
        run.ears = [0.0] * len(run.hosts)
        for host in run.hosts:
            host.skew = 0
            host.is_up = host.index in {0, 1, 2, 5}

    def write(self, node: int, key: int, session: Session, level: str = "one") -> None:
        self.hosts[node].write(key, session, level)
        self.hosts[node].sync()

    def divide(self, *adopting: int) -> None:
        self.run.divide(self.run.maps[-1].partitions[0], 4)
        self.adopt(*adopting)

    def adopt(self, *nodes: int, unsynced: int = -1) -> None:
        for node in nodes:
            self.hosts[node].adopt(self.run.maps[-1])
            if node != unsynced:
                self.hosts[node].sync()

    def feed(self, source: int, target: int, keys: Iterable[int] = (LEFT, RIGHT)) -> None:
        """Let what one lacks come to it, of the partitions of these keys, and the answer back."""
        self.tell(target, source)
        self.hosts[source].push(target, 99)
        partitions = [self.hosts[source].synced.map.at(key) for key in keys]
        for kind, _, _, content in list(self.run.net):
            if content[1] in partitions:
                getattr(self.hosts[target], "on_" + kind)(source, *content)
        self.hosts[target].sync()
        self.tell(target, source)

    def tell(self, source: int, target: int) -> None:
        self.run.net.clear()
        self.hosts[source].tell(target)
        while self.run.net:
            self.run.deliver(0)

    def move(self, *adopting: int, unsynced: int = -1) -> None:
        """Have node 5 take over what 2 holds, as far as these come with it."""
        for partition in self.run.maps[-1].partitions:
            self.run.assign(partition, 5, 2)
        for _ in range(8):
            self.adopt(5, *adopting, unsynced=unsynced)
            self.run.move(0)
            for node in adopting:
                self.tell(5, node)
                self.feed(node, 5)

    def state(self) -> State | None:
        return next((one.state for one in self.run.maps[-1].at(LEFT).assignments if one.node == 5), None)

    def end(self) -> None:
        self.run.heal()
        self.run.check_final()


def origin_that_has_not_heard(stage: Stage) -> None:
    """Node 2 is paused while 5 takes over from 0 and 1, and then writes; its disk is lost, and 1's."""
    stage.divide()
    stage.hosts[2].is_up = False
    stage.move(0, 1)
    assert stage.state() == State.AVAILABLE
    stage.hosts[2].is_up = True
    stage.write(2, LEFT, stage.run.sessions[0], "majority")
    stage.feed(2, 1)
    for node in (2, 1):
        stage.run.lose(stage.hosts[node])
    stage.end()


def adoption_lost_in_a_crash(stage: Stage) -> None:
    """Node 1 has adopted the division and the move, crashes before its sync, and goes on under the parent with 2."""
    stage.divide()
    stage.hosts[2].is_up = False
    stage.move(0, 1, unsynced=1)
    stage.hosts[1].crash()
    stage.hosts[2].is_up = True
    stage.write(2, LEFT, stage.run.sessions[0], "majority")
    stage.feed(2, 1)
    assert stage.run.acked
    stage.run.check()
    stage.end()


def copy_that_comes_back(stage: Stage) -> None:
    """Node 2 is given up, and has ended, with what it alone has of the parent; it comes back, and is assigned anew."""
    stage.write(2, LEFT, stage.run.sessions[0], "majority")
    stage.divide(0, 1)
    stage.run.lose(stage.hosts[2])
    stage.run.heal()
    stage.run.lost = set()
    for partition in stage.run.maps[-1].partitions:
        assert 2 not in partition.nodes
        stage.run.assign(partition, 2, 0)
    stage.end()


def parent_that_ends(stage: Stage) -> None:
    """Node 1 has found that all say the same of the parent's assignments; then node 0 writes, and 1 confirms."""
    writer = stage.run.sessions[0]
    stage.write(0, LEFT, writer)
    stage.divide(0, 1, 2)
    for node in (1, 2):
        stage.feed(0, node)
    for node in (0, 2):
        stage.tell(node, 1)
    stage.hosts[1].settle()
    found = list(stage.run.net)
    assert found
    stage.write(0, LEFT, writer, "majority")
    stage.feed(0, 1)
    stage.run.net.extend(found)
    while stage.run.net:
        stage.run.deliver(0)
    stage.end()


def dependency_on_the_parents_time(stage: Stage) -> None:
    """Node 1 has all of the left child, and nothing of the right one, which the left one's record depends on."""
    writer, reader = stage.run.sessions[:2]
    stage.write(0, RIGHT, writer)
    stage.divide(0, 1)
    stage.write(0, LEFT, writer)
    stage.feed(0, 1, keys=[LEFT])
    for key, is_answered in ((LEFT, True), (RIGHT, False)):
        assert stage.hosts[1].read(key, reader) is is_answered
    stage.end()


def child_that_all_have(stage: Stage) -> None:
    """All have what the parent's copy wrote into the left child, and only node 0 what it wrote into the right one."""
    writer, reader = stage.run.sessions[:2]
    stage.write(0, RIGHT, writer)
    stage.write(0, LEFT, writer)
    stage.divide(0, 1, 2)
    for node in (1, 2):
        stage.feed(0, node, keys=[LEFT])
    assert stage.hosts[0].read(LEFT, reader)
    assert not stage.hosts[1].read(RIGHT, reader)
    stage.end()


PLANTED: dict[str, tuple[Callable[[Stage], None], str]] = {  # A rule that is broken: what shows it, and by what.
    "adoption_not_durable": (adoption_lost_in_a_crash, "thin"),
    "child_confirms_for_parent": (origin_that_has_not_heard, "thin"),
    "parent_originates": (parent_that_ends, "unequal"),
    "former_not_depended_on": (dependency_on_the_parents_time, "stale"),
    "what_lies_there_inherited": (copy_that_comes_back, "unequal"),
    "settled_for_siblings": (child_that_all_have, "stale"),
}


def verdict(schedule: Callable[[Stage], None], planted: frozenset[str] = frozenset()) -> str:
    """Run a schedule, and say what was broken, or `right`."""
    try:
        schedule(Stage(planted))
    except Broken as broken:
        return str(broken)
    return "right"


def main(planted: list[str]) -> None:
    """Say what each schedule comes to."""
    for schedule, _ in PLANTED.values():
        sys.stdout.write(f"{schedule.__name__}: {verdict(schedule, frozenset(planted))}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
