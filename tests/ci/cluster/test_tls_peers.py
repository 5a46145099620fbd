"""Node processes that authenticate to each other by certificates; the tests read them over plain HTTP."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import ssl
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from gossipkv.access.certificates import Subject, new_authority, new_certificate
from gossipkv.client import blocking
from gossipkv.client.dispatcher import LEARN_AFTER_S
from gossipkv.errors import GossipKVError
from gossipkv.keyspace.partitioner import partition
from gossipkv.node.peers.connections import DIAL_TIMEOUT_S
from tests.ci.cluster.node_process import PATIENCE_S, PATIENTLY, NodeProcess
from tests.ci.cluster.test_http import gateways, get, until

NOW = datetime.now(UTC)
PARTITIONS = 11
RECORDS = {f"key{number}": f"value{number}".encode() for number in range(200)}
UUIDS = {name: uuid4() for name in ("n1", "n2", "n3")}


def publish(source):
    """Publish a database, of which each of two nodes has a part if both are present."""
    place = source / "geo" / "1"
    place.mkdir(parents=True)
    for number in range(PARTITIONS):
        held = [key for key in RECORDS if partition("sequins", key.encode(), PARTITIONS) == number]
        (place / f"part-{number:05}.tsv").write_text("".join(f"{key}\t{RECORDS[key].decode()}\n" for key in held))


class Files:
    """The certificates and authorities of the nodes, which may change while they run."""

    def __init__(self, place, *, hosts=None):
        """Certificates have these hosts and the node's name in place of its uuid, if `hosts` is given."""
        self.place, self.hosts = place, hosts
        place.mkdir()
        self.trusts(self.signs(new_authority("first", NOW)))

    def write(self, name, text):
        (self.place / "new").write_text(text)
        (self.place / "new").chmod(0o600)
        os.replace(self.place / "new", self.place / name)

    def signs(self, authority):
        """Give all nodes certificates signed by `authority`; return the authority."""
        for name, uuid in UUIDS.items():
            hosts = ("127.0.0.1",) if self.hosts is None else (*self.hosts, name)
            subject = Subject(name, hosts, uuid if self.hosts is None else None)
            signed = new_certificate((authority.certificate, authority.key), subject, NOW)
            self.write(f"{name}.key", signed.key)
            self.write(f"{name}.pem", signed.certificate)
        return authority

    def trusts(self, *authorities):
        self.write("peers.pem", "".join(authority.certificate for authority in authorities))
        self.authorities = authorities

    def settings(self, name):
        named = {"certificate": f"{name}.pem", "key": f"{name}.key", "peers": "peers.pem"}
        return {f"GOSSIPKV_TLS_{what.upper()}": str(self.place / file) for what, file in named.items()}


def started(place, source, name, environ, *options):
    (place / name).mkdir(exist_ok=True)
    return NodeProcess(
        place / name, "--node", name, "--shard-id", name[1:], "--http-listen", "127.0.0.1:0",
        "--replication", "1", "--time-to-converge", "1s", *PATIENTLY, *options,
        source=source, environ={**environ, "GOSSIPKV_TLS_LISTENERS": "listen"},
    )  # fmt: skip


@contextmanager
def two_nodes(place, source, files):
    """Start `n1` and `n2`; yield them when each holds its part and forwards the rest."""
    source.mkdir()
    with ExitStack() as stack:
        nodes = []
        for name in ("n1", "n2"):
            join = ("--join", nodes[0].address) if nodes else ()
            nodes.append(stack.enter_context(started(place, source, name, files.settings(name), *join)))
            nodes[-1].ready()
        until(lambda: all("shard_id" in node.said() and " member " in node.said() for node in nodes), nodes[1].said)
        time.sleep(1)
        publish(source)
        read_anew(nodes)
        until(lambda: all(forwards(node) for node in nodes), lambda: "".join(node.said() for node in nodes))
        yield nodes


