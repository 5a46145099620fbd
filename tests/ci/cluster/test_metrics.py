"""Health and metrics of a real node: all fields of `info` are exported, in a format that promtool accepts."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
from functools import partial

import pytest
import trio

import gossipkv
from gossipkv.errors import GossipKVError, UnknownDatabase
from gossipkv.http.health import healthz, livez, readyz
from gossipkv.http.metric_table import IDENTITY, LEFT_OUT
from gossipkv.http.metrics import debug_vars, metrics
from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess, wait_for
from tests.unit.http.node_info import metric_at

KEYS = 300


@pytest.fixture
def node(tmp_path):
    files = tmp_path / "source" / "geo" / "v1"
    files.mkdir(parents=True)
    (files / "part-0").write_bytes(b"".join(b"k%d\tv%d\n" % (number, number) for number in range(KEYS)))
    with NodeProcess(tmp_path, source=tmp_path / "source") as node:
        node.ready()
        wait_for(node.address, "geo", "v1")
        yield node


async def ask_all(client):
    """Send one request of each kind: hits, misses, a scan, an error of the serving loop and one of Python's."""
    geo = client.dataset("geo")
    await geo.get(b"k1")
    await geo.get(b"absent")
    await geo.get_many([b"k1", b"k2", b"absent"])
    assert len([record async for record in geo.scan()]) == KEYS
    with pytest.raises(UnknownDatabase):
        await client.call("get", "nope", b"k")
    with pytest.raises(GossipKVError):
        await client.call("get", "geo", b"k", {"moons": 3})


def talk_nonsense(address):
    """Send a malformed frame, and wait for the end."""
    host, _, port = address.rpartition(":")
    with contextlib.closing(socket.create_connection((host, int(port)), timeout=PATIENCE_S)) as peer:
        peer.sendall(b"\xc1" * 8)
        with contextlib.suppress(ConnectionError):
            peer.recv(100)


def leaves(value, path=()):
    """Return every path through nested maps to a value that is no map."""
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in leaves(inner, (*path, key))]
    return [path]


def is_left_out(path):
    """True if a path begins with an omitted path or a field of the node's identity."""
    return any(path[: len(left)] == left for left in [*LEFT_OUT, *((name,) for name in IDENTITY)])


async def test_all_that_a_node_says_is_told(node):
    """Each field of `info`, every counter among them, belongs to a metric or is omitted with a reason."""
    async with gossipkv.connect(node.address, timeout_ms=PATIENCE_S * 1000) as client:
        await ask_all(client)
        await trio.to_thread.run_sync(talk_nonsense, node.address)
        told = leaves(await client.info())
    assert ("counters", "errors_unknown_database") in told
    assert [path for path in told if metric_at(path) is None and not is_left_out(path)] == []
    assert [path for path in LEFT_OUT if path[0] not in {leaf[0] for leaf in told}] == []


async def test_what_was_asked_is_counted(node):
    """Requests, errors by code and connection problems arrive in `/debug/vars`."""
    async with gossipkv.connect(node.address, timeout_ms=PATIENCE_S * 1000) as client:
        before = json.loads((await debug_vars(client)).body)
        await ask_all(client)
        await trio.to_thread.run_sync(talk_nonsense, node.address)
        after = json.loads((await debug_vars(client)).body)

    def grown(name, label):
        return after[name][label] - before[name][label]

    assert [grown("gossipkv_requests_total", method) for method in ("get", "get_many", "scan")] == [2, 1, 1]
    assert grown("gossipkv_errors_total", "UNKNOWN_DATABASE") == 1
    assert grown("gossipkv_errors_total", "BAD_REQUEST") == 1
    assert grown("gossipkv_frames_refused_total", "malformed") == 1
    assert after["gossipkv_node_info"]["node"] == (await name_of(node))
    assert after["gossipkv_errors_total"]["CORRUPT"] == 0


async def name_of(node):
    async with gossipkv.connect(node.address, timeout_ms=PATIENCE_S * 1000) as client:
        return (await client.info())["node"]


async def once_well(look):
    """Return the first answer with status 200: a check waits less than a second, and the machine may be busy."""
    with trio.fail_after(PATIENCE_S):
        while (answer := await look()).status != 200:
            await trio.sleep(0.1)
    return answer


async def test_health_of_a_real_node(node):
    """A node is alive, ready and has an active version in Sequins' form; after a kill each error is one line."""
    name = await name_of(node)
    async with gossipkv.connect(node.address, timeout_ms=PATIENCE_S * 1000) as client:
        verbose = partial(readyz, client, verbose=True, may_see=partial(trio.sleep, 0))
        await once_well(partial(livez, client))
        ready = await once_well(verbose)
        assert ready.body.splitlines()[-1] == b"ready"
        health = await once_well(partial(healthz, client))
        assert json.loads(health.body) == {"geo": {"v1": {name: "ACTIVE"}}}
        await once_well(partial(metrics, client))

        node.stop(signal.SIGKILL)
        for answer in (await livez(client), await verbose()):
            assert (answer.status, answer.body.count(b"\n")) == (503, 1)
        for answer in (await healthz(client), await metrics(client), await debug_vars(client)):
            assert answer.status in {502, 504}
            assert answer.body.count(b"\n") == 1


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
async def test_promtool_takes_what_a_node_says(node):
    """Prometheus' own checker reports nothing about a real node's metrics."""
    async with gossipkv.connect(node.address, timeout_ms=PATIENCE_S * 1000) as client:
        await ask_all(client)
        scraped = (await metrics(client)).body
    assert b"gossipkv_keys_read_total" in scraped
    checked = await trio.run_process(
        ["promtool", "check", "metrics"], stdin=scraped, capture_stdout=True, capture_stderr=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
