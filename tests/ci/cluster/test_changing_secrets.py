"""Each secret is changed while a cluster is read, by the steps of docs/operators/rotate-secrets.md, and no read fails.

Each of two nodes has a part of the keys, with TLS for clients and between nodes, users and sealed gossip. After each
step a third node joins, which authenticates to both, and both to it.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from contextlib import ExitStack, closing, contextmanager

import pytest

from gossipkv.access.certificates import new_authority
from gossipkv.client import blocking
from gossipkv.errors import Unauthorized, Unavailable
from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess
from tests.ci.cluster.test_http import gateways, until
from tests.ci.cluster.test_sealed_processes import keys
from tests.ci.cluster.test_tls_peers import NOW, RECORDS, Files, publish, read_anew
from tests.ci.cluster.test_users import FIRST, SECOND, users

ROUNDS = 2  # Rounds of all keys, by each reader, after each step.
PAUSE_S = 0.002  # After each read: the nodes need the processor as well.
# A node that looks between the changes of the two files logs this and looks again.
HALF_NEW = "the key does not match the first certificate"
# A busy machine is no reason to fail.
PATIENT = {"GOSSIPKV_PROXY_TIMEOUT": "30s"}


class Cluster:
    """The nodes `n1`, which is read, and `n2`; readers use `token` and `trusted` from their next key on."""

    def __init__(self, place, stack):
        self.place = place
        self.files = Files(place / "files")
        self.ring, self.users = place / "keys", place / "users"
        self.key = keys("new", self.ring)
        self.token, self.trusted = FIRST, self.files.authorities
        users(self.users, first=FIRST)
        (place / "source").mkdir()
        self.first = stack.enter_context(self.holder("n1"))
        self.second = stack.enter_context(self.holder("n2", "--join", self.first.address))
        self.address, self.site = self.first.address, gateways(self.first)[0][0]

    @contextmanager
    def node(self, name, *options):
        (self.place / name).mkdir(exist_ok=True)
        with NodeProcess(
            self.place / name, "--node", name, "--http-listen", "127.0.0.1:0", "--replication", "1",
            "--time-to-converge", "1s", "--key-ring", str(self.ring), "--users", str(self.users), *options,
            environ=self.files.settings(name) | PATIENT,
        ) as node:  # fmt: skip
            node.ready()
            yield node
            assert node.stop() == 0

    def holder(self, name, *options):
        """Start a node that has a part of the keys."""
        return self.node(name, "--shard-id", name[1:], "--source", str(self.place / "source"), *options)

    def look(self):
        read_anew([self.first, self.second])

    def meet(self):
        """Start a third node with the files' secrets, which gets all keys from the other two; stop it."""
        log = self.place / "n3" / "node.log"  # Count before the start: standard output says ready before the log does.
        gone = log.read_text().count("] http ") if log.exists() else 0
        with self.node("n3", "--join", self.first.address) as node:
            site = gateways(node, gone + 1)[-1][0]
            until(lambda: self.asked(site) == {"n1", "n2"}, node.said)

    def asked(self, site):
        """Return the nodes that answer for the keys; empty while any value is wrong."""
        told = [*self.read_by_https(site)]
        is_right = [value for _, value in told] == [*RECORDS.values()]
        return {response.headers["X-Sequins-Proxied-To"] for response, _ in told} if is_right else {}

    def read_by_https(self, site):
        """Yield responses and values of one connection, each of whose requests has the current token."""
        with closing(
            http.client.HTTPSConnection(site, timeout=PATIENCE_S, context=context(self.trusted))
        ) as connection:
            for name in RECORDS:
                headers = {"Authorization": f"Bearer {self.token}", "X-GossipKV-Timeout-Ms": str(1000 * PATIENCE_S)}
                connection.request("GET", f"/geo/{name}", headers=headers)
                response = connection.getresponse()
                yield response, response.read()

    def client(self, **other):
        """Return a client with the readers' current secrets, except those in `other`."""
        has = {"tls": context(self.trusted), "token": self.token} | other
        return blocking.connect(self.address, timeout_ms=PATIENCE_S * 1000, **has)

    def shown(self):
        """Return the certificates that `n1` shows at each of its ports."""
        host, port = self.address.split(":")
        return {ssl.get_server_certificate((host, int(where))) for where in (port, self.site.split(":")[1])}