def forwards(node, starts=1):
    """True if the node, started `starts` times, answers all keys, some by forwarding."""
    address = gateways(node, starts)[-1][0]
    told = [get(address, f"/geo/{key}") for key in list(RECORDS)[:40]]
    by_others = {headers.get("X-Sequins-Proxied-To") for _, headers, _ in told} - {None}
    return bool(by_others) and all(status == 200 for status, *_ in told)


def is_connected(node):
    """True if the node has a connection to another node."""
    told = json.loads(get(gateways(node)[-1][0], "/debug/vars")[2])
    return told["gossipkv_peer_connections"] > 0


class Load:
    """Reads all keys repeatedly on one connection until the block ends; collects failures."""

    def __init__(self, node):
        self.failed, self.count = [], 0
        self._address = gateways(node)[-1][0]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        connection = http.client.HTTPConnection(self._address, timeout=PATIENCE_S)
        while not self._over.is_set():
            for key, value in RECORDS.items():
                connection.request("GET", f"/geo/{key}")
                response = connection.getresponse()
                told = response.status, response.read()
                self.count += 1
                self.failed += [] if told == (200, value) else [(key, told)]
        connection.close()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


def read_anew(nodes):
    """Send SIGHUP to the nodes, and wait until they have read their files."""
    before = [node.said().count("] certificate ") for node in nodes]
    for node in nodes:
        node.process.send_signal(signal.SIGHUP)
    for node, count in zip(nodes, before, strict=True):
        until(lambda node=node, count=count: node.said().count("] certificate ") > count, node.said)
    time.sleep(DIAL_TIMEOUT_S)  # Wait until no dial that began with the old files can still succeed.


def test_another_authority_under_load(tmp_path):
    """No read fails while both authorities are trusted, then the new one signs, then it alone is trusted.

    A node that is started with the final files is a member like the node that ran through all steps.
    """
    files, source = Files(tmp_path / "files"), tmp_path / "source"
    (first,) = files.authorities
    second = new_authority("second", NOW)
    with two_nodes(tmp_path, source, files) as nodes:
        with Load(nodes[0]) as load:
            files.trusts(first, second)
            read_anew(nodes)
            files.signs(second)
            read_anew(nodes)
            files.trusts(second)
            read_anew(nodes)
            assert nodes[1].stop() == 0
            with started(tmp_path, source, "n2", files.settings("n2"), "--join", nodes[0].address) as again:
                again.ready()
                until(lambda: forwards(again, 2), again.said)
                before = load.count
                until(lambda: load.count > before + 2 * len(RECORDS), again.said)
                until(lambda: is_connected(nodes[0]), nodes[0].said)
        assert load.failed == []
        said = nodes[0].said()
        assert "peer_refused" not in said
        assert "certificate was refused" not in said
        assert nodes[0].stop() == 0


def test_names_are_enough(tmp_path):
    """No issuer writes a uuid: nodes whose certificates have only their names know each other, and no stranger."""
    files, source = Files(tmp_path / "files", hosts=["127.0.0.1"]), tmp_path / "source"
    with two_nodes(tmp_path, source, files) as nodes:
        until(lambda: all(is_connected(node) for node in nodes), nodes[0].said)
        with started(tmp_path, source, "n3", files.settings("n2"), "--join", nodes[0].address) as stranger:
            assert stranger.process.wait(PATIENCE_S) == 2
            assert "neither a uuid nor the name of this node (the setting `node`: n3)" in stranger.said()
        read_anew(nodes)
        assert [node.stop() for node in reversed(nodes)] == [0, 0]
        assert "certificate_unchanged" not in nodes[0].said()


def is_here(client):
    """True if the node of this client has the only record itself."""
    with suppress(GossipKVError):
        return client.call("get", "geo", "key1", {"local": True})[0] == b"value1"


