"""The combinations of `test_moves_aimed.py` that README's line leaves out."""

from __future__ import annotations

import contextlib
from itertools import product

import msgpack
import pytest
import trio

from gossipkv.errors import GossipKVError
from gossipkv.replication.replica.acks import ALL
from gossipkv.replication.replica.record import RecordWrite
from tests.simulation import test_moves_aimed as aimed
from tests.simulation.staged_copies import KEY, put, staged
from tests.simulation.test_replication_aimed import answered

STRUCK = [struck for struck in product(aimed.BEFORE, aimed.WAYS, (1, 2, 3)) if struck not in aimed.STRUCK]


@pytest.mark.parametrize(("state", "how", "killed"), STRUCK)
def test_an_origin_that_is_struck_amid_a_move(state, how, killed):
    aimed.test_an_origin_that_is_struck_amid_a_move(state, how, killed)


@pytest.mark.parametrize("at", range(1, 9))
@pytest.mark.parametrize("who", ["target", "hosts", "logs"])
def test_a_target_is_fed_by_three_while_its_load_is_torn(who, at):
    aimed.test_a_target_is_fed_by_three_while_its_load_is_torn(who, at)


@pytest.mark.parametrize("state", [*aimed.BEFORE][2:])
def test_two_slots_and_most_metadata_servers_are_down(state):
    aimed.test_two_slots_and_most_metadata_servers_are_down(state)


class Recorder:
    """Record all requests between nodes, for a replay."""

    def __init__(self, cluster):
        self._cluster = cluster
        self._said = []
        ask = cluster.network.ask

        def recorded(source, to, method, params, **how):
            if method in {"replica_tell", "replica_feed"}:
                self._said.append((to, method, msgpack.packb(params)))
            ask(source, to, method, params, **how)

        cluster.network.ask = recorded

    async def say_again(self):
        """Send all requests again to the current lives; return the number of accepted ones."""
        said, listened = [*self._said], 0
        for to, method, params in said:
            life = self._cluster.network.lives.get(to)
            if life is not None:
                with contextlib.suppress(GossipKVError):
                    life.answer(method, msgpack.unpackb(params), lambda _: None)
                    listened += 1
            await trio.lowlevel.checkpoint()
        return listened


def test_pushes_of_every_former_life():
    """Old messages change nothing after a node was removed and added, and a table was made anew."""

    async def play(cluster):
        recorder, nodes = Recorder(cluster), cluster.nodes
        for turn in range(2):
            for number in range(6):
                put(cluster, number % 3, b"%d" % turn, ALL, b"key%d" % (number % 3))
            await cluster.until(lambda: cluster.is_caught_up)
            for out, come in ((0, 3), (3, 0)):
                assert await cluster.operator.replace(nodes[out], nodes[come])
                await cluster.until(lambda: cluster.is_placed and cluster.is_caught_up, 40.0)
                assert await recorder.say_again()
                await trio.sleep(0.5)
        cluster.make_anew(b"another_another_", 10)
        await cluster.until(lambda: cluster.is_caught_up and cluster.is_ready, 20.0)
        number = cluster.have(nodes[0], 10, [RecordWrite(KEY, b"another")], ALL, 1.0)
        await answered(cluster, number)
        assert await recorder.say_again()
        assert cluster.newest(10, KEY)[0].endswith(b"another")

    assert staged(play, spare=1).counts["joined"] >= 8
