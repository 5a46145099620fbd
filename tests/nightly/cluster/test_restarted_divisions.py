"""Three nodes are killed amid many splits and restarted: none stalls, and clients can soon write."""

from __future__ import annotations

import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from gossipkv.client import blocking
from gossipkv.errors import Conflict
from tests.ci.cluster.node_process import NodeProcess, connect
from tests.ci.cluster.table_nodes import until

pytestmark = pytest.mark.timeout(1800)

TABLE = "series"
RECORDS = int(os.environ.get("DIVIDED_RECORDS", "100000"))
ROWS = 100
RANGES = RECORDS // ROWS // 2  # The restart happens amid the splits.
TOGETHER = 20
WRITERS = 6
VALUE = b"v" * 60
WRITABLE_S = 60.0
WATCHED_S = 10.0
# The steps are measured by the thread's processor time, so a busy machine does not lengthen them.
STEPS = """
import time, trio
class Steps(trio.abc.Instrument):
    def before_task_step(self, task): self.at = time.thread_time()
    def after_task_step(self, task):
        took_ms = 1000 * (time.thread_time() - self.at)
        if took_ms > 50: print(f"long_step {took_ms:.0f} ms: {task.name}", file=sys.stderr, flush=True)
run = trio.run
trio.run = lambda *args: run(*args, instruments=[Steps()])
"""


def started(stack, place):
    """Start the nodes; in their first life their imports are compiled."""
    nodes = []
    environ = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(place / "compiled")}
    for name in ("n1", "n2", "n3"):
        (place / name).mkdir(exist_ok=True)
        joins = [f"--join={node.address}" for node in nodes]
        options = ["--node", name, "--profile", "local", f"--split-rows={ROWS}", *joins]
        nodes.append(stack.enter_context(NodeProcess(place / name, *options, changed=STEPS, environ=environ)))
        nodes[-1].ready()
    return [node.address for node in nodes], nodes


def call(address, *asked):
    with connect(address) as client:
        return client.call(*asked)


def states(addresses):
    return [member["state"] for address in addresses for member in call(address, "members")]


def ranges(address):
    """Return how many ranges the table has, as a node knows it."""
    count, start = 0, b""
    while start is not None:
        page = call(address, "partition_map", TABLE, {"start": start})
        count, start = count + len(page["partitions"]), page["next"]
    return count


def write(address, keys):
    """Put keys in batches; refused batches are repeated."""
    with blocking.connect(address, timeout_ms=30_000) as client:
        for at in range(0, len(keys), TOGETHER):
            rows = [[key, VALUE] for key in keys[at : at + TOGETHER]]
            until(lambda rows=rows: client.call("put_many", TABLE, rows), lambda _: True)


def made(address):
    try:
        return call(address, "create_table", TABLE, {"kind": "range", "replication": 3})
    except Conflict:
        return True


def test_nodes_go_on_after_a_restart_amid_divisions(tmp_path):
    keys = [b"k%08d" % number for number in range(RECORDS)]
    random.Random(1).shuffle(keys)
    with ExitStack() as stack:
        addresses, nodes = started(stack, tmp_path)
        until(lambda: states(addresses), lambda all_: all_ == ["alive"] * 9)
        until(lambda: made(addresses[0]), bool)
        with ThreadPoolExecutor(WRITERS) as pool:
            shares = [(addresses[number % 3], keys[number::WRITERS]) for number in range(WRITERS)]
            assert [*pool.map(lambda share: write(*share), shares)] == [None] * WRITERS
        until(lambda: ranges(addresses[0]), lambda count: count >= RANGES, within_s=900)
        for node in nodes:
            node.stop(signal.SIGKILL)
    begun = {name: (tmp_path / name / "node.log").stat().st_size for name in ("n1", "n2", "n3")}
    with ExitStack() as stack:
        addresses, nodes = started(stack, tmp_path)
        for key in random.Random(2).sample(keys, 100):
            until(lambda key=key: call(addresses[0], "put", TABLE, key, b"w"), lambda _: True, within_s=WRITABLE_S)
        until(lambda: states(addresses), lambda all_: all_ == ["alive"] * 9)
        watched_s = time.monotonic() + WATCHED_S
        while time.monotonic() < watched_s:
            assert "dead" not in states(addresses)
        said = "".join((tmp_path / name / "node.log").read_bytes()[at:].decode() for name, at in begun.items())
    assert [line for line in said.splitlines() if line.startswith("long_step")] == []