def test_clients_follow_advertised_names(tmp_path):
    """Certificates have names and no addresses: a client goes on at a member that it knows only from another one."""
    files, source = Files(tmp_path / "files", hosts=["localhost"]), tmp_path / "source"
    source.mkdir()
    (source / "geo" / "1").mkdir(parents=True)
    (source / "geo" / "1" / "part-0.tsv").write_text("key1\tvalue1\n")
    with ExitStack() as stack:
        nodes = []
        for name in ("n1", "n2"):
            join = ("--join", nodes[0].address) if nodes else ()
            options = ("--advertise", "localhost:0", "--advertise-address", "127.0.0.1", "--replication", "2", *join)
            nodes.append(stack.enter_context(started(tmp_path, source, name, files.settings(name), *options)))
            nodes[-1].ready()
        names = [f"localhost:{node.address.rpartition(':')[2]}" for node in nodes]
        trusted = ssl.create_default_context(cafile=tmp_path / "files" / "peers.pem")
        with blocking.connect(names[0], timeout_ms=PATIENCE_S * 1000, tls=trusted) as client:
            until(lambda: {member["address"] for member in client.members()} == {*names}, nodes[0].said)
            with blocking.connect(names[1], timeout_ms=PATIENCE_S * 1000, tls=trusted) as other:
                until(lambda: is_here(other), nodes[1].said)
            client.call("create_table", "carts", {"kind": "hash", "partitions": 2, "replication": 2})
            carts = client.table("carts", by_map=True)
            carts.put(b"ana", b"pear", level="all")
            assert {*client.call("partition_map", "carts")["addresses"].values()} == {*names}
            assert carts.get(b"ana") == b"pear"
            time.sleep(LEARN_AFTER_S)
            for _ in range(10):  # One of these asks for the members, and a later one reads the answer.
                assert client.dataset("geo").get(b"key1") == b"value1"
                time.sleep(0.1)
            nodes[0].process.kill()
            nodes[0].process.wait()
            assert client.dataset("geo").get(b"key1") == b"value1"
            assert str(client.address) == nodes[1].address


@pytest.mark.parametrize(
    ("known", "comes", "reason"),
    [
        ("files", None, "this port of the node speaks TLS"),
        (None, "files", "it does not speak TLS"),
        ("files", "strange", "its certificate was refused: "),
    ],
)
def test_a_node_that_is_none(tmp_path, known, comes, reason):
    """The newcomer logs the reason once and is no member; the other node goes on."""
    files = {"files": Files(tmp_path / "files"), "strange": Files(tmp_path / "strange")}
    source = tmp_path / "source"
    publish(source)
    settings = [{} if one is None else files[one].settings(name) for one, name in ((known, "n1"), (comes, "n2"))]
    with started(tmp_path, source, "n1", settings[0]) as node:
        node.ready()
        address = gateways(node)[-1][0]
        until(lambda: get(address, "/geo/key1")[0] == 200, node.said)
        with started(tmp_path, source, "n2", settings[1], "--join", node.address) as other:
            until(lambda: reason in other.said(), other.said)
            time.sleep(2)
            assert [line for line in other.said().splitlines() if reason in line and "refused" in line][1:] == []
        assert get(address, "/geo/key1")[2] == RECORDS["key1"]
        assert " member " not in node.said()
        assert node.stop() == 0


def test_a_lost_data_directory_needs_another_certificate(tmp_path):
    """With the old certificate the node ends with an error at every start; with a new one it joins as another node."""
    files, source = Files(tmp_path / "files"), tmp_path / "source"
    (authority,) = files.authorities
    with two_nodes(tmp_path, source, files) as nodes:
        join = ("--join", nodes[0].address)
        nodes[1].process.kill()
        nodes[1].process.wait()
        for attempt in ("lost", "again"):
            shutil.rmtree(tmp_path / "n2" / "data", ignore_errors=attempt == "again")
            with started(tmp_path, source, "n2", files.settings("n2"), *join) as lost:
                assert lost.process.wait(PATIENCE_S) == 3
                assert f"the node {UUIDS['n2'].hex} was in this cluster before, as 'n2'" in lost.said()
            assert not (tmp_path / "n2" / "data" / "NODE").exists()
        signed = new_certificate((authority.certificate, authority.key), Subject("n2", (), uuid4()), NOW)
        files.write("n2.key", signed.key)
        files.write("n2.pem", signed.certificate)
        with started(tmp_path, source, "n2", files.settings("n2"), *join) as another:
            another.ready()
            until(lambda: is_connected(nodes[0]), nodes[0].said)
