"""One of several real nodes cannot write, since its disk is full or read-only: the others decide, and it says why."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import time

import pytest

from gossipkv.errors import Unavailable
from gossipkv.launcher import Cluster
from gossipkv.storage.engine.shell import LOOK_PERIOD_S
from tests.ci.cluster.table_nodes import OPTIONS, Nodes, until
from tests.ci.cluster.test_cli import gossipkv
from tests.ci.cluster.test_unwritable_disk import fill
from tests.ci.cluster.views import LOGGED, names

pytestmark = pytest.mark.timeout(600)

ALL = (1, 2, 3)
LEFT_BYTES = 16 << 20  # A merge needs most of it.
MADE = 8  # The maps of so many tables would take up the reserve.


@pytest.fixture
def disk(tmp_path):
    """Mount a small file system for the data of `n3`; yield a function that remounts it with options."""
    path = tmp_path / "n3" / "data"
    path.mkdir(parents=True, mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=96m,mode=700", "tmpfs", path]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    yield lambda options: subprocess.run(["mount", "-o", f"remount,{options}", path], check=True)
    subprocess.run(["umount", "--lazy", path], check=True)


@pytest.fixture
def nodes(tmp_path, disk):
    settings = {**LOGGED, "refresh_period": "off", "table_segment": "1MiB"}
    with Cluster(tmp_path, nodes=3, settings=settings) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(ALL)
        nodes.ask(1, "create_table", "first", {**OPTIONS, "replication": 2})
        nodes.grown(ALL, names(ALL))
        yield nodes


def why(nodes, index):
    """Return a node's reason for the failure of the acceptor at `n3`."""
    (told,) = [acceptor["why"] for acceptor in nodes.status(index)["new"] if acceptor["node"] == "n3"]
    return told


def test_an_acceptor_whose_disk_is_full(tmp_path, disk, nodes):
    """The acceptor decides with its reserve, which no new table takes; with space it takes the new tables."""
    hog, reserve = (tmp_path / "n3" / "data" / name for name in ("hog", "tables/RESERVE"))
    with pytest.raises(OSError, match="No space left"):
        fill(hog)
    reserved_bytes, two = reserve.stat().st_size, {**OPTIONS, "partitions": 2000, "replication": 2}
    time.sleep(2 * LOOK_PERIOD_S)  # By then the node has seen that the disk is full.
    with pytest.raises(Unavailable, match=r"takes no new table now: too little free space.*: free disk space, drop"):
        nodes.ask(3, "create_table", "here", two)
    for number in range(MADE):
        until(lambda name=f"t{number}": nodes.ask(1, "create_table", name, two), bool)
    assert reserve.stat().st_size == reserved_bytes > 0
    assert why(nodes, 1) is None
    go_on(nodes)
    nodes.ask(3, "drop_table", "t0")
    hog.unlink()
    come_back(nodes)


def test_an_acceptor_whose_disk_is_read_only(tmp_path, disk, nodes):
    """The node starts silent, and the two others decide; once it can write it takes part again."""
    nodes.cluster.kill(3)
    disk("ro")
    nodes.cluster.start(3)
    assert "Read-only file system" in nodes.ask(3, "info")["silent"]
    nodes.all_alive((1, 2))
    go_on(nodes)
    assert why(nodes, 1) is not None
    disk("rw")
    until(lambda: nodes.ask(3, "info")["silent"], lambda silent: silent is None)
    come_back(nodes)


def test_an_import_into_a_table_on_a_full_disk(tmp_path, disk, nodes):
    """It ends with one reason, and says how far it is; with space the same command puts the rest."""
    data, records, out = tmp_path / "n3" / "data", tmp_path / "t.tsv", tmp_path / "out.tsv"
    hog, draw = data / "hog", random.Random(1)
    nodes.ask(1, "create_table", "t", {**OPTIONS, "replication": 1})
    nodes.all_answer(ALL)
    hog.write_bytes(bytes(shutil.disk_usage(data).free - LEFT_BYTES))
    lines = [f"{number:06}\t{draw.randbytes(500).hex()}\n" for number in range(40_000)]  # A third does not fit at n3.
    records.write_text("".join(lines))
    command = ("table", "import", "t", str(records), "--state", str(tmp_path / "state"))
    asked = nodes.cluster.node(1).address
    done = gossipkv(*command, node=asked)
    note, reason = done.stderr.decode().splitlines()
    assert (done.returncode, "the same command continues from there" in note) == (3, True), done.stderr
    # A starved node may not have merged yet either.
    assert re.search(r"records .* to .*: the store takes no writes now: (too little free space|both memtables)", reason)
    hog.unlink()
    until(lambda: gossipkv(*command, "--json", node=asked), lambda done: done.returncode == 0)
    assert gossipkv("table", "export", "t", str(out), node=asked).returncode == 0
    assert out.read_text() == records.read_text()


def go_on(nodes):
    two = {**OPTIONS, "replication": 2}
    until(lambda: nodes.ask(1, "create_table", "meanwhile", two), lambda told: told["table"])
    nodes.ask(2, "drop_table", "first")
    all_know(nodes, (1, 2), {"meanwhile"})
    asked = nodes.cluster.node(1).address
    until(lambda: gossipkv("metadata", "status", node=asked), lambda done: done.returncode == 0)


def come_back(nodes):
    """Restart the node if its tables are closed; it takes part and knows the others' tables."""
    if nodes.ask(3, "info")["tables"]["state"] != "open":
        nodes.cluster.stop(3)
        nodes.cluster.start(3)
    nodes.all_alive(ALL)
    nodes.all_answer(ALL)
    until(lambda: nodes.ask(3, "create_table", "after", OPTIONS), bool)  # The node looks at its disk every few seconds.
    all_know(nodes, ALL, {"meanwhile", "after"})


def all_know(nodes, by, names):
    """Return when all these nodes know these tables, whose maps may change all the time."""
    until(lambda: [nodes.tables(index).keys() for index in by], lambda found: all(known >= names for known in found))
