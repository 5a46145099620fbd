"""A node that tells what its serving thread uses around a suspicion: `python -m tests.bench.cluster.watched_node …`.

The rest is as for `gossipkv serve`.  For each member that its databases learn to be suspected it writes a line of
JSON: the thread's processor time from `BEFORE_S` before that moment, so with what gossip did, until `AFTER_S` after it,
and the longest turn of the loop in that time, both in milliseconds.  All that the thread did is in it, also what it
does at rest.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from time import monotonic, thread_time
from typing import NamedTuple

import trio

from gossipkv import cli
from gossipkv.dataset.cluster.members import Member, Membership, State
from gossipkv.node import wiring as node

BEFORE_S, AFTER_S = 0.1, 0.2  # Databases look at the members each 50 ms.
MOST_TURNS = 1 << 16
MILLISECONDS = 1000


class Turn(NamedTuple):
    """One turn of the loop: when it ended, and what it used."""

    ended_s: float
    used_s: float


class Turns(trio.abc.Instrument):
    """The last turns."""

    def __init__(self) -> None:
        self.last: deque[Turn] = deque(maxlen=MOST_TURNS)
        self._began_s = thread_time()

    def after_io_wait(self, timeout: float) -> None:
        """A turn begins."""
        self._began_s = thread_time()

    def before_io_wait(self, timeout: float) -> None:
        """It has ended."""
        self.last.append(Turn(monotonic(), thread_time() - self._began_s))


async def tell(turns: Turns, suspected: trio.MemoryReceiveChannel[float]) -> None:
    """Write a line for each."""
    async for at_s in suspected:
        await trio.sleep(AFTER_S)
        used_ms = [MILLISECONDS * turn.used_s for turn in turns.last if turn.ended_s >= at_s - BEFORE_S]
        sys.stdout.write(json.dumps({"used_ms": sum(used_ms), "longest_ms": max(used_ms)}) + "\n")
        sys.stdout.flush()


def main(arguments: list[str]) -> None:
    """`serve`, watched."""
    run, told = node.run, Membership.tell
    send, receive = trio.open_memory_channel[float](100)

    def note(self: Membership, member: Member, *, now_ms: int) -> None:
        before = self.get(member.name)
        if member.state is State.SUSPECT and before is not None and before.state is State.ALIVE:
            send.send_nowait(monotonic())
        told(self, member, now_ms=now_ms)

    async def watched(*given: object, **options: object) -> None:
        turns = Turns()
        async with trio.open_nursery() as nursery:
            trio.lowlevel.add_instrument(turns)
            nursery.start_soon(tell, turns, receive)
            await run(*given, **options)
            nursery.cancel_scope.cancel()

    Membership.tell = note
    node.run = watched
    sys.exit(cli.run(["serve", *arguments]))


if __name__ == "__main__":
    main(sys.argv[1:])
