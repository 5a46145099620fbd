"""A change feed at a node that holds none of the table, while the host that it waits for is in trouble."""

from __future__ import annotations

import msgpack
import pytest
import trio

from gossipkv.replication.replica.acks import MAJORITY
from gossipkv.table.records.feed_token import decode
from gossipkv.wire.results import Packed
from tests.simulation.staged_copies import FIRST, KEY, put, staged, ways
from tests.world.replication.clients import TABLE
from tests.world.replication.feeds import Feed, Request

HOSTS = range(3)
ASKED = 3
REST_S = 15.0  # Until links are restarted that were cut.


def killed(cluster, host):
    cluster.nodes[host].stop(power=True)


def silent(cluster, host):
    """A frozen host, or one that is cut off without a word."""
    ways(cluster, *((host, other) for other in (*HOSTS, ASKED)), *((other, host) for other in (*HOSTS, ASKED)))


def alone(cluster, host):
    """A host that is cut off from the other hosts alone, and calls them dead."""
    ways(cluster, *((host, other) for other in HOSTS), *((other, host) for other in HOSTS))
    cluster.nodes[host].life.replication.replicas.is_up = lambda node: node == cluster.nodes[ASKED].uuid


def unheard(cluster, host):
    """A host that answers, and cannot tell."""
    ways(cluster, (host, ASKED))
    link = cluster.network.links[cluster.nodes[ASKED].uuid, cluster.nodes[host].uuid]
    cluster.network.cuts.clear()
    cluster.network.breaks(cluster.network.links[cluster.nodes[host].uuid, cluster.nodes[ASKED].uuid])
    assert not link.is_broken


async def answered(request, within_s):
    """Return the changes and the token of an answer; no changes if there is none in time."""
    answer = None
    with trio.move_on_after(within_s):
        answer = await request.answered()
    return msgpack.unpackb(answer.data) if isinstance(answer, Packed) else [[], b""]


@pytest.mark.parametrize("trouble", [killed, silent, alone, unheard])
def test_a_waiting_feed_goes_on(trouble):
    """Another host gives the change, or the same one, within two seconds and a little."""
    came = []

    async def play(cluster):
        asked = cluster.nodes[ASKED]
        await cluster.until(lambda: len([one for one, _ in cluster.network.links if one == asked.uuid]) == len(HOSTS))
        feed = Feed(TABLE, is_snapshot=False)
        for wait_s in (0.0, 1.5, 1.5):
            request = Request(feed, asked.life, wait_s, 100)
            request.begin()
            _, feed.token = await answered(request, 3.0)
        request = Request(feed, asked.life, 60.0, 100)
        request.begin()
        await trio.sleep(0.7)
        (place,) = [one for one in decode(feed.token).places if one.partition == FIRST]
        (host,) = [number for number in HOSTS if cluster.nodes[number].uuid == place.node]
        trouble(cluster, host)
        await trio.sleep(0.1)
        put(cluster, (host + 1) % len(HOSTS), level=MAJORITY)
        changes, _ = await answered(request, 2.5)
        came.extend(key for key, _, _ in changes)
        cluster.network.heal({*cluster.network.cuts})
        cluster.nodes[host].start()
        await trio.sleep(REST_S)
        cluster.nodes[host].life.replication.replicas.is_up = lambda _: True

    staged(play, spare=1)
    assert came == [KEY]
