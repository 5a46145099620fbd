"""What a node among many costs while nothing happens: its CPU time and its wake-ups, Trio and UDP real.

    python -m tests.bench.gossip_at_rest [--members 64] [--seconds 60] [--profile lan]

One node is `gossipkv serve`, as people run it.  The others are cores with their agents in one process, each with
its own UDP socket and TCP port.  Measured is the one process, after everybody knows everybody and a while has passed.
For comparison the same node is measured alone.  Goal: at most 1 % of a core.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from gossipkv.address import Address, parse_address
from gossipkv.environment.trio_world import real
from gossipkv.gossip.core import Gossip, Limits, Me
from gossipkv.gossip.packets.envelope import Envelope
from gossipkv.gossip.packets.prefix import NO_CLUSTER
from gossipkv.gossip.profile import PROFILES
from gossipkv.gossip.shell.agent import Agent
from gossipkv.processes import logs
from gossipkv.wire.frames import FrameReader
from gossipkv.wire.rpc import decode_request, response
from tests.bench.processes import call, cpu_ns, serve, serving, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

EPOCH = 1  # Of the others.
SETTLE_S = 30  # After everybody is known: rumours end, claims settle, exchanges run.


class NoDisk:
    """What others would keep."""

    def keep(self, **_: object) -> None:
        """Nothing."""

    def remember(self, peers: Sequence[Address]) -> None:
        """Nothing."""

    def forget(self) -> None:
        """Nothing."""

    def peers(self) -> list[Address]:
        """None."""
        return []


def make_peer(name: str, uuid: bytes, profile: str, seed: Address) -> tuple[Agent, trio.SocketListener]:
    """One of the others, with its TCP port."""
    environment = real()
    listener = environment.sockets.listen("127.0.0.1", 0, 128)
    address = Address(*listener.getsockname()[:2])
    core = Gossip(
        Me(name, uuid, EPOCH, address, "gossipkv", NO_CLUSTER, pinned=False),
        PROFILES[profile],
        random.Random(name),
        limits=Limits(),
        envelope=Envelope("gossipkv"),
    )
    core.tree.publish(f"nodes/{name}@{address}", b"a value of the usual length")
    agent = Agent(core, environment.sockets.datagrams(*address), environment, NoDisk(), [seed])
    return agent, trio.SocketListener(trio.socket.from_stdlib_socket(listener))


async def answer(agent: Agent, uuid: bytes, stream: trio.SocketStream) -> None:
    """Requests over TCP: gossip's, and the `hello` of a node that keeps a connection to each member."""
    reader = FrameReader()
    async for received in stream:
        reader.feed(received)
        for frame in reader:
            request = decode_request(frame)
            found = request.params[0]
            if isinstance(found, bytes):
                await stream.send_all(response(request.msgid, agent.reply(found)))
            else:
                hello = {**found, "uuid": uuid, "epoch": EPOCH, "store": 0, "life": 0}
                await stream.send_all(response(request.msgid, hello))


async def run_peers(count: int, profile: str, seed: Address) -> None:
    """All the others, until the process is ended."""
    async with trio.open_nursery() as nursery:
        for number in range(count):
            uuid = random.randbytes(16)
            agent, listener = make_peer(f"peer-{number:04}", uuid, profile, seed)

            async def serve(stream: trio.SocketStream, agent: Agent = agent, uuid: bytes = uuid) -> None:
                async with stream:
                    await answer(agent, uuid, stream)

            nursery.start_soon(trio.serve_listeners, serve, [listener])
            await nursery.start(agent.run)
            await trio.sleep(0.05)


def measure(process: int, seconds: float) -> str:
    """CPU and wake-ups over a while."""
    before_ns, slept = cpu_ns(process), switches(process)
    began_s = time.monotonic()
    time.sleep(seconds)
    took_s = time.monotonic() - began_s
    return (
        f"{(cpu_ns(process) - before_ns) / 1e7 / took_s:.2f} % of a core, "
        f"{(switches(process) - slept) / took_s:.1f} wake-ups a second, over {took_s:.0f} s"
    )


def switches(process: int) -> int:
    """How often it went to sleep of its own will."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("voluntary_ctxt_switches")))


def alive(address: Address) -> int:
    """How many the node knows to live."""
    return sum(member["state"] == "alive" for member in call(address, "members"))


def main() -> None:
    """Measure, and say so."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--profile", default="lan", choices=[*PROFILES])
    parser.add_argument("--peers-of", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.peers_of:
        logs.configure("error", "text")
        trio.run(run_peers, chosen.members - 1, chosen.profile, parse_address(chosen.peers_of))
        return
    with (
        tempfile.TemporaryDirectory() as place,
        serving(serve(Path(place), "--profile", chosen.profile)) as node,
    ):
        print(f"alone:    {measure(node.pid, min(20, chosen.seconds))}")
        line = [sys.executable, "-m", "tests.bench.gossip_at_rest", "--peers-of", str(node.address)]
        line += ["--members", str(chosen.members), "--profile", chosen.profile]
        with subprocess.Popen(line) as peers:
            try:
                wait_for(lambda: alive(node.address) == chosen.members or peers.poll() is not None, "all members")
                time.sleep(SETTLE_S)
                print(f"among {chosen.members}: {measure(node.pid, chosen.seconds)}")
                print(f"the others together: {measure(peers.pid, 10)}")
                assert alive(node.address) == chosen.members, "not at rest: somebody was lost"
            finally:
                peers.kill()


if __name__ == "__main__":
    main()
