"""The serving loop of a node whose table of partitions is large, and of which other nodes have most.

`python -m tests.bench.cluster.table_node DIRECTORY OTHERS PARTITIONS…`: each number is a database of so many
partitions; the directory has sorted files of the first, named by their partitions. All that is not there is
elsewhere: another node is stated as its owner, in the loop's own table of routes; it is connected, and silent. With 0
for OTHERS nobody is.
"""

from __future__ import annotations

import socket
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgpack
import trio

from gossipkv.environment.trio_world import RealSockets
from gossipkv.placement.identity import WIRE_ID_BYTES
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.serving._serving import Loop
from gossipkv.serving._sockets import Sockets
from gossipkv.serving.published import publish
from gossipkv.serving.pump import Pump
from gossipkv.storage.sorted_file import SortedFile
from tests.bench.network.inline_pump import MOST, Inline
from tests.unit.serving.driven import BuiltVersion, make_core

if TYPE_CHECKING:
    from gossipkv.serving._core import Core
    from gossipkv.serving._handoff import Caller

FUNCTION = "text"
VERSION = "1"
OWNER = 0  # The column of the other node.
STAGE_MS = 50  # The silence after which a read looks for another owner.


class Answerer(Inline):
    """Says how often any read has looked anew for an owner, whatever it is asked."""

    def __init__(self, core: Core) -> None:
        """Whose reads."""
        self._core = core

    def answer(self, method: bytes, params: bytes, _caller: Caller) -> bytes:
        """The number."""
        return msgpack.packb(self._core.counters()["forward_rounds"])


def database(number: int) -> str:
    """The name of one."""
    return f"db{number}"


async def main(found: dict[int, SortedFile], counts: list[int], *, others: bool) -> None:
    """Serve."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    listener.settimeout(0)
    core = make_core(
        max_in_flight=MOST,
        max_connections=MOST,
        frame_timeout_ms=MOST,
        output_timeout_ms=MOST,
        proxy_timeout_ms=MOST,
        proxy_stage_timeout_ms=STAGE_MS,
    )
    held = []
    for number, partitions in enumerate(counts):
        here = found if number == 0 else {}
        files = [here.get(partition) for partition in range(partitions)]
        wire_id = bytes([number]) * WIRE_ID_BYTES
        held.append((BuiltVersion(database(number), VERSION, files, FUNCTION, wire_id), True))
        elsewhere = PartitionSet.whole(partitions) - PartitionSet.of(partitions, here)
        if elsewhere and others:
            core.set_peer(OWNER, "other", 0)
            core.set_holder(wire_id, partitions, OWNER, elsewhere.to_bytes())
    core.publish(publish(held).table())
    loop = Loop(core, Sockets(listener, polls=False))
    ours, silent = socket.socketpair()
    if others:
        ours.settimeout(0)
        loop.adopt(OWNER, ours.detach())
    sys.stdout.write(f"ready 127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    with ours, silent:
        await Pump(core, loop, RealSockets(), Answerer(core)).run()


if __name__ == "__main__":
    opened = {int(path.stem): SortedFile(path) for path in Path(sys.argv[1]).glob("*.gkv")}
    trio.run(partial(main, opened, [int(count) for count in sys.argv[3:]], others=sys.argv[2] != "0"))
