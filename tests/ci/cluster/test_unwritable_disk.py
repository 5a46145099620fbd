"""Real nodes are restarted on a full tmpfs and on one mounted read-only, while a reader checks every key."""

import contextlib
import itertools
import os
import subprocess
import threading
import time

import pytest

from gossipkv.client import blocking
from gossipkv.errors import NotReady, Unavailable
from tests.ci.cluster.node_process import PATIENCE_S, PATIENTLY, NodeProcess, wait_for
from tests.ci.cluster.test_gossip_nodes import ask, command, eventually, joining, until
from tests.ports import quiet_ports

pytestmark = pytest.mark.timeout(300)

QUICK = ("--profile", "local", "--time-to-converge", "300ms", "--refresh-period", "off", "--pumps", "2", *PATIENTLY)
KEYS = [b"key%03d" % number for number in range(200)]
READ_BYTES = 5 * len(KEYS) * len(b"1 of key000")  # The minimum per test and pump.


@pytest.fixture
def disk(tmp_path):
    """Mount a small file system for the data of node `b`; yield a function that remounts it with options."""
    path = tmp_path / "b" / "data"
    path.mkdir(parents=True, mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", path]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    yield lambda options: subprocess.run(["mount", "-o", f"remount,{options}", path], check=True)
    subprocess.run(["umount", "--lazy", path], check=True)


@pytest.fixture
def source(tmp_path):
    """Return the source root and a function that adds a version."""
    root = tmp_path / "source"
    root.mkdir()

    def add(version):
        building = root / "geo" / f".{version}"
        building.mkdir(parents=True)
        for part in range(2):
            lines = [b"%s\t%s of %s\n" % (key, version.encode(), key) for key in KEYS[part::2]]
            (building / f"part-{part}").write_bytes(b"".join(lines))
        building.rename(root / "geo" / version)

    add("1")
    return root, add


@pytest.fixture
def start(tmp_path, source):
    """Return a function that starts a node by name and waits until it is ready."""
    with contextlib.ExitStack() as stack:

        def begin(name, *options):
            place = tmp_path / name
            place.mkdir(exist_ok=True)
            node = stack.enter_context(NodeProcess(place, "--node", name, *QUICK, *options, source=source[0]))
            node.ready()
            return node

        yield begin


class Reader:
    """Reads every key repeatedly, singly and in batches, through both pumps; `allowed` versions may answer.

    The reader has more connections than other clients: a new connection goes to the pump with fewest, so two
    connections may share a pump.
    """

    def __init__(self, address):
        self.address = address
        self.allowed = (b"1",)
        self.reads = 0
        self.wrong = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        with contextlib.ExitStack() as stack:
            clients = [blocking.connect(self.address, timeout_ms=1000 * PATIENCE_S) for _ in range(6)]
            databases = itertools.cycle([stack.enter_context(client).dataset("geo") for client in clients])
            while not self._is_over.is_set():
                geo = next(databases)
                allowed = {version: [version + b" of " + key for key in KEYS] for version in self.allowed}
                one = self.reads % len(KEYS)
                if geo.get(KEYS[one]) not in {values[one] for values in allowed.values()}:
                    self.wrong.append(KEYS[one])
                if geo.get_many(KEYS) not in allowed.values():
                    self.wrong.append("all")
                self.reads += 1 + len(KEYS)

    def allow(self, *versions):
        """Allow answers from these versions alone; return when all earlier reads have been answered."""
        self.allowed = versions
        give_up_s, before = time.monotonic() + PATIENCE_S, self.reads
        while self.reads == before:
            assert time.monotonic() < give_up_s, self.wrong
            time.sleep(0.02)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()


def known(node, name):
    """Return a member's state and epoch, as a node knows them."""
    return next(((one["state"], one["epoch"]) for one in ask(node, "members") if one["node"] == name), None)


def is_on_both(node, version):
    """True if a node answers from a version and knows both nodes as owners of each partition."""
    told = ask(node, "status").get("geo", {"active": None})
    return told["active"] == version and told["versions"][version].get("under_replicated", {}).get("count") == 0


def sent_by_each(node):
    return [pump["bytes_sent"] for pump in ask(node, "info")["pumps"]]


def published(node, owner):
    """Return the names that a member publishes, dead or alive, as a node knows them."""
    return [entry["name"] for entry in ask(node, "entries", "nodes", {"all": True}) if entry["owner"] == owner]


def files(path):
    return {place: place.read_bytes() for place in path.rglob("*") if place.is_file()}


def fill(path):
    """Write a file that takes all free space."""
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_a_restart_on_a_full_disk(tmp_path, disk, source, start):
    """On a full disk the node serves and takes part in a new epoch, and a newer version waits for space."""
    first = start("a")
    port = str(quiet_ports(1)[0])
    node = start("b", "--listen", f"127.0.0.1:{port}", *joining(first))
    until(lambda: is_on_both(node, "1"), node)
    until(lambda: (known(first, "b") or ("",))[0] == "alive", node)
    epoch = ask(node, "info")["epoch"]
    node.stop()
    hog = tmp_path / "b" / "data" / "building" / "hog"
    with pytest.raises(OSError, match="No space left"):
        fill(hog)
    hog.rename(tmp_path / "b" / "data" / "datasets" / "hog")  # A restart does not clear this directory.
    assert os.statvfs(hog.parent).f_bavail == 0
    node = start("b", "--listen", f"127.0.0.1:{port}", *joining(first))
    with Reader(node.address) as reader:
        info = ask(node, "info")
        assert info["silent"] is None
        assert info["epoch"] > epoch
        eventually(lambda: known(first, "b"), ("alive", info["epoch"]), node)
        until(lambda: "cannot_remember" in node.said(), node)  # PEERS is written in the background.
        source[1]("2")
        ask(node, "refresh", None)
        until(lambda: "needed_bytes" in ask(node, "status")["geo"]["versions"].get("2", {}), node)
        reader.allow(b"1", b"2")
        (tmp_path / "b" / "data" / "datasets" / "hog").unlink()
        wait_for(node.address, "geo", "2")
        until(lambda: reader.reads > 20 * len(KEYS), node)
        assert min(sent_by_each(node)) > READ_BYTES
    assert reader.wrong == []
    assert node.said().count("cannot_remember") == 1


def test_a_restart_on_a_read_only_disk(tmp_path, disk, source, start):
    """On a read-only disk a node serves silently and builds nothing; once writable it is alive in a higher epoch."""
    first = start("a")
    port = str(quiet_ports(1)[0])
    options = ("--listen", f"127.0.0.1:{port}", *joining(first))
    node = start("b", *options)
    until(lambda: is_on_both(node, "1"), node)
    until(lambda: published(first, "b") != [] and (known(first, "b") or ("",))[0] == "alive", node)
    epoch = ask(node, "info")["epoch"]
    node.process.kill()
    node.process.wait()
    disk("ro")
    before = files(tmp_path / "b" / "data")
    source[1]("2")
    node = start("b", *options)
    with Reader(node.address) as reader:
        assert "Read-only file system" in ask(node, "info")["silent"]
        assert "silent" in node.said()
        eventually(lambda: known(first, "b"), ("dead", epoch), node)  # The other node's pings find it dead.
        eventually(lambda: (known(node, "a") or ("",))[0], "alive", node)
        until(lambda: published(node, "a") != [], node)
        assert known(node, "b")[0] == "silent"
        assert "silent, so nothing is built or switched there" in command(node, "status").stdout
        with pytest.raises(NotReady, match="Read-only file system"):
            ask(node, "refresh", None)
        with pytest.raises(Unavailable, match="this node is silent"):
            ask(node, "gossip", b"anything")
        beside = ["serve", "--data", tmp_path / "b" / "data", "--listen", "127.0.0.1:0"]
        second = subprocess.run(
            [*node.process.args[:3], *beside], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert (second.returncode, "in use by another process" in second.stderr) == (3, True), second
        assert ask(node, "status")["geo"]["versions"]["2"]["state"] == "SEEN"
        begun, reads = time.monotonic(), reader.reads
        # The interval covers at least one attempt.
        until(lambda: reader.reads > reads + 20 * len(KEYS) and time.monotonic() > begun + 6, node)
        assert min(sent_by_each(node)) > READ_BYTES
        assert known(first, "b") == ("dead", epoch)
        assert files(tmp_path / "b" / "data") == before
        reader.allow(b"1", b"2")
        disk("rw")
        until(lambda: ask(node, "info")["silent"] is None, node)
        info = ask(node, "info")
        assert info["epoch"] > epoch
        eventually(lambda: known(first, "b"), ("alive", info["epoch"]), node)
        eventually(lambda: known(node, "b"), ("alive", info["epoch"]), node)
        until(lambda: published(first, "b") != [], node)
        wait_for(node.address, "geo", "2")
        reader.allow(b"2")
        reads = reader.reads
        until(lambda: reader.reads > reads + 20 * len(KEYS), node)
    assert reader.wrong == []
    assert "speaks" in node.said()
    assert node.stop() == 0
