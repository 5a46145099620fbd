"""Real nodes at which a dataset and a table come to have one name, in both orders, over restarts."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request

import pytest
import trio

import gossipkv
from gossipkv.errors import WRITES_ARE, BadRequest, Conflict
from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess, connect, wait_for
from tests.ci.cluster.table_nodes import until
from tests.ci.cluster.test_cli import gossipkv as run
from tests.ci.cluster.test_http import gateways, get

FAST = ("--time-to-converge", "100ms", "--refresh-period", "1s")
HASH = {"kind": "hash", "partitions": 2, "replication": 1}


def publish(source, database):
    staged = source / database / "_v1"
    staged.mkdir(parents=True)
    (staged / "part-00000").write_bytes(b"france\tParis\n")
    staged.rename(source / database / "v1")


def listed(client):
    """Return the kind of each name that a node lists; assert that no name is listed twice."""
    told = client.call("databases")
    assert len({one["name"] for one in told}) == len(told), told
    return {one["name"]: one["kind"] for one in told}


def refusal_of(client, name="capitals"):
    """Return the error in `status` for a name of two databases."""
    return until(lambda: client.call("status", {"database": name})[name].get("error") or "", bool)


def test_a_dataset_that_appears_under_the_name_of_a_table(tmp_path):
    """The table goes on, also after a restart, and `status` reports the dataset."""
    source = tmp_path / "source"
    publish(source, "other")
    options = (*FAST, "--http-listen", "127.0.0.1:0")
    with NodeProcess(tmp_path, *options, source=source) as node:
        node.ready()
        with connect(node.address) as client:
            client.call("create_table", "capitals", HASH)
            client.table("capitals").put(b"france", b"of the table")
            publish(source, "capitals")
            assert "a dataset has the same name and is refused" in refusal_of(client)
        assert node.stop() == 0
    with NodeProcess(tmp_path, *options, source=source) as node:
        node.ready()
        wait_for(node.address, "other", "v1")
        with connect(node.address) as client:
            assert "a dataset has the same name and is refused" in refusal_of(client)
            assert listed(client) == {"capitals": "hash", "other": "dataset"}
            assert client.info()["by_database"].keys() == {"other"}
        assert not (tmp_path / "data/datasets/capitals").exists()
        address, _ = gateways(node, 2)[-1]  # The second start has a new gateway.
        assert get(address, "/capitals/france")[2] == b"of the table"
        for value in (b"x" * (1 << 19), b"of the table"):
            request = urllib.request.Request(f"http://{address}/capitals/france", data=value, method="PUT")
            with urllib.request.urlopen(request):
                pass
            assert get(address, "/capitals/france")[2] == value
        assert run("get", "capitals", "france", node=node.address).stdout == b"of the table"
        assert b"a dataset has the same name" in run("status", "capitals", node=node.address).stdout
        assert run("table", "drop", "capitals", node=node.address).returncode == 0
        wait_for(node.address, "capitals", "v1")
        assert get(address, "/capitals/france")[2] == b"Paris"
        for method, body in (("PUT", b"x" * (1 << 19)), ("PUT", b""), ("DELETE", None)):
            request = urllib.request.Request(f"http://{address}/capitals/france", data=body, method=method)
            with pytest.raises(urllib.error.HTTPError, match="405") as refused, urllib.request.urlopen(request):
                pass
            assert refused.value.headers["Allow"] == "GET, HEAD, OPTIONS"
            refused.value.close()


def test_what_each_of_two_nodes_had_it_keeps(tmp_path):
    """A dataset and a table made before two nodes met stay; each node refuses the other's database at every start."""
    source = tmp_path / "source"
    publish(source, "capitals")
    places = [tmp_path / name for name in ("with-dataset", "with-table")]
    for place in places:
        place.mkdir()
    with NodeProcess(places[0], *FAST, source=source) as node:
        node.ready()
        wait_for(node.address, "capitals", "v1")
        with connect(node.address) as client:
            assert_refused_puts(client, node.address)
        assert node.stop() == 0
    with NodeProcess(places[1], *FAST) as other:
        other.ready()
        with connect(other.address) as client:
            client.call("create_table", "capitals", HASH)
            client.table("capitals").put(b"france", b"of the table")
            for _ in range(2):
                with NodeProcess(places[0], *FAST, "--join", other.address, source=source) as node:
                    node.ready()
                    with connect(node.address) as there:
                        assert "a table has the same name and is refused" in refusal_of(there)
                        assert listed(there) == {"capitals": "dataset"}
                        assert there.dataset("capitals").get(b"france") == b"Paris"
                        assert_refused_puts(there, node.address)
                    assert "a dataset has the same name and is refused" in refusal_of(client)
                    assert listed(client) == {"capitals": "hash"}
                    assert client.table("capitals").get(b"france") == b"of the table"
                    assert node.stop() == 0


def assert_refused_puts(client, address):
    """Check that a dataset refuses puts and a table of its name, with one line that says why and what to do."""
    for write in (lambda: client.table("capitals").put(b"k", b"v"), lambda: client.table("capitals").delete(b"k")):
        try:
            write()
        except BadRequest as error:
            assert str(error).endswith(f"capitals is a dataset: {WRITES_ARE}")
        else:
            raise AssertionError("it was written")

    async def put():
        async with gossipkv.connect(address, timeout_ms=PATIENCE_S * 1000) as waiting:
            await waiting.table("capitals").put(b"k", b"v")

    with pytest.raises(BadRequest, match=re.escape(WRITES_ARE)):
        trio.run(put)
    for arguments in (("put", "capitals", "k", "v"), ("delete", "capitals", "k")):
        done = run(*arguments, node=address)
        assert (done.returncode, b"capitals is a dataset" in done.stderr, done.stderr.count(b"\n")) == (2, True, 1)
    try:
        client.call("create_table", "capitals", HASH)
    except Conflict as error:
        assert "capitals is the name of a dataset" in str(error)
    else:
        raise AssertionError("it was made")
    done = run("table", "create", "capitals", "--kind", "hash", node=address)
    assert (done.returncode, done.stderr.count(b"\n")) == (3, 1)
    done = run("table", "list", "--json", node=address)
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