def context(authorities):
    return ssl.create_default_context(cadata="".join(authority.certificate for authority in authorities))


def by_rpc(cluster, is_over, read):
    """Use a connection for each round of the keys."""
    while not is_over():
        with cluster.client() as client:
            for key, value in RECORDS.items():
                read(client.dataset("geo").get(key), value)


def by_one_connection(cluster, is_over, read):
    """Use one connection for as long as the token stays the same."""
    while not is_over():
        token = cluster.token
        with cluster.client() as client:
            while cluster.token == token and not is_over():
                for key, value in RECORDS.items():
                    read(client.dataset("geo").get(key), value)


def by_https(cluster, is_over, read):
    """Use a connection for each round, whose requests carry a token."""
    while not is_over():
        for (_, value), expected in zip(cluster.read_by_https(cluster.site), RECORDS.values(), strict=True):
            read(value, expected)


class Load:
    """All readers at once; counts the reads of each, and collects failures."""

    def __init__(self, cluster):
        self.reads = dict.fromkeys((by_rpc, by_one_connection, by_https), 0)
        self.failed = []
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(cluster, reader)) for reader in self.reads]

    def _run(self, cluster, reader):
        def read(value, expected):
            assert value == expected
            self.reads[reader] += 1
            time.sleep(PAUSE_S)

        try:
            reader(cluster, self._is_over.is_set, read)
        except Exception as error:  # noqa: BLE001  # Whatever it is, a read has failed.
            self.failed.append((reader.__name__, error))

    def go_on(self):
        """Return when each reader has read all keys repeatedly without failure."""
        before = dict(self.reads)
        enough = ROUNDS * len(RECORDS)
        until(lambda: self.failed or all(self.reads[one] >= before[one] + enough for one in before), lambda: self.reads)
        assert self.failed == []

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        for thread in self._threads:
            thread.join()


@contextmanager
def running(place):
    with ExitStack() as stack:
        cluster = Cluster(place, stack)
        until(lambda: all(" member " in node.said() for node in (cluster.first, cluster.second)), cluster.second.said)
        time.sleep(1)
        publish(place / "source")
        cluster.look()
        until(lambda: cluster.asked(cluster.site) == {None, "n2"}, cluster.first.said)
        yield cluster
    for node in (cluster.first, cluster.second):
        told = [line for line in node.said().splitlines() if "_unchanged" in line or "peer_refused" in line]
        assert [line for line in told if HALF_NEW not in line] == []


def certificate(cluster):
    before = cluster.shown()
    cluster.files.signs(*cluster.trusted)
    cluster.look()
    yield
    assert not before & cluster.shown()


def authority(cluster):
    """Trust both authorities, sign by the new one, then trust the new one alone."""
    (first,) = cluster.trusted
    second = new_authority("second", NOW)
    cluster.trusted = first, second
    cluster.files.trusts(first, second)
    cluster.look()
    yield
    cluster.files.signs(second)
    cluster.look()
    yield
    cluster.trusted = (second,)
    cluster.files.trusts(second)
    cluster.look()
    yield
    with (
        pytest.raises(Unavailable, match="not signed by an authority that this client trusts"),
        cluster.client(tls=context([first])),
    ):
        pass


def user(cluster):
    """Add a user with the same rights, whose token the readers use from then on; remove the old one."""
    users(cluster.users, first=FIRST, second=SECOND)
    cluster.look()
    cluster.token = SECOND
    yield
    users(cluster.users, second=SECOND)
    cluster.look()
    yield
    with pytest.raises(Unauthorized), cluster.client(token=FIRST) as client:
        client.ping()


def key(cluster):
    """Install the new key everywhere, seal with it, remove the old one."""
    second = keys("install", cluster.ring)
    cluster.look()
    yield
    keys("use", cluster.ring, second)
    cluster.look()
    yield
    keys("remove", cluster.ring, cluster.key)
    cluster.look()
    yield
    assert keys("list", cluster.ring).split()[0] == second


def test_no_read_fails_while_they_change(tmp_path):
    """All secrets change in turn, and a node that joins between the steps with the current files becomes a member."""
    with running(tmp_path) as cluster, Load(cluster) as load:
        load.go_on()
        for steps in (certificate, authority, user, key):
            for _ in steps(cluster):
                load.go_on()
                cluster.meet()
        load.go_on()
